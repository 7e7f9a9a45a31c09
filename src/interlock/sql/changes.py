"""INSERT: VALUES, DEFAULT VALUES or a query, with WITH before it, ON CONFLICT and RETURNING after it.

SQLite has no DEFAULT inside VALUES: a column that all rows leave to its default is left out, and where some rows do,
the default is written out as the catalog has it.
"""

from collections.abc import Sequence

from sqlglot import exp

from interlock.sql.assignments import (
    Change,
    assigned,
    default_text,
    known_column,
    returning,
    target_table,
    writable,
)
from interlock.sql.commontables import common_tables
from interlock.sql.datatypes import UNKNOWN
from interlock.sql.drafts import Draft
from interlock.sql.expressions import expression
from interlock.sql.queries import QUERIES, draft
from interlock.sql.refusal import refuse, wrong
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Scope, Translation
from interlock.sql.syntax import Node, child, children, column_name, flag, maybe, only, string, unsupported
from interlock.sql.terms import Term
from interlock.sql.upserts import Source, quoted_columns, upsert


def insert(node: Node, translation: Translation) -> Change:
    """INSERT … VALUES, DEFAULT VALUES or SELECT, with ON CONFLICT and RETURNING."""
    only(node, "this", "expression", "conflict", "returning", "default", "with_")
    around = Scope(translation, place="INSERT")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    target = child(node)
    names: list[str] | None = None
    if type(target) is exp.Schema:
        only(target, "this", "expressions")
        names = [column_name(part) for part in children(target)]
        target = child(target)
    table, relation, text = target_table(target, translation)
    if names is not None and len(set(names)) != len(names):
        raise wrong("a column twice in INSERT.")
    # Without a list, values go to the first columns; a numbered one among them cannot be given.
    columns = [column.name for column in table.columns] if names is None else names
    conflict = maybe(node, "conflict")
    source = None
    if flag(node, "default") and names is not None:
        raise wrong("DEFAULT VALUES after a list of columns.", fix="Leave out the list, or write VALUES (DEFAULT, …).")
    if not flag(node, "default"):
        source = _source(node, table, columns, around, listed=names is not None, conflict=conflict is not None)
    text = f"{head}INSERT INTO {text} "
    if source is None:
        if conflict is not None:
            raise refuse("DEFAULT alone with ON CONFLICT.", fix="Write VALUES with the values.")
        text += "DEFAULT VALUES"
    elif conflict is None:
        text += f"{quoted_columns(source.columns)} {source.text}"
    else:
        rows, action = upsert(conflict, table, relation, translation, source)
        text += f"{quoted_columns(source.columns)} {rows}{action}"
    return returning(node, text, table, relation, translation)


def _source(
    node: Node, table: Table, columns: list[str], around: Scope, *, listed: bool, conflict: bool
) -> Source | None:
    """Return the source of the rows; None if they consist of defaults alone."""
    source = child(node, "expression")
    if type(source) is exp.Values:
        only(source, "expressions")
        return _values(children(source), table, columns, around, listed=listed)
    scope = Scope(around.translation, queries=around.queries, volatile=not conflict, place="INSERT … SELECT")
    query = draft(source, scope)
    if len(query.terms) > len(columns) or (listed and len(query.terms) != len(columns)):
        raise wrong(f"{len(query.terms)} values for {len(columns)} columns.")
    targets = [writable(table, name) for name in columns[: len(query.terms)]]
    if query.parts or query.rows:
        kinds = [
            target.type.plain if kind is UNKNOWN else kind for target, kind in zip(targets, query.types, strict=True)
        ]
        query.give_types(kinds)
        for kind, target in zip(query.types, targets, strict=True):
            if kind != target.type and not (kind.is_integer and target.type.is_integer):
                raise refuse(f"a set operation of {kind} into a column of {target.type}.", fix="Cast both sides.")
    else:
        query.terms = [
            Term(_selected(term, target, query), target.type, name=term.name)
            for term, target in zip(query.terms, targets, strict=True)
        ]
    return Source(targets, query.write(), single=query.single)


def _selected(term: Term, column: Column, query: Draft) -> str:
    """A value that INSERT … SELECT assigns: PostgreSQL sorts and compares what was selected, then converts it."""
    text = assigned(term, column)
    same = term.type is UNKNOWN or (term.type.is_integer and column.type.is_integer)
    if (query.distinct or query.tail or query.first) and not same and text != term.text:
        raise refuse(
            f"{term.type} into a column of {column.type} by a SELECT with DISTINCT, ORDER BY or LIMIT.",
            why="It would be sorted and compared after the conversion.",
            fix=f"Convert it in the list: CAST(… AS {column.type}).",
        )
    return text


def _values(rows: list[Node], table: Table, columns: list[str], around: Scope, *, listed: bool) -> Source | None:
    scope = Scope(around.translation, queries=around.queries, volatile=True, place="VALUES")
    counts = {len(children(row)) for row in rows}
    if len(counts) != 1:
        raise wrong("VALUES with rows of different lengths.")
    [count] = counts
    if count > len(columns) or (listed and count != len(columns)):
        raise wrong(f"{count} values for {len(columns)} columns.", fix="Give each listed column one value.")
    used = [known_column(table, name) for name in columns[:count]]
    # A column that every row leaves to its default is left out, which also leaves its numbering to the database.
    kept = [place for place in range(count) if not all(_is_default(row, place) for row in rows)]
    if not kept:
        if len(rows) > 1:
            raise refuse("several rows of DEFAULT alone.", fix="Insert them one by one.")
        return None
    volatile: set[str] = set()
    written = [_row(row, [(place, used[place]) for place in kept], table, scope, volatile) for row in rows]
    chosen = [used[place] for place in kept]
    return Source(chosen, f"VALUES {', '.join(written)}", single=len(rows) == 1, volatile=frozenset(volatile))


def _row(row: Node, kept: Sequence[tuple[int, Column]], table: Table, scope: Scope, volatile: set[str]) -> str:
    if type(row) is not exp.Tuple:
        raise unsupported(row)
    only(row, "expressions")
    items = children(row)
    values: list[str] = []
    for place, column in kept:
        if _is_default(row, place):
            values.append(default_text(column))
            if "interlock_" in values[-1]:
                volatile.add(column.name)
            continue
        term = expression(items[place], scope)
        if term.volatile:
            volatile.add(column.name)
        values.append(assigned(term, writable(table, column.name)))
    return f"({', '.join(values)})"


def _is_default(row: Node, place: int) -> bool:
    item = children(row)[place]
    return type(item) is exp.Var and string(item).upper() == "DEFAULT"
