"""Expressions with a grammar of their own: EXTRACT, TRIM, SUBSTRING, POSITION, jsonb's operators, arrays.

Each handler is given the walk over its parts. PostgreSQL's operators that are neither arithmetic nor comparison bind
all alike and to the left; sqlglot lets @> take what follows it, so that needs its parentheses here.
"""

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from interlock.sql import aggregation, arraycalls, calls, documentcalls, literals, overloads, predicates, timecalls
from interlock.sql.casts import unified
from interlock.sql.datatypes import INT4, Type
from interlock.sql.refusal import refuse
from interlock.sql.scope import Query, Scope
from interlock.sql.syntax import Node, argument, child, children, flag, maybe, only, string, unsupported
from interlock.sql.terms import Term

Walk = Callable[[Node, Scope], Term]
_EXTRACTIONS: Final[dict[type[Node], str]] = {
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
}
_KEYS: Final[dict[type[Node], str]] = {
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
}
_ALIKE: Final = frozenset({exp.DPipe, exp.ArrayContainsAll, exp.ArrayContainedBy, exp.JSONBDeleteAtPath}).union(
    _EXTRACTIONS, _KEYS
)
_SETS: Final = (exp.Union, exp.Intersect, exp.Except)
_TRIMS: Final = {"": "btrim", "BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_QUANTIFIED: Final = {("=", "ANY"): False, ("=", "SOME"): False, ("<>", "ALL"): True}


def extract(node: Node, scope: Scope, walk: Walk) -> Term:
    """EXTRACT(field FROM value)."""
    only(node, "this", "expression")
    field = child(node)
    if type(field) is not exp.Var:
        raise unsupported(node)
    return timecalls.extract(string(field), walk(child(node, "expression"), scope))


def trim(node: Node, scope: Scope, walk: Walk) -> Term:
    """TRIM([BOTH | LEADING | TRAILING] [letters] FROM text)."""
    only(node, "this", "expression", "position")
    name = _TRIMS[str(argument(node, "position") or "").upper()]
    parts = [part for part in (child(node), maybe(node, "expression")) if part is not None]
    return calls.scalar(name, [walk(part, scope) for part in parts])


def substring(node: Node, scope: Scope, walk: Walk) -> Term:
    """SUBSTRING(text FROM place FOR length)."""
    only(node, "this", "start", "length")
    parts = [part for name in ("this", "start", "length") if (part := maybe(node, name)) is not None]
    return calls.scalar("substring", [walk(part, scope) for part in parts])


def position(node: Node, scope: Scope, walk: Walk) -> Term:
    """POSITION(part IN text)."""
    only(node, "this", "substr")
    return calls.scalar("position", [walk(child(node), scope), walk(child(node, "substr"), scope)])


def called(node: Node, scope: Scope, walk: Walk) -> Term:
    """A function or an aggregate by its name."""
    only(node, "this", "expressions")
    name = string(node).lower()
    if name in aggregation.AGGREGATES:
        return aggregation.called(name, children(node), scope, walk)
    return calls.scalar(name, [walk(part, scope) for part in children(node)])


def document_operator(node: Node, scope: Scope, walk: Walk) -> Term:
    """One of jsonb's operators."""
    only(node, "this", "expression")
    left, right = walk(child(node), scope), walk(_right(node), scope)
    if type(node) in _EXTRACTIONS:
        return documentcalls.extraction(_EXTRACTIONS[type(node)], left, right)
    if type(node) in _KEYS:
        return documentcalls.keys(_KEYS[type(node)], left, right)
    if type(node) is exp.JSONBDeleteAtPath:
        return documentcalls.path_removal(left, right)
    return (
        overloads.containment(left, right) if type(node) is exp.ArrayContainsAll else overloads.containment(right, left)
    )


def _right(node: Node) -> Node:
    right = child(node, "expression")
    if type(right) in _ALIKE:
        raise refuse(
            "two operators side by side that bind alike.",
            why="PostgreSQL reads them from left to right.",
            fix="Put parentheses around the inner one.",
        )
    return right


def array(node: Node, scope: Scope, walk: Walk, element: Type | None = None) -> Term:
    """ARRAY[…]."""
    _check_items(node)
    return arraycalls.construct([walk(item, scope) for item in children(node)], element)


def _check_items(node: Node) -> None:
    only(node, "expressions", "value_constructor", "bracket_notation")
    if any(type(item) in {exp.Array, exp.Select, *_SETS} for item in children(node)):
        raise refuse("an array of arrays, or of a subquery.", fix="Use array_agg(), = ANY (SELECT …), or jsonb.")


def subscript(node: Node, scope: Scope, walk: Walk) -> Term:
    """array[n]; PostgreSQL rounds and converts other places than written whole numbers."""
    only(node, "this", "expressions")
    places = children(node)
    if len(places) != 1 or type(places[0]) is not exp.Literal or flag(places[0], "is_string"):
        raise unsupported(node)
    place = literals.number(string(places[0]))
    if place.type != INT4:
        raise refuse(f"the element {string(places[0])} of an array.", fix="Write a whole number: array[1].")
    return arraycalls.element_at(walk(child(node), scope), place)


def quantified(node: Node) -> tuple[str, Node] | None:
    """Return ANY, SOME or ALL on the right of a comparison, and its operand; None without one."""
    if type(node) is exp.Anonymous and str(argument(node, "this")).upper() in {"ALL", "SOME"}:
        [inner] = children(node) if len(children(node)) == 1 else [node]
        return str(argument(node, "this")).upper(), inner
    if type(node) in {exp.Any, exp.All}:
        only(node, "this")
        inner = child(node)
        if type(inner) not in {exp.Paren, exp.Subquery, exp.Select, *_SETS}:
            raise refuse(f"{type(node).__name__.upper()} without parentheses.", fix="Write = ANY ($1).")
        while type(inner) is exp.Paren:
            only(inner, "this")
            inner = child(inner)
        return type(node).__name__.upper(), inner
    return None


def quantified_comparison(
    operator: str,
    left: Term,
    over: tuple[str, Node],
    scope: Scope,
    walk: Walk,
    subquery: Callable[[Node, Scope], Query],
) -> Term:
    """= ANY (…) and <> ALL (…), of an array or of a subquery."""
    word, inner = over
    negated = _QUANTIFIED.get((operator, word))
    if negated is None:
        raise refuse(f"{operator} {word}.", fix="Use = ANY or <> ALL, or EXISTS.")
    if type(inner) in {exp.Subquery, exp.Select, *_SETS}:
        return predicates.negated_if(predicates.in_query(left, subquery(inner, scope)), negated=negated)
    if type(inner) is exp.Array and children(inner):
        _check_items(inner)
        _, items = unified(*(walk(item, scope) for item in children(inner)))
        return predicates.negated_if(predicates.in_list(left, items), negated=negated)
    return arraycalls.membership(left, walk(inner, scope), negated=negated)
