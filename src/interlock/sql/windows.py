"""Window functions: OVER, named windows, and the frames that both engines understand alike.

SQLite's window functions were modelled on PostgreSQL's, down to the default frame; what differs is written out: where
NULLs go, by which collation numerics are sorted, and the types of results. Offsets must be written numbers, so that
nothing about them is left for the run: PostgreSQL takes a negative lag for a lead, SQLite raises.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlglot import exp

from interlock.sql import aggregates
from interlock.sql.casts import convert, meet
from interlock.sql.clauses import direction, is_constant
from interlock.sql.expressions import expression, predicate
from interlock.sql.operators import comparable, sorting_key
from interlock.sql.parse import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    string_literal,
    unsupported,
)
from interlock.sql.scope import Scope, Term, combined
from interlock.sql.types import FLOAT8, INT4, INT8, NUMERIC, UNKNOWN, Type, refuse, wrong

OFFSET_MAX: Final = 2**31 - 1

_RANKS: Final[dict[type[Node], tuple[str, Type]]] = {
    exp.RowNumber: ("row_number", INT8),
    exp.Rank: ("rank", INT8),
    exp.DenseRank: ("dense_rank", INT8),
    exp.PercentRank: ("percent_rank", FLOAT8),
    exp.CumeDist: ("cume_dist", FLOAT8),
}
_AGGREGATES: Final[dict[type[Node], str]] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}


def name_windows(node: Node, scope: Scope) -> None:
    """WINDOW name AS (…), for the OVER name of this query."""
    for window in children(node, "windows"):
        name = identifier(child(window), "window")
        if name in scope.named_windows:
            raise wrong(f"the window {name!r} is defined twice.")
        if maybe(window, "alias") is not None:
            raise refuse(f"the window {name!r} made of another one.", fix="Write it out.")
        only(window, "this", "partition_by", "order", "spec", "over")
        with scope.at(f"the window {name!r}", aggregates=True, volatile=False, subqueries=False):
            _over(window, scope)  # PostgreSQL reads it, whether it is used or not.
        scope.named_windows[name] = window


def window(node: Node, scope: Scope) -> Term:
    """A function with its OVER."""
    only(node, "this", "partition_by", "order", "spec", "alias", "over")
    if not scope.windows:
        raise wrong(
            f"a window function in {scope.place}.", fix="Use it in SELECT or ORDER BY; filter in a query around."
        )
    definition = node
    alias = maybe(node, "alias")
    if alias is not None:
        if any(argument(node, part) for part in ("partition_by", "order", "spec")):
            raise refuse("a window made of another one.", fix="Write it out: OVER (PARTITION BY … ORDER BY …).")
        name = identifier(alias, "window")
        if name not in scope.named_windows:
            raise wrong(f"there is no window {name!r}.", fix="Define it: WINDOW name AS (…).")
        definition = scope.named_windows[name]
    with scope.at("a window function", aggregates=scope.aggregates, volatile=False, subqueries=False):
        function = _function(child(node), scope)
        text, parts = _over(definition, scope)
    term = combined(f"{function.text} OVER ({text})", function.type, [function, *parts], atomic=True)
    return replace(term, name=function.name, nullable=function.nullable)


# --- Window functions ------------------------------------------------------------------------------------------------


def _function(node: Node, scope: Scope) -> Term:
    if type(node) in _RANKS:
        only(node)
        name, kind = _RANKS[type(node)]
        return Term(f"{name}()", kind, name=name, nullable=False)
    if type(node) in _AGGREGATES:
        return _aggregate(node, _AGGREGATES[type(node)], scope)
    if type(node) is exp.Filter:
        return _filtered(node, scope)
    build = _FUNCTIONS.get(type(node))
    if build is None:
        raise unsupported(node)
    return build(node, scope)


def _aggregate(node: Node, name: str, scope: Scope) -> Term:
    only(node, "this", "expressions", "big_int")
    inner = child(node)
    if type(inner) is exp.Star and name == "count":
        only(inner)
        return Term("count(*)", INT8, name="count", nullable=False)
    if type(inner) is exp.Distinct or children(node):
        raise wrong(f"{name}() over a window with DISTINCT, or with more than one argument.")
    value = expression(inner, scope)
    if name in {"min", "max"} and value.type.name == "numeric":
        return combined(f"interlock_window_{name}_numeric({value.checked.text})", NUMERIC, [value], name=name)
    term = aggregates.built(name, [value], "", distinct=False)
    # What SQLite has no sum of is summed up by functions of ours, which can also take rows back.
    text = term.text.replace("interlock_", "interlock_window_", 1) if term.text.startswith("interlock_") else term.text
    return replace(term, text=text)


def _filtered(node: Node, scope: Scope) -> Term:
    only(node, "this", "expression")
    function, where = child(node), child(node, "expression")
    only(where, "this")
    if type(function) not in _AGGREGATES:
        raise refuse("FILTER on a window function that is not an aggregate.", fix="Filter in a query inside.")
    term = _aggregate(function, _AGGREGATES[type(function)], scope)
    asked = predicate(child(where), scope, "FILTER")
    text = f"{term.text} FILTER (WHERE {asked.checked.text})"
    return replace(combined(text, term.type, [term, asked], name=term.name), nullable=term.nullable)


def _ntile(node: Node, _: Scope) -> Term:
    only(node, "this")
    return Term(f"ntile({_offset(child(node), 'ntile()', least=1)})", INT4, name="ntile", nullable=False)


def _shifted(name: str) -> Callable[[Node, Scope], Term]:
    def build(node: Node, scope: Scope) -> Term:
        only(node, "this", "offset", "default")
        value = _value(child(node), scope, name)
        offset, default = maybe(node, "offset"), maybe(node, "default")
        shift = 1 if offset is None else _offset(offset, f"{name}()")
        if default is None:
            return combined(f"{name}({value.checked.text}, {shift})", value.type.plain, [value], name=name)
        other = expression(default, scope)
        kind = value.type.plain if other.type in {UNKNOWN, value.type.plain} else meet(value.type, other.type)
        if kind is None or (kind.is_text and kind != value.type.plain):
            raise refuse(f"{name}() of {value.type} with a default of {other.type}.", fix="Cast one of them.")
        value, other = convert(value, kind, "implicit"), convert(other, kind, "implicit")
        return combined(f"{name}({value.checked.text}, {shift}, {other.checked.text})", kind, [value, other], name=name)

    return build


def _taken(name: str) -> Callable[[Node, Scope], Term]:
    def build(node: Node, scope: Scope) -> Term:
        only(node, "this", "offset")
        value = _value(child(node), scope, name)
        place = f", {_offset(child(node, 'offset'), f'{name}()', least=1)}" if name == "nth_value" else ""
        if not place and maybe(node, "offset") is not None:
            raise wrong(f"{name}() takes one argument.")
        return combined(f"{name}({value.checked.text}{place})", value.type.plain, [value], name=name)

    return build


def _value(node: Node, scope: Scope, function: str) -> Term:
    value = expression(node, scope)
    if value.type is UNKNOWN:
        raise refuse(f"{function}() of a value whose type is unknown.", fix="Cast it.")
    return value


def _offset(node: Node, what: str, *, least: int = 0) -> int:
    written = string_literal(node) if type(node) is exp.Literal and not flag(node, "is_string") else ""
    if not written.isdecimal() or not least <= int(written) <= OFFSET_MAX:
        raise refuse(f"{what} by something else than a written whole number from {least} on.", fix="Write the number.")
    return int(written)


_FUNCTIONS: Final[dict[type[Node], Callable[[Node, Scope], Term]]] = {
    exp.Ntile: _ntile,
    exp.Lag: _shifted("lag"),
    exp.Lead: _shifted("lead"),
    exp.FirstValue: _taken("first_value"),
    exp.LastValue: _taken("last_value"),
    exp.NthValue: _taken("nth_value"),
}


# --- OVER ------------------------------------------------------------------------------------------------------------


def _over(node: Node, scope: Scope) -> tuple[str, list[Term]]:
    """The text between the parentheses of OVER, and what it is made of."""
    partition = [_key(item, scope, "PARTITION BY") for item in children(node, "partition_by")]
    text = f"PARTITION BY {', '.join(sorting_key(term) for term in partition)}" if partition else ""
    order = maybe(node, "order")
    keys: list[Term] = []
    if order is not None:
        only(order, "expressions")
        listed: list[str] = []
        for item in children(order):
            only(item, "this", "desc", "nulls_first")
            term = _key(child(item), scope, "ORDER BY")
            keys.append(term)
            listed.append(sorting_key(term) + direction(item, term))
        text += f" ORDER BY {', '.join(listed)}"
    spec = maybe(node, "spec")
    if spec is not None:
        text += _frame(spec, keys)
    return text.strip(), [*partition, *keys]


def _key(node: Node, scope: Scope, clause: str) -> Term:
    if is_constant(node):
        raise refuse(f"a constant in the {clause} of a window.", fix="Use columns.")
    term = expression(node, scope)
    comparable(term.type, clause)
    return term


_KINDS: Final = frozenset({"ROWS", "RANGE", "GROUPS"})
_EXCLUDED: Final = frozenset({"CURRENT ROW", "GROUP", "TIES", "NO OTHERS"})


def _frame(node: Node, keys: list[Term]) -> str:
    only(node, "kind", "start", "start_side", "end", "end_side", "exclude")
    kind = str(argument(node, "kind") or "").upper()
    if kind not in _KINDS:
        raise unsupported(node)
    if kind == "GROUPS" and not keys:
        raise wrong("GROUPS in a window without ORDER BY.")
    start = _bound(node, "start", kind, keys)
    end = _bound(node, "end", kind, keys) if argument(node, "end") else "CURRENT ROW"
    exclude = argument(node, "exclude")
    text = f" {kind} BETWEEN {start} AND {end}"
    if exclude is None:
        return text
    word = string_literal(exclude).upper() if isinstance(exclude, exp.Var) else str(exclude).upper()
    if word not in _EXCLUDED:
        raise unsupported(node)
    return f"{text} EXCLUDE {word}"


def _bound(node: Node, name: str, kind: str, keys: list[Term]) -> str:
    value, side = argument(node, name), str(argument(node, f"{name}_side") or "").upper()
    if isinstance(value, str):
        return f"{value.upper()} {side}".strip()
    if not isinstance(value, exp.Expr):
        raise unsupported(node)
    if kind == "RANGE" and (len(keys) != 1 or keys[0].type.name not in {"int2", "int4"}):
        # At the ends of bigint SQLite would compare floats.
        raise refuse("RANGE by a number over anything but one integer or smallint.", fix="Use ROWS or GROUPS.")
    return f"{_offset(value, 'a frame')} {side}"
