"""Where databases live, as the suite of hot rows sees it: a test opens one at a place and knows nothing else of it.

The same tests run in memory, on local files, on a bucket in memory and on a real PostgreSQL. Kinds that keep nothing
after closing are left out where a test opens twice: those tests ask for `kept` instead of `place`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from interlock.database.database import Database
from interlock.seams import Clock
from interlock.sql.executor import EngineName, Executor
from interlock.sql.rows import Row

ResultT = TypeVar("ResultT")

KEPT = ("local", "bucket")
KINDS = ("memory", *KEPT)

LEASE_S = 600.0
"""No test is about the lease of a bucket, and none may depend on how fast this machine is."""

PATIENCE_S = 60.0
"""A test that waits longer than this hangs: it fails instead. No test is meant to come near it."""


class Place(NamedTuple):
    """Gives every name in a test an address of its own, and buckets a folder for local files."""

    kind: str
    folder: Path
    url: Callable[[str], str]

    @asynccontextmanager
    async def opened(
        self, name: str = "x", *, clock: Clock | None = None, **settings: float
    ) -> AsyncIterator["Executor"]:
        """An open database here."""
        chosen = {"lease_s": LEASE_S} | settings
        async with Database.open(self.url(name), clock=clock, cache=str(self.folder), **chosen) as db:
            yield _Sharded(db)


def run(scenario: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run an async scenario to its end."""

    async def main() -> ResultT:
        async with asyncio.timeout(PATIENCE_S):
            return await scenario()

    return asyncio.run(main())


class _Sharded:
    """A database with the parts that run in parallel, as streams of it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._shards: dict[int, Executor] = {}
        self._parts: Database | None = None

    @property
    def url(self) -> str:
        return self._db.url

    @property
    def engine(self) -> EngineName:
        return "lane"

    def execute(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[int]:
        return self._db.execute(sql, *args, key=key)

    def query(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[list[Row]]:
        return self._db.query(sql, *args, key=key)

    def transact(
        self, function: Callable[..., Awaitable[ResultT]], /, *args: object, key: str | None = None
    ) -> Awaitable[ResultT]:
        return self._db.transact(function, *args, key=key)

    async def shard(self, number: int) -> Executor:
        if number not in self._shards:
            part = await self._db._streams.get(f"shard-{number}")
            self._shards.setdefault(number, cast("Executor", _Sharded(part)))
        return self._shards[number]
