"""`Database`: any SQL, any number of clients, no lost update, nothing acknowledged before it is durable (D1, D2).

    async with Database.open("lanes:///var/shop/stock") as db:
        await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", 1)

Users write PostgreSQL's dialect. A read-modify-write is one statement or one `transact`; both are serialized, by a
lane's single writer or by PostgreSQL, so no configuration lets two of them miss each other. A transaction never spans
databases (D17).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar, cast
from urllib.parse import unquote
from weakref import WeakSet

from interlock.catalog.addresses import refuse_no_address, shard_url, stream_name, stream_url
from interlock.catalog.catalog import Catalog
from interlock.catalog.configuration import configured, lane_settings
from interlock.catalog.opening import closing_thread, opened_lane
from interlock.catalog.places import Place, place_of
from interlock.database.engines import DatabaseEngine
from interlock.database.on_lanes import OnLane, opened_here
from interlock.database.streams import Streams
from interlock.database.transactions import refuse_inside
from interlock.errors import BadUsage
from interlock.hotrow.balances import Balance
from interlock.hotrow.counters.choice import Kind
from interlock.hotrow.counters.counter import Counter
from interlock.hotrow.counters.counters import Counters
from interlock.hotrow.counters.signal import Groups
from interlock.hotrow.parents import Parent
from interlock.hotrow.quotas import Quota
from interlock.hotrow.stock import Stock
from interlock.hotrow.tools import Tool, tool_settings
from interlock.lanes.beyond import HandOff
from interlock.lanes.contention import HotRow
from interlock.lanes.failures import opening
from interlock.lanes.lane import Lane
from interlock.lanes.objects.addresses import redacted
from interlock.lanes.settings import KINDS, LaneSettings
from interlock.lanes.stats import LaneStats
from interlock.seams import Clock, SystemClock
from interlock.sql.executor import EngineName
from interlock.sql.postgres.address import is_postgres
from interlock.sql.rows import Row

if TYPE_CHECKING:
    from interlock.database.on_postgres import OnPostgres

ResultT = TypeVar("ResultT")

_STREAM, _SHARD = "stream:", "shard:"
"""Both are databases below a database, and neither can be taken for the other."""

_THEN = "\x00"
"""Between a stream and what is below it; no key of a stream has it."""


class Database:
    """An open database. Make one with `Database.open`."""

    def __init__(self, engine: DatabaseEngine, streams: "DatabaseStreams") -> None:
        self.url = engine.url
        """The address, without its secrets."""
        self._engine = engine
        self._streams = streams
        self._counters: Counters | None = None
        self._asked: WeakSet[Database] = WeakSet()
        """Streams whose counters may have something to roll up, as long as somebody else knows them."""

    @staticmethod
    def open(
        url: str,
        *,
        home: str | None = None,
        clock: Clock | None = None,
        hand_off: HandOff | None = None,
        cache: str | None = None,
        tool: Tool | None = None,
        **settings: float,
    ) -> "Opening":
        """Open a database: `async with Database.open(url) as db`, or `db = await Database.open(url)`.

        With `home` the first argument is a name, and the catalog at the home knows where it lives. Settings are those
        of `LaneSettings`; what is given neither here nor by the `tool` comes from the environment, then from
        `interlock.toml`. `cache` is the folder for the local file of a database in a bucket.
        """
        refuse_no_address(url, home)
        _refuse_no_tool(tool)
        name = None if home is None else url
        with opening(home or url):
            address = url if home is None else Catalog(home).locate(url)
            found = configured(name or _name_of(url), KINDS, tool=None if tool is None else tool.name)
            chosen = {**found, **({} if tool is None else tool_settings(tool)), **settings}
        return Opening(
            address, clock=clock or SystemClock(), hand_off=hand_off, cache=cache, settings=lane_settings(chosen)
        )

    @property
    def engine(self) -> EngineName:
        """What keeps the rows: a lane executes one write after the other, PostgreSQL locks row by row."""
        return self._engine.name

    def execute(self, sql: str, /, *args: object, key: str | None = None) -> Coroutine[object, object, int]:
        """Run one statement as one durable transaction; returns the rows it changed."""
        return self._engine.execute(sql, args, key)

    def query(self, sql: str, /, *args: object, key: str | None = None) -> Coroutine[object, object, list[Row]]:
        """Run one statement and return its rows. A writing one (RETURNING) is one durable transaction."""
        return self._engine.query(sql, args, key)

    def transact(
        self,
        function: Callable[..., Awaitable[ResultT]],
        /,
        *args: object,
        key: str | None = None,
    ) -> Coroutine[object, object, ResultT]:
        """Run `async def function(tx, *args)` as one serialized durable transaction; returns what it returns.

        It may run more than once, awaits only `tx`, and rolls back on any exception. With a key it happens once; the
        same key for another function or other arguments is KeyReused (`interlock.database.identity` has the rule).
        """
        return cast("Coroutine[object, object, ResultT]", self._engine.transact(function, args, key))

    async def stream(self, key: str) -> "Database":
        """The database of one independent write stream (D4).

        With `db_per_write_stream` every key has a database of its own below this one, so that unrelated writers never
        wait for each other; without it this is the database itself. A stream is closed with its parent. Ask for it
        each time: of more than `streams_max` the one that rests longest is closed, and opened when it is asked for.
        """
        if not self._engine.settings.db_per_write_stream:
            return self
        refuse_inside(self.url)
        _ = stream_name(key)  # What is no key is refused at once.
        found = await self._streams.get(_STREAM + key)
        self._asked.add(found)
        return found

    async def shard(self, number: int) -> "Database":
        """The database for one of several parts of a row that is written too often (D5).

        On a lane everything is executed one after the other, so a part that should run in parallel has a database of
        its own. On PostgreSQL another row is enough, and this is the database itself.
        """
        if self.engine == "postgres":
            return self
        refuse_inside(self.url)
        return await self._streams.get(f"{_SHARD}{number}")

    def counter(self, name: str, *, kind: Kind = "auto") -> Counter:
        """A counter that many writers add to at once (D5, D6, D7).

        `exact` is one row, `sharded` several, `event_log` a row per change; `auto` chooses among them by the contention
        it measures. The value is the same whatever it is opened as, and as whatever it was opened before.
        """
        if self._counters is None:
            self._counters = self._new_counters()
        return self._counters.open(name, kind=kind)

    def stock(self, name: str) -> Stock:
        """Units that are taken, given back and reserved, never more than there are (D8)."""
        return Stock(self, name)

    def balance(self, name: str, *, limit: int = 0) -> Balance:
        """An amount that never falls below its limit, however many withdraw at once (D15)."""
        return Balance(self, name, limit=limit)

    def quota(self, name: str, *, limit: int, window_s: float) -> Quota:
        """So many per window of time, by the database's clock (D15)."""
        return Quota(self, name, limit=limit, window_s=window_s)

    def parent(self, name: str) -> Parent:
        """A row that many children touch, without one waiting for the other (D15)."""
        return Parent(self, name)

    async def contention(self) -> list[HotRow]:
        """The rows that writers wait for each other on, worst first (D9)."""
        return await self._engine.contention()

    def stats(self) -> LaneStats:
        """What the database has done since it was opened."""
        return self._engine.stats()

    async def close(self) -> None:
        """Finish what waits and give everything up; streams too. Cancelled, it is closed all the same."""
        refuse_inside(self.url, self._engine)
        try:
            await self._end_counters()
        finally:
            await self._streams.close()

    async def _end_counters(self) -> None:
        """No roll-up begins any more, here or in a stream: it would find its database closed."""
        if self._counters is not None:
            await self._counters.close()
        for stream in list(self._asked):
            await stream._end_counters()  # noqa: SLF001 -- of the same class.

    def _new_counters(self) -> Counters:
        settings = self._engine.settings
        return Counters(
            self,
            shard_count=settings.counter_shard_count,
            clock=self._engine.clock,
            contention=self.contention,
            groups=Groups(self.stats, settings.group_commit_max_batch) if self.engine == "lane" else None,
            threshold=settings.contention_flag_threshold,
        )


def _refuse_no_tool(tool: object) -> None:
    if tool is not None and not isinstance(tool, Tool):
        raise BadUsage(
            f"{tool!r} is no tool: it is {type(tool).__name__}.",
            why="A tool says how fast its writes must be, and how many there are.",
            fix='Pass Tool("stock", write_latency_budget=0.05, aggregate_write_rate=200), or leave it out.',
        )


def _name_of(url: str) -> str:
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])


class DatabaseStreams(Protocol):
    """The databases below one database, and its end."""

    async def get(self, key: str) -> Database:
        """The database of this key, opened if it is not."""
        ...

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        ...


class Opening:
    """A database that is about to be opened: enter it with `async with`, or await it."""

    def __init__(
        self, url: str, *, clock: Clock, hand_off: HandOff | None, cache: str | None, settings: LaneSettings
    ) -> None:
        self.url = url
        self.clock = clock
        self._hand_off = hand_off
        self._cache = cache
        self._settings = settings
        self._database: Database | None = None
        # Whatever is wrong with the address is said here, before anything is opened.
        self._remote = self._on_postgres() if is_postgres(url) else None
        self._place = None if self._remote is not None else self._place_of(url)

    def __await__(self) -> Generator[object, None, Database]:
        return self.opened().__await__()

    async def __aenter__(self) -> Database:
        self._database = await self.opened()
        return self._database

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            await self._database.close()

    async def opened(self) -> Database:
        """Open it."""
        refuse_inside(redacted(self.url))
        if self._remote is not None:
            engine = await self._remote()
            return Database(engine, _Beside(engine))
        assert self._place is not None
        made: list[OnLane] = []

        def make() -> Lane:
            made.append(self._lane(cast("Place", self._place), self.url))
            return made[-1].lane

        _ = await opened_lane(make)
        return self._of(made[-1])

    def _on_postgres(self) -> "Callable[[], Awaitable[OnPostgres]]":
        from interlock.database.on_postgres import opener  # noqa: PLC0415 -- an extra, which may not be installed.

        return opener(self.url, hand_off=self._hand_off, settings=self._settings, clock=self.clock)

    def _place_of(self, url: str) -> Place:
        return place_of(url, settings=self._settings, clock=self.clock, hand_off=self._hand_off, cache=self._cache)

    def _lane(self, place: Place, url: str) -> OnLane:
        return opened_here(place, url=redacted(url), settings=self._settings, clock=self.clock)

    def _of(self, engine: OnLane) -> Database:
        below = _Below(engine, lambda path: self._opened_below(path, below))
        return Database(engine, below)

    def _opened_below(self, path: str, below: "_Below") -> tuple[Lane, Database]:
        """Open one stream or shard, perhaps of a stream, in this thread, which waits for the disk."""
        url = self.url
        for step in path.split(_THEN):
            kind, mark, rest = step.partition(":")
            url = stream_url(url, rest) if kind + mark == _STREAM else shard_url(url, int(rest))
        engine = self._lane(self._place_of(url), url)
        return engine.lane, Database(engine, _Within(below, path, engine))


class _Below:
    """All lanes below a lane, however deep: one bound counts them, and they end with it."""

    def __init__(self, engine: OnLane, opens: Callable[[str], tuple[Lane, Database]]) -> None:
        self._engine = engine
        self._streams: Streams[Database] = Streams(opens, settings=engine.settings, clock=engine.clock)

    async def get(self, key: str) -> Database:
        return await self._streams.get(key)

    async def close(self) -> None:
        await self._streams.close(self._engine.lane.close)


class _Within:
    """The lanes below a stream. They are kept with it, not by it: it may be closed for another one and opened again."""

    def __init__(self, below: _Below, path: str, engine: OnLane) -> None:
        self._below = below
        self._path = path
        self._engine = engine

    async def get(self, key: str) -> Database:
        return await self._below.get(f"{self._path}{_THEN}{key}")

    async def close(self) -> None:
        """Only the stream: what is below it is closed with the database that all of them are below."""
        await asyncio.wrap_future(closing_thread(self._engine.lane.close))


class _Beside:
    """The schemas beside a schema of PostgreSQL: they share its connections, so that nothing has to be closed for them.

    G6: no more than `streams_max` are remembered; one that was forgotten is looked up again.
    """

    def __init__(self, engine: "OnPostgres") -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[OnPostgres, Database]] = OrderedDict()

    async def get(self, key: str) -> Database:
        found = self._known.get(key)
        if found is None or found[0].is_closed:
            engine = await self._engine.beside(key.removeprefix(_STREAM)).made()
            found = self._known[key] = engine, Database(engine, _Beside(engine))
            if len(self._known) > engine.settings.streams_max:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found[1]

    async def close(self) -> None:
        for engine, _ in self._known.values():
            await engine.close()
        await self._engine.close()
