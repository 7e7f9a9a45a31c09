"""`Dialect`: translate one statement of PostgreSQL into one statement of SQLite, or refuse it, with a cache.

The rule that governs the whole package: no statement runs with another meaning than PostgreSQL's. So PostgreSQL's own
grammar reads the text, the nodes and fields that are understood are listed, and everything else is refused.

A translation is a pure function of the text and of the tables that it names, so it is cached with these and bounded in
number (G6): after a change of the schema only statements on changed tables are translated again. A refused statement
is not cached: errors are for people, and people change the text.
"""

from collections.abc import Callable
from typing import Final

from interlock.sql import dml, select, windows
from interlock.sql.ddl import alter_and_drop, create_table, create_view, enumerations, sequences
from interlock.sql.dml import Change
from interlock.sql.parse import NESTING, Body, Node, only, parse, split, unsupported, walk
from interlock.sql.schema import Schema
from interlock.sql.scope import Scope, Translation
from interlock.sql.stored_values import Kind, ResultColumn, Statement
from interlock.sql.types import TEXT, refuse

_CHANGES: Final[dict[str, Callable[[Body, Translation], Change]]] = {
    "InsertStmt": dml.insert,
    "UpdateStmt": dml.update,
    "DeleteStmt": dml.delete,
}
_DEFINITIONS: Final[dict[str, Callable[[Body, Translation], str]]] = {
    "CreateStmt": create_table.create_table,
    "IndexStmt": create_table.create_index,
    "AlterTableStmt": alter_and_drop.alter_table,
    "RenameStmt": alter_and_drop.rename,
    "TruncateStmt": alter_and_drop.truncate,
    "DropStmt": alter_and_drop.drop,
    "CreateSeqStmt": sequences.create_sequence,
    "AlterSeqStmt": sequences.alter_sequence,
    "ViewStmt": create_view.create_view,
    "CreateSchemaStmt": create_table.create_schema,
    "CreateTableAsStmt": create_table.create_table_as,
    "CreateEnumStmt": enumerations.create_enumeration,
    "AlterEnumStmt": enumerations.alter_enumeration,
}
_INSTEAD: Final = {
    "TransactionStmt": (
        "a statement that begins or ends a transaction.",
        "Each call is one whole transaction.",
        "Use transact() for several statements.",
    ),
    "CommentStmt": ("COMMENT ON.", "A lane keeps no descriptions.", "Leave it out, or run it on PostgreSQL alone."),
}
"""What applications send and a lane does not have: what it is, why, and what to do instead."""
STATEMENTS_MAX: Final = 1024


def translate(sql: str, schema: Schema) -> Statement:
    """Translate one statement; `DialectError` names what is outside the subset, and what to write instead.

    What PostgreSQL itself would refuse (no such table, text compared with a number) is a `TransactionError`.
    """
    return _translated(sql, schema)[0]


def _translated(sql: str, schema: Schema) -> tuple[Statement, set[str]]:
    translation = Translation(schema, select.subquery, windows.window, sql=sql)
    try:
        return _statement(parse(sql), translation), translation.tables
    except RecursionError as error:
        raise refuse(NESTING, fix="Split it into several statements.") from error
    except (KeyError, IndexError) as error:
        # A field that another form of the node has: what is not read exactly does not run.
        raise refuse(
            f"a form of statement that a lane does not read ({error}).", fix="Write it in a simpler form."
        ) from error


def _statement(node: Node, translation: Translation) -> Statement:
    kind, body = split(node)
    if kind == "SelectStmt" or kind in _CHANGES:
        if dml.has_steps(body):
            _refuse_views(node, translation)
        text, columns = dml.in_steps(node, translation, _part) if dml.has_steps(body) else _part(node, translation)
        locking = translation.locking or translation.steps
        runs: Kind = "write" if kind in _CHANGES else "lock" if locking else "read"
        return Statement(text, runs, translation.parameter_types(), columns, steps=tuple(translation.steps))
    if kind == "ExplainStmt":
        return _explained(body, translation)
    definition = _DEFINITIONS.get(kind)
    if definition is None:
        if kind in _INSTEAD:
            what, why, fix = _INSTEAD[kind]
            raise refuse(what, why=why, fix=fix)
        raise unsupported(node)
    text = definition(body, translation)
    if translation.parameters:
        raise refuse("a parameter in a definition.", fix="Write the value.")
    return Statement(text, "schema", several=translation.several, rebuilds=translation.rebuilds)


def _refuse_views(node: Node, translation: Translation) -> None:
    """Refuse views where the order of the parts depends on the tables that each of them reads."""
    for kind, body in walk(node):
        if kind == "RangeVar" and body["relname"] in translation.schema.views:
            raise refuse(f"the view {body['relname']!r} beside a WITH that changes data.", fix="Read its tables.")


def _explained(body: Body, translation: Translation) -> Statement:
    only("ExplainStmt", body, "query")
    found = _statement(body["query"], translation)
    if found.kind == "schema" or found.steps:
        raise refuse("EXPLAIN of such a statement.", fix="Explain a query, or one change.")
    columns = (ResultColumn("QUERY PLAN", TEXT),)
    runs: Kind = "read" if found.kind == "read" else "lock"
    return Statement(f"EXPLAIN QUERY PLAN {found.text}", runs, found.parameters, columns, explains=True)


def _part(node: Node, translation: Translation) -> Change:
    kind, body = split(node)
    if kind != "SelectStmt":
        return _CHANGES[kind](body, translation)
    scope = Scope(translation, queries=dict(translation.around), volatile=True, place="SELECT")
    draft = select.draft(node, scope).settle()
    columns = tuple(
        ResultColumn(name, term.type, checked=term.unchecked and not draft.checked)
        for name, term in zip(draft.names, draft.terms, strict=True)
    )
    return draft.write(), columns


class _Cached:
    """A translation, the schema it was last used with, and the tables that it depends on."""

    __slots__ = ("schema", "statement", "tables", "used")

    def __init__(self, statement: Statement, schema: Schema, names: set[str]) -> None:
        self.statement = statement
        self.schema = schema
        self.used = False
        self.tables = {name: schema.find(name) for name in names}


class Dialect:
    """Translate statements and cache the translations. Not thread-safe: each writer has one."""

    def __init__(self, schema: Callable[[], Schema], *, statements_max: int = STATEMENTS_MAX) -> None:
        self._schema = schema
        self._statements_max = statements_max
        self._statements: dict[str, _Cached] = {}

    def statement(self, sql: str) -> Statement:
        """Return the statement for SQLite; raises `DialectError` for what a lane does not understand exactly."""
        schema = self._schema()
        known = self._statements.get(sql)
        if known is not None and (known.schema is schema or self._still_holds(known, schema)):
            known.used = True
            return known.statement
        statement, names = _translated(sql, schema)
        if statement.kind != "schema":
            self._statements[sql] = _Cached(statement, schema, names)
            if len(self._statements) > self._statements_max:
                self._evict()
        return statement

    def _evict(self) -> None:
        """Drop the oldest statement that was not used since the last eviction: a look-up sets a mark, and no more."""
        while True:
            sql = next(iter(self._statements))
            known = self._statements.pop(sql)
            if not known.used:
                return
            known.used = False
            self._statements[sql] = known

    def _still_holds(self, known: _Cached, schema: Schema) -> bool:
        if any(schema.find(name) != found for name, found in known.tables.items()):
            return False
        known.schema = schema
        return True

    def __len__(self) -> int:
        return len(self._statements)
