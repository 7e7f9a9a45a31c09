"""Window functions: OVER, named windows, and the frames that both engines understand alike.

SQLite's window functions were modelled on PostgreSQL's, down to the default frame; what differs is written out: where
NULLs go, by which collation values are sorted, and the types of results. Offsets must be written numbers, or
parameters, which are verified when the statement runs: PostgreSQL takes a negative lag for a lead, SQLite raises.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from interlock.sql import aggregates, operators_and_functions, postgres_catalog
from interlock.sql.aggregates import ordering_key
from interlock.sql.casts import convert, is_constant_node
from interlock.sql.expressions import expression, predicate
from interlock.sql.operators_and_functions import comparable, sorting_key
from interlock.sql.parse import Body, Node, names_of, only, walk
from interlock.sql.scope import Scope, Term, combined, texts_of
from interlock.sql.types import INT4, INT8, NUMERIC, PLAIN_TYPES, UNKNOWN, Type, refuse, wrong

OFFSET_MAX: Final = 2**31 - 1
_PARAMETER: Final = re.compile(r"\?\d+")
_RANKS: Final = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist"})
_OFFSETS: Final = {"lag": 0, "lead": 0, "nth_value": 1}
"""Functions whose second argument is a place, and the smallest one."""

WINDOW_FUNCTIONS: Final = _RANKS | frozenset(_OFFSETS) | {"ntile", "first_value", "last_value"}
_AGGREGATES: Final = frozenset({"count", "sum", "avg", "min", "max"})


def name_windows(nodes: Sequence[Node], scope: Scope) -> None:
    """Read WINDOW name AS (…), for the OVER name of this query."""
    for node in nodes:
        body = node["WindowDef"]
        name = body["name"]
        if name in scope.named_windows:
            raise wrong(f"the window {name!r} is defined twice.")
        if "refname" in body:
            raise refuse(f"the window {name!r} made of another one.", fix="Write it out.")
        with scope.at(f"the window {name!r}", aggregates=True, volatile=False, subqueries=False):
            _over(body, scope)  # PostgreSQL reads it, whether it is used or not.
        scope.named_windows[name] = body


def window(node: Node, scope: Scope) -> Term:
    """Return a function with its OVER."""
    body = node["FuncCall"]
    only("FuncCall", body, "funcname", "args", "over", "agg_star", "agg_filter", "agg_distinct", "funcformat")
    if not scope.windows:
        raise wrong(
            f"a window function in {scope.place}.", fix="Use it in SELECT or ORDER BY; filter in a query around."
        )
    definition: Body = body["over"]
    if "name" in definition:
        if definition["name"] not in scope.named_windows:
            raise wrong(f"there is no window {definition['name']!r}.", fix="Define it: WINDOW name AS (…).")
        definition = scope.named_windows[definition["name"]]
    elif "refname" in definition:
        raise refuse("a window made of another one.", fix="Write it out: OVER (PARTITION BY … ORDER BY …).")
    with scope.at("a window function", aggregates=scope.aggregates, volatile=False, subqueries=False):
        function = _function(names_of(body["funcname"])[-1], body, scope)
        text, parts = _over(definition, scope)
    term = combined(f"{function.text} OVER ({text})", function.type, [function, *parts], atomic=True)
    return replace(term, nullable=function.nullable)


# --- Window functions ------------------------------------------------------------------------------------------------


def _function(name: str, body: Body, scope: Scope) -> Term:
    if name in aggregates.NAMES:
        return _aggregate(name, body, scope)
    if name not in WINDOW_FUNCTIONS:
        known = postgres_catalog.functions_named(name)
        if not known or any(found.kind != "f" for found in known):
            raise refuse(f"{name}() over a window.", fix="Collect the values in a query around it.")
        raise wrong(f"{name}() is not a window function.", fix="Leave out OVER.")
    if "agg_filter" in body or body.get("agg_distinct"):
        raise wrong(f"FILTER or DISTINCT on {name}(), which is not an aggregate.", fix="Filter in a query inside.")
    nodes = body.get("args", [])
    if name in _OFFSETS and len(nodes) > 1:
        place = _place(nodes[1], name, scope, least=_OFFSETS[name])
        terms = [expression(node, scope) for node in (nodes[0], *nodes[2:])]
    elif name == "ntile" and len(nodes) == 1:
        return Term(f"ntile({_place(nodes[0], name, scope, least=1)})", INT4, nullable=False)
    else:
        place, terms = "", [expression(node, scope) for node in nodes]
    return _shifted(name, terms, place)


def _shifted(name: str, terms: list[Term], place: str) -> Term:
    arguments = [terms[0], Term(place, INT4), *terms[1:]] if place else terms
    found = operators_and_functions.chosen(name, arguments)
    if found is None or found.kind != "w":
        raise wrong(f"{name}() does not exist for such arguments.", fix="Cast them.")
    if name in _RANKS:
        return Term(f"{name}()", PLAIN_TYPES[found.gives], nullable=False)
    if terms[0].type is UNKNOWN:
        raise refuse(f"{name}() of a value whose type is unknown.", fix="Cast it.")
    kinds, gives = operators_and_functions.types_of(found, arguments)
    if place:
        del kinds[1]
    typed = [convert(term, kind, "implicit") for term, kind in zip(terms, kinds, strict=True)]
    listed = [texts_of(typed[:1]), *([place] if place else []), *([texts_of(typed[1:])] if typed[1:] else [])]
    if name in {"lag", "lead"} and not place:
        listed.append("1")
    return combined(f"{name}({', '.join(listed)})", PLAIN_TYPES[gives], typed, atomic=True)


def _aggregate(name: str, body: Body, scope: Scope) -> Term:
    if name not in _AGGREGATES:
        raise refuse(f"{name}() over a window.", fix="Collect the values in a query around it.")
    if body.get("agg_distinct") or len(body.get("args", [])) > 1:
        raise wrong(f"{name}() over a window with DISTINCT, or with more than one argument.")
    if body.get("agg_star"):
        term = Term("count(*)", INT8, nullable=False)
    else:
        value = expression(body["args"][0], scope)
        if name in {"min", "max"} and value.type.name == "numeric":
            term = combined(f"interlock_window_{name}_numeric({value.checked.text})", NUMERIC, [value])
        elif name in {"min", "max"} and value.type.collation:
            raise refuse(f"{name}() of {value.type} over a window.", fix="Use GROUP BY.")
        else:
            term = aggregates.build(name, [value], "", distinct=False)
            # What SQLite has no sum of is summed up by functions of ours, which can also take rows back.
            if term.text.startswith("interlock_"):
                term = replace(term, text=term.text.replace("interlock_", "interlock_window_", 1))
        term = replace(term, nullable=name != "count")
    if "agg_filter" not in body:
        return term
    test = predicate(body["agg_filter"], scope, "FILTER")
    filtered = combined(f"{term.text} FILTER (WHERE {test.checked.text})", term.type, [term, test])
    return replace(filtered, nullable=term.nullable)


def _place(node: Node, name: str, scope: Scope, *, least: int) -> str:
    """Return a written number, or a parameter that is verified when the statement runs."""
    term = _parameter(node, scope, INT4)
    return str(_offset(node, f"{name}()", least=least)) if term is None else f"interlock_place({term.text}, {least})"


def _parameter(node: Node, scope: Scope, wanted: Type | None) -> Term | None:
    """Return a parameter of a whole number, cast or not; None for anything else."""
    if not is_constant_node(node) or all(kind != "ParamRef" for kind, _ in walk(node)):
        return None
    term = expression(node, scope)
    if wanted is not None and (term.type is UNKNOWN or term.type.is_integer):
        term = convert(term, wanted, "implicit")
    return term if term.type.is_integer and _PARAMETER.fullmatch(term.text) else None


def _offset(node: Node, what: str, *, least: int = 0) -> int:
    written = node.get("A_Const", {}).get("ival")
    place = -1 if written is None else written.get("ival", 0)
    if not least <= place <= OFFSET_MAX:
        raise refuse(f"{what} by something else than a written whole number from {least} on.", fix="Write the number.")
    return place


# --- OVER ------------------------------------------------------------------------------------------------------------


def _over(body: Body, scope: Scope) -> tuple[str, list[Term]]:
    """Return the text between the parentheses of OVER, and what it is made of."""
    only("WindowDef", body, "name", "partitionClause", "orderClause", "frameOptions", "startOffset", "endOffset")
    partition = [_partition(node, scope) for node in body.get("partitionClause", ())]
    text = f"PARTITION BY {', '.join(sorting_key(term) for term in partition)}" if partition else ""
    keys = [ordering_key(node, expression, scope) for node in body.get("orderClause", ())]
    if keys:
        text += f" ORDER BY {', '.join(key for _, key in keys)}"
    terms = [term for term, _ in keys]
    return (text + _frame(body, terms, scope)).strip(), [*partition, *terms]


def _partition(node: Node, scope: Scope) -> Term:
    if is_constant_node(node):
        raise refuse("a constant in the PARTITION BY of a window.", fix="Use columns.")
    term = expression(node, scope)
    comparable(term.type, "PARTITION BY")
    return term


# PostgreSQL's bits of a frame (FRAMEOPTION_…).
_NONDEFAULT, _RANGE, _ROWS, _GROUPS = 0x1, 0x2, 0x4, 0x8
_STARTS: Final = {0x20: "UNBOUNDED PRECEDING", 0x80: "UNBOUNDED FOLLOWING", 0x200: "CURRENT ROW"}
_ENDS: Final = {0x40: "UNBOUNDED PRECEDING", 0x100: "UNBOUNDED FOLLOWING", 0x400: "CURRENT ROW"}
_START_PRECEDING, _END_PRECEDING, _START_FOLLOWING, _END_FOLLOWING = 0x800, 0x1000, 0x2000, 0x4000
_EXCLUDED: Final = {0x8000: "CURRENT ROW", 0x10000: "GROUP", 0x20000: "TIES"}


def _frame(body: Body, keys: list[Term], scope: Scope) -> str:
    options: int = body.get("frameOptions", 0)
    if not options & _NONDEFAULT:
        return ""
    kind = "ROWS" if options & _ROWS else "GROUPS" if options & _GROUPS else "RANGE"
    if kind == "GROUPS" and not keys:
        raise wrong("GROUPS in a window without ORDER BY.")
    start = _bound(body.get("startOffset"), options, kind, keys, (_STARTS, _START_PRECEDING, _START_FOLLOWING), scope)
    end = _bound(body.get("endOffset"), options, kind, keys, (_ENDS, _END_PRECEDING, _END_FOLLOWING), scope)
    excluded = next((f" EXCLUDE {word}" for bit, word in _EXCLUDED.items() if options & bit), "")
    return f" {kind} BETWEEN {start} AND {end}{excluded}"


def _bound(
    node: Node | None,
    options: int,
    kind: str,
    keys: list[Term],
    bits: tuple[dict[int, str], int, int],
    scope: Scope,
) -> str:
    fixed, preceding, following = bits
    if not options & (preceding | following):
        return next(word for bit, word in fixed.items() if options & bit)
    assert node is not None
    if kind == "RANGE" and (len(keys) != 1 or keys[0].type.name not in {"int2", "int4"}):
        # At the ends of bigint SQLite would compare floats.
        raise refuse("RANGE by a number over anything but one integer or smallint.", fix="Use ROWS or GROUPS.")
    return f"{_frame_offset(node, kind, scope)} {'PRECEDING' if options & preceding else 'FOLLOWING'}"


def _frame_offset(node: Node, kind: str, scope: Scope) -> str:
    """Return a written number or a parameter: SQLite itself refuses NULL and negative values of parameters."""
    term = _parameter(node, scope, None if kind == "RANGE" else INT8)
    return str(_offset(node, "a frame")) if term is None else term.text
