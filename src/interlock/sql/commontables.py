"""Common table expressions: WITH, and WITH RECURSIVE.

Both engines build a recursive query from a first part and a part that is applied to the rows found last. PostgreSQL
applies it to all of them together and SQLite row by row. The results are equal as long as each row is processed alone:
so DISTINCT, GROUP BY, windows and LIMIT are refused in the second part, and it names itself once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from interlock.sql.drafts import Draft
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Query, Relation, Scope
from interlock.sql.syntax import Node, argument, child, children, flag, identifier, maybe, only, quoted, quoted_list


@dataclass(frozen=True, slots=True)
class Queries:
    """The translation of queries, provided by the module that implements it."""

    draft: Callable[[Node, Scope], Draft]
    inside: Callable[[Scope], Scope]
    finished: Callable[[Draft, Sequence[str]], Query]


def common_tables(node: Node | None, scope: Scope, queries: Queries) -> str:
    """WITH: its text, and its queries brought into the scope."""
    if node is None:
        return ""
    only(node, "expressions", "recursive")
    written: list[str] = []
    for table in children(node):
        # Whether it is computed once or each time makes no difference: nothing volatile may stand in it.
        only(table, "this", "alias", "materialized")
        if type(child(table)) in {exp.Insert, exp.Update, exp.Delete}:
            raise refuse(
                "a WITH query that changes data.",
                why="PostgreSQL runs all parts of such a statement on the state before it.",
                fix="Run the statements one after the other inside transact().",
            )
        alias = child(table, "alias")
        only(alias, "this", "columns")
        name = identifier(child(alias), "name")
        taken = {known.lower() for known in (*scope.translation.schema.tables, *scope.queries)}
        if name.lower() in taken:
            raise refuse(f"the WITH query {name!r} has the name of a table or of another one.", fix="Rename it.")
        if any(found.alias.lower() == name.lower() for found in child(table).find_all(exp.CTE)):
            # SQLite needs no RECURSIVE, and would take some uses of the inner one for the outer one.
            raise refuse(f"the WITH query {name!r} contains another one of its name.", fix="Rename the inner one.")
        names = [identifier(column, "column") for column in children(alias, "columns")]
        scope.translation.subqueries += 1
        if flag(node, "recursive") and _occurrences(child(table), name):
            query = _recursive(child(table), name, names, scope, queries)
        else:
            query = queries.finished(queries.draft(child(table), queries.inside(scope)), names)
        scope.queries[name] = Relation(name, query.columns, quoted(name))
        listed = quoted_list(column.name for column in query.columns)
        written.append(f"{quoted(name)} ({listed}) AS ({query.text})")
    return f"WITH {'RECURSIVE ' if flag(node, 'recursive') else ''}{', '.join(written)} "


def _occurrences(node: Node, name: str) -> list[Node]:
    """Return the places where a query names that table."""
    return [
        found
        for found in node.find_all(exp.Table)
        if isinstance(found.this, exp.Identifier) and identifier(found.this, "table") == name
    ]


def _recursive(node: Node, name: str, names: Sequence[str], scope: Scope, queries: Queries) -> Query:
    only(node, "this", "expression", "distinct")
    if type(node) is not exp.Union:
        raise wrong(f"the recursive query {name!r} is not first UNION [ALL] next.")
    first, following = child(node), child(node, "expression")
    if _occurrences(first, name):
        raise wrong(f"the first part of the recursive query {name!r} names itself.")
    _check_following(following, name)
    left = queries.draft(first, queries.inside(scope))
    left.rename(names)
    left.settle()
    inner = queries.inside(scope)
    inner.queries[name] = Relation(name, left.outputs_nullable(), quoted(name))
    right = queries.draft(following, inner)
    if len(left.terms) != len(right.terms):
        raise wrong(f"the parts of {name!r} have {len(left.terms)} and {len(right.terms)} columns.")
    for place, (kind, other) in enumerate(zip(left.types, right.types, strict=True), start=1):
        if kind != other and other.name != "unknown":
            raise refuse(
                f"column {place} of the recursive query {name!r} is {kind} first and {other} then.",
                fix=f"Cast the first one to {other}, or the other to {kind}.",
            )
    right.give_types(left.types)
    whole = Draft(
        [replace(term, nullable=True) for term in left.terms],
        left.names,
        parts=[left, right],
        operator="UNION" if flag(node, "distinct") else "UNION ALL",
    )
    if flag(node, "distinct") and any(kind.name == "numeric" for kind in left.types):
        raise refuse("UNION on numeric in a recursive query.", fix="Use UNION ALL.")
    whole.bare = left.bare | right.bare
    return queries.finished(whole, ())


_FOLLOWING = ("expressions", "from_", "joins", "where")


def _check_following(node: Node, name: str) -> None:
    if type(node) is not exp.Select:
        raise refuse(f"a recursive part of {name!r} that is not a plain SELECT.", fix="Write UNION ALL SELECT …, once.")
    for argument_name in ("distinct", "group", "having", "order", "limit", "offset", "windows", "locks", "with_"):
        if argument(node, argument_name):
            raise refuse(
                f"{argument_name.strip('_').upper()} in the recursive part of {name!r}.",
                why="PostgreSQL applies that part to many rows together, SQLite to one after the other.",
                fix="Do it in the query that reads the whole.",
            )
    if node.find(exp.Window, exp.AggFunc) is not None:
        raise refuse(f"an aggregate or a window in the recursive part of {name!r}.", fix="Use it outside.")
    only(node, *_FOLLOWING)
    found = _occurrences(node, name)
    source = maybe(node, "from_")
    joined = [] if source is None else [child(source), *(child(join) for join in children(node, "joins"))]
    if len(found) != 1 or not any(found[0] is place for place in joined):
        raise refuse(f"the recursive query {name!r} names itself elsewhere than once in FROM.", fix="Join it once.")
    if any(argument(join, "side") for join in children(node, "joins")):
        raise refuse(f"an outer join in the recursive part of {name!r}.", fix="Use JOIN.")
