"""Translation of statements for one connection, with the schema that the connection currently has.

The writer's schema changes inside the running group, and back when a transaction is rolled back. SQLite's schema
version shows both. A reader reads it before each statement, because the writer changes the schema. The writer reads it
only after its own change of the schema or a rollback. A change that was rolled back and another one in its place have
the same version. So a reload follows every statement that changes the schema, and each reload has its own number.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import apsw

from interlock.clock import Chance, Ids
from interlock.errors import DialectError
from interlock.sql.dialect import Dialect
from interlock.sql.registry import Sources, aggregate_functions, collations, scalar_functions, window_functions
from interlock.sql.schema import (
    COLUMNS_QUERY,
    INDEXES_QUERY,
    REFERENCES_QUERY,
    ColumnRow,
    ReferenceRow,
    Schema,
    schema_from_rows,
)
from interlock.sql.values import Statement

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Translator:
    """Translator of one connection; not thread-safe."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._run = connection.cursor().execute
        self._schema = Schema(0)
        self._schema_version: int | None = None
        self._undone: int | None = None
        self._dialect = Dialect(lambda: self._schema)

    def statement(self, sql: str, undone: int | None = None) -> Statement:
        """Return the statement for SQLite. Raises DialectError for SQL outside the subset.

        `undone` is the writer's number of rollbacks; a reader passes None.
        """
        if not isinstance(sql, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped.
            raise DialectError(
                f"the statement is {type(sql).__name__}, not a text.",
                why="A statement is SQL as text; its values are passed beside it.",
                fix='Write db.execute("UPDATE counter SET n = $1", n).',
            )
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
            indexes = cast("list[tuple[str]]", self._run(INDEXES_QUERY).fetchall())
            version_of_ours = self._schema.version + 1
            self._schema = schema_from_rows(columns, version=version_of_ours, references=references, indexes=indexes)
            self._schema_version = version


def register(connection: apsw.Connection, now_us: Callable[[], int], *, chance: Chance, ids: Ids) -> None:
    """Register the functions that translated statements call at a connection."""
    sources = Sources(now=lambda: _EPOCH + timedelta(microseconds=now_us()), random=chance.fraction, uuid=ids.new)
    for function in scalar_functions(sources):
        connection.create_scalar_function(
            function.name,
            function.call,
            function.arguments,
            deterministic=function.deterministic,
            # They have no side effects, so a schema may use them: DEFAULT now().
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
