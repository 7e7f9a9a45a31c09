"""The two engines of the dialect's conformance suite, behind one way to run a statement.

A statement's outcome is everything a caller can see: the names, types and values of its rows, how many rows it
changed, or that it failed. Each case runs inside a transaction that is rolled back; a statement that fails is undone
alone, so that the next one runs on the same state on both engines.
"""

import asyncio
import json
import tempfile
import warnings
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Protocol, Self
from uuid import UUID

import apsw
import asyncpg

from interlock.database.lane_engine import run_definition
from interlock.errors import ConstraintViolation, DialectError, InterlockError
from interlock.lanes.sqlite_connection import translate_error
from interlock.sql.dialect import Dialect
from interlock.sql.functions.sequence_positions import Positions
from interlock.sql.registered_functions import (
    Sources,
    aggregate_functions,
    collations,
    scalar_functions,
    window_functions,
)
from interlock.sql.schema import COLUMNS_QUERY, OBJECTS_QUERY, REFERENCES_QUERY, Schema, schema_from_rows
from tests.integration.postgres.wheel import end_server, get_server


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a caller sees of one statement."""

    rows: tuple[tuple[object, ...], ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    changed: int | None = None
    failed: bool = False
    violated: bool = False  # Failed because a constraint was broken.
    # Not compared: why it failed, and whether the dialect refused it.
    error: str = field(default="", compare=False)
    refused: bool = field(default=False, compare=False)
    kind: type[Exception] | None = field(default=None, compare=False)  # The class of a lane's error for its caller.
    running: bool = field(default=False, compare=False)  # A lane's error while the statement ran, not before.
    code: str = field(default="", compare=False)  # PostgreSQL's SQLSTATE.

    def comparable(self, *, ordered: bool) -> "Outcome":
        """The outcome with its values in a form that differs when their types or scales differ."""
        rows = [tuple(f"{type(value).__name__}:{_shown(value)}" for value in row) for row in self.rows]
        return replace(self, rows=tuple(rows if ordered else sorted(rows)))


def _shown(value: object) -> str:
    # asyncpg gives 40000 as 4E+4; the digits and the scale are the same. The order of keys has no meaning.
    match value:
        case Decimal():
            return format(value, "f")
        case float():
            return repr(value + 0.0)  # SQLite has no negative zero; it is equal to zero on both engines.
        case dict() | list():
            return json.dumps(
                _without_negative_zeros(value),
                sort_keys=True,
                default=lambda item: f"{type(item).__name__}:{_shown(item)}",
            )
        case _:
            return repr(value)


def _without_negative_zeros(value: object) -> object:
    match value:
        case list():
            return [_without_negative_zeros(item) for item in value]
        case dict():
            return {name: _without_negative_zeros(item) for name, item in value.items()}
        case float():
            return value + 0.0
        case _:
            return value


class Engine(Protocol):
    """Runs statements one after the other."""

    def run(self, sql: str, args: Sequence[object] = ()) -> Outcome:
        """Run one statement; never raises for what the statement does."""
        ...

    def undo(self) -> None:
        """Take back everything since the last undo."""
        ...


LOOKS_MAX = 500
STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine: 500 looks are about a second of a series."""


class Lane:
    """SQLite with the dialect in front of it, as a lane sets it up."""

    def __init__(self, now: datetime = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)) -> None:
        self.connection = apsw.Connection(":memory:")
        # As every lane has it, and with it SQLite's table of last numbers.
        self.connection.execute("CREATE TABLE interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT)")
        self.positions = Positions(
            lambda name: self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,)).get
        )
        chance = Random(7)  # A seed of its own: what is random is never compared.
        sources = Sources(
            now=lambda: now,
            random=chance.random,
            uuid=lambda: UUID(int=chance.getrandbits(128), version=4),
            positions=self.positions,
        )
        for function in scalar_functions(sources):
            self.connection.create_scalar_function(
                function.name, function.call, function.arguments, deterministic=function.deterministic
            )
        for aggregate in aggregate_functions():
            self.connection.create_aggregate_function(aggregate.name, aggregate.make, aggregate.arguments)
        for window in window_functions():
            self.connection.create_window_function(window.name, window.make, window.arguments)
        for collation in collations():
            self.connection.create_collation(collation.name, collation.compare)
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        self.connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        self.dialect = Dialect(self.schema)
        self.running = False
        self.connection.execute("BEGIN")

    def schema(self) -> Schema:
        columns = list(self.connection.execute(COLUMNS_QUERY))
        references = list(self.connection.execute(REFERENCES_QUERY))
        objects = list(self.connection.execute(OBJECTS_QUERY))
        # By content: a statement that is undone gives SQLite's own number to the next one.
        version = hash((*columns, *references, *objects))
        return schema_from_rows(columns, version=version, references=references, objects=objects)

    def bound_steps(self, looks_max: int = LOOKS_MAX) -> None:
        """End statements that take more than about a second: a mutant may count to the end of bigint."""
        looks = iter(range(looks_max))
        self.connection.set_progress_handler(lambda: next(looks, None) is None, STEPS_PER_LOOK)

    def run(self, sql: str, args: Sequence[object] = ()) -> Outcome:
        self.connection.execute("SAVEPOINT statement")
        self.running = False
        mark = self.positions.begin()
        try:
            outcome = self._run(sql, args)
        except (InterlockError, apsw.Error) as error:
            self.connection.execute("ROLLBACK TO statement")
            seen = translate_error(error)
            refused = isinstance(seen, DialectError)
            self.positions.undo(mark)
            outcome = Outcome(
                failed=True,
                violated=isinstance(seen, ConstraintViolation),
                error=str(error),
                refused=refused,
                kind=type(error) if isinstance(error, apsw.SQLError) and not refused else type(seen),
                running=self.running,
            )
        self.connection.execute("RELEASE statement")
        return outcome

    def _run(self, sql: str, args: Sequence[object]) -> Outcome:
        statement = self.dialect.statement(sql)
        self.running = True
        if statement.kind == "schema":
            self.positions.define(self.connection.execute, statement.text)
        if statement.several:
            run = self.connection.execute
            run_definition(self.connection, statement, lambda text: list(run(text)), lambda use: use(run))
            return Outcome()
        values = statement.encode(args)
        if statement.steps:
            values = statement.run_steps(values, lambda text, known: list(self.connection.execute(text, known)))
        found = self.connection.execute(statement.text, values).fetchall()
        rows = [statement.decode(row) for row in found]
        return Outcome(
            tuple(map(tuple, rows)),
            tuple(column.name for column in statement.columns),
            tuple(column.type.title for column in statement.columns),
            self.connection.changes() if statement.kind == "write" else None,
        )

    def undo(self) -> None:
        self.connection.execute("ROLLBACK")
        self.positions.undo(0)
        self.connection.execute("BEGIN")


class Postgres:
    """A connection to a real PostgreSQL, driven from synchronous tests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.loop = asyncio.new_event_loop()
        self.connection: asyncpg.Connection = self.loop.run_until_complete(
            # As every connection of a `Database` has it: a moment without an offset is in UTC.
            asyncpg.connect(url, server_settings={"timezone": "UTC"})
        )
        for name in ("json", "jsonb"):
            codec = self.connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            self._wait(codec)
        self.execute("BEGIN")

    def _wait(self, awaitable: Awaitable[object]) -> object:
        return self.loop.run_until_complete(awaitable)

    def execute(self, sql: str) -> None:
        self._wait(self.connection.execute(sql))

    def run(self, sql: str, args: Sequence[object] = ()) -> Outcome:
        outcome = self.loop.run_until_complete(self._run(sql, args))
        assert isinstance(outcome, Outcome)
        return outcome

    def can_parse(self, sql: str) -> bool:
        """Whether the text is a statement by PostgreSQL's grammar, whatever it would do."""
        self.execute("SAVEPOINT parsing")
        try:
            self._wait(self.connection.prepare(sql))
        except asyncpg.PostgresSyntaxError as error:
            # The class has more: a syntax error is what the grammar itself refuses.
            return bool(error.sqlstate != "42601")
        except asyncpg.PostgresError:
            return True
        finally:
            self.execute("ROLLBACK TO SAVEPOINT parsing")
        return True

    async def _run(self, sql: str, args: Sequence[object]) -> Outcome:
        await self.connection.execute("SAVEPOINT statement")
        try:
            statement = await self.connection.prepare(sql)
            rows = await statement.fetch(*args)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OverflowError, ValueError, TypeError) as error:
            await self.connection.execute("ROLLBACK TO SAVEPOINT statement")
            violated = isinstance(error, asyncpg.IntegrityConstraintViolationError)
            code = error.sqlstate or "" if isinstance(error, asyncpg.PostgresError) else ""
            return Outcome(failed=True, violated=violated, error=f"{type(error).__name__}: {error}", code=code)
        await self.connection.execute("RELEASE SAVEPOINT statement")
        attributes = statement.get_attributes()
        word, *numbers = statement.get_statusmsg().split()
        return Outcome(
            tuple(tuple(row.values()) for row in rows),
            tuple(attribute.name for attribute in attributes),
            tuple(attribute.type.name for attribute in attributes),
            int(numbers[-1]) if word in {"INSERT", "UPDATE", "DELETE"} else None,
        )

    def undo(self) -> None:
        self.execute("ROLLBACK")
        self.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self.connection.close())
        self.loop.close()


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL of its own in a temporary directory; gives the address of a database that sorts by bytes."""
    with warnings.catch_warnings():
        # The wheel asks for a runtime directory, which a bare machine does not have.
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory(prefix="interlock-postgres-") as folder:
            server = get_server(Path(folder) / "data")
            try:
                server.psql(
                    "CREATE DATABASE conformance TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin "
                    "BUILTIN_LOCALE 'C.UTF-8'"
                )
                yield server.get_uri("conformance")
            finally:
                end_server(server)


def same(lane: Outcome, postgres: Outcome, sql: str) -> bool:
    """Whether a caller could tell the two outcomes apart. Without ORDER BY the order of rows has no meaning."""
    ordered = "order by" in sql.lower()
    return lane.comparable(ordered=ordered) == postgres.comparable(ordered=ordered)
