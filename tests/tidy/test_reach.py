"""Time, luck and waiting go through protocols of `clock`; nothing goes through the front door; nothing is put off."""

import pytest

from tests.tidy import reach
from tests.tidy.source import PACKAGE, Source, report, sources

LAYERS = sorted({path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"})


@pytest.mark.slow
def test_real_clocks_and_randomness_are_in_clock_alone() -> None:
    offences = [offence for source in sources("src") for offence in reach.real_clocks_and_luck(source)]
    assert not offences, report(offences)


@pytest.mark.slow
def test_no_test_sleeps() -> None:
    offences = [offence for source in sources("tests") for offence in reach.sleeping(source)]
    assert not offences, report(offences)


def test_no_module_imports_the_root_of_the_package() -> None:
    inside = [source for source in sources("src") if source.path != "src/interlock/__init__.py"]
    offences = [offence for source in inside for offence in reach.front_door(source, layers=LAYERS)]
    assert not offences, report(offences)


def test_nothing_is_put_off() -> None:
    folders = ("src", "benchmarks", "examples")
    offences = [offence for source in sources(*folders) for offence in reach.notes_to_self(source)]
    assert not offences, report(offences)


def sample(text: str, layer: str = "core/sample") -> Source:
    return Source(f"src/interlock/{layer}.py", text)


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "import time as t\nnow = t.monotonic()",
        "from time import monotonic\nnow = monotonic()",
        "import time\nclock = time.monotonic",
        "import time\nnow = time.perf_counter()",
        "import random\nx = random.random()",
        "from random import Random\nx = Random()",
        "from uuid import uuid4\nx = uuid4()",
        "import uuid\nx = uuid.uuid4()",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime as dt\nx = dt.datetime.now(dt.UTC)",
        "import os\nx = os.urandom(4)",
        "def f():\n  import secrets\n  return secrets.token_hex()",
    ],
)
def test_a_real_clock_or_luck_is_caught(text: str) -> None:
    assert reach.real_clocks_and_luck(sample(text))


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import datetime\nx = datetime.fromisoformat(text)",
        "import uuid\nx = uuid.UUID(text)",
        "time = clock\nx = time.monotonic()",
        "def f(clock): return clock.monotonic_s()",
    ],
)
def test_values_and_protocols_are_fine(text: str) -> None:
    assert not reach.real_clocks_and_luck(sample(text))


def test_clock_holds_the_real_ones_and_the_command_line_has_a_stopwatch() -> None:
    stopwatch, clock = "import time\nx = time.perf_counter()", "import time\nx = time.time()"
    assert not reach.real_clocks_and_luck(sample(clock, "clock"))
    assert not reach.real_clocks_and_luck(sample(stopwatch, "cli/demo"))
    assert reach.real_clocks_and_luck(sample(clock, "cli/demo"))


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("import time\ntime.sleep(0)", True),
        ("from time import sleep\nsleep(1)", True),
        ("import asyncio\nasync def f(): await asyncio.sleep(0.1)", True),
        ("import asyncio\nasync def f(): await asyncio.sleep(delay)", True),
        ("import asyncio\nasync def f(): await asyncio.sleep(0)", False),
        ("async def f(): await clock.sleep(5)", False),
    ],
)
def test_a_sleeping_test_is_caught(text: str, caught: bool) -> None:
    assert bool(reach.sleeping(sample(text))) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("import interlock", True),
        ("from interlock import Machine", True),
        ("def f():\n  from interlock import Machine", True),
        ("from . import codec", True),
        ("from interlock import errors", False),
        ("from interlock.core.machine import Machine", False),
        ("import interlock.core.machine", False),
    ],
)
def test_the_front_door_is_for_users(text: str, caught: bool) -> None:
    assert bool(reach.front_door(sample(text), layers=["errors", "core"])) is caught


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X"])
def test_a_note_to_self_is_caught(word: str) -> None:
    [offence] = reach.notes_to_self(sample(f"x = 1\ny = 2  # {word}: later\n"))
    assert offence.line == 2
