"""Aggregates: their arguments, DISTINCT, the ORDER BY inside of them, FILTER, and the type that each gives.

Nothing inside an aggregate is grouped, so its columns are kept apart (`inside`) from those that GROUP BY must name.
The order of what array_agg and its kin collect is the one written inside; without one it is as open as PostgreSQL's.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from sqlglot import exp

from interlock.sql import calls
from interlock.sql.casts import convert, settled
from interlock.sql.operators import comparable, condition, keyed, sorting_key
from interlock.sql.parse import Node, child, children, flag, only, unsupported
from interlock.sql.scope import Scope, Term, combined
from interlock.sql.types import (
    BOOL,
    FLOAT8,
    INT8,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    Type,
    array_of,
    refuse,
    wrong,
)

Walk = Callable[[Node, Scope], Term]
# How many arguments each takes.
AGGREGATES: Final[dict[str, int]] = {
    "array_agg": 1,
    "avg": 1,
    "bool_and": 1,
    "bool_or": 1,
    "count": 1,
    "every": 1,
    "jsonb_agg": 1,
    "jsonb_object_agg": 2,
    "max": 1,
    "min": 1,
    "string_agg": 2,
    "sum": 1,
}


class _Written(NamedTuple):
    """The parts of a call as they are written."""

    arguments: list[Node]
    order: list[Node]
    distinct: bool


def counted(node: Node, scope: Scope, name: str, walk: Walk) -> Term:
    """An aggregate that sqlglot reads as one: its argument is `this`, further ones are `expressions`."""
    only(node, "this", "expressions", "big_int", "separator")
    separator = [child(node, "separator")] if "separator" in node.args else []
    return called(name, [child(node), *children(node), *separator], scope, walk)


def called(name: str, listed: Sequence[Node], scope: Scope, walk: Walk) -> Term:
    """A call of an aggregate."""
    if not scope.aggregates:
        raise wrong(f"the aggregate {name}() in {scope.place}.", fix="Use it in SELECT, HAVING or ORDER BY.")
    if name == "count" and len(listed) == 1 and type(listed[0]) is exp.Star:
        only(listed[0])
        return Term("count(*)", INT8, aggregate=True, name="count", nullable=False)
    written = _written(name, listed)
    with _inside(scope, f"the argument of {name}()"):
        values = [walk(item, scope) for item in written.arguments]
        keys = [_key(item, walk, scope) for item in written.order]
    order = [term for term, _ in keys]
    compared = values[:1] if _is_separated(name, values) else values
    if written.distinct and order and [term.text for term in order] != [term.text for term in compared]:
        refusal = refuse if name == "string_agg" else wrong  # Its separator may differ from row to row, and count.
        raise refusal(f"{name}(DISTINCT … ORDER BY …) with another expression.", fix="Order by the argument itself.")
    text = ", ".join(key for _, key in keys)
    result = built(name, values, f" ORDER BY {text}" if text else "", distinct=written.distinct)
    return _closed(result, [*values, *order], scope, name)


def filtered(node: Node, scope: Scope, walk: Walk) -> Term:
    """aggregate(…) FILTER (WHERE …)."""
    only(node, "this", "expression")
    where = child(node, "expression")
    only(where, "this")
    result = walk(child(node), scope)
    name = result.name or "an aggregate"
    if not result.aggregate or name not in AGGREGATES or not result.text.endswith(")"):
        raise unsupported(node)
    with _inside(scope, "FILTER"):
        asked = condition(walk(child(where), scope), "FILTER")
    # A separator and a parenthesis around the aggregate itself: the condition belongs inside.
    is_joined = result.text.startswith(_JOIN)
    text = f"{result.text[:-1] if is_joined else result.text} FILTER (WHERE {asked.checked.text}){')' * is_joined}"
    closed = _closed(replace(result, text=text), [asked], scope, name)
    return replace(closed, inside=closed.inside | result.inside)


@contextmanager
def _inside(scope: Scope, place: str) -> Generator[None]:
    grouped = scope.grouped
    scope.grouped = frozenset()
    try:
        with scope.at(place, volatile=False, subqueries=False):
            yield
    finally:
        scope.grouped = grouped


def _closed(term: Term, parts: Sequence[Term], scope: Scope, name: str) -> Term:
    bare = frozenset(item for part in parts for item in part.bare)
    if any(number != scope.number for number, _ in bare):
        raise refuse(f"{name}() over a column of the query around it.", fix="Aggregate where the column comes from.")
    return replace(term, aggregate=True, bare=frozenset(), inside=bare)


def _written(name: str, listed: Sequence[Node]) -> _Written:
    arguments, order, distinct = list(listed), list[Node](), False
    if arguments and type(arguments[-1]) is exp.Order:
        last = arguments.pop()
        only(last, "this", "expressions")
        order, arguments = children(last), [*arguments, child(last)]
    elif arguments and type(arguments[0]) is exp.Order:
        # string_agg(x, ',' ORDER BY y): sqlglot hangs the order on the first argument.
        first = arguments[0]
        only(first, "this", "expressions")
        order, arguments[0] = children(first), child(first)
    if arguments and type(arguments[0]) is exp.Distinct:
        only(arguments[0], "expressions")
        distinct, arguments = True, [*children(arguments[0]), *arguments[1:]]
    if len(arguments) != AGGREGATES[name]:
        raise refuse(f"{name}() with {len(arguments)} arguments.", fix=f"Pass {AGGREGATES[name]}.")
    return _Written(arguments, order, distinct)


def _key(item: Node, walk: Walk, scope: Scope) -> tuple[Term, str]:
    only(item, "this", "desc", "nulls_first")
    term = settled(walk(child(item), scope))
    comparable(term.type, "ORDER BY")
    direction = " DESC" if flag(item, "desc") else ""
    return term, f"{sorting_key(term)}{direction} NULLS {'FIRST' if flag(item, 'nulls_first') else 'LAST'}"


def built(name: str, values: Sequence[Term], order: str, *, distinct: bool) -> Term:
    """The call, with PostgreSQL's type: the sum of bigint is numeric, an average is exact."""
    values = [settled(value) if value.type is UNKNOWN and name != "string_agg" else value for value in values]
    if distinct:
        comparable(values[0].type, f"{name}(DISTINCT …)")
        if (len(values) > 1 and not _is_separated(name, values)) or (name in _ORDERED and not order):
            raise refuse(f"{name}(DISTINCT …) here.", fix="Select the distinct values in a subquery first.")
    if name in {"string_agg", "jsonb_object_agg", "jsonb_agg"}:
        return _collected(name, values, order, distinct=distinct)
    [value] = values
    function, kind = _function(name, value.type)
    compared = keyed(value) if distinct or name in {"min", "max"} else value.operand
    text = f"{function}({'DISTINCT ' if distinct else ''}{compared}{order})"
    return combined(text, kind, [value], atomic=True, name=name)


def _collected(name: str, values: Sequence[Term], order: str, *, distinct: bool) -> Term:
    match name:
        case "string_agg":
            if any(not value.type.is_text and value.type is not UNKNOWN for value in values):
                raise refuse(f"string_agg() of {values[0].type}.", fix="Cast it to text.")
            terms, kind = [convert(value, TEXT, "implicit") for value in values], TEXT
        case "jsonb_agg":
            terms, kind = [calls.document_of(value) for value in values], JSONB
        case _:
            terms, kind = [calls.object_key(values[0]), calls.document_of(values[1])], JSONB
    if distinct and terms[0].text != values[0].text:
        raise refuse(f"{name}(DISTINCT …) of {values[0].type}.", fix="Select the distinct values in a subquery first.")
    if distinct and name == "string_agg":
        # SQLite's DISTINCT is for one argument, so the distinct texts are collected first and joined then.
        text = f"{_JOIN}{terms[1].checked.text}, interlock_array_agg(DISTINCT {keyed(terms[0])}{order}))"
        return combined(text, kind, values, atomic=True, name=name)
    listed = ", ".join(term.checked.text for term in terms)
    text = f"interlock_{name}({'DISTINCT ' if distinct else ''}{listed}{order})"
    return combined(text, kind, values, atomic=True, name=name)


def _is_separated(name: str, values: Sequence[Term]) -> bool:
    """Return whether the call joins texts by a separator that is the same for all rows."""
    return name == "string_agg" and all(
        value.literal is not None or value.parameter is not None for value in values[1:]
    )


_JOIN: Final = "interlock_join_items("
_ORDERED: Final = frozenset({"array_agg", "jsonb_agg", "jsonb_object_agg", "string_agg"})


def _function(name: str, kind: Type) -> tuple[str, Type]:
    """The function, and its result's type."""
    array = array_of(kind)
    if name == "count":
        return "count", INT8
    if name in {"sum", "avg"} and kind.is_number:
        return _summed(name, kind)
    if name in {"min", "max"} and (kind.is_number or kind.is_text or kind == TIMESTAMPTZ):
        return name, TEXT if kind.is_text else kind.plain
    if name in _TRUTHS and kind == BOOL:
        return _TRUTHS[name], BOOL
    if name == "array_agg" and array is not None:
        return "interlock_array_agg", array
    raise refuse(f"the aggregate {name}() of {kind}.", fix="Compute it in Python, or cast the argument.")


def _summed(name: str, kind: Type) -> tuple[str, Type]:
    if name == "sum" and kind.name in {"int2", "int4"}:
        return "sum", INT8
    if kind == FLOAT8:
        return f"interlock_{name}_float8", FLOAT8
    return f"interlock_{name}_{'integer' if kind.is_integer else 'numeric'}", NUMERIC


_TRUTHS: Final = {"bool_and": "min", "every": "min", "bool_or": "max"}
