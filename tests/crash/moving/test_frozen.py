"""G4: the process that has a database is frozen, past its lease in a bucket, and the database moves meanwhile.

When it wakes it writes nothing at the old place: what it had begun is decided at the new one, and each key counts once.
"""

import asyncio
import os
import signal
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Database
from interlock.errors import UnavailableError
from interlock.relocate.mover import shown_url
from interlock.testing.faults import Process, Processes
from tests.crash.moving.workloads import INCREMENT
from tests.integration.objects.moving.buckets import another, without_key
from tests.integration.objects.servers import Moto
from tests.integration.postgres.moving.places import Pair, moved

LEASE_S = 0.5
AGAIN_MAX = 20


@pytest.fixture
def processes(moto: Moto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Processes]:
    """Processes that have the keys of the bucket."""
    without_key(moto, monkeypatch, str(tmp_path / "cache"))
    with Processes() as processes:
        yield processes


class Frozen:
    """A writer that is frozen, with the keys that it asked for and those that were acknowledged."""

    def __init__(self, writer: Process) -> None:
        self._writer = writer
        self.asked: set[str] = set()
        self.acknowledged: set[str] = set()

    def hear(self, count: int | None = None) -> None:
        for line in self._writer.lines(count):
            assert not line.startswith(("never", "!")), line
            said, _, key = line.partition(" ")
            (self.asked if said == "ask" else self.acknowledged).add(key)

    def freeze(self) -> None:
        self.hear(20)
        os.kill(self._writer.number, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self._writer.number, signal.SIGCONT)


async def moved_while_frozen(places: Pair, writer: Frozen) -> None:
    """Move it. A writer that was frozen with a lock in its hand is woken, and frozen at another moment."""
    for _ in range(AGAIN_MAX):
        writer.freeze()
        try:
            await moved(places)
        except UnavailableError:
            writer.wake()
        else:
            return
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("source", ["lane", "bucket", "postgres"])
def test_a_writer_that_was_frozen_while_its_database_moved_goes_on_where_it_lives(
    source: str, moto: Moto, postgres: str, processes: Processes, tmp_path: Path
) -> None:
    schema = f"{postgres}&schema=z_{uuid.uuid4().hex[:18]}"
    here = {"lane": f"lanes://{tmp_path}/shop", "bucket": another(moto), "postgres": schema}[source]
    places = Pair(here, f"lanes://{tmp_path}/there")
    stop = tmp_path / "stop"
    made = processes.start("tests.crash.moving.workloads:make", places.source)
    assert list(made.lines()) == ["made"]
    made.end()
    process = processes.start("tests.crash.moving.workloads:write", places.source, 1, str(stop), LEASE_S)
    writer = Frozen(process)

    async def scenario() -> None:
        await moved_while_frozen(places, writer)
        writer.wake()
        await asyncio.to_thread(writer.hear, 20)
        stop.touch()
        await asyncio.to_thread(writer.hear)
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.target)
            for key in sorted(writer.asked):
                await db.execute(INCREMENT, key=key)  # Whatever has happened is not done again.
            assert await db.query("SELECT n FROM counter") == [(len(writer.asked),)]
        assert len(writer.acknowledged) > 10

    asyncio.run(scenario())
