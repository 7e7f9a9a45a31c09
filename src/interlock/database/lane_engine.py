"""Database engine on a lane: one writer executes one transaction after the other.

Calls wait for the lane only. A statement is translated on the connection that runs it, because only that connection
knows the schema as its transaction has changed it. A statement that changes the schema is stored as it was written, in
the same transaction.

Sections: translation, stored schema statements, statements in a session, engine.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextvars
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import apsw
import msgspec

from interlock.catalog.open_lane import Place
from interlock.clock import Chance, Clock, Ids, RandomIds, SystemChance
from interlock.database.call_digest import digest_of
from interlock.database.transactions import (
    LaneTransaction,
    ReaderHost,
    Transaction,
    WriterHost,
    inside_of,
    not_a_text,
    refuse_inside,
    refuse_no_function,
)
from interlock.errors import ConstraintViolation, DialectError, TransactionError
from interlock.hotrow.contention_windows import as_written
from interlock.hotrow.tables import check_key
from interlock.lanes.handover import Permission
from interlock.lanes.hot_rows import OPEN_SOURCES, HotRow
from interlock.lanes.lane import Lane, LaneStats
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import overdue_read, translate_error
from interlock.lanes.transact import Requests, drive
from interlock.lanes.writer import Session, Work
from interlock.sql.dialect import Dialect
from interlock.sql.functions.sequence_positions import Positions
from interlock.sql.parse import quoted_name
from interlock.sql.registered_functions import (
    Sources,
    aggregate_functions,
    collations,
    scalar_functions,
    window_functions,
)
from interlock.sql.schema import (
    COLUMNS_QUERY,
    IDENTITIES_QUERY,
    OBJECTS_QUERY,
    REFERENCES_QUERY,
    ColumnRow,
    Numbering,
    ObjectRow,
    ReferenceRow,
    Schema,
    has_old_keys,
    identities,
    schema_from_rows,
)
from interlock.sql.stored_values import Answer, EngineName, ResultT, Row, Statement, StoredValue, row_class

# --- Translation -----------------------------------------------------------------------------------------------------
# Statements are translated for one connection, with the schema that the connection currently has. The writer's schema
# changes inside the running group, and back when a transaction is rolled back. SQLite's schema version shows both. A
# reader reads it before each statement, because the writer changes the schema. The writer reads it only after its own
# change of the schema or a rollback. A change that was rolled back and another one in its place have the same version.
# So a reload follows every statement that changes the schema, and each reload has its own number.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Translator:
    """Translator of one connection; not thread-safe."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._run = connection.cursor().execute
        self._schema = Schema(0)
        self._schema_version: int | None = None
        self._undone: int | None = None
        self._dialect = Dialect(lambda: self._schema)
        self._identities: dict[tuple[str, str], Numbering] = {}
        columns = cast("list[ColumnRow]", self._run(COLUMNS_QUERY).fetchall())
        if has_old_keys(columns) and any(row[0] == "interlock_definitions" for row in columns):
            # Before statements of users may run: whatever changes such a table since makes it anew.
            self._identities = identities(cast("str", text) for (text,) in self._run(IDENTITIES_QUERY))

    def statement(self, sql: str, undone: int | None = None) -> Statement:
        """Return the statement for SQLite. Raises DialectError for SQL outside the subset.

        `undone` is the writer's number of rollbacks; a reader passes None.
        """
        if not isinstance(sql, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped.
            raise not_a_text(sql, "db")
        if undone is None or undone != self._undone:
            self._reload_schema()
            self._undone = undone
        statement = self._dialect.statement(sql)
        if statement.kind == "schema":
            self._schema_version = self._undone = None
        return statement

    def _reload_schema(self) -> None:
        version = cast("int", self._run("PRAGMA schema_version").get)
        if version != self._schema_version:
            columns = cast("list[ColumnRow]", self._run(COLUMNS_QUERY).fetchall())
            references = cast("list[ReferenceRow]", self._run(REFERENCES_QUERY).fetchall())
            objects = cast("list[ObjectRow]", self._run(OBJECTS_QUERY).fetchall())
            self._schema = schema_from_rows(
                columns,
                version=self._schema.version + 1,
                references=references,
                objects=objects,
                identities=self._identities,
            )
            self._schema_version = version


_POSITION = "SELECT seq FROM sqlite_sequence WHERE name = ?1"


def register(connection: apsw.Connection, now_us: Callable[[], int], *, chance: Chance, ids: Ids) -> Positions:
    """Register the functions that translated statements call at a connection; return the positions of sequences."""

    def look_up(name: str) -> int | None:
        try:
            return cast("int | None", connection.execute(_POSITION, (name,)).get)
        except apsw.SQLError as error:
            if "no such table" not in str(error):
                raise
            return None  # Before the first definition of a lane.

    positions = Positions(look_up)
    sources = Sources(
        now=lambda: _EPOCH + timedelta(microseconds=now_us()),
        random=chance.fraction,
        uuid=ids.new,
        positions=positions,
    )
    for function in scalar_functions(sources):
        connection.create_scalar_function(
            function.name,
            function.call,
            function.arguments,
            deterministic=function.deterministic,
            # A schema may use them: DEFAULT now().
            flags=apsw.SQLITE_INNOCUOUS,
        )
    for aggregate in aggregate_functions():
        connection.create_aggregate_function(
            aggregate.name, cast("Callable[[], Any]", aggregate.make), aggregate.arguments
        )
    for window in window_functions():
        connection.create_window_function(window.name, cast("Callable[[], Any]", window.make), window.arguments)
    for collation in collations():
        connection.create_collation(collation.name, collation.compare)
    return positions


class Translators:
    """One translator per connection, made when the connection is."""

    def __init__(self) -> None:
        self._chance = SystemChance()
        self._ids = RandomIds()
        self._known: WeakKeyDictionary[apsw.Connection, Translator] = WeakKeyDictionary()

    def prepare(self, connection: apsw.Connection, now_us: Callable[[], int]) -> Positions:
        """Register the functions of the dialect at a new connection."""
        positions = register(connection, now_us, chance=self._chance, ids=self._ids)
        self._known[connection] = Translator(connection)
        return positions

    def of(self, connection: apsw.Connection) -> Translator:
        """Return the translator of this connection."""
        return self._known[connection]


# --- Stored schema statements ----------------------------------------------------------------------------------------
# SQLite's catalog loses parts of a definition in PostgreSQL's dialect, which a move needs. A statement that changed
# nothing, such as CREATE TABLE IF NOT EXISTS at every start, is not stored, so the table does not grow with time.

DEFINITIONS_MAX = 100_000
"""Statements that are kept; the oldest go first. The very first has the number 1, so a gap is visible."""

_VERSION = "PRAGMA schema_version"
_MAKE = """
CREATE TABLE IF NOT EXISTS interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)
"""
_STORE = "INSERT INTO interlock_definitions (sql) VALUES (?1)"
_BOUND = "DELETE FROM interlock_definitions WHERE number <= (SELECT max(number) FROM interlock_definitions) - ?1"


def define(session: Session, statement: Statement, *, written: str) -> None:
    """Run a statement on the schema, and store it as it was written if it has changed anything."""
    before = session.query(_VERSION)
    if session.memory is not None:
        memory = session.memory
        session.own(lambda run: memory.define(run, statement.text))
    if statement.several:
        _together(session, lambda: run_definition(session.connection, statement, session.execute, session.own))
    else:
        session.execute(statement.text)
    if session.query(_VERSION) == before:
        return
    session.defined = True  # If a later statement fails, more than that one must be undone.
    session.own(lambda run: _store_definition(run, written))


def _together(session: Session, work: Callable[[], ResultT]) -> ResultT:
    """Run several statements of SQLite: all of them happen, or none."""
    session.own(lambda run: run("SAVEPOINT several"))
    try:
        result = work()
    except BaseException:
        if session.connection.in_transaction:
            session.own(lambda run: run("ROLLBACK TO several"))
            session.own(lambda run: run("RELEASE several"))
        session.undone += 1
        raise
    session.own(lambda run: run("RELEASE several"))
    return result


def run_definition(
    connection: apsw.Connection,
    statement: Statement,
    execute: Callable[[str], object],
    own: Callable[[Callable[[Callable[..., apsw.Cursor]], bool]], bool],
) -> None:
    """Run the statements of a definition, inside the caller's savepoint.

    A table that is made anew is dropped in between. With foreign keys on that would delete the rows that refer to its
    rows. SQLite ignores the pragma inside a transaction, but not the setting of the connection.
    """
    table = statement.rebuilds
    if not table:
        execute(statement.text)
        return
    if connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
        raise DialectError(
            f"{table!r} cannot change while a deferred foreign key of this transaction is violated.",
            fix="Change the table in a transaction of its own.",
        )
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
    try:
        execute(statement.text)
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    check = f"PRAGMA foreign_key_check({quoted_name(table)})"
    if own(lambda run: run(check).fetchone() is not None):
        raise ConstraintViolation(f"a row of {table!r} refers to a row that does not exist.")


def _store_definition(run: Callable[..., apsw.Cursor], written: str) -> None:
    run(_MAKE)
    run(_STORE, (written,))
    run(_BOUND, (DEFINITIONS_MAX,))


# --- Statements in a session -----------------------------------------------------------------------------------------


def query_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> list[Row]:
    """Run one statement in the session; return its rows as Python values."""
    statement = translator.statement(sql, session.undone)
    values = statement.encode(args)
    if statement.kind == "schema":
        define(session, statement, written=sql)
        return []
    if statement.steps:
        return _together(session, lambda: _query_statement(session, statement, values))
    return _query_statement(session, statement, values)


def _query_statement(session: Session, statement: Statement, values: tuple[StoredValue, ...]) -> list[Row]:
    if statement.steps:
        values = statement.run_steps(values, session.query)
    rows = session.query(statement.text, values)
    return [statement.decode(row) for row in rows]


def execute_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> int:
    """Run one statement in the session; return the number of rows that it changed or found."""
    statement = translator.statement(sql, session.undone)
    values = statement.encode(args)
    if statement.kind == "schema":
        define(session, statement, written=sql)
        return 0
    if statement.steps:
        return _together(session, lambda: _execute_statement(session, statement, values))
    return _execute_statement(session, statement, values)


def _execute_statement(session: Session, statement: Statement, values: tuple[StoredValue, ...]) -> int:
    if statement.steps:
        values = statement.run_steps(values, session.query)
    if statement.kind == "write" and not statement.returns_rows:
        return session.execute(statement.text, values)
    # A result that PostgreSQL could not return is an error here too, although it is discarded.
    return len([statement.decode(row) for row in session.query(statement.text, values)])


def answer_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> Answer:
    """Run one statement in the session; return its rows, how many it changed or found, and its columns."""
    statement = translator.statement(sql, session.undone)
    if statement.returns_rows:
        return _answer(statement, query_in(session, translator, sql, args))
    return Answer([], execute_in(session, translator, sql, args))


def _answer(statement: Statement, rows: list[Row]) -> Answer:
    return Answer(rows, len(rows), tuple([(column.name, column.type.title) for column in statement.columns]))


def _perform(
    run: Callable[[Session, Translator, str, tuple[object, ...]], object],
    session: Session,
    translator: Translator,
    sql: str,
    args: tuple[object, ...],
) -> object:
    """Run one statement of a user's function; errors of the driver become ours."""
    try:
        return run(session, translator, sql, args)
    except apsw.Error as error:
        raise translate_error(error) from error


def run_in(
    session: Session,
    translator: Translator,
    function: Callable[..., object],
    args: tuple[object, ...],
    context: contextvars.Context,
    database: tuple[str, object],
) -> object:
    """Drive the user's function inside the session."""

    def begin(requests: Requests) -> Awaitable[object]:
        tx = Transaction(
            requests,
            query=lambda sql, values: lambda: _perform(query_in, session, translator, sql, values),
            execute=lambda sql, values: lambda: _perform(execute_in, session, translator, sql, values),
        )
        return cast("Awaitable[object]", function(tx, *args))  # The driver refuses a result that is not awaitable.

    return drive(begin, inside_of(context, database))


# --- Engine ----------------------------------------------------------------------------------------------------------

_READS = ("select", "with", "values", "(")


class OnLane:
    """One open lane that runs PostgreSQL's dialect."""

    def __init__(self, lane: Lane, translators: Translators, *, url: str, clock: Clock) -> None:
        self.name: EngineName = "lane"
        self.url = url
        self.lane = lane
        self._translators = translators
        self.clock = clock
        OPEN_SOURCES.add(self)

    @property
    def settings(self) -> LaneSettings:
        """The lane's settings."""
        return self.lane.settings

    # The garbage collector traverses every object of a waiting transaction repeatedly: the path of `execute` has no
    # closures and as few coroutines as possible.

    def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> Awaitable[int]:
        """Run one statement as one durable transaction; return the number of changed rows."""
        work = Work(_execute, self._translators, sql, args, key=key, single=True)
        return cast("Awaitable[int]", self._run(work, "execute", sql, args))

    async def query(self, sql: str, args: tuple[object, ...], key: str | None) -> list[Row]:
        """Run one statement and return its rows. A read-only statement runs on a reader's connection."""
        refuse_inside(self.url, self)
        if key is None and str(sql).lstrip().lower().startswith(_READS):
            found = await self.lane.read(lambda connection: self._read(connection, sql, args))
            if found is not None:
                return cast("list[Row]", found)
        work = Work(_query, self._translators, sql, args, key=key, single=True)
        return cast("list[Row]", await self._run(work, "query", sql, args))

    def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> Awaitable[object]:
        """Run `async def function(tx, *args)` inside the writer."""
        refuse_no_function(function)
        context = contextvars.copy_context()

        def run(session: Session) -> object:
            return run_in(session, self._translators.of(session.connection), function, args, context, (self.url, self))

        work = Work(run, key=key, limit_s=self.lane.settings.transaction_timeout_s)
        return self._run(work, "transact", function, args)

    async def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement as `query` does; return its columns too."""
        refuse_inside(self.url, self)
        if str(sql).lstrip().lower().startswith(_READS):
            found = await self.lane.read(lambda connection: self._read_answer(connection, sql, args))
            if found is not None:
                return cast("Answer", found)
        return cast("Answer", await self.lane.submit(Work(partial(_run_in, self._translators), sql, args, single=True)))

    def inspect(self, look: Callable[[apsw.Connection], object]) -> Awaitable[object]:
        """Run a function that reads the catalog, in the writer: readers may not read the stored definitions."""
        refuse_inside(self.url, self)
        return self.lane.submit(Work(Session.inspect, look))

    def begin(self, *, read_only: bool) -> LaneTransaction:
        """Return an interactive transaction, which takes the writer, or a reader, with its first call."""
        translators = self._translators
        return LaneTransaction(
            self.lane,
            self.clock,
            on_writer=lambda session: WriterHost(session, partial(_run_in, translators)),
            on_reader=(lambda connection: ReaderHost(connection, self._read_answer)) if read_only else None,
        )

    async def has_shards_beside(self) -> bool:
        """Return whether the shards of counters are lanes of their own: not in a lane that came from PostgreSQL."""
        try:
            return not await self.query("SELECT 1 FROM hotrow_counter_shard LIMIT 1", (), None)
        except TransactionError:  # There is no such table.
            return True

    def hot_rows(self) -> list[HotRow]:
        """Return the rows with the most contention between writers, worst first, their keys as written (D9)."""
        contention = self.lane.contention
        return [
            msgspec.structs.replace(row, key=as_written(row.key, contention.key_types(row.table)))
            for row in contention.worst(self.clock.monotonic_s())
        ]

    def stats(self) -> LaneStats:
        """Return the statistics of the lane since it was opened."""
        return self.lane.stats()

    def _run(
        self, work: Work, how: str, what: str | Callable[..., object], args: tuple[object, ...]
    ) -> Awaitable[object]:
        refuse_inside(self.url, self)
        key = work.key
        if key is not None:
            check_key(key)
            work.digest = digest_of(how, what, args)
        return self.lane.submit(work)

    def _read(self, connection: apsw.Connection, sql: str, args: tuple[object, ...]) -> list[Row] | None:
        found = self._read_answer(connection, sql, args)
        return None if found is None else found.rows

    def _read_answer(self, connection: apsw.Connection, sql: str, args: tuple[object, ...]) -> Answer | None:
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
        return _answer(statement, [statement.decode(row) for row in rows])


def _run_in(translators: Translators, session: Session, sql: str, args: tuple[object, ...]) -> Answer:
    return answer_in(session, translators.of(session.connection), sql, args)


def _execute(session: Session, translators: Translators, sql: str, args: tuple[object, ...]) -> int:
    return execute_in(session, translators.of(session.connection), sql, args)


def _query(session: Session, translators: Translators, sql: str, args: tuple[object, ...]) -> list[Row]:
    return query_in(session, translators.of(session.connection), sql, args)


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
