"""Commands beside a service: an owned store, a store that a crash has left behind, a reader that leaves early."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import Engine, StepContext
from interlock.clock import SystemClock
from interlock.engine.recovery import ALIVE
from interlock.lanes.objectlog import log as objectlog_log
from interlock.lanes.objectlog.bucket_protocol import Denied
from interlock.store.open_store import open_store
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.unit.cli.running import Interlock, plain_environment, program
from tests.unit.cli.shop import NAME, Charged, Order, State, charge, order
from tests.unit.lanes.objectlog.buckets import ScriptedBucket

ROOT = Path(__file__).resolve().parents[3]
ORDER = "interlock.examples.order:order"

LOOKS = [
    ("show", "o-1"),
    ("show", NAME, "o-1"),
    ("history", NAME, "o-1"),
    ("find", NAME),
    ("find", "order"),
    ("stalled", NAME, "--older-than", "0"),
    ("allowed", NAME, "o-1"),
    ("compensations", NAME),
    ("dead-letters", "list"),
    ("breakers",),
]
MOVES = [
    ("start", NAME, "o-9"),
    ("send", NAME, "o-2", "REMARK", '{"note": "x"}'),
    ("dead-letters", "retry", NAME, "nothing"),
    ("prune", "--older-than", "30d"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    return url


def run(text: str, home: str) -> subprocess.Popen[str]:
    """Another program, with the sample machine at hand."""
    environment = plain_environment(PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    return subprocess.Popen(
        [sys.executable, "-c", text, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


OWNER = """
import sys
from interlock import BlockingEngine
from tests.unit.cli.shop import Order, order

with BlockingEngine.open(sys.argv[1], machines=[order]) as engine:
    engine.start(order, "o-1", Order())
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(home: str) -> Iterator[int]:
    """A service that has the store open; its process id."""
    with run(OWNER, home) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "open\n"
        yield service.pid
        service.communicate("")
    assert service.returncode == 0


def test_on_an_owned_store_every_command_exits_with_5_and_names_the_owner(interlock: Interlock, owner: int) -> None:
    for words in LOOKS + MOVES:
        done = interlock(*words)
        assert (done.code, done.out) == (5, ""), words
        assert f"{owner}" in done.err
        assert "Traceback" not in done.err


def denied_bucket(_address: BucketAddress) -> ScriptedBucket:
    bucket = ScriptedBucket()
    bucket.unreadable = [Denied("403 Forbidden")]
    return bucket


def test_looking_at_a_bucket_creates_nothing_there(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = MemoryBucket()
    monkeypatch.setattr(objectlog_log, "bucket_of", lambda _address: empty)
    done = interlock("show", "o-1", "--home", "s3://bucket/shop")
    assert done.code == 4
    assert "there is no database at s3://bucket/shop/workflows" in done.err
    assert not empty.keys("")
    monkeypatch.setattr(objectlog_log, "bucket_of", denied_bucket)
    refused = interlock("send", NAME, "o-1", "CANCEL", "--home", "s3://bucket/shop")
    assert refused.code == 5
    assert "403 Forbidden" in refused.err


CRASHING = """
import asyncio
import os
import sys
from interlock import Engine
from tests.unit.cli.shop import Order, Submit, charge, order

async def crash(order, ctx):
    os._exit(9)

async def main():
    async with Engine.open(sys.argv[1], machines=[order], steps={charge: crash}) as engine:
        await engine.start(order, "o-2", Order())
        await engine.start(order, "o-1", Order())
        await engine.send("o-1", Submit(cents=5))
        await engine.wait("o-1")

asyncio.run(main())
"""


async def owed(home: str) -> tuple[object, ...]:
    """Everything that the next service would take up: timers, attempts, effects, and when one was last alive."""
    store = await open_store(home, clock=SystemClock())
    try:
        rows = await store.load(["o-1", "o-2"])
        # An event that stays in the state moves the version and leaves the timers alone.
        timers = [(row.owed, row.wake_us) for row in rows.values()]
        return rows["o-1"], timers, await store.effects(limit=100), await store.notes()
    finally:
        await store.close()


def test_commands_leave_what_is_owed_to_the_service(interlock: Interlock, home: str) -> None:
    """B6, B9: an attempt that a crash has cut off and timers of every policy are found as they were left."""
    with run(CRASHING, home) as service:
        service.communicate()
    assert service.returncode == 9
    before = asyncio.run(owed(home))
    notes = before[3]
    assert isinstance(notes, dict)
    assert ALIVE in notes
    for words in LOOKS:
        assert interlock(*words).code == 0
    assert asyncio.run(owed(home)) == before
    for words in MOVES[:2]:
        assert interlock(*words).code == 0
    assert asyncio.run(owed(home)) == before

    attempts: list[tuple[int, str]] = []

    async def counting(order: Order, ctx: StepContext) -> Charged:
        attempts.append((ctx.attempt, ctx.key))
        return Charged()

    async def serve() -> None:
        async with Engine.open(home, machines=[order], steps={charge: counting}) as engine:
            await engine.wait("o-1", State.PACKING, timeout_s=60)

    asyncio.run(serve())
    assert [attempt for attempt, _ in attempts] == [2]


def test_a_command_that_looks_notes_no_machine(interlock: Interlock, home: str, folder: Path) -> None:
    """The description of a machine that somebody looks with must not stand in the way of the service's."""
    assert interlock("start", NAME, "o-1").code == 0
    before = asyncio.run(owed(home))
    source = (Path(__file__).parent / "shop.py").read_text(encoding="utf-8")
    (folder / "newer.py").write_text(source.replace("max_s=120", "max_s=7"), encoding="utf-8")
    assert interlock("show", "newer:order", "o-1").code == 0
    assert interlock("find", "tests.unit.cli.shop:ticket").code == 0
    assert asyncio.run(owed(home)) == before


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error_to_talk_about(tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"
    ids = "".join(f"order-number-{number:05}\n" for number in range(9_000))
    environment = plain_environment(INTERLOCK_HOME=home)
    subprocess.run(
        program("start", ORDER, "-", "-o", "ids"),
        cwd=tmp_path, env=environment, input=ids, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for words in (("find", ORDER, "--limit", "9000", "-o", "ids"), ("find", ORDER, "--limit", "9000")):
        with subprocess.Popen(
            program(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as command:
            assert command.stdout is not None
            assert command.stderr is not None
            assert command.stdout.readline()
            command.stdout.close()
            assert command.stderr.read() == ""


@pytest.mark.slow
def test_the_next_command_reads_the_ids_of_the_one_before(tmp_path: Path) -> None:
    """Through a real pipe, with an id that a shell and a terminal could stumble over."""
    environment = plain_environment(INTERLOCK_HOME=f"lanes://{tmp_path}/home")
    odd = 'it\'s "[red]" $HOME ☃'

    def piped(*words: str, given: str = "") -> str:
        done = subprocess.run(
            program(*words),
            cwd=tmp_path,
            env=environment,
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout

    piped("start", ORDER, odd)
    found = piped("find", "order", "-o", "ids")
    shown = piped("show", "-", "-o", "json", given=found)
    assert [each["id"] for each in json.loads(shown)] == [odd]
