"""`Dialect`: translate one statement of PostgreSQL into one statement of SQLite, or refuse it, with a cache.

The rule that governs the whole package: no statement runs with another meaning than PostgreSQL's. So the known nodes
and arguments are listed, and everything else is refused.

A translation is a pure function of the text and the schema, so it is cached under both and bounded in number (G6).
A refused statement is not cached: errors are for people, and people change the text. The odd choice is that the schema
comes from a function: the lane changes it inside the very transaction that is being translated.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sqlglot import exp

from interlock.sql import ddl, dml, select, windows
from interlock.sql.dml import Change
from interlock.sql.parse import Node, parse, unsupported
from interlock.sql.schema import Schema
from interlock.sql.scope import Scope, Translation
from interlock.sql.types import refuse
from interlock.sql.values import ResultColumn, Statement

_QUERIES: Final = frozenset({exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.Values})
_CHANGES: Final[dict[type[Node], Callable[[Node, Translation], Change]]] = {
    exp.Insert: dml.insert,
    exp.Update: dml.update,
    exp.Delete: dml.delete,
}
_DEFINITIONS: Final[dict[type[Node], Callable[[Node, Translation], str]]] = {
    exp.Create: ddl.create,
    exp.Alter: ddl.alter_table,
    exp.TruncateTable: ddl.truncate,
    exp.Drop: ddl.drop,
}


def translate(sql: str, schema: Schema) -> Statement:
    """Translate one statement; `DialectError` names what is outside the subset, and what to write instead.

    What PostgreSQL itself would refuse (no such table, text compared with a number) is a `TransactionError`.
    """
    try:
        return _translate(parse(sql), Translation(schema, select.subquery, windows.window))
    except RecursionError as error:
        raise refuse("the statement is nested too deeply.", fix="Split it into several statements.") from error


def _translate(node: Node, translation: Translation) -> Statement:
    if type(node) in _QUERIES:
        text, columns = _query(node, translation)
        return Statement(text, "lock" if translation.locking else "read", translation.parameter_types(), columns)
    change = _CHANGES.get(type(node))
    if change is not None:
        text, columns = change(node, translation)
        return Statement(text, "write", translation.parameter_types(), columns)
    definition = _DEFINITIONS.get(type(node))
    if definition is None:
        raise unsupported(node)
    text = definition(node, translation)
    if translation.parameters:
        raise refuse("a parameter in a definition.", fix="Write the value.")
    return Statement(text, "schema")


def _query(node: Node, translation: Translation) -> tuple[str, tuple[ResultColumn, ...]]:
    draft = select.draft(node, Scope(translation, volatile=True, place="SELECT")).settle()
    columns = tuple(
        ResultColumn(name, term.type, checked=term.unchecked and not draft.checked)
        for name, term in zip(draft.names, draft.terms, strict=True)
    )
    return draft.write(), columns


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
