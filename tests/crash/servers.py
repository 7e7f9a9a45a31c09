"""Crashes that take PostgreSQL's server with them: one of its processes, all of them, or in its own way of crashing.

Only processes of the server that a test has started are killed, by their numbers: its first process and its children.
"""

import contextlib
import os
import signal
from pathlib import Path

from interlock.chaos.database_servers import OwnPostgres
from interlock.testing.faults import Process

ONE_IN = 3


class Crashes:
    """A strike of experiment 4: leaves the client to its own end, and kills its server one time in three."""

    def __init__(self, server: OwnPostgres) -> None:
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
                    _signal(backend, signal.SIGKILL)
            case 1:
                assert self._server.pid is not None
                _signal(self._server.pid, signal.SIGQUIT)  # Its immediate shutdown.
                life.kill()
                self._server.kill()
                self._server.start()
            case _:
                life.kill()
                self._server.kill()
                self._server.start()

    def _backends(self) -> list[int]:
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text()
        return [
            int(each) for each in children.split() if _command(int(each)).startswith(f"postgres: {self._server.USER} ")
        ]


def _signal(number: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # It ended meanwhile.
        os.kill(number, what)


def _command(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_text()
    except OSError:  # It ended meanwhile.
        return ""
