"""`Dialect`: translate PostgreSQL's SQL into statements for SQLite, with a cache.

A translation is a pure function of the text and the schema, so it is kept under both and bounded in number (G6).
A statement that was refused is not kept: errors are for people, and people change the text. The odd choice is that
the schema is asked for by a function: the lane changes it inside the very transaction that is being translated.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from interlock.sql.schema import Schema
from interlock.sql.statement import Statement
from interlock.sql.translate import translate

STATEMENTS_MAX: Final = 1024


class Dialect:
    """Translate statements and cache the translations. Not thread-safe: each writer has one."""

    def __init__(self, schema: Callable[[], Schema], *, statements_max: int = STATEMENTS_MAX) -> None:
        self._schema = schema
        self._statements_max = statements_max
        self._statements: OrderedDict[tuple[str, int], Statement] = OrderedDict()

    def statement(self, sql: str) -> Statement:
        """The statement for SQLite; raises `DialectError` for what a lane does not understand exactly."""
        schema = self._schema()
        key = (sql, schema.version)
        known = self._statements.get(key)
        if known is not None:
            self._statements.move_to_end(key)
            return known
        statement = translate(sql, schema)
        self._statements[key] = statement
        if len(self._statements) > self._statements_max:
            self._statements.popitem(last=False)
        return statement

    def __len__(self) -> int:
        return len(self._statements)
