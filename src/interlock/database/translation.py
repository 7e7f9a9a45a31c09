"""Where the dialect meets a connection: statements are translated with the schema the connection really has.

The writer's schema changes inside the very group that is being executed, and back when a transaction is rolled back.
SQLite's own schema version tells both. A reader asks for it before each statement, because the schema is changed by
somebody else; the writer only after it has changed the schema itself or rolled anything back, because nobody else can.
One thing it does not tell: a change that was rolled back and another one in its place have the same number. So a
statement that changes the schema is followed by a look in any case, and every look has a number of our own.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import apsw

from interlock.errors import DialectError
from interlock.seams import Chance, Ids
from interlock.sql.dialect import Dialect
from interlock.sql.functions import Sources, aggregate_functions, collations, scalar_functions, window_functions
from interlock.sql.schema import (
    COLUMNS_QUERY,
    INDEXES_QUERY,
    REFERENCES_QUERY,
    ColumnRow,
    ReferenceRow,
    Schema,
    schema_from_rows,
)
from interlock.sql.statement import Statement

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Translator:
    """Translates for one connection; not for several threads at once."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._run = connection.cursor().execute
        self._schema = Schema(0)
        self._seen: int | None = None
        self._undone: int | None = None
        self._dialect = Dialect(lambda: self._schema)

    def statement(self, sql: str, undone: int | None = None) -> Statement:
        """The statement as SQLite runs it. Raises DialectError for what is outside the subset.

        The writer tells how often it has rolled back; a reader cannot know, and tells nothing.
        """
        if not isinstance(sql, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- not everybody checks types.
            raise DialectError(
                f"the statement is {type(sql).__name__}, not a text.",
                why="A statement is SQL as text; its values are passed beside it.",
                fix='Write db.execute("UPDATE counter SET n = $1", n).',
            )
        if undone is None or undone != self._undone:
            self._look()
            self._undone = undone
        statement = self._dialect.statement(sql)
        if statement.kind == "schema":
            self._seen = self._undone = None
        return statement

    def _look(self) -> None:
        version = cast("int", self._run("PRAGMA schema_version").get)
        if version != self._seen:
            columns = cast("list[ColumnRow]", self._run(COLUMNS_QUERY).fetchall())
            references = cast("list[ReferenceRow]", self._run(REFERENCES_QUERY).fetchall())
            indexes = cast("list[tuple[str]]", self._run(INDEXES_QUERY).fetchall())
            version_of_ours = self._schema.version + 1
            self._schema = schema_from_rows(columns, version=version_of_ours, references=references, indexes=indexes)
            self._seen = version


def register(connection: apsw.Connection, now_us: Callable[[], int], *, chance: Chance, ids: Ids) -> None:
    """Give a connection the functions that translated statements call."""
    sources = Sources(now=lambda: _EPOCH + timedelta(microseconds=now_us()), random=chance.fraction, uuid=ids.new)
    for function in scalar_functions(sources):
        connection.create_scalar_function(
            function.name,
            function.call,
            function.arguments,
            deterministic=function.deterministic,
            # They neither read nor change anything outside, so a schema may use them: DEFAULT now().
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
