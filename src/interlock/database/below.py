"""Streams and shards of a database, each with a write stream of its own (D4, D5).

Those of a lane are lanes, at any depth, and one bound limits their total number. Those of a schema of PostgreSQL are
schemas beside it, on the same connections. They are closed with their parent, and are made where it lives. A database
that has some is not moved (see `moving`).
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
"""Prefixes that keep the keys of streams and shards apart."""

_THEN = "\x00"
"""Separator between a stream and its own streams; no key contains it."""


class DatabasesBelow(Protocol[DatabaseT_co]):
    """The streams and shards of one database."""

    async def get(self, key: str) -> DatabaseT_co:
        """Return the database of this key; open it if necessary."""
        ...

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        ...


def url_below(url: str, path: str) -> str:
    """Return the address of a stream or shard, at any depth, from the keys that lead to it."""
    for step in path.split(_THEN):
        kind, mark, rest = step.partition(":")
        url = stream_url(url, rest) if kind + mark == STREAM else shard_url(url, int(rest))
    return url


class Below(Generic[DatabaseT]):
    """All lanes below a lane, at any depth. One bound limits their number, and they are closed with it."""

    def __init__(self, engine: OnLane, opens: Opens[DatabaseT]) -> None:
        self._engine = engine
        self._streams: Streams[DatabaseT] = Streams(opens, settings=engine.settings, clock=engine.clock)

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; open it if necessary."""
        return await self._streams.get(key)

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        await self._streams.close(self._engine.lane.close)

    def opened_again(self, engine: OnLane) -> None:
        """Replace the engine of the parent, which was opened again at the same place."""
        self._engine = engine


class Within(Generic[DatabaseT]):
    """The lanes below a stream. The parent database keeps them, because the stream may be closed and reopened."""

    def __init__(self, below: Below[DatabaseT], path: str, engine: OnLane) -> None:
        self._below = below
        self._path = path
        self._engine = engine

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; open it if necessary."""
        return await self._below.get(f"{self._path}{_THEN}{key}")

    async def close(self) -> None:
        """Close the stream only; the lanes below it are closed with the parent database."""
        await asyncio.wrap_future(closing_thread(self._engine.lane.close))


class Beside(Generic[DatabaseT]):
    """The schemas beside a schema of PostgreSQL. They share its connections and need no close.

    G6: at most `streams_max` are cached; others are looked up again.
    """

    def __init__(
        self, engine: "OnPostgres", make: "Callable[[OnPostgres, DatabasesBelow[DatabaseT]], DatabaseT]"
    ) -> None:
        self._engine = engine
        self._make = make
        self._known: OrderedDict[str, tuple[OnPostgres, DatabaseT]] = OrderedDict()

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; create its schema if necessary."""
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
