"""A test that hangs fails with its name and its stack, and the run ends (tests/limits.py)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import campaign_factor

ROOT = Path(__file__).parents[2]

HANGS = {
    "lock": """
        import threading
        def test_hangs():
            lock = threading.Lock()
            with lock:
                lock.acquire()
    """,
    "task": """
        import asyncio
        def test_hangs():
            async def wait_for_nothing():
                await asyncio.Event().wait()
            async def scenario():
                await asyncio.gather(asyncio.create_task(wait_for_nothing(), name="waiting"))
            asyncio.run(scenario())
    """,
    "interpreter": """
        from itertools import repeat
        def test_hangs():
            sum(repeat(0))
    """,
    "teardown": """
        import threading
        import pytest
        @pytest.fixture
        def hanging():
            yield
            threading.Event().wait()
        def test_hangs(hanging):
            assert False
    """,
}
PASSES = """
import pytest
@pytest.mark.timeout(300)
def test_passes():
    pass
"""
SHOWS = {
    "lock": ["lock.acquire()", "Timeout (>1.0s)"],
    "task": ["Stack of task waiting", "wait_for_nothing"],
    "interpreter": ["Timeout (0:00:0", "in test_hangs", "crashed while running"],
    "teardown": ["Timeout (0:00:0", "in hanging", "crashed while running"],
}
"""The first two are failed by the limit; nothing but the end of its process ends the others."""


@pytest.mark.campaign
@pytest.mark.parametrize("where", HANGS)
def test_a_test_that_hangs_fails_by_name_with_its_stack_and_the_run_ends(tmp_path: Path, where: str) -> None:
    """Also where SIGINT is ignored, as in the background of a shell."""
    text = "\n".join(line.removeprefix("        ") for line in HANGS[where].splitlines())
    (tmp_path / "test_sample.py").write_text(text + PASSES)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\ntimeout_method = signal\n")
    grace_s = 60 if where in {"lock", "task"} else 1
    options = ["-p", "xdist", "-n", "1", "-p", "pytest_timeout", "-p", "tests.limits", "-o", f"timeout_grace={grace_s}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "FAILED test_sample.py::test_hangs" in said
    assert ", 1 passed" in said
    for words in SHOWS[where]:
        assert words in said


@pytest.mark.parametrize(
    ("environment", "factor"),
    [
        ({}, 1),
        ({"INTERLOCK_CRASHES": "20"}, 20),
        ({"INTERLOCK_FLEETS": "10000", "INTERLOCK_LEAK_STEPS": "1000000"}, 50),
        ({"INTERLOCK_SEEDS": "30"}, 1),
        ({"INTERLOCK_MODEL": "large"}, 20),
        ({"HYPOTHESIS_PROFILE": "proof"}, 20),
    ],
)
def test_a_longer_campaign_has_more_time(environment: dict[str, str], factor: float) -> None:
    assert campaign_factor(environment) == factor


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) > 0
    assert signal.getsignal(signal.SIGALRM) not in {signal.SIG_DFL, signal.SIG_IGN}
