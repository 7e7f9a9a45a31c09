"""UPDATE and DELETE, of one table, with the help of others (FROM, USING) and of WITH.

PostgreSQL computes everything on the state before the statement. SQLite computes the values of an UPDATE row by row
and would see rows that it has changed already; only an UPDATE … FROM computes them all first. So an UPDATE whose SET
has a subquery is given a FROM of one empty row. Which of several source rows an UPDATE … FROM uses is chance in both
engines: unless one is proven to be the only one, they must agree on the values, and raise when they do not.
"""

from collections.abc import Sequence

from interlock.sql.assignments import (
    Assignment,
    Change,
    assignments,
    condition,
    returning,
    target_table,
    written_assignments,
)
from interlock.sql.clauses import fixed
from interlock.sql.commontables import common_tables
from interlock.sql.joins import sources
from interlock.sql.queries import QUERIES, derived
from interlock.sql.refusal import refuse
from interlock.sql.schema import Table
from interlock.sql.scope import Relation, Scope, Translation
from interlock.sql.syntax import Node, child, children, maybe, only, quoted

_FOUND = "interlock_found"


def update(node: Node, translation: Translation) -> Change:
    """UPDATE, with FROM or without."""
    only(node, "this", "expressions", "where", "returning", "from_", "with_")
    around = Scope(translation, place="UPDATE")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    table, relation, text = target_table(child(node), translation)
    scope = Scope(translation, queries=around.queries, volatile=True, place="UPDATE")
    source = maybe(node, "from_")
    if source is not None:
        only(source, "this")
        text, others = _update_from(node, child(source), (table, relation, text), scope)
        return returning(node, head + text, table, relation, translation, others)
    scope.add(relation)
    before = translation.subqueries
    listed = assignments(node, table, scope)
    first = " FROM (SELECT 1)" if translation.subqueries > before else ""
    text = f"{head}UPDATE {text} SET {written_assignments(listed)}{first}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    return returning(node, text, table, relation, translation)


def _update_from(
    node: Node, source: Node, target: tuple[Table, Relation, str], scope: Scope
) -> tuple[str, Sequence[Relation]]:
    table, relation, text = target
    scope.volatile = False
    written = _sources(source, scope)
    others = list(scope.relations)
    scope.add(relation)
    listed = assignments(node, table, scope)
    where = condition(node, scope)
    if _proven_only(node, others, relation, scope):
        return f"UPDATE {text} SET {written_assignments(listed)} FROM {written}{where}", others  # noqa: S608 - made of quoted names, literals and ?n alone
    if any(len(columns) > 1 for columns, _ in listed):
        raise refuse("SET (…) = (SELECT …) in an UPDATE … FROM.", fix="Assign each column on its own.")
    keys = _keys(table, relation)
    columns = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    columns += [f"interlock_same({value}) AS v{place}" for place, (_, value) in enumerate(listed)]
    found = f"SELECT {', '.join(columns)} FROM {written}, {text}{where} GROUP BY {', '.join(keys)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    values: list[Assignment] = [(columns, f"{_FOUND}.v{place}") for place, (columns, _) in enumerate(listed)]
    same = " AND ".join(f"{key} = {_FOUND}.k{place}" for place, key in enumerate(keys))
    return f"UPDATE {text} SET {written_assignments(values)} FROM ({found}) AS {_FOUND} WHERE {same}", others  # noqa: S608 - made of quoted names, literals and ?n alone


def _sources(node: Node, scope: Scope) -> str:
    """FROM or USING, where sqlglot puts the joins into the first relation."""
    joins = children(node, "joins")
    first = node.copy()
    first.set("joins", None)
    return sources(first, joins, scope, derived)


def _keys(table: Table, relation: Relation) -> list[str]:
    """Return the columns that identify the rows of a table."""
    if not table.primary_key:
        return [f"{relation.written}.rowid"]
    return [f"{relation.written}.{quoted(name)}" for name in table.primary_key]


def _proven_only(node: Node, others: Sequence[Relation], relation: Relation, scope: Scope) -> bool:
    """Return whether each row has one source row at most: its whole primary key is asked for."""
    where = maybe(node, "where")
    if where is None or len(others) != 1 or not others[0].primary_key:
        return False
    around = Scope(scope.translation, queries=scope.queries)
    around.add(relation)
    inner = Scope(scope.translation, parent=around, relations=list(others))
    key = {f"{others[0].written}.{quoted(name)}" for name in others[0].primary_key}
    return key <= fixed(child(where), inner)


def delete(node: Node, translation: Translation) -> Change:
    """DELETE, with USING or without."""
    only(node, "this", "where", "returning", "using", "with_")
    around = Scope(translation, place="DELETE")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    table, relation, text = target_table(child(node), translation)
    using = children(node, "using")
    scope = Scope(translation, queries=around.queries, volatile=not using, place="DELETE")
    if not using:
        scope.add(relation)
        text = f"{head}DELETE FROM {text}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
        return returning(node, text, table, relation, translation)
    [first, *more] = using
    if more:
        raise refuse("DELETE … USING of tables side by side.", fix="Write CROSS JOIN.")
    written = _sources(first, scope)
    others = list(scope.relations)
    scope.add(relation)
    keys = ", ".join(_keys(table, relation))
    found = f"SELECT {keys} FROM {written}, {text}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    text = f"{head}DELETE FROM {text} WHERE ({keys}) IN ({found})"  # noqa: S608 - made of quoted names, literals and ?n alone
    return returning(node, text, table, relation, translation, others)
