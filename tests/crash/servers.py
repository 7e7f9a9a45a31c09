"""Crashes that take PostgreSQL's server with them: one of its processes, all of them, or in its own way of crashing.

Only processes of the server that a test has started are killed, by their numbers: its postmaster, which the server
itself has written down, that one's children, and whoever else works in its data folder.
"""

import contextlib
import os
import select
import signal
from pathlib import Path

from interlock.testing.faults.processes import Process
from tests.chaos.postgres.server import USER, Server

ONE_IN = 3


class Crashes:
    """A strike of experiment 4: leaves the client to its own end, and kills its server one time in three."""

    def __init__(self, server: Server) -> None:
        self.count = 0
        self.of_server = 0
        self._server = server

    def __call__(self, life: Process) -> None:
        self.count += 1
        if self.count % ONE_IN:
            return
        self.of_server += 1
        match self.of_server % 3:
            case 0:
                # PostgreSQL ends all its processes when one has died so, and recovers by itself.
                for backend in self._backends()[:1]:
                    _kill(backend)
            case 1:
                self._server.stop("immediate")
                life.kill()
                self._server.start()
            case _:
                life.kill()
                self._kill_all()
                self._forget_the_dead()
                self._server.start()

    def _kill_all(self) -> None:
        """First the one that starts others: whoever is counted before may have a sibling by the time it is killed."""
        postmaster = self._postmaster()
        _kill(postmaster)
        _wait_for_the_end_of(postmaster)
        while left := [number for number in _numbers() if _folder(number) == self._server._data.resolve()]:
            for number in left:
                _kill(number)
            _wait_for_the_end_of(*left)

    def _forget_the_dead(self) -> None:
        # A dead process keeps its number until its parent has looked after it, which in a container may be never.
        (self._server._data / "postmaster.pid").unlink()
        for lock in self._server._sockets.glob(".s.PGSQL.*.lock"):
            lock.unlink()

    def _postmaster(self) -> int:
        return int((self._server._data / "postmaster.pid").read_text().split()[0])

    def _children(self) -> list[int]:
        postmaster = self._postmaster()
        return [number for number in _numbers() if _parent(number) == postmaster]

    def _backends(self) -> list[int]:
        return [each for each in self._children() if _command(each).startswith(f"postgres: {USER} ")]


def _kill(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # It ended meanwhile.
        os.kill(number, signal.SIGKILL)


def _command(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_text()
    except OSError:  # It ended meanwhile.
        return ""


def _folder(number: int) -> Path | None:
    """Where a process works: all those of a server work in its data folder."""
    try:
        return Path(f"/proc/{number}/cwd").readlink()
    except OSError:  # It ended meanwhile, or is somebody else's.
        return None


def _numbers() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def _parent(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # It ended meanwhile.
        return 0


def _wait_for_the_end_of(*numbers: int) -> None:
    """Until then the server's memory is in use, and PostgreSQL refuses to be started on it."""
    for number in numbers:
        try:
            descriptor = os.pidfd_open(number)
        except ProcessLookupError:
            continue
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
