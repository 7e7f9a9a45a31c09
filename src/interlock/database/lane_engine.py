"""Database engine on a lane: one writer executes one transaction after the other.

Calls wait for the lane only. A statement is translated on the connection that runs it, because only that connection
knows the schema as its transaction has changed it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextvars
from collections.abc import Awaitable, Callable
from typing import cast
from weakref import WeakKeyDictionary

import apsw
import msgspec

from interlock.catalog.open_lane import Place
from interlock.clock import Clock, RandomIds, SystemChance
from interlock.database.call_digest import check_key, digest_of
from interlock.database.protocol import DatabaseEngine, Follow
from interlock.database.transactions import execute_in, query_in, refuse_inside, refuse_no_function, run_in
from interlock.database.translation import Translator, register
from interlock.errors import UnavailableError
from interlock.hotrow.hot_rows import as_written
from interlock.lanes.connection import overdue_read
from interlock.lanes.contention import HotRow
from interlock.lanes.handover import Permission
from interlock.lanes.lane import Lane
from interlock.lanes.settings import LaneSettings
from interlock.lanes.transaction import LaneStats, Session, Work
from interlock.sql.values import EngineName, Row, row_class

_READS = ("select", "with", "values", "(")


class OnLane:
    """One open lane that runs PostgreSQL's dialect."""

    def __init__(self, lane: Lane, translators: "Translators", *, url: str, clock: Clock) -> None:
        self.name: EngineName = "lane"
        self.url = url
        self.lane = lane
        self._translators = translators
        self.clock = clock
        self.follow: Follow | None = None
        """Finds the current place when the database may have moved."""

    @property
    def inside(self) -> object:
        """The identity by which its transactions recognize it."""
        return self

    @property
    def settings(self) -> LaneSettings:
        """The lane's settings."""
        return self.lane.settings

    async def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> int:
        """Run one statement as one durable transaction; return the number of changed rows."""
        work = Work(_execute, self._translators, sql, args, key=key, single=True)
        try:
            return cast("int", await self._run(work, "execute", sql, args))
        except UnavailableError as error:
            return await (await self._after(error)).execute(sql, args, key)

    async def query(self, sql: str, args: tuple[object, ...], key: str | None) -> list[Row]:
        """Run one statement and return its rows. A read-only statement runs on a reader's connection."""
        refuse_inside(self.url, self)
        try:
            if key is None and str(sql).lstrip().lower().startswith(_READS):
                found = await self.lane.read(lambda connection: self._read(connection, sql, args))
                if found is not None:
                    return cast("list[Row]", found)
            work = Work(_query, self._translators, sql, args, key=key, single=True)
            return cast("list[Row]", await self._run(work, "query", sql, args))
        except UnavailableError as error:
            return await (await self._after(error)).query(sql, args, key)

    async def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> object:
        """Run `async def function(tx, *args)` inside the writer."""
        refuse_no_function(function)
        context = contextvars.copy_context()

        def run(session: Session) -> object:
            return run_in(session, self._translators.of(session.connection), function, args, context, (self.url, self))

        work = Work(run, key=key, limit_s=self.lane.settings.transaction_timeout_s)
        try:
            return await self._run(work, "transact", function, args)
        except UnavailableError as error:
            return await (await self._after(error)).transact(function, args, key)

    async def contention(self) -> list[HotRow]:
        """Return the rows with the most contention between writers, worst first, their keys as written (D9)."""
        contention = self.lane.contention
        return [
            msgspec.structs.replace(row, key=as_written(row.key, contention.key_types(row.table)))
            for row in contention.worst(self.clock.monotonic_s())
        ]

    def stats(self) -> LaneStats:
        """Return the statistics of the lane since it was opened."""
        return self.lane.stats()

    async def _after(self, error: UnavailableError) -> DatabaseEngine:
        if self.follow is None:
            raise error
        return await self.follow(self, error)

    def _run(
        self, work: Work, how: str, what: str | Callable[..., object], args: tuple[object, ...]
    ) -> Awaitable[object]:
        # The garbage collector traverses every object of a waiting transaction repeatedly: this path has no closures
        # and as few coroutines as possible.
        refuse_inside(self.url, self)
        key = work.key
        if key is not None:
            check_key(key)
            work.digest = digest_of(how, what, args)
        return self.lane.submit(work)

    def _read(self, connection: apsw.Connection, sql: str, args: tuple[object, ...]) -> list[Row] | None:
        statement = self._translators.of(connection).statement(sql)
        if statement.kind != "read":
            return None
        values = statement.encode(args)
        try:
            rows = connection.execute(statement.text, values).fetchall()
        except apsw.InterruptError as error:
            if self.lane.path is None:
                raise  # It ran in the writer, which raises its own error.
            raise overdue_read() from error
        return [statement.decode(row) for row in rows]


def opened_here(
    place: Place, *, url: str, settings: LaneSettings, clock: Clock, permission: Permission = None
) -> OnLane:
    """Open a lane in this thread, which blocks on the disk. A draft is opened only with its permission."""
    translators = Translators()
    lane = Lane(
        place.path,
        settings=settings,
        clock=clock,
        prepare=translators.prepare,
        open_log=place.open_log,
        make_row=_make_row,
        permission=permission,
    )
    return OnLane(lane, translators, url=url, clock=clock)


def _make_row(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_class(names)(values)


def _execute(session: Session, translators: "Translators", sql: str, args: tuple[object, ...]) -> int:
    return execute_in(session, translators.of(session.connection), sql, args)


def _query(session: Session, translators: "Translators", sql: str, args: tuple[object, ...]) -> list[Row]:
    return query_in(session, translators.of(session.connection), sql, args)


class Translators:
    """One translator per connection, made when the connection is."""

    def __init__(self) -> None:
        self._chance = SystemChance()
        self._ids = RandomIds()
        self._known: WeakKeyDictionary[apsw.Connection, Translator] = WeakKeyDictionary()

    def prepare(self, connection: apsw.Connection, now_us: Callable[[], int]) -> None:
        """Register the functions of the dialect at a new connection."""
        register(connection, now_us, chance=self._chance, ids=self._ids)
        self._known[connection] = Translator(connection)

    def of(self, connection: apsw.Connection) -> Translator:
        """Return the translator of this connection."""
        return self._known[connection]
