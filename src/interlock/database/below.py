"""The databases below a database: its streams and shards, each with one write stream of its own (D4, D5).

Below a lane they are lanes, however deep, and one bound counts them all. Below a schema of PostgreSQL they are schemas
beside it, on the same connections. They end with the database that they are below, and they live where it lives: those
of a database that was moved are made at its new place. A database that has some is not moved (see `moving`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from interlock.catalog.addresses import shard_url, stream_url
from interlock.catalog.opening import closing_thread
from interlock.database.on_lanes import OnLane
from interlock.database.streams import Opens, Streams

if TYPE_CHECKING:
    from interlock.database.on_postgres import OnPostgres

DatabaseT = TypeVar("DatabaseT")
DatabaseT_co = TypeVar("DatabaseT_co", covariant=True)

STREAM: Final = "stream:"
SHARD: Final = "shard:"
"""Both are databases below a database, and neither can be taken for the other."""

_THEN = "\x00"
"""Between a stream and what is below it; no key of a stream has it."""


class DatabasesBelow(Protocol[DatabaseT_co]):
    """The databases below one database, and its end."""

    async def get(self, key: str) -> DatabaseT_co:
        """The database of this key, opened if it is not."""
        ...

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        ...


def url_below(url: str, path: str) -> str:
    """The address of a stream or shard, perhaps of a stream, from the keys that lead to it."""
    for step in path.split(_THEN):
        kind, mark, rest = step.partition(":")
        url = stream_url(url, rest) if kind + mark == STREAM else shard_url(url, int(rest))
    return url


class Below(Generic[DatabaseT]):
    """All lanes below a lane, however deep: one bound counts them, and they end with it."""

    def __init__(self, engine: OnLane, opens: Opens[DatabaseT]) -> None:
        self._engine = engine
        self._streams: Streams[DatabaseT] = Streams(opens, settings=engine.settings, clock=engine.clock)

    async def get(self, key: str) -> DatabaseT:
        """The database of this key, opened if it is not."""
        return await self._streams.get(key)

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        await self._streams.close(self._engine.lane.close)

    def opened_again(self, engine: OnLane) -> None:
        """The lane above them was opened again, at the same place."""
        self._engine = engine


class Within(Generic[DatabaseT]):
    """The lanes below a stream. They are kept with it, not by it: it may be closed for another one and opened again."""

    def __init__(self, below: Below[DatabaseT], path: str, engine: OnLane) -> None:
        self._below = below
        self._path = path
        self._engine = engine

    async def get(self, key: str) -> DatabaseT:
        """The database of this key, opened if it is not."""
        return await self._below.get(f"{self._path}{_THEN}{key}")

    async def close(self) -> None:
        """Only the stream: what is below it is closed with the database that all of them are below."""
        await asyncio.wrap_future(closing_thread(self._engine.lane.close))


class Beside(Generic[DatabaseT]):
    """The schemas beside a schema of PostgreSQL: they share its connections, so that nothing has to be closed for them.

    G6: no more than `streams_max` are remembered; one that was forgotten is looked up again.
    """

    def __init__(
        self, engine: "OnPostgres", make: "Callable[[OnPostgres, DatabasesBelow[DatabaseT]], DatabaseT]"
    ) -> None:
        self._engine = engine
        self._make = make
        self._known: OrderedDict[str, tuple[OnPostgres, DatabaseT]] = OrderedDict()

    async def get(self, key: str) -> DatabaseT:
        """The database of this key, made if it is not there."""
        found = self._known.get(key)
        if found is None or found[0].is_closed:
            engine = await self._engine.beside(key.removeprefix(STREAM)).made()
            found = self._known[key] = engine, self._make(engine, Beside(engine, self._make))
            if len(self._known) > engine.settings.streams_max:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found[1]

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        for engine, _ in self._known.values():
            await engine.close()
        await self._engine.close()
