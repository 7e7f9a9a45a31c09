"""`Database`: any SQL, any number of clients, no lost update, nothing acknowledged before it is durable (D1, D2).

    async with Database.open("lanes:///var/shop/stock") as db:
        await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", 1)

Users write PostgreSQL's dialect. A read-modify-write is one statement or one `transact`; both are serialized, by a
lane's single writer or by PostgreSQL, so no configuration lets two of them miss each other. A transaction never spans
databases (D17). The odd choice: an open database follows a move by itself, so a call may run at another engine than
the one that it began at.

Sections: engines, following a move, the database, its opening.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakSet

import apsw
import msgspec

from interlock.catalog.catalog import Catalog
from interlock.catalog.open_lane import Place, closing_thread, is_free_again, open_in_thread, place_of
from interlock.clock import Clock, SystemClock
from interlock.database.lane_engine import OnLane, opened_here
from interlock.database.streams_and_shards import (
    SHARD,
    STREAM,
    Elsewhere,
    LaneStreams,
    NestedStreams,
    PostgresStreams,
    Streams,
    url_below,
)
from interlock.database.transactions import EngineTransaction, InteractiveTransaction, refuse_inside
from interlock.errors import (
    BadUsage,
    CorruptionError,
    DialectError,
    Fenced,
    InterlockError,
    LaneOwned,
    MovedElsewhere,
    TransactionError,
    UnavailableError,
)
from interlock.hotrow.balances import Balance
from interlock.hotrow.counters import Counter, Counters, Groups, Kind
from interlock.hotrow.parents import Parent
from interlock.hotrow.stock import Stock
from interlock.hotrow.tool_declarations import Tool, tool_settings
from interlock.hotrow.window_quotas import Quota
from interlock.lanes.handover import Arrived
from interlock.lanes.hot_rows import OPEN_SOURCES, HotRow
from interlock.lanes.lane import HandOff, Lane, LaneStats
from interlock.lanes.lane_settings import KINDS, LaneSettings
from interlock.lanes.sqlite_connection import copy_error, opening
from interlock.settings import configured, lane_settings
from interlock.sql.stored_values import Answer, EngineName, Row
from interlock.urls import (
    check_address,
    is_postgres_url,
    last_name,
    parse_database_url,
    redact_secrets,
    redact_url,
    resolve_url,
    stream_name,
    with_schema,
    with_secrets,
)

if TYPE_CHECKING:
    from interlock.database.postgres_engine import OnPostgres

log = logging.getLogger("interlock.operators")

# --- Engines ---------------------------------------------------------------------------------------------------------
# A lane or PostgreSQL, each with its own serialization of writes. The façade follows moves; each method of an engine is
# one call at one place. Neither knows helpers or settings of the other.


class DatabaseEngine(Protocol):
    """An engine with one open database."""

    @property
    def name(self) -> EngineName:
        """Kind of the engine."""
        ...

    @property
    def url(self) -> str:
        """The address, without its secrets."""
        ...

    @property
    def settings(self) -> LaneSettings:
        """The settings that it was opened with."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the database."""
        ...

    def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> Awaitable[int]:
        """Run one statement as one durable transaction."""
        ...

    def query(self, sql: str, args: tuple[object, ...], key: str | None) -> Awaitable[list[Row]]:
        """Run one statement; return its rows."""
        ...

    def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> Awaitable[object]:
        """Run a function as one serialized durable transaction."""
        ...

    def run(self, sql: str, args: tuple[object, ...]) -> Awaitable[Answer]:
        """Run one statement; return its rows, the number of changed rows, and its columns."""
        ...

    def inspect(self, look: Callable[[apsw.Connection], object]) -> Awaitable[object]:
        """Run a function that reads the catalog. Raises BadUsage if the engine is not a lane."""
        ...

    def begin(self, *, read_only: bool) -> EngineTransaction:
        """Return an interactive transaction, which begins with its first call."""
        ...

    def hot_rows(self) -> list[HotRow]:
        """Return the rows with the most contention between writers, worst first."""
        ...

    def stats(self) -> LaneStats:
        """Return the statistics since it was opened."""
        ...

    async def has_shards_beside(self) -> bool:
        """Return whether the shards of counters are databases of their own, and not rows of this one."""
        ...


# --- Following a move ------------------------------------------------------------------------------------------------
# The chain of tombstones decides: each place that was left names the next one, with the epoch of the move. Each hop
# must have a higher epoch, so that following ends; any other chain is refused.
#
# A call that got MovedElsewhere has not happened, so it is repeated at the new place, with the same key if it has
# one. The first call that finds the move opens the new place, in its event loop; all other calls wait for it.

HOPS_MAX: Final = 32
"""Maximum number of places that one opening visits. A move back removes the tombstone there, so chains stay short."""

LOOK_S: Final = 0.02
"""Interval of the check whether a mover has released the new place."""

LOGIN_S: Final = 0.5
"""Interval of the attempts to log in at the new place, whose credentials may not be there yet."""

_MOVE_PROBES: dict[EngineName, str] = {"lane": "SELECT 1", "postgres": "SELECT 1 FROM interlock_gate LIMIT 1"}
"""The smallest call that detects a move. A move takes the gate away; a lane checks its tombstone at every read."""

ResultT = TypeVar("ResultT")
_Flight = Future[Exception | None]
"""The exception is the result: asyncio would log an exception that no task retrieves."""


class Hop(NamedTuple):
    """One place of the chain."""

    url: str
    epoch: int = 0
    """Epoch of the move that leads here; 0 if there was none."""
    sent: bool = False
    """Whether a tombstone names this place: then the move has happened, and a draft here counts as arrived."""


async def _open_current(
    start: Hop, opens: Callable[[Hop], Awaitable[ResultT]], moved: MovedElsewhere | None = None, *, wait_s: float = 0.0
) -> ResultT:
    """Open a place, or the place to which its tombstones lead. Raises CorruptionError for a chain that does not end.

    The mover may still own a lane at the new place for its last steps: this waits for the mover's release.
    """
    chain = [start] if moved is None else [start, _next_hop([start], moved)]
    while True:
        try:
            return await _open_hop(chain[-1], opens, wait_s)
        except MovedElsewhere as error:
            chain.append(_next_hop(chain, error))


async def _open_hop(hop: Hop, opens: Callable[[Hop], Awaitable[ResultT]], wait_s: float) -> ResultT:
    if not hop.sent:
        return await opens(hop)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    has_warned = False
    while True:
        try:
            return await opens(hop)
        except LaneOwned:
            pause_s = LOOK_S
            if loop.time() >= deadline_s:
                raise
        except UnavailableError as error:
            pause_s = min(LOGIN_S, wait_s)
            if type(error) is not UnavailableError or loop.time() >= deadline_s:
                raise
            if not has_warned:
                has_warned = True
                log.warning("callers wait for %s, where their database has moved: %s", redact_secrets(hop.url), error)
        await asyncio.sleep(pause_s)


def _next_hop(chain: list[Hop], moved: MovedElsewhere) -> Hop:
    if not moved.url:
        raise moved
    hop = Hop(with_secrets(moved.url, *(each.url for each in reversed(chain))), moved.epoch, sent=True)
    named = " → ".join(f"{redact_secrets(each.url)} (epoch {each.epoch})" for each in (*chain, hop))
    if hop.epoch <= chain[-1].epoch:
        raise CorruptionError(
            f"a database that was moved cannot be found, because a move leads back in time: {named}.",
            why="Each move of a database has a higher epoch than the one before; a file or a table was put back from "
            "a copy that was made before a move.",
            fix="Put away the copy that is too old, and open the database again.",
        ) from moved
    if len(chain) >= HOPS_MAX:
        raise CorruptionError(
            f"a database was moved more than {HOPS_MAX} times, and is still not found: {named}.",
            why="None of the places that the moves lead to has the database.",
            fix="Open it at the last of these addresses.",
        ) from moved
    return hop


class Reopening:
    """One reopening at a time, shared by all waiting calls of any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flight: _Flight | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def once(self, reopen: Callable[[], Awaitable[None]]) -> None:
        """Begin a reopening, or wait for the running one. It continues for others when this call is cancelled."""
        with self._lock:
            flight, mine = self._flight, self._flight is None
            if flight is None:
                flight = self._flight = Future()
                _ = flight.set_running_or_notify_cancel()
        if mine:
            task = asyncio.ensure_future(self._run_reopening(flight, reopen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        failed = await asyncio.shield(asyncio.wrap_future(flight))
        if failed is not None:
            raise copy_error(failed) if isinstance(failed, InterlockError) else failed

    async def over(self) -> None:
        """Wait until no reopening is running."""
        flight = self._flight
        if flight is not None:
            _ = await asyncio.shield(asyncio.wrap_future(flight))

    async def _run_reopening(self, flight: _Flight, reopen: Callable[[], Awaitable[None]]) -> None:
        # If this event loop ends, the calls of other loops must get an error, or they would wait forever.
        failed: Exception | None = UnavailableError(
            "a database that was moved was about to be opened, and the event loop that did so has ended.",
            fix="Repeat the call: it did not happen.",
        )
        try:
            await reopen()
            failed = None
        except Exception as error:  # noqa: BLE001 -- any error is passed to the waiting calls.
            failed = error
        finally:
            with self._lock:
                self._flight = None
            flight.set_result(failed)


# --- The database ----------------------------------------------------------------------------------------------------

_LEFT = (MovedElsewhere, Fenced)
"""Errors of an engine that is unusable for good. The call has not happened."""


class Database:
    """An open database. Make one with `Database.open`."""

    def __init__(self, found: "FoundDatabase") -> None:
        self._engine: DatabaseEngine
        self._found: FoundDatabase
        self._adopt(found)
        self._reopening = Reopening()
        self._found_below = False
        """For a stream or shard: whether its parent was confirmed to live at the same place."""
        self._parent: tuple[Database, str, Streams[Database]] | None = None
        """For a stream or shard: its database, its key, and the streams that it belongs to."""
        self._counters: Counters | None = None
        self._shards: tuple[DatabaseEngine, bool] | None = None
        """Whether the shards of counters are databases of their own, at this engine."""
        self._transactions: WeakSet[InteractiveTransaction] = WeakSet()
        """Interactive transactions, which end when the database is closed."""
        self._streams_in_use: WeakSet[Database] = WeakSet()
        """Streams that callers still reference, whose counters may have changes to roll up."""
        self._is_closed = False

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

        With `home` the first argument is a name, which the catalog at the home resolves. Settings are those of
        `LaneSettings`; those set neither here nor by the `tool` come from the environment, then from `interlock.toml`.
        `cache` is the folder for the local file of a database in a bucket.
        """
        check_address(url, home)
        url = resolve_url(url) if home is None else url
        _check_tool(tool)
        name = None if home is None else url
        with opening(home or url):
            catalog = None if home is None else Catalog(home)
            address = url if catalog is None else catalog.at_once(url)
            found = configured(name or last_name(url), KINDS, tool=None if tool is None else tool.name)
            chosen = {**found, **({} if tool is None else tool_settings(tool)), **settings}
        return Opening(
            address,
            catalog=catalog,
            name=name or "",
            clock=clock or SystemClock(),
            hand_off=hand_off,
            cache=cache,
            settings=lane_settings(chosen),
        )

    @property
    def url(self) -> str:
        """The address, without its secrets; after a move that of the new place."""
        return self._engine.url

    @property
    def engine(self) -> EngineName:
        """The engine of the rows: a lane executes one write after the other, PostgreSQL locks row by row."""
        return self._engine.name

    @property
    def is_lost(self) -> bool:
        """Whether it must be opened again: it was closed, or its lane has stopped after a failed commit."""
        return self._is_closed or (isinstance(self._engine, OnLane) and self._engine.lane.is_broken)

    async def execute(self, sql: str, /, *args: object, key: str | None = None) -> int:
        """Run one statement as one durable transaction; return the number of changed rows."""
        engine = self._engine
        try:
            return await engine.execute(sql, args, key)
        except UnavailableError as error:
            await self._follow(engine, error)
        return await self.execute(sql, *args, key=key)

    async def query(self, sql: str, /, *args: object, key: str | None = None) -> list[Row]:
        """Run one statement and return its rows. A writing one (RETURNING) is one durable transaction."""
        engine = self._engine
        try:
            return await engine.query(sql, args, key)
        except UnavailableError as error:
            await self._follow(engine, error)
        return await self.query(sql, *args, key=key)

    async def transact(
        self,
        function: Callable[..., Awaitable[ResultT]],
        /,
        *args: object,
        key: str | None = None,
    ) -> ResultT:
        """Run `async def function(tx, *args)` as one serialized durable transaction; return its result.

        It may run more than once, awaits only `tx`, and rolls back on any exception. With a key it happens once; the
        same key for another function or other arguments is KeyReused (`interlock.database.call_digest` has the rule).
        """
        engine = self._engine
        try:
            return cast("ResultT", await engine.transact(function, args, key))
        except UnavailableError as error:
            await self._follow(engine, error)
        return await self.transact(function, *args, key=key)

    def transaction(self, *, read_only: bool = False) -> InteractiveTransaction:
        """Return a transaction that the caller drives: `async with db.transaction() as tx`.

        On a lane it holds the writer from its first statement to its end, for `transaction_timeout_s` at most; a
        read-only one runs on a reader, with one snapshot. On PostgreSQL it is SERIALIZABLE, and a conflict raises
        TransactionEnded. `transact` is faster: its function runs inside the writer, and after a conflict again.
        """
        found = InteractiveTransaction(lambda: self._engine, self._follow, read_only=read_only)
        self._transactions.add(found)
        return found

    async def run(self, sql: str, /, *args: object) -> Answer:
        """Run one statement as `query` does; return its rows, the number of changed rows, and its columns."""
        engine = self._engine
        try:
            return await engine.run(sql, args)
        except UnavailableError as error:
            await self._follow(engine, error)
        return await self.run(sql, *args)

    async def inspect(self, look: Callable[[apsw.Connection], ResultT], /) -> ResultT:
        """Run a function that reads the lane's catalog, inside the writer; it must change nothing.

        Raises BadUsage if the database is not on a lane.
        """
        engine = self._engine
        try:
            return cast("ResultT", await engine.inspect(look))
        except UnavailableError as error:
            await self._follow(engine, error)
        return await self.inspect(look)

    async def stream(self, key: str) -> "Database":
        """Return the database of one independent write stream (D4).

        With `db_per_write_stream` every key has a database of its own below this one, so that unrelated writers never
        wait for each other; without it this is the database itself. A stream is closed with its parent. Call this each
        time: above `streams_max` the stream that was idle longest is closed, and opened again by the next call.
        """
        if not self._engine.settings.db_per_write_stream:
            return self
        refuse_inside(self.url)
        _ = stream_name(key)  # An invalid key is refused before any work.
        found = await self._part(STREAM + key)
        self._streams_in_use.add(found)
        return found

    async def shard(self, number: int) -> "Database":
        """Return the database for one shard of a row that is written too often (D5).

        A lane executes one write after the other, so a shard that should run in parallel has a database of its own. On
        PostgreSQL another row is enough, and this is the database itself. A database that moves between the two keeps
        what it has: the keys of earlier calls are where their rows are.
        """
        engine = self._engine
        if self._shards is None or self._shards[0] is not engine:
            try:
                self._shards = engine, await engine.has_shards_beside()
            except UnavailableError as error:
                await self._follow(engine, error)
                return await self.shard(number)
        if not self._shards[1]:
            return self
        refuse_inside(self.url)
        return await self._part(f"{SHARD}{number}")

    def counter(self, name: str, *, kind: Kind = "auto") -> Counter:
        """Return a counter that many writers change concurrently (D5, D6, D7).

        `exact` is one row, `sharded` several, `event_log` a row per change; `auto` chooses among them by the measured
        contention. The value does not depend on the kind, now or before.
        """
        if self._counters is None:
            self._counters = self._new_counters()
        return self._counters.open(name, kind=kind)

    def stock(self, name: str) -> Stock:
        """Return a stock of units that are taken, given back and reserved, never more than there are (D8)."""
        return Stock(self, name)

    def balance(self, name: str, *, limit: int = 0) -> Balance:
        """Return an amount that never falls below its limit under concurrent withdrawals (D15)."""
        return Balance(self, name, limit=limit)

    def quota(self, name: str, *, limit: int, window_s: float) -> Quota:
        """Return a quota of `limit` per window of time, by the database's clock (D15)."""
        return Quota(self, name, limit=limit, window_s=window_s)

    def parent(self, name: str) -> Parent:
        """Return a parent row that many children touch without waiting for each other (D15)."""
        return Parent(self, name)

    async def contention(self) -> list[HotRow]:
        """Return the rows with the most contention between writers, worst first (D9)."""
        return self._engine.hot_rows()

    def stats(self) -> LaneStats:
        """Return the statistics since the database was opened."""
        return self._engine.stats()

    async def close(self) -> None:
        """Finish pending calls, and close the database and its streams. It is closed even if this is cancelled."""
        refuse_inside(self.url, self._engine)
        self._is_closed = True
        self._abandon_transactions()
        try:
            await self._end_counters()
        finally:
            OPEN_SOURCES.discard(self._engine)
            await self._reopening.over()  # A reopening at a new place must end first.
            await self._found.below.close()

    def _abandon_transactions(self) -> None:
        for transaction in list(self._transactions):
            transaction.abandon()
        for stream in list(self._streams_in_use):
            stream._abandon_transactions()  # noqa: SLF001 -- of the same class.

    async def _end_counters(self) -> None:
        """Prevent further roll-ups, here and in streams: they would find their database closed."""
        if self._counters is not None:
            await self._counters.close()
        for stream in list(self._streams_in_use):
            await stream._end_counters()  # noqa: SLF001 -- of the same class.

    async def _part(self, key: str) -> "Database":
        """Return a stream or shard. It is looked up again if its parent moved before it was created."""
        while True:
            below = self._found.below
            try:
                found = await below.get(key)
            except UnavailableError:
                await self._reopening.over()  # It closes the streams of a place that was left.
                if below is self._found.below:
                    raise
                continue
            if found._found_below:  # noqa: SLF001 -- of the same class.
                return found
            # It exists now, so that a later mover of the parent finds it and moves it first. A user without the right
            # to make tables has no gate, and a lane at the new place has no such table.
            with contextlib.suppress(TransactionError, DialectError):
                await self.query(_MOVE_PROBES[self.engine])
            if below is self._found.below:
                found._found_below = True  # noqa: SLF001 -- as above.
                found._parent = self, key, below  # noqa: SLF001 -- as above.
                return found

    async def _follow(self, engine: object, error: UnavailableError) -> None:
        """Return when a call that this engine refused can be repeated; nothing of it has happened. Else raise it."""
        if type(error) is UnavailableError:
            await self._reopening.over()  # It closes this engine when the new place is open.
        if engine is not self._engine:
            # A late call gets one of these errors: the engine was left and closed meanwhile.
            if not isinstance(error, _LEFT) and type(error) is not UnavailableError:
                raise error
        elif self._parent is not None and type(error) is UnavailableError:
            await self._adopt_from_parent(error)
        elif self._found.places is None or not isinstance(error, _LEFT):
            raise error
        else:
            try:
                await self._reopening.once(lambda: self._reopen(engine, error))
            except UnavailableError as failed:
                if self._parent is None or type(failed) is not UnavailableError:
                    raise
                await self._adopt_from_parent(failed)

    async def _adopt_from_parent(self, error: UnavailableError) -> None:
        """Go on with the stream of a parent that has followed a move, and has closed the old ones. Else raise it."""
        assert self._parent is not None
        parent, key, below = self._parent
        await parent._reopening.over()  # noqa: SLF001 -- of the same class.
        if below is parent._found.below:  # noqa: SLF001 -- as above.
            raise error
        found = await parent._part(key)  # noqa: SLF001 -- as above.
        self._adopt(found._found)  # noqa: SLF001 -- as above.
        self._parent = found._parent  # noqa: SLF001 -- as above.

    async def _reopen(self, engine: object, error: UnavailableError) -> None:
        left = self._found
        if left.engine is not engine or left.places is None:
            return
        found = await left.places.reopen(left, error)
        if found.below is not left.below:
            # It is unusable. A stream that has followed before may own what the new place is about to open.
            with contextlib.suppress(InterlockError):
                await left.below.close()
        self._adopt(found)

    def _adopt(self, found: "FoundDatabase") -> None:
        self._engine, self._found = found.engine, found

    def _new_counters(self) -> Counters:
        settings = self._engine.settings
        return Counters(
            self,
            shard_count=settings.counter_shard_count,
            kind=cast("Kind", settings.counter_kind),
            clock=self._engine.clock,
            contention=self.contention,
            groups=Groups(self._groups, settings.group_commit_max_batch),
            threshold=settings.contention_flag_threshold,
        )

    def _groups(self) -> LaneStats:
        # On PostgreSQL no two writers share a commit, so the counters have no groups.
        stats = self.stats()
        return stats if self.engine == "lane" else msgspec.structs.replace(stats, groups=0)


# --- Opening ---------------------------------------------------------------------------------------------------------


class FoundDatabase(NamedTuple):
    """An open database with the place where it was found."""

    engine: DatabaseEngine
    below: Streams[Database]
    hop: Hop = Hop("")
    places: "PlaceFinder | None" = None
    """Finds it again after a move."""


class PlaceFinder(Protocol):
    """Finds a database again."""

    async def reopen(self, left: FoundDatabase, error: UnavailableError) -> FoundDatabase:
        """Open the database at its current place after a call failed at the old one. Raises the opening's error."""
        ...


class _PartPlaces:
    """Finds a stream or shard again. All of its handles get what the first of them has opened."""

    def __init__(self, opening: "Opening", elsewhere: Elsewhere[FoundDatabase], key: str) -> None:
        self._opening = opening
        self._elsewhere = elsewhere
        self._key = key

    async def reopen(self, left: FoundDatabase, error: UnavailableError) -> FoundDatabase:
        """Open it at its current place, unless another handle has done so."""
        return await self._elsewhere.find(self._key, left, lambda: self._reopen(left, error))

    async def _reopen(self, left: FoundDatabase, error: UnavailableError) -> FoundDatabase:
        return (await self._opening.reopen(left, error))._replace(places=self)


class _PartFollows:
    """Opens the streams and shards of one database that have left their places."""

    def __init__(self, opening: "Opening", url: str, elsewhere: Callable[[], Elsewhere[FoundDatabase]]) -> None:
        self._opening = opening
        self._url = url
        self._elsewhere = elsewhere

    def places(self, path: str) -> tuple[Hop, _PartPlaces]:
        """Return where the part is created, and how it is found again."""
        address = part_address(self._url, path)
        return Hop(address), _PartPlaces(self._opening.at(address), self._elsewhere(), path)

    async def open(self, path: str, moved: MovedElsewhere) -> FoundDatabase:
        """Open it where its tombstones lead."""
        hop, places = self.places(path)
        return (await self._opening.at(hop.url).open_at(hop, moved))._replace(places=places)

    def wrap(self, path: str, found: FoundDatabase) -> Database:
        """Return a handle."""
        del path
        return Database(found)

    async def close(self, found: FoundDatabase) -> None:
        """Close what was opened."""
        await found.below.close()


def part_address(url: str, path: str) -> str:
    """Return the address of a stream or shard, at any depth, from the keys that lead to it."""
    if not is_postgres_url(url):
        return url_below(url, path)
    from interlock.database.postgres_engine import part_of, part_schema  # noqa: PLC0415 -- an extra, which may not be installed.

    return with_schema(url, part_schema(parse_database_url(url).schema, *part_of(path)))


class Opening:
    """A database that is about to be opened: enter it with `async with`, or await it."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        hand_off: HandOff | None,
        cache: str | None,
        settings: LaneSettings,
        catalog: Catalog | None = None,
        name: str = "",
    ) -> None:
        self.url = url
        self.clock = clock
        self._catalog = catalog
        self._name = name
        self._hand_off = hand_off
        self._cache = cache
        self._settings = settings
        self._database: Database | None = None
        # Errors in the address are raised here, before anything is opened.
        _ = self._on_postgres(Hop(url)) if is_postgres_url(url) else self._place_of(url)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"the database is not open yet, so {name!r} cannot be used. "
                "Write `async with Database.open(…) as db`, or `db = await Database.open(…)`."
            )

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
        """Open it where it lives."""
        refuse_inside(redact_secrets(self.url))
        start = Hop(self.url)
        if self._catalog is not None:
            entry = await self._catalog.ensure_entry(self._name)
            start = Hop(self._catalog.address(self._name, entry), entry.epoch)
        return Database(await self.open_at(start))

    async def reopen(self, left: FoundDatabase, error: UnavailableError) -> FoundDatabase:
        """Open the database at its current place after a call failed at the old one. Raises the opening's error."""
        if isinstance(error, MovedElsewhere):
            return await self.open_at(left.hop, error)
        wait_s = self._settings.seal_wait_s
        if not isinstance(left.engine, OnLane) or not await is_free_again(left.hop.url, self.clock, wait_s=wait_s):
            raise error
        log.warning(
            "%s is opened again: another process has taken it over, and left it since.", redact_secrets(left.hop.url)
        )
        await asyncio.wrap_future(closing_thread(left.engine.lane.close))  # The next one needs its local file.
        try:
            found = await self.open_at(left.hop)
        except LaneOwned as owned:
            raise error from owned
        if found.hop.url == left.hop.url and isinstance(found.engine, OnLane):
            # The streams are still open.
            return found._replace(below=left.below.at(found.engine))
        return found

    def at(self, url: str) -> "Opening":
        """Return the opening of another address with the same settings."""
        return Opening(url, clock=self.clock, hand_off=self._hand_off, cache=self._cache, settings=self._settings)

    async def open_at(self, start: Hop, moved: MovedElsewhere | None = None) -> FoundDatabase:
        """Open it at a place, or where its tombstones lead."""
        found = await _open_current(start, self._open, moved, wait_s=self._settings.seal_wait_s)
        if self._catalog is not None and found.hop.sent:
            with contextlib.suppress(InterlockError):  # Only a shortcut: other clients follow the tombstones as we did.
                _ = await self._catalog.enter(self._name, found.hop.url, found.hop.epoch)
        return found

    async def _open(self, hop: Hop) -> FoundDatabase:
        if is_postgres_url(hop.url):
            remote = await self._on_postgres(hop)()
            return FoundDatabase(remote, self._schemas_below(remote, hop.url), hop, self)
        # A client that a tombstone sent here knows that the move has happened: a draft has arrived.
        permission = Arrived(hop.epoch) if hop.sent else None
        place = self._place_of(hop.url, permission)
        made: list[OnLane] = []

        def make() -> Lane:
            made.append(self._lane(place, hop.url, permission))
            return made[-1].lane

        _ = await open_in_thread(make)
        follows = _PartFollows(self, hop.url, lambda: below.elsewhere)
        below: LaneStreams[Database, FoundDatabase] = LaneStreams(
            made[-1], lambda path: self._opened_below(path, below, follows), follows
        )
        return FoundDatabase(made[-1], below, hop, self)

    def _schemas_below(self, engine: "OnPostgres", url: str) -> PostgresStreams[Database, FoundDatabase]:
        def make(part: "OnPostgres", key: str) -> Database:
            hop, places = follows.places(key)
            return Database(FoundDatabase(part, self._schemas_below(part, hop.url), hop, places))

        follows = _PartFollows(self, url, lambda: below.elsewhere)
        below: PostgresStreams[Database, FoundDatabase] = PostgresStreams(engine, make, follows)
        return below

    def _on_postgres(self, hop: Hop) -> "Callable[[], Awaitable[OnPostgres]]":
        from interlock.database.postgres_engine import opener  # noqa: PLC0415 -- an extra, which may not be installed.

        # The hand-off is for a lane only: a database that moved to PostgreSQL does not get it.
        hand_off = None if hop.sent else self._hand_off
        tombstone_epoch = hop.epoch if hop.sent else 0
        return opener(
            hop.url, hand_off=hand_off, settings=self._settings, clock=self.clock, tombstone_epoch=tombstone_epoch
        )

    def _place_of(self, url: str, permission: Arrived | None = None) -> Place:
        return place_of(
            url,
            settings=self._settings,
            clock=self.clock,
            hand_off=self._hand_off,
            cache=self._cache,
            permission=permission,
        )

    def _lane(self, place: Place, url: str, permission: Arrived | None = None) -> OnLane:
        return opened_here(place, url=redact_url(url), settings=self._settings, clock=self.clock, permission=permission)

    def _opened_below(
        self, path: str, below: LaneStreams[Database, FoundDatabase], follows: _PartFollows
    ) -> tuple[Lane, Database]:
        """Open one stream or shard, at any depth, in this thread, which blocks on the disk."""
        hop, places = follows.places(path)
        engine = self._lane(self._place_of(hop.url), hop.url)
        return engine.lane, Database(FoundDatabase(engine, NestedStreams(below, path, engine), hop, places))


def _check_tool(tool: object) -> None:
    if tool is not None and not isinstance(tool, Tool):
        raise BadUsage(
            f"{tool!r} is not a Tool: it is {type(tool).__name__}.",
            why="A tool says how fast its writes must be, and how many there are.",
            fix='Pass Tool("stock", write_latency_budget=0.05, aggregate_write_rate=200), or leave it out.',
        )
