"""G2, G9: a server is killed, kill -9, under 64 writing clients, and nothing acknowledged is lost."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import OutcomeUnknown, UnavailableError
from tests.integration.objects.servers import SeaweedFS

CLIENTS = 64
ROUNDS = 6
ENOUGH = CLIENTS * 2
"""Acknowledgements before the server is killed: everybody is at work."""


@pytest.fixture(scope="module")
def mortal() -> Iterator[SeaweedFS]:
    """A server of our own, because others would miss it."""
    with SeaweedFS() as server:
        yield server


async def add_after_reading(tx: Transaction, name: str) -> None:
    [(n,)] = await tx.query("SELECT n FROM counter WHERE id = 1")
    assert isinstance(n, int)
    await tx.execute("UPDATE counter SET n = $1 WHERE id = 1", n + 1)


async def transact(db: Database, name: str) -> None:
    await db.transact(add_after_reading, name, key=name)


async def statement(db: Database, name: str) -> None:
    await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1", key=name)


Add = Callable[[Database, str], Awaitable[None]]
KINDS = pytest.mark.parametrize("add", [statement, transact], ids=["one statement", "read, then write"])


class Clients:
    """Sixty-four of them, each with a key for every transaction, and what became of each."""

    def __init__(self, add: Add) -> None:
        self.add = add
        self.acknowledged: set[str] = set()
        self.unknown: set[str] = set()
        self.refused: set[str] = set()
        self.enough = asyncio.Event()

    async def work(self, db: Database) -> None:
        await asyncio.gather(*(self._client(db, number) for number in range(CLIENTS)))
        self.enough.set()  # There will be no more.

    async def _client(self, db: Database, number: int) -> None:
        for turn in range(ROUNDS):
            name = f"{number}/{turn}"
            try:
                await self.add(db, name)
            except OutcomeUnknown:
                self.unknown.add(name)
            except UnavailableError:
                self.refused.add(name)  # The lane has stopped: this one certainly did not happen.
            else:
                self.acknowledged.add(name)
            if len(self.acknowledged) >= ENOUGH:
                self.enough.set()


@contextlib.asynccontextmanager
async def counted(url: str, cache: Path, append_deadline_s: float) -> AsyncIterator[Database]:
    async with Database.open(url, cache=str(cache), append_deadline_s=append_deadline_s, lease_s=1.0) as db:
        await db.execute("CREATE TABLE IF NOT EXISTS counter (id integer PRIMARY KEY, n integer NOT NULL)")
        await db.execute("INSERT INTO counter (id, n) VALUES (1, 0) ON CONFLICT (id) DO NOTHING")
        yield db


async def total(db: Database) -> object:
    [(n,)] = await db.query("SELECT n FROM counter WHERE id = 1")
    return n


@pytest.mark.slow
@KINDS
def test_a_short_outage_is_waited_out(tmp_path: Path, mortal: SeaweedFS, add: Add) -> None:
    async def scenario() -> None:
        clients = Clients(add)
        async with counted(mortal.url(f"short/{uuid.uuid4().hex}"), tmp_path, 60.0) as db:
            working = asyncio.ensure_future(clients.work(db))
            await clients.enough.wait()
            mortal.kill()
            assert not working.done()
            mortal.start()  # In this thread: a server dies with the thread that started it. The lane has its own.
            await working
            assert (clients.unknown, clients.refused) == (set(), set())
            assert len(clients.acknowledged) == CLIENTS * ROUNDS
            assert await total(db) == CLIENTS * ROUNDS

    asyncio.run(scenario())


@pytest.mark.slow
@KINDS
def test_what_a_long_outage_leaves_unknown_is_resolved_by_its_key(tmp_path: Path, mortal: SeaweedFS, add: Add) -> None:
    async def scenario() -> None:
        clients = Clients(add)
        url = mortal.url(f"long/{uuid.uuid4().hex}")
        async with counted(url, tmp_path / "one", 0.5) as db:
            working = asyncio.ensure_future(clients.work(db))
            await clients.enough.wait()
            mortal.kill()
            await working
        assert clients.unknown, "the group that was on its way"
        mortal.start()
        certain, unclear = set(clients.acknowledged), set(clients.unknown)
        async with counted(url, tmp_path / "two", 60.0) as db:
            found = await total(db)
            assert isinstance(found, int)
            assert len(certain) <= found <= len(certain | unclear)
            for name in sorted(certain | unclear):
                await clients.add(db, name)
            assert await total(db) == len(certain | unclear), "each once: the same key, the same transaction"
            for name in sorted(clients.refused):
                await clients.add(db, name)
            assert await total(db) == CLIENTS * ROUNDS, "what was refused had not happened"

    asyncio.run(scenario())
