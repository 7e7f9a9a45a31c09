"""Processes of a peer: started on loopback, asked over a pipe, always ended, and charged for all their CPU.

A process and everything it starts share a process group of their own, so the whole group can be ended even when a
parent dies before its children. CPU is read from the kernel's clock of each process, which counts all its threads,
those that have ended included.
"""

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import ROOT, Absent
from benchmarks.report import Round

ENDING_S = 3.0
LISTENING_S_MAX = 30.0
ANSWERING_S_MAX = 60.0
"""How much longer than its turn a peer may take: its last orders are waited for."""

QUIET = {"DO_NOT_TRACK": "1", "RESTATE_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}

Process = subprocess.Popen[str]


@contextmanager
def running(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, asked: bool = True
) -> Iterator[Process]:
    """A process while the block lasts. What it says is in the log, except its answers when it is one that is asked."""
    with (
        log.open("w") as errors,
        subprocess.Popen(  # noqa: S603 -- a command of ours, without a shell.
            command,
            stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
            stdout=subprocess.PIPE if asked else errors,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **QUIET, **(environment or {})},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            end(process)


def end(process: Process) -> None:
    """End the process and whatever it started: politely first."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
    # The group is led by the process that we started; nobody else is in it.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def listens(port: int, process: Process, log: Path) -> None:
    """Wait until something listens on the port."""
    end_s = time.monotonic() + LISTENING_S_MAX
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        if process.poll() is not None or time.monotonic() > end_s:
            raise Absent(f"nothing listens on port {port}: {last_line(log)}")
        time.sleep(0.05)


def last_line(log: Path) -> str:
    """The last that a process said."""
    return (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]


def family(pids: Iterable[int]) -> set[int]:
    """These processes and all their descendants that live."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        found.add(pid)
        left += children.get(pid, [])
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU used so far by these processes and their descendants that live."""
    total = 0.0
    for pid in family(pids):
        with suppress(OSError):
            # What clock_getcpuclockid(3) computes: the clock of another process, of all its threads.
            total += time.clock_gettime((~pid << 3) | 2)
    return total


class Peer:
    """A process that takes turns (see `answering`), and the servers that work for it."""

    def __init__(self, process: Process, log: Path, servers: Iterable[int], *, version: str = "") -> None:
        self.version = version
        self._process = process
        self._log = log
        self._servers = tuple(servers)
        self._read(LISTENING_S_MAX)

    def round(self, in_flight: int, seconds: float, transitions: int) -> Round:
        """One turn: orders with so many transitions each."""
        assert self._process.stdin is not None
        before = cpu_seconds(self._servers)
        self._process.stdin.write(json.dumps({"in_flight": in_flight, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        answered = self._read(seconds + ANSWERING_S_MAX)
        cpu = answered["cpu_seconds"] + cpu_seconds(self._servers) - before
        latencies = answered["latencies_s"]
        return Round(transitions * len(latencies), answered["seconds"], cpu, latencies)

    def _read(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        # Every question has one line as its answer, so nothing is left in a buffer where this would not see it.
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            raise Absent(f"no answer within {limit_s:g} s: {last_line(self._log)}")
        line = self._process.stdout.readline()
        if not line:
            raise Absent(f"its process ended: {last_line(self._log)}")
        answered: dict[str, Any] = json.loads(line)
        return answered
