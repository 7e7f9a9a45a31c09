"""Queries: SELECT with its clauses, unions of them, and common table expressions.

A SELECT is translated into a `Draft` first and written out last, because the types of its bare literals may be decided
by what surrounds it: the other side of a UNION, or the columns of an INSERT. Clauses are translated in PostgreSQL's
order (FROM before the list), and names in GROUP BY and ORDER BY are resolved by PostgreSQL's rules, not by SQLite's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from interlock.sql.casts import meet
from interlock.sql.clauses import (
    Draft,
    First,
    Key,
    grouping,
    limits,
    listed_term,
    locks,
    ordering,
    proven_single,
    sorted_by,
)
from interlock.sql.expressions import expression, predicate
from interlock.sql.grammar import SPECIAL_RELATIONS
from interlock.sql.joins import relations
from interlock.sql.operators import COLLATED, comparable, sorting_key
from interlock.sql.parse import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    quoted_list,
    quoted_name,
    unsupported,
)
from interlock.sql.scope import Query, Reference, Relation, Scope, Term, qualified
from interlock.sql.types import TEXT, UNKNOWN, Type, refuse, wrong
from interlock.sql.windows import name_windows

# --- Common table expressions ----------------------------------------------------------------------------------------
# Both engines build a recursive query from a first part and a part that is applied to the rows found last.
# PostgreSQL applies it to all of them together and SQLite row by row. The results are equal as long as each row is
# processed alone: so DISTINCT, GROUP BY, windows and LIMIT are refused in the second part, and it names itself once.


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
        scope.queries[name] = Relation(name, query.columns, quoted_name(name))
        listed = quoted_list(column.name for column in query.columns)
        written.append(f"{quoted_name(name)} ({listed}) AS ({query.text})")
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
    inner.queries[name] = Relation(name, left.outputs_nullable(), quoted_name(name))
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


# --- Queries ---------------------------------------------------------------------------------------------------------

SET_OPERATIONS: Final[dict[type[Node], str]] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}


def draft(node: Node, scope: Scope, *, aliased: bool = False) -> Draft:
    """Translate a query; `scope` is a fresh one, whose parent is whatever the query can see.

    `aliased` lets VALUES have a name, which it has in FROM alone.
    """
    if type(node) is exp.Subquery:
        only(node, "this")
        return draft(child(node), scope)
    head = common_tables(maybe(node, "with_"), scope, QUERIES)
    if type(node) is exp.Select:
        result = _select(node, scope)
    elif type(node) in SET_OPERATIONS:
        result = _set_operation(node, scope)
    elif type(node) is exp.Values:
        if not aliased and maybe(node, "alias") is not None:
            raise unsupported(node)
        result = _values(node, scope)
    else:
        raise unsupported(node)
    result.head = head
    return result


def subquery(node: Node, scope: Scope) -> Query:
    """A query inside an expression of that scope."""
    scope.translation.subqueries += 1
    inner = Scope(scope.translation, parent=scope, place="a subquery")
    return _finished(draft(node, inner).settle())


def derived(node: Node, scope: Scope, names: Sequence[str] = ()) -> Query:
    """A query inside FROM or WITH: it sees what is around the query it belongs to, not its neighbours."""
    scope.translation.subqueries += 1
    return finished(draft(node, inside(scope), aliased=True), names)


def inside(scope: Scope) -> Scope:
    """The scope of a query inside FROM or WITH."""
    return Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place="a subquery")


def finished(query: Draft, names: Sequence[str] = ()) -> Query:
    """A query inside FROM or WITH, under other names for its columns if there are any."""
    query.rename(names)
    result = _finished(query.settle())
    folded = [output.name.lower() for output in result.columns]
    if len(set(folded)) != len(folded):
        raise refuse("a subquery with two columns of the same name.", fix="Give each column an alias of its own.")
    return result


def _finished(result: Draft) -> Query:
    return Query(result.write(), result.outputs(), single=result.single, bare=result.bare)


def _set_operation(node: Node, scope: Scope) -> Draft:
    only(node, "this", "expression", "distinct", "with_", "order", "limit", "offset")
    operator = SET_OPERATIONS[type(node)]
    every = not flag(node, "distinct")
    if every and operator != "UNION":
        raise refuse(f"{operator} ALL.", fix=f"Use {operator} without ALL.")
    sides = [child(node), child(node, "expression")]
    for side in sides:
        if type(side) is exp.Select and children(side, "locks"):
            raise wrong(f"FOR UPDATE with {operator}.")
    parts = [
        draft(side, Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place=operator))
        for side in sides
    ]
    left, right = parts
    if len(left.terms) != len(right.terms):
        raise wrong(f"the sides of {operator} have {len(left.terms)} and {len(right.terms)} columns.")
    kinds = [_met(one, other, operator) for one, other in zip(left.types, right.types, strict=True)]
    terms = [Term("", kind, name=name) for kind, name in zip(kinds, left.names, strict=True)]
    result = Draft(terms, left.names, parts=parts, operator=f"{operator} ALL" if every else operator)
    result.bare = left.bare | right.bare
    result.give_types(kinds)
    if not every:
        for kind in kinds:
            comparable(kind, operator)
            if kind.name == "numeric" and operator != "UNION":
                raise refuse(f"{operator} on numeric.", fix="Use WHERE [NOT] EXISTS.")
    result.tail = sorted_by(ordering(maybe(node, "order"), scope, result.terms, left.names, compound=True))
    result.tail += limits(maybe(node, "limit"), maybe(node, "offset"), scope)
    return result


def _values(node: Node, scope: Scope) -> Draft:
    """VALUES as a query: each column has the type in which all rows meet."""
    only(node, "expressions", "alias", "order", "limit", "offset", "with_")
    rows: list[list[Term]] = []
    for row in children(node):
        only(row, "expressions")
        with scope.at("VALUES"):
            rows.append([expression(item, scope) for item in (children(row) if type(row) is exp.Tuple else [row])])
    if len({len(row) for row in rows}) != 1:
        raise wrong("VALUES with rows of different lengths.")
    names = [f"column{place}" for place in range(1, len(rows[0]) + 1)]
    kinds = [UNKNOWN] * len(names)
    for terms in rows:
        kinds = [_met(kind, term.type, "VALUES", whole=False) for kind, term in zip(kinds, terms, strict=True)]
    typed = [Term("", kind, name=name) for kind, name in zip(kinds, names, strict=True)]
    result = Draft(typed, names, rows=rows, single=len(rows) == 1)
    result.bare = frozenset(reference for terms in rows for term in terms for reference in term.bare)
    if maybe(node, "order") is not None:
        result.settle()
    result.tail = sorted_by(ordering(maybe(node, "order"), scope, result.terms, names, compound=True))
    result.tail += limits(maybe(node, "limit"), maybe(node, "offset"), scope)
    return result


def _met(left: Type, right: Type, operator: str, *, whole: bool = True) -> Type:
    met = left if left == right else meet(left, right)
    if met is None:
        raise wrong(f"the sides of {operator} have columns of {left} and {right}.", fix="Cast one of them.")
    return TEXT if met is UNKNOWN and whole else met


def _select(node: Node, scope: Scope) -> Draft:
    only(
        node,
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "distinct",
        "with_",
        "windows",
        "locks",
    )
    body = relations(node, scope, derived)
    name_windows(node, scope)
    bare: set[Reference] = set()
    where = maybe(node, "where")
    if where is not None:
        only(where, "this")
        with scope.at("WHERE", volatile=scope.volatile):
            condition = predicate(child(where), scope, "WHERE")
        body += f" WHERE {condition.checked.text}"
        bare |= condition.bare
    items = listed_items(node, scope)
    groups = grouping(maybe(node, "group"), scope, items)
    if groups is not None:
        scope.grouped = frozenset(term.text for term in groups.terms)
        body += groups.text
    with scope.at("the SELECT list", aggregates=True, windows=True):
        terms = [expression(item, scope) for item, _ in items]
    names = [alias or term.name or "?column?" for term, (_, alias) in zip(terms, items, strict=True)]
    used = list(terms)
    having = maybe(node, "having")
    if having is not None:
        only(having, "this")
        with scope.at("HAVING", aggregates=True, volatile=False):
            condition = predicate(child(having), scope, "HAVING")
        body += f" HAVING {condition.checked.text}"
        used.append(condition)
        if groups is None and not any(term.aggregate for term in terms):
            raise refuse("HAVING without GROUP BY and without an aggregate in the list.", fix="Write WHERE, or group.")
    result = Draft(terms, names, body=body, distinct=_distinct(node, terms))
    keys = ordering(maybe(node, "order"), scope, terms, names, distinct=result.distinct, used=used)
    result.first = _first(node, scope, terms, names, keys)
    result.tail = "" if result.first else sorted_by(keys)
    result.tail += limits(maybe(node, "limit"), maybe(node, "offset"), scope)
    dropped = bool(result.tail) or result.distinct or result.first is not None
    result.checked = scope.parent is not None or dropped or not scope.volatile
    is_aggregate = any(term.aggregate for term in used)
    if is_aggregate and children(node, "locks"):
        raise wrong("FOR UPDATE with an aggregate.")
    locks(node, scope)
    if groups is not None or is_aggregate:
        _require_grouped(used, scope)
    result.single = (is_aggregate and groups is None) or proven_single(node, scope)
    bare.update(*(term.bare for term in used), *(term.inside for term in used))
    result.bare = frozenset(item for item in bare if item[0] != scope.number)
    return result


def listed_items(node: Node, scope: Scope) -> list[tuple[Node, str | None]]:
    """The items of the list with their aliases, stars written out."""
    items: list[tuple[Node, str | None]] = []
    for item in children(node):
        if type(item) is exp.Alias:
            only(item, "this", "alias")
            items.append((child(item), identifier(child(item, "alias"), "alias")))
        elif type(item) is exp.Star:
            only(item)
            items += [(column, None) for column in _star(scope, None)]
        elif type(item) is exp.Column and type(child(item)) is exp.Star:
            only(item, "this", "table")
            only(child(item))
            items += [(column, None) for column in _star(scope, identifier(child(item, "table"), "relation"))]
        else:
            items.append((item, None))
    if not items:
        raise refuse("a SELECT without columns.")
    return items


def _star(scope: Scope, relation: str | None) -> list[Node]:
    """The columns that * stands for, as if they had been written."""
    if relation is None:
        if not scope.star:
            raise wrong("* without a table.")
        return list(scope.star)
    chosen = [known for known in scope.relations if known.name == relation]
    if not chosen:
        if relation in SPECIAL_RELATIONS:
            raise refuse(f"{relation}.*.", fix="Name the columns; query first for what was there before.")
        raise wrong(f"there is no relation {relation!r} here.")
    return [qualified(known.name, output.name) for known in chosen for output in known.columns]


def _distinct(node: Node, terms: list[Term]) -> bool:
    distinct = argument(node, "distinct")
    if not distinct:
        return False
    if not isinstance(distinct, exp.Distinct):
        raise unsupported(node)
    only(distinct, "on")
    if maybe(distinct, "on") is not None:
        return False
    for term in terms:
        comparable(term.type, "SELECT DISTINCT")
    return True


def _first(node: Node, scope: Scope, terms: list[Term], names: list[str], keys: list[Key]) -> First | None:
    """DISTINCT ON, whose expressions ORDER BY must begin with: otherwise it is chance which row is the first."""
    distinct = maybe(node, "distinct")
    listed = None if distinct is None else maybe(distinct, "on")
    if listed is None:
        return None
    chosen = [
        listed_term(item, scope, terms, names, "DISTINCT ON")
        for item in (children(listed) if type(listed) is exp.Tuple else [listed])
    ]
    if not keys:
        raise refuse("DISTINCT ON without ORDER BY.", why="It is chance which row is first.", fix="Add ORDER BY.")
    texts = {term.text for term in chosen}
    if texts != {key.term.text for key in keys[: len(texts)]} or any(term.volatile for term in chosen):
        raise wrong("DISTINCT ON something else than what ORDER BY begins with.")
    for term in chosen:
        comparable(term.type, "DISTINCT ON")
    return First(
        [sorting_key(term) for term in chosen],
        [sorting_key(key.term) for key in keys],
        [key.direction for key in keys],
        [f" {COLLATED}" if key.term.type.name == "numeric" else "" for key in keys],
    )


def _require_grouped(terms: list[Term], scope: Scope) -> None:
    for term in terms:
        for number, text in term.bare:
            if number == scope.number and not _follows(text, scope):
                raise wrong(
                    f"the column {text} must be in GROUP BY or inside an aggregate.",
                    fix="Add it to GROUP BY, or use min(), max(), …",
                )


def _follows(text: str, scope: Scope) -> bool:
    """PostgreSQL lets the columns of a relation follow its grouped primary key: they are the same in all its rows."""
    for relation in scope.relations:
        key = {f"{relation.written}.{quoted_name(name)}" for name in relation.primary_key}
        if key and key <= scope.grouped and text.startswith(f"{relation.written}."):
            return True
    return False


QUERIES: Final = Queries(draft, inside, finished)
