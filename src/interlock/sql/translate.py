"""Translate one statement of PostgreSQL into one statement of SQLite, or refuse it.

The rule that governs the whole package: no statement runs with another meaning than PostgreSQL's. So what is known is
listed, node by node and argument by argument, and everything else is refused.
"""

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from interlock.sql import alterations, changes, definitions, queries, updates, windows
from interlock.sql.assignments import Change
from interlock.sql.refusal import refuse
from interlock.sql.schema import Schema
from interlock.sql.scope import Scope, Translation
from interlock.sql.statement import ResultColumn, Statement
from interlock.sql.syntax import Node, parse, unsupported

_QUERIES: Final = frozenset({exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.Values})
_CHANGES: Final[dict[type[Node], Callable[[Node, Translation], Change]]] = {
    exp.Insert: changes.insert,
    exp.Update: updates.update,
    exp.Delete: updates.delete,
}
_DEFINITIONS: Final[dict[type[Node], Callable[[Node, Translation], str]]] = {
    exp.Create: definitions.create,
    exp.Alter: alterations.alter,
    exp.TruncateTable: alterations.truncate,
    exp.Drop: definitions.drop,
}


def translate(sql: str, schema: Schema) -> Statement:
    """Translate one statement; `DialectError` names what is outside the subset, and what to write instead.

    What PostgreSQL itself would refuse (no such table, text compared with a number) is a `TransactionError`.
    """
    try:
        return _translate(parse(sql), Translation(schema, queries.subquery, windows.window))
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
    draft = queries.draft(node, Scope(translation, volatile=True, place="SELECT")).settle()
    columns = tuple(
        ResultColumn(name, term.type, checked=term.unchecked and not draft.checked)
        for name, term in zip(draft.names, draft.terms, strict=True)
    )
    return draft.write(), columns
