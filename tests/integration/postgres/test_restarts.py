"""A server that is shut down in the middle of its work, and comes back: what was acknowledged is there (G2, G9)."""

import asyncio
import os
import subprocess
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.errors import OutcomeUnknown, UnavailableError
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.wheel import get_server

WORKERS = 8
MOVES = 5
SHUTDOWNS = ("immediate", "fast", "immediate")


class OwnServer:
    """A server that nobody else uses, because it is shut down."""

    def __init__(self, url: str, data: Path, control: Path) -> None:
        self.url = url
        self._data = data
        self._control = control

    def restart(self, mode: str) -> None:
        """Shut it down and start it again; `immediate` is a crash."""
        log = self._data / "restarts.log"
        words = [str(self._control), "-D", str(self._data), "-m", mode, "-w", "-t", "300", "-l", str(log), "restart"]
        # PostgreSQL refuses to be started by root, for whom the wheel has made a user.
        owner = self._data.stat().st_uid if os.geteuid() == 0 else None
        done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner)
        assert done.returncode == 0, log.read_text()


@pytest.fixture
def own_server() -> Generator[OwnServer]:
    """A server of this test's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The wheel asks for a runtime directory, which a bare machine does not have.
        with tempfile.TemporaryDirectory(prefix="interlock-postgres-") as folder:
            data = Path(folder) / "data"
            server = get_server(data)
            try:
                yield OwnServer(server.get_uri(), data, Path(server.bin_path) / "pg_ctl")
            finally:
                server.cleanup()


class Work:
    """Workers that move workflows until they are told that it is enough."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: dict[str, int] = {}
        self.unknown = 0
        self.enough = False
        self.moved = asyncio.Condition()

    async def worker(self, name: str) -> None:
        async with opened(self.url) as store:
            row, last = started(name).row, 0
            while not self.enough or last < MOVES:
                try:
                    if not await store.commit([moved(row)]):
                        self.acknowledged[name] = row.version + 1
                        last += self.enough
                        async with self.moved:
                            self.moved.notify_all()
                    row = (await store.load([name]))[name]
                except OutcomeUnknown:
                    self.unknown += 1
                except UnavailableError:
                    await asyncio.sleep(0.02)  # The server is away; everybody asking at once would not bring it back.

    async def some(self) -> None:
        """Until every worker has moved on a few times."""
        wanted = {name: version + MOVES for name, version in self.acknowledged.items()}
        async with self.moved:
            await self.moved.wait_for(lambda: all(self.acknowledged[name] >= wanted[name] for name in wanted))


@pytest.mark.slow
def test_nothing_acknowledged_is_gone_after_the_server_was_shut_down(own_server: OwnServer) -> None:
    """G2, G9: workers go on by themselves, and no version is written twice or left out."""

    async def scenario() -> None:
        work = Work(own_server.url)
        names = [f"w-{number}" for number in range(WORKERS)]
        async with opened(own_server.url) as store:
            await begun(store, *(started(name) for name in names))
        work.acknowledged = dict.fromkeys(names, 1)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(work.worker(name))
            for mode in SHUTDOWNS:
                await work.some()
                await asyncio.to_thread(own_server.restart, mode)
            await work.some()
            work.enough = True
        async with opened(own_server.url) as store:
            rows = await store.load(names)
            for name in names:
                assert rows[name].version >= work.acknowledged[name]
                history = await store.history(name)
                assert [each.version for each in history] == list(range(1, rows[name].version + 1))

    run(scenario)
