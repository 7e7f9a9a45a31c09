"""C14: anyone can watch Interlock survive; a worker that is broken turns the verdict red; nothing stays behind.

INTERLOCK_CRASHES beyond 1 runs the command in its full form as well, three times in a row.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.chaos.scenarios import SCENARIOS
from tests.unit.cli.running import SOURCE, heeding, plain_environment, run_program

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
ROOT = Path(__file__).resolve().parents[3]
SHORT = ("--seconds", "0.5", "--orders", "18")
MARK = "INTERLOCK_CHAOS_TEST"
END_S = 120.0


@pytest.mark.slow
@pytest.mark.parametrize("words", [SHORT, *[()] * (3 if FACTOR > 1 else 0)])
def test_every_promise_is_kept(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_program("chaos", *words, "-o", "json", folder=tmp_path)
    assert done.out, (done.code, done.err)
    report = json.loads(done.out)
    assert {each["scenario"]: each["problems"] for each in report["verdicts"]} == {name: [] for name in SCENARIOS}
    assert done.code == 0, done.err
    flows = [each for each in report["verdicts"] if each["scenario"] != "freeze-lock-holder"]
    assert all(each["recovery_s"] is not None and each["acknowledged"] for each in flows)
    assert report["folder"] is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "scenario", "told", "deadline_s"),
    [
        ("no_fencing", "freeze-worker", "a late result was not refused", 30),
        ("breaker_never_closes", "gateway-outage", "the breaker of 'gateway' is still half-open", 12),
        ("no_fallback", "kill-redis", "leases are given by the store while Redis is gone", 12),
        ("compensation_on_main_pool", "gateway-latency", "compensation waits for charges that hang", 4),
    ],
)
def test_a_sabotaged_worker_is_caught_and_the_verdict_names_it(
    sabotage: str, scenario: str, told: str, deadline_s: int, tmp_path: Path
) -> None:
    done = run_program(
        "chaos", *SHORT, "--only", scenario, "--deadline", str(deadline_s),
        folder=tmp_path,
        PYTHONPATH=f"{SOURCE}{os.pathsep}{ROOT}",
        INTERLOCK_CHAOS_SABOTAGE=f"tests.chaos.command.sabotage:{sabotage}",
    )  # fmt: skip
    assert done.code == 1, done.err
    assert told in done.out
    assert "1 scenario of 1 broke a promise" in done.out


class Running:
    """The command, under way, with a mark in its environment that everything it starts inherits."""

    def __init__(self, *words: str) -> None:
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            heeding("chaos", *words),
            env=plain_environment(**{name: value}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, said: str) -> None:
        """Wait until it says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if said in line:
                return
        raise AssertionError(f"it ended before it said {said!r}")

    def started(self) -> list[int]:
        """Everything that lives and has the mark."""
        return [number for number in _processes() if self.mark.encode() in _read(number, "environ")]

    def folder(self) -> Path:
        """Where it works: the folder of the server's data."""
        [place, *_] = [
            Path(word.decode())
            for number in self.started()
            for word in _read(number, "cmdline").split(b"\0")
            if word.endswith(b"/postgres/data")
        ]
        return place.parent.parent


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _read(number: int, what: str) -> bytes:
    with contextlib.suppress(OSError):  # It has just ended, or is somebody else's.
        return Path(f"/proc/{number}/{what}").read_bytes()
    return b""


def ended(numbers: list[int]) -> list[int]:
    """Wait for the end of these processes; returns those that do not end."""
    waiting: dict[int, int] = {}
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            waiting[os.pidfd_open(number)] = number
    while waiting:
        able, _, _ = select.select(list(waiting), [], [], END_S)
        if not able:
            break
        for descriptor in able:
            os.close(descriptor)
            del waiting[descriptor]
    return list(waiting.values())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes where Linux lists them")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), *[(signal.SIGTERM, 130)] * (FACTOR > 1), (signal.SIGKILL, -9)]
)
def test_whatever_ends_the_command_nothing_of_it_lives_on(number: signal.Signals, code: int) -> None:
    """A worker is frozen, and a server runs, when it is ended."""
    running = Running("--only", "freeze-worker", "--seconds", "60", "--orders", "18")
    running.until("freeze-worker: disturbed")
    folder, started = running.folder(), running.started()
    assert len(started) > 4
    running.process.send_signal(number)
    assert running.process.wait(END_S) == code
    assert running.process.stderr is not None
    running.process.stderr.close()
    assert ended(started) == []
    while later := running.started():  # What a server has started since then ends with it, and takes a moment, too.
        assert ended(later) == []
    if number == signal.SIGKILL:  # Nobody is left who could tidy up.
        shutil.rmtree(folder)
    assert not folder.exists()
