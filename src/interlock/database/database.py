"""`Database`: any SQL, any number of clients, no lost update, nothing acknowledged before it is durable (D1, D2).

    async with Database.open("lanes:///var/shop/stock") as db:
        await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", 1)

Users write PostgreSQL's dialect. A read-modify-write is one statement or one `transact`; both are serialized by the
lane's single writer, so no configuration lets two of them miss each other. A transaction never spans databases (D17).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextvars
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TypeVar, cast
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import apsw

from interlock.catalog.addresses import refuse_no_address, stream_name, stream_url
from interlock.catalog.catalog import Catalog
from interlock.catalog.configuration import configured, lane_settings
from interlock.catalog.opening import opened_lane
from interlock.catalog.places import place_of
from interlock.database.hot import hot_rows
from interlock.database.identity import check_key, digest_of
from interlock.database.streams import Streams
from interlock.database.transactions import execute_in, query_in, refuse_inside, refuse_no_function, run_in
from interlock.database.translation import Translator, register
from interlock.lanes.beyond import HandOff
from interlock.lanes.contention import HotRow
from interlock.lanes.failures import opening, overdue_read
from interlock.lanes.lane import Lane
from interlock.lanes.objects.addresses import redacted
from interlock.lanes.session import Session
from interlock.lanes.settings import KINDS, LaneSettings
from interlock.lanes.stats import LaneStats
from interlock.lanes.work import Work
from interlock.seams import Clock, RandomIds, SystemChance, SystemClock
from interlock.sql.rows import Row, row_class

ResultT = TypeVar("ResultT")

_READS = ("select", "with", "values", "(")


class Database:
    """An open database. Make one with `Database.open`."""

    def __init__(self, opening: "Opening", lane: Lane, translators: "_Translators") -> None:
        self.url = redacted(opening.url)
        """The address, without its secrets."""
        self._opening = opening
        self._lane = lane
        self._translators = translators
        self._clock = opening.clock
        self._streams: Streams[Database] = Streams(self._open_stream, settings=lane.settings, clock=opening.clock)

    @staticmethod
    def open(
        url: str,
        *,
        home: str | None = None,
        clock: Clock | None = None,
        hand_off: HandOff | None = None,
        cache: str | None = None,
        **settings: float,
    ) -> "Opening":
        """Open a database: `async with Database.open(url) as db`, or `db = await Database.open(url)`.

        With `home` the first argument is a name, and the catalog at the home knows where it lives. Settings are those
        of `LaneSettings`; what is not given here comes from the environment, then from `interlock.toml`. `cache` is the
        folder for the local file of a database in a bucket.
        """
        refuse_no_address(url, home)
        name = None if home is None else url
        with opening(home or url):
            address = url if home is None else Catalog(home).locate(url)
            chosen = {**configured(name or _name_of(url), KINDS), **settings}
        return Opening(
            address, clock=clock or SystemClock(), hand_off=hand_off, cache=cache, settings=lane_settings(chosen)
        )

    async def execute(self, sql: str, /, *args: object, key: str | None = None) -> int:
        """Run one statement as one durable transaction; returns the rows it changed."""
        work = Work(_execute, self._translators, sql, args, key=key, single=True)
        return cast("int", await self._run(work, "execute", sql, args))

    async def query(self, sql: str, /, *args: object, key: str | None = None) -> list[Row]:
        """Run one statement and return its rows. A writing one (RETURNING) is one durable transaction."""
        refuse_inside(self.url, self)
        if key is None and str(sql).lstrip().lower().startswith(_READS):
            found = await self._lane.read(lambda connection: self._read(connection, sql, args))
            if found is not None:
                return cast("list[Row]", found)
        work = Work(_query, self._translators, sql, args, key=key, single=True)
        return cast("list[Row]", await self._run(work, "query", sql, args))

    async def transact(
        self,
        function: Callable[..., Awaitable[ResultT]],
        /,
        *args: object,
        key: str | None = None,
    ) -> ResultT:
        """Run `async def function(tx, *args)` as one serialized durable transaction; returns what it returns.

        It may run more than once, awaits only `tx`, and rolls back on any exception. With a key it happens once; the
        same key for another function or other arguments is KeyReused (`interlock.database.identity` has the rule).
        """
        refuse_no_function(function)
        context = contextvars.copy_context()

        def run(session: Session) -> object:
            return run_in(session, self._translators.of(session.connection), function, args, context, (self.url, self))

        work = Work(run, key=key, limit_s=self._lane.settings.transaction_timeout_s)
        return cast("ResultT", await self._run(work, "transact", function, args))

    async def stream(self, key: str) -> "Database":
        """The database of one independent write stream (D4).

        With `db_per_write_stream` every key has a database of its own below this one, so that unrelated writers never
        wait for each other; without it this is the database itself. A stream is closed with its parent. Ask for it
        each time: of more than `streams_max` the one that rests longest is closed, and opened when it is asked for.
        """
        if not self._lane.settings.db_per_write_stream:
            return self
        refuse_inside(self.url)
        _ = stream_name(key)  # What is no key is refused at once.
        return await self._streams.get(key)

    async def contention(self) -> list[HotRow]:
        """The rows that writers wait for each other on, worst first (D9)."""
        return hot_rows(self._lane.contention, self._clock.monotonic_s())

    def stats(self) -> LaneStats:
        """What the lane has done since it was opened."""
        return self._lane.stats()

    async def close(self) -> None:
        """Finish what waits and give the lane up; streams too. Cancelled, it is closed all the same."""
        refuse_inside(self.url, self)
        await self._streams.close(self._lane.close)

    def _open_stream(self, key: str) -> "tuple[Lane, Database]":
        return self._opening.of_stream(key).open_here()

    def _run(
        self, work: Work, how: str, what: str | Callable[..., object], args: tuple[object, ...]
    ) -> Awaitable[object]:
        # Every object that lives while its transaction waits is looked at by the garbage collector, again and again:
        # no closures on this path, and no coroutine more than needed.
        refuse_inside(self.url, self)
        key = work.key
        if key is not None:
            check_key(key)
            work.digest = digest_of(how, what, args)
        return self._lane.submit(work)

    def _read(self, connection: apsw.Connection, sql: str, args: tuple[object, ...]) -> list[Row] | None:
        statement = self._translators.of(connection).statement(sql)
        if statement.kind != "read":
            return None
        values = statement.encode(args)
        try:
            rows = connection.execute(statement.text, values).fetchall()
        except apsw.InterruptError as error:
            if self._lane.path is None:
                raise  # It ran in the writer, which has its own words for it.
            raise overdue_read() from error
        return [statement.decode(row) for row in rows]


def _name_of(url: str) -> str:
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])


def _execute(session: Session, translators: "_Translators", sql: str, args: tuple[object, ...]) -> int:
    return execute_in(session, translators.of(session.connection), sql, args)


def _query(session: Session, translators: "_Translators", sql: str, args: tuple[object, ...]) -> list[Row]:
    return query_in(session, translators.of(session.connection), sql, args)


class _Translators:
    """One translator per connection, made when the connection is."""

    def __init__(self) -> None:
        self._chance = SystemChance()
        self._ids = RandomIds()
        self._known: WeakKeyDictionary[apsw.Connection, Translator] = WeakKeyDictionary()

    def prepare(self, connection: apsw.Connection, now_us: Callable[[], int]) -> None:
        register(connection, now_us, chance=self._chance, ids=self._ids)
        self._known[connection] = Translator(connection)

    def of(self, connection: apsw.Connection) -> Translator:
        return self._known[connection]


class Opening:
    """A database that is about to be opened: enter it with `async with`, or await it."""

    def __init__(
        self, url: str, *, clock: Clock, hand_off: HandOff | None, cache: str | None, settings: LaneSettings
    ) -> None:
        self.url = url
        self.clock = clock
        self._place = place_of(url, settings=settings, clock=clock, hand_off=hand_off, cache=cache)
        self._hand_off = hand_off
        self._cache = cache
        self._settings = settings
        self._database: Database | None = None

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
        translators = _Translators()
        lane = await opened_lane(lambda: self._lane(translators))
        return Database(self, lane, translators)

    def of_stream(self, key: str) -> "Opening":
        """The same for one stream of this database."""
        url = stream_url(self.url, key)
        return Opening(url, clock=self.clock, hand_off=self._hand_off, cache=self._cache, settings=self._settings)

    def open_here(self) -> tuple[Lane, Database]:
        """Open it in this thread, which waits for the disk."""
        translators = _Translators()
        lane = self._lane(translators)
        return lane, Database(self, lane, translators)

    def _lane(self, translators: _Translators) -> Lane:
        return Lane(
            self._place.path,
            settings=self._settings,
            clock=self.clock,
            prepare=translators.prepare,
            open_log=self._place.open_log,
            make_row=_row,
        )


def _row(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_class(names)(values)
