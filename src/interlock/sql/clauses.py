"""The clauses of a SELECT around its list: FROM and JOIN, GROUP BY, ORDER BY, LIMIT and OFFSET.

Where PostgreSQL and SQLite resolve or default differently, the difference is written out: ORDER BY says where NULLs go,
GROUP BY repeats expressions instead of aliases, a negative LIMIT raises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import INT8, UNKNOWN
from interlock.sql.expressions import expression, predicate
from interlock.sql.operators import COLLATED, comparable, sorting_key
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Output, Query, Relation, Scope
from interlock.sql.special import quantified
from interlock.sql.syntax import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    quoted,
    string,
    unsupported,
)
from interlock.sql.terms import Term

Derived = Callable[[Node, Scope], Query]

# --- FROM -------------------------------------------------------------------------------------------------------------


def relations(node: Node, scope: Scope, derived: Derived) -> str:
    """FROM and its joins; brings their relations into the scope."""
    source = maybe(node, "from_")
    joins = children(node, "joins")
    if source is None:
        if joins:
            raise unsupported(node)
        return ""
    only(source, "this")
    first, text = _relation(child(source), scope, derived)
    scope.add(first)
    return f" FROM {text}" + "".join(_join(join, scope, derived) for join in joins)


def _join(node: Node, scope: Scope, derived: Derived) -> str:
    only(node, "this", "side", "kind", "on")
    side, kind = str(argument(node, "side") or ""), str(argument(node, "kind") or "")
    condition = maybe(node, "on")
    relation, text = _relation(child(node), scope, derived)
    match side.upper(), kind.upper():
        case "", "CROSS" if condition is None:
            scope.add(relation)
            return f" CROSS JOIN {text}"
        case "", "" | "INNER" if condition is not None:
            word = "JOIN"
        case "LEFT", "" | "OUTER" if condition is not None:
            relation = replace(relation, outer=True)
            word = "LEFT JOIN"
        case "", "":
            raise refuse("tables side by side in FROM.", fix="Write CROSS JOIN, or JOIN … ON ….")
        case _:
            raise refuse(f"{side} {kind} JOIN.".strip(), fix="Use [INNER] JOIN … ON, LEFT JOIN … ON or CROSS JOIN.")
    scope.add(relation)
    assert condition is not None
    with scope.at("JOIN … ON", volatile=False):
        term = predicate(condition, scope, "JOIN … ON")
    return f" {word} {text} ON {term.checked.text}"


def _relation(node: Node, scope: Scope, derived: Derived) -> tuple[Relation, str]:
    alias = _alias(maybe(node, "alias"))
    if type(node) is exp.Subquery:
        only(node, "this", "alias")
        if alias is None:
            raise refuse("a subquery in FROM without a name.", fix="Write (SELECT …) AS name.")
        query = derived(child(node), scope)
        return Relation(alias, query.columns, quoted(alias)), f"({query.text}) AS {quoted(alias)}"
    if type(node) is not exp.Table:
        raise unsupported(node)
    only(node, "this", "alias")
    name = identifier(child(node), "table")
    common = scope.query_named(name)
    if common is not None:
        written = quoted(alias or name)
        text = f"{quoted(name)} AS {written}" if alias else quoted(name)
        return Relation(alias or name, common.columns, written), text
    return table_relation(name, alias, scope), f"{quoted(name)} AS {quoted(alias)}" if alias else quoted(name)


def _alias(node: Node | None) -> str | None:
    if node is None:
        return None
    only(node, "this")
    return identifier(child(node), "alias")


def table_relation(name: str, alias: str | None, scope: Scope) -> Relation:
    """A table of the schema as a relation."""
    table = scope.translation.table(name)
    columns = tuple(Output(column.name, column.type, nullable=column.nullable) for column in table.columns)
    return Relation(alias or name, columns, quoted(alias or name), primary_key=table.primary_key)


# --- GROUP BY ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: its terms, and its text."""

    terms: tuple[Term, ...]
    text: str


def grouping(node: Node | None, scope: Scope, items: Sequence[tuple[Node, str | None]]) -> Grouping | None:
    """GROUP BY: a number is a place in the list, a bare name is a column, or else an alias of the list."""
    if node is None:
        return None
    only(node, "expressions")
    terms: list[Term] = []
    for item in children(node):
        with scope.at("GROUP BY", volatile=False, subqueries=False):
            term = settled(expression(_grouped_item(item, scope, items), scope))
        comparable(term.type, "GROUP BY")
        if term.parameter is not None or not term.bare:
            raise refuse("a constant in GROUP BY.", fix="Group by columns.")
        terms.append(term)
    if not terms:
        raise refuse("an empty GROUP BY.")
    return Grouping(tuple(terms), f" GROUP BY {', '.join(sorting_key(term) for term in terms)}")


def _grouped_item(node: Node, scope: Scope, items: Sequence[tuple[Node, str | None]]) -> Node:
    if type(node) is exp.Literal:
        return items[_place(node, len(items), "GROUP BY") - 1][0]
    name = _bare_name(node)
    if name is None or any(output.name == name for known in scope.relations for output in known.columns):
        return node
    chosen = [item for item, alias in items if alias == name]
    if len(chosen) > 1:
        raise wrong(f"GROUP BY {name!r} is ambiguous.")
    return chosen[0] if chosen else node


def _bare_name(node: Node) -> str | None:
    if type(node) is exp.Column and maybe(node, "table") is None and type(child(node)) is exp.Identifier:
        return identifier(child(node), "column")
    return None


def _place(node: Node, count: int, clause: str) -> int:
    written = string(node)
    if flag(node, "is_string") or not written.isdecimal() or not 1 <= int(written) <= count:
        raise wrong(f"{clause} {written}: there are {count} columns in the list.")
    return int(written)


# --- ORDER BY ---------------------------------------------------------------------------------------------------------


def ordering(
    node: Node | None,
    scope: Scope,
    terms: Sequence[Term],
    names: Sequence[str],
    *,
    distinct: bool = False,
    compound: bool = False,
    used: list[Term] | None = None,
) -> str:
    """ORDER BY: a number or a bare name of the list is that place in it, everything else an expression over FROM."""
    if node is None:
        return ""
    only(node, "expressions")
    listed: list[str] = []
    for item in children(node):
        only(item, "this", "desc", "nulls_first")
        key = child(item)
        name = _bare_name(key)
        written = type(key) is exp.Literal
        place = _place(key, len(terms), "ORDER BY") if written else _listed_place(name, terms, names)
        if place:
            term = terms[place - 1]
            if term.volatile:
                raise refuse("ORDER BY a column of random values.", fix="Order by random() itself.")
            text = f"{place} {COLLATED}" if term.type.name == "numeric" else str(place)
        elif _is_constant(key):
            raise refuse("ORDER BY a constant.", why="It orders nothing.", fix="Order by columns.")
        elif compound:
            raise refuse("ORDER BY an expression after a set operation.", fix="Order by the name of a column.")
        else:
            with scope.at("ORDER BY", aggregates=True):
                term = settled(expression(key, scope))
            if distinct and all(term.text != other.text for other in terms):
                raise wrong("with SELECT DISTINCT, ORDER BY must be in the list.")
            text = sorting_key(term)
            if used is not None:
                used.append(term)
        comparable(term.type, "ORDER BY")
        listed.append(text + _direction(item, term))
    return f" ORDER BY {', '.join(listed)}"


def _is_constant(node: Node) -> bool:
    while type(node) in {exp.Paren, exp.Cast, exp.Neg}:
        node = child(node)
    return type(node) in {exp.Literal, exp.Null, exp.Boolean, exp.Parameter}


def _listed_place(name: str | None, terms: Sequence[Term], names: Sequence[str]) -> int:
    """The place of that name in the list, or 0. Two of that name must be the same thing."""
    places = [place for place, known in enumerate(names, start=1) if known == name]
    if len({terms[place - 1].text or str(place) for place in places}) > 1:
        raise wrong(f"ORDER BY {name!r} is ambiguous.", fix="Give the columns different names.")
    return places[0] if places else 0


def _direction(item: Node, term: Term) -> str:
    """PostgreSQL takes NULL for larger than everything, SQLite for smaller: say where it goes, if there can be any."""
    text = " DESC" if flag(item, "desc") else ""
    if not term.nullable:
        return text
    return f"{text} NULLS {'FIRST' if flag(item, 'nulls_first') else 'LAST'}"


# --- LIMIT ------------------------------------------------------------------------------------------------------------


def limits(limit: Node | None, offset: Node | None, scope: Scope) -> str:
    """LIMIT and OFFSET. SQLite takes a negative one for none, PostgreSQL refuses it; NULL is none for PostgreSQL."""
    if limit is None and offset is None:
        return ""
    text = " LIMIT -1" if limit is None else f" LIMIT {_bound(limit, scope, 'limit')}"
    return text if offset is None else f"{text} OFFSET {_bound(offset, scope, 'offset')}"


def _bound(node: Node, scope: Scope, name: str) -> str:
    if type(node) not in {exp.Limit, exp.Offset}:
        raise unsupported(node)
    only(node, "expression")
    alone = Scope(scope.translation, place=name.upper(), subqueries=False)
    term = expression(child(node, "expression"), alone)
    if term.type is UNKNOWN and term.parameter is None:
        raise refuse(f"{name.upper()} must be a number or a parameter.")
    term = convert(term, INT8, "assignment")
    if term.literal is not None and term.atomic:
        return term.literal
    return f"interlock_{name}({term.checked.text})"


# --- One row at most --------------------------------------------------------------------------------------------------


def proven_single(node: Node, scope: Scope) -> bool:
    """Whether a SELECT can give one row at most: no table, LIMIT 1, or the whole primary key asked for."""
    limit = maybe(node, "limit")
    if limit is not None:
        bound = maybe(limit, "expression")
        if type(bound) is exp.Literal and string(bound) in {"0", "1"}:
            return True
    if not scope.relations:
        return True
    if len(scope.relations) > 1 or not scope.relations[0].primary_key:
        return False
    [relation] = scope.relations
    where = maybe(node, "where")
    fixed = set[str]() if where is None else _fixed(child(where), scope)
    return {f"{relation.written}.{quoted(name)}" for name in relation.primary_key} <= fixed


def _fixed(node: Node, scope: Scope) -> set[str]:
    """The columns of this scope that a condition equates with something from outside of it."""
    if type(node) is exp.Paren:
        return _fixed(child(node), scope)
    if type(node) is exp.And:
        return _fixed(child(node), scope) | _fixed(child(node, "expression"), scope)
    if type(node) is not exp.EQ or quantified(child(node, "expression")) is not None:
        return set()
    sides = [expression(child(node, name), scope) for name in ("this", "expression")]
    fixed: set[str] = set()
    for column, value in (sides, sides[::-1]):
        own = {(scope.number, column.text)}
        # As floats, two different whole numbers may be equal.
        exact = value.type == column.type or value.type.name != "float8"
        if column.bare == own and exact and all(number != scope.number for number, _ in value.bare):
            fixed.add(column.text)
    return fixed
