"""The process harness: what was said before a kill is heard, and nothing is left behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interlock.testing.faults import At, Processes

LIVES = "tests.unit.testing.faults.lives"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def test_everything_that_was_said_is_heard(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:greet", "Ada", 3)
    assert list(process.lines()) == ["hello Ada"] * 3
    assert process.end() == 0
    process.close()


def test_a_kill_keeps_what_was_said_before_it(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:number")
    assert list(process.lines(1)) == [str(process.number)]
    process.kill()
    assert list(process.lines()) == []
    assert process.end() == -9
    process.kill()
    process.close()
    process.close()


def test_it_dies_at_the_named_point_and_turn(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:walk", die_at=At("group.committed", 3))
    assert list(process.lines()) == ["turn 0", "turn 1", "turn 2"]
    assert process.end() == -9
    process.close()


def test_a_point_that_is_never_reached_kills_nobody(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:walk", die_at=At("log.folded"))
    assert len(list(process.lines())) == 10
    assert process.end() == 0
    process.close()


def test_a_workload_that_fails_says_why(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:fail")
    assert list(process.lines(1)) == ["before"]
    with pytest.raises(RuntimeError) as caught:
        process.end()
    assert "exit code 1" in str(caught.value)
    assert "KeyError: 'no such shelf'" in str(caught.value)
    process.close()


def test_a_line_that_could_be_torn_is_refused(processes: Processes) -> None:
    process = processes.start(f"{LIVES}:talk_too_much")
    with pytest.raises(RuntimeError, match="at most 4,000 bytes"):
        process.end()
    process.close()


@pytest.mark.parametrize("workload", ["no_such_module:f", f"{LIVES}:no_such_function"])
def test_an_unknown_workload_is_refused(processes: Processes, workload: str) -> None:
    with pytest.raises(RuntimeError, match="cannot be started"):
        processes.start(workload)


def test_listening_for_a_time_ends_when_the_time_or_the_process_does(processes: Processes) -> None:
    talking = processes.start(f"{LIVES}:greet", "Bob", 2)
    assert list(talking.lines_for(60)) == ["hello Bob"] * 2
    talking.close()
    silent = processes.start(f"{LIVES}:number")
    assert list(silent.lines_for(0.0)) == []
    assert list(silent.lines(1)) == [str(silent.number)]
    assert list(silent.lines_for(0.001)) == []
    silent.close()


def test_a_process_that_nobody_listens_to_can_still_end(processes: Processes) -> None:
    """More than a pipe holds: whoever waits for the end takes what is said."""
    process = processes.start(f"{LIVES}:greet", "x" * 1_000, 1_000)
    assert process.end() == 0
    assert len(list(process.lines())) == 1_000
    process.close()


def test_leaving_ends_everything_that_was_started() -> None:
    with Processes() as started:
        lives = [started.start(f"{LIVES}:number") for _ in range(3)]
        numbers = [int(next(life.lines(1))) for life in lives]
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_dead_helper_is_told() -> None:
    with Processes() as started:
        assert started._helper is not None
        started._helper.kill()
        started._helper.wait()
        with pytest.raises((RuntimeError, BrokenPipeError)):
            started.start(f"{LIVES}:number")


KILLED = f"""
import os, signal
from interlock.testing.faults import Processes
with Processes() as started:
    life = started.start("{LIVES}:number")
    print(*life.lines(1), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a stranger is seen by a descriptor of Linux")
def test_no_process_outlives_a_caller_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, env=environment, text=True) as caller:
        assert caller.stdout is not None
        with contextlib.suppress(ProcessLookupError):  # It has ended already.
            descriptor = os.pidfd_open(int(caller.stdout.readline()))
            select.select([descriptor], [], [])
            os.close(descriptor)
    assert caller.returncode == -signal.SIGKILL
