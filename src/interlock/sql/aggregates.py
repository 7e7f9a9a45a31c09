"""Aggregates: their arguments, DISTINCT, the ORDER BY inside of them, FILTER, and the type that each gives.

Nothing inside an aggregate is grouped, so its columns are kept apart (`inside`) from those that GROUP BY must name.
The order of what array_agg and its kin collect is the one written inside; without one it is as open as PostgreSQL's.
GROUPING SETS become a UNION ALL here, before anything is translated.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Final, cast

from msgspec.structs import replace

from interlock.sql import operators_and_functions
from interlock.sql.casts import convert, is_constant_node
from interlock.sql.operators_and_functions import comparable, condition, determined, keyed, sorting_key
from interlock.sql.parse import Body, Node, described, kind_of, names_of, only, split, walk, without_positions
from interlock.sql.registered_functions import FUNCTIONS
from interlock.sql.scope import NO_REFERENCES, Scope, Term, combined, texts_of
from interlock.sql.types import INT8, JSONB, PLAIN_TYPES, Type, refuse, wrong

Walk = Callable[[Node, Scope], Term]

_NATIVE: Final[dict[str, str]] = {
    "count": "count",
    "min": "min",
    "max": "max",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
}
"""Aggregates that are SQLite's own."""

_JSON: Final = frozenset({"json_agg", "json_object_agg"})
_DOCUMENTS: Final = frozenset({"jsonb_agg", "jsonb_object_agg"}) | _JSON
_COLLECTING: Final = frozenset({"array_agg", "string_agg", "any_value"}) | _DOCUMENTS
_SPREADS: Final = frozenset({"stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"})
_ORDERED_SETS: Final = {"mode": 0, "percentile_cont": 1, "percentile_disc": 1}
"""Aggregates with WITHIN GROUP, and the number of arguments before it."""

NAMES: Final = (
    frozenset({"avg", "sum", "bit_and", "bit_or", "bit_xor"})
    | frozenset(_NATIVE)
    | _COLLECTING
    | _SPREADS
    | frozenset(_ORDERED_SETS)
)
_JOIN: Final = "interlock_join_items("


def called(name: str, body: Body, scope: Scope, walk: Walk) -> Term:
    """Return a call of an aggregate."""
    if not scope.aggregates:
        # Of a column of the query around, it would be an aggregate of that query.
        error = wrong if scope.parent is None else refuse
        raise error(f"the aggregate {name}() in {scope.place}.", fix="Use it in SELECT, HAVING or ORDER BY.")
    if name in _ORDERED_SETS:
        return _ordered_set(name, body, scope, walk)
    only("FuncCall", body, "funcname", "args", "agg_order", "agg_filter", "agg_star", "agg_distinct", "funcformat")
    if body.get("agg_star"):
        if name != "count":
            raise wrong(f"{name}(*) does not exist.", fix=f"Write {name}(column).")
        result = Term("count(*)", INT8, aggregate=True, nullable=False)
        return _filtered(result, body, scope, walk)
    with _inside(scope, f"the argument of {name}()"):
        values = [walk(node, scope) for node in body.get("args", ())]
        keys = [ordering_key(node, walk, scope) for node in body.get("agg_order", ())]
    if not values:
        raise wrong(f"{name}() without an argument does not exist.")
    has_distinct = bool(body.get("agg_distinct"))
    order = [term for term, _ in keys]
    if has_distinct and order:
        compared = values[:1] if _is_separated(name, values) else values
        if [term.text for term in order] != [term.text for term in compared]:
            # PostgreSQL refuses most of them; a separator may differ from row to row, and a key may be ordered alone.
            refusal = wrong if len(values) == 1 else refuse
            raise refusal(
                f"{name}(DISTINCT … ORDER BY …) with another expression.", fix="Order by the argument itself."
            )
    text = ", ".join(key for _, key in keys)
    result = build(name, values, f" ORDER BY {text}" if text else "", distinct=has_distinct)
    return _filtered(_closed(result, [*values, *order], scope, name), body, scope, walk)


def _ordered_set(name: str, body: Body, scope: Scope, walk: Walk) -> Term:
    """Return percentile_cont(), percentile_disc() or mode() WITHIN GROUP (ORDER BY …)."""
    only("FuncCall", body, "funcname", "args", "agg_order", "agg_filter", "agg_within_group", "funcformat")
    if not body.get("agg_within_group"):
        raise wrong(f"{name}() without WITHIN GROUP.", fix=f"Write {name}(…) WITHIN GROUP (ORDER BY …).")
    if len(body["agg_order"]) != 1 or len(body.get("args", ())) != _ORDERED_SETS[name]:
        raise wrong(f"{name}() with such a number of arguments does not exist.")
    with _inside(scope, f"the argument of {name}()"):
        direct = [walk(node, scope) for node in body.get("args", ())]
        value, _ = ordering_key(body["agg_order"][0], walk, scope)
    if any(not term.is_constant for term in direct):
        raise refuse(f"{name}() of a fraction that is not a constant.", fix="Write the fraction, or pass a parameter.")
    kinds, gives = _signature(name, [*direct, value])
    *fractions, typed = [convert(term, kind, "implicit") for term, kind in zip([*direct, value], kinds, strict=True)]
    if typed.type.collation is not None or typed.type.is_array:
        # Values that are equal and not the same: which of them it is would be open.
        raise refuse(f"{name}() of {typed.type}.", fix="Cast it to double precision, or sort and take one.")
    function = _function(name, [*direct, value])
    order = sorting_key(typed) + direction(body["agg_order"][0]["SortBy"], typed)
    text = f"{function}({texts_of([typed, *fractions])} ORDER BY {order})"
    result = combined(text, PLAIN_TYPES[gives], [value], atomic=True)
    return _filtered(_closed(result, [*direct, value], scope, name), body, scope, walk)


def ordering_key(node: Node, walk: Walk, scope: Scope) -> tuple[Term, str]:
    """Return one key of an ORDER BY, and its text with direction."""
    kind, body = split(node)
    only(kind, body, "node", "sortby_dir", "sortby_nulls")
    if is_constant_node(body["node"]):
        raise refuse("ORDER BY a constant inside a call.", fix="Order by columns.")
    term = walk(body["node"], scope)
    comparable(term.type, "ORDER BY")
    return term, sorting_key(term) + direction(body, term)


def direction(body: Body, term: Term) -> str:
    """PostgreSQL takes NULL for larger than everything, SQLite for smaller: say where it goes, if there can be any."""
    descending = body.get("sortby_dir") == "SORTBY_DESC"
    if body.get("sortby_dir") == "SORTBY_USING":
        raise refuse("ORDER BY … USING.", fix="Write ASC or DESC.")
    text = " DESC" if descending else ""
    if not term.nullable:
        return text
    nulls = body.get("sortby_nulls", "SORTBY_NULLS_DEFAULT")
    first = descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    return f"{text} NULLS {'FIRST' if first else 'LAST'}"


@contextmanager
def _inside(scope: Scope, place: str) -> Generator[None]:
    """Translate what stands inside an aggregate: nothing is grouped there, and no other aggregate may stand there."""
    grouped, scope.grouped = scope.grouped, frozenset()
    try:
        with scope.at(place, volatile=False):
            yield
    finally:
        scope.grouped = grouped


def _closed(result: Term, parts: Sequence[Term], scope: Scope, name: str) -> Term:
    """Return the aggregate with its columns inside. PostgreSQL may compute one over outer columns further out."""
    bare = NO_REFERENCES.union(*(part.bare for part in parts))
    if any(number != scope.number for number, _ in bare):
        raise refuse(f"{name}() over a column of the query around it.", fix="Aggregate where the column comes from.")
    return replace(result, aggregate=True, bare=NO_REFERENCES, inside=bare, nullable=name != "count")


def _filtered(result: Term, body: Body, scope: Scope, walk: Walk) -> Term:
    """Return aggregate(…) FILTER (WHERE …)."""
    if "agg_filter" not in body:
        return result
    with _inside(scope, "FILTER"):
        test = condition(walk(body["agg_filter"], scope), "FILTER")
    clause = f" FILTER (WHERE {test.checked.text})"
    # A separator and a parenthesis stand around the aggregate itself: the condition belongs inside.
    text = f"{result.text[:-1]}{clause})" if result.text.startswith(_JOIN) else result.text + clause
    return replace(result, text=text, inside=result.inside | test.bare)


# --- Building --------------------------------------------------------------------------------------------------------


def build(name: str, values: Sequence[Term], order: str, *, distinct: bool) -> Term:
    """Return the call, with PostgreSQL's type: the sum of bigint is numeric, an average is exact."""
    kinds, gives = _signature(name, values)
    typed = [convert(value, kind, "implicit") for value, kind in zip(values, kinds, strict=True)]
    if distinct:
        comparable(typed[0].type, f"{name}(DISTINCT …)")
        separated = _is_separated(name, values)
        if (len(values) > 1 and not separated) or (name in _DOCUMENTS and not order):
            raise refuse(f"{name}(DISTINCT …) here.", fix="Select the distinct values in a subquery first.")
        if name in _COLLECTING and not order:
            # PostgreSQL finds the distinct values by sorting them.
            order = f" ORDER BY {keyed(typed[0])} NULLS LAST"
    if name in _DOCUMENTS:
        typed = _documents(name, values, distinct=distinct)
    word = "DISTINCT " if distinct else ""
    if name == "string_agg" and distinct and gives == "bytea":
        raise refuse("string_agg(DISTINCT …) of bytea.", fix="Select the distinct values in a subquery first.")
    if name == "string_agg" and distinct:
        # SQLite's DISTINCT is for one argument, so the distinct texts are collected first and joined then.
        text = f"{_JOIN}{typed[1].checked.text}, interlock_array_agg(DISTINCT {keyed(typed[0])}{order}))"
    elif name in _NATIVE:
        function = _NATIVE[name]
        compared = keyed(typed[0]) if distinct or name in {"min", "max"} else typed[0].operand
        text = f"{function}({word}{compared}{order})"
    elif name == "sum" and gives == "int8":
        text = f"sum({word}{typed[0].operand}{order})"
    else:
        function = _function(name, values)
        listed = keyed(typed[0]) if distinct and len(typed) == 1 else texts_of(typed)
        text = f"{function}({word}{listed}{order})"
    return combined(text, PLAIN_TYPES[gives], values, atomic=True)


def _signature(name: str, values: Sequence[Term]) -> tuple[list[Type], str]:
    found = operators_and_functions.chosen(name, values)
    if found is None:
        raise wrong(
            f"{name}({', '.join(str(value.type) for value in values)}) does not exist.", fix="Cast the argument."
        )
    if name == "count":
        return [determined(value).type for value in values], "int8"
    if name in _DOCUMENTS:
        return [determined(value).type for value in values], "json" if name in _JSON else "jsonb"
    kinds, gives = operators_and_functions.types_of(found, values)
    if gives not in PLAIN_TYPES or (name in {"min", "max"} and not _has_extremes(kinds[0])):
        raise refuse(f"the aggregate {name}() of {values[0].type}.", fix="Compute it in Python, or cast the argument.")
    return kinds, gives


def _has_extremes(kind: Type) -> bool:
    if kind.is_array:
        comparable(kind, "min() and max()")
    return kind in _EXTREMES or kind.is_number or kind.is_array or bool(kind.labels)


_EXTREMES: Final = frozenset(
    PLAIN_TYPES[name] for name in ("text", "bpchar", "date", "time", "timestamp", "timestamptz", "interval", "bytea")
)


def _function(name: str, values: Sequence[Term]) -> str:
    found = operators_and_functions.chosen(name, values)
    assert found is not None
    entry = FUNCTIONS.get((name, found.takes))
    if entry is None or entry.function is None:
        raise refuse(f"the aggregate {name}() of {values[0].type}.", fix="Compute it in Python, or cast the argument.")
    return entry.function.name


def _documents(name: str, values: Sequence[Term], *, distinct: bool) -> list[Term]:
    if name in _JSON:
        return _json(name, values, distinct=distinct)
    if name == "jsonb_agg":
        terms = [operators_and_functions.document_of(value) for value in values]
    else:
        terms = [operators_and_functions.object_key(values[0]), operators_and_functions.document_of(values[1])]
    if distinct and values[0].type != JSONB:
        raise refuse(f"{name}(DISTINCT …) of {values[0].type}.", fix="Select the distinct values in a subquery first.")
    return terms


def _json(name: str, values: Sequence[Term], *, distinct: bool) -> list[Term]:
    if distinct:
        raise refuse(f"{name}(DISTINCT …).", fix="Select the distinct values in a subquery first.")
    if name == "json_agg":
        if values[0].type.is_array:
            raise refuse(f"json_agg() of {values[0].type}.", fix="Use jsonb_agg().")
        return [operators_and_functions.json_of(values[0])]
    return [operators_and_functions.json_key(values[0]), operators_and_functions.json_of(values[1])]


def _is_separated(name: str, values: Sequence[Term]) -> bool:
    """Return whether the call joins texts by a separator that is the same for all rows."""
    return name == "string_agg" and all(value.is_constant for value in values[1:])


# --- GROUPING SETS, ROLLUP and CUBE ----------------------------------------------------------------------------------
# Such a query is a UNION ALL of one query per set. An expression that a set leaves out is NULL there, of its own type.

_SETS_MAX: Final = 64


def union_of_groupings(body: Body, column_name: Callable[[Node], str]) -> Body:
    """Return the fields of a query with GROUPING SETS as those of a UNION ALL."""
    for clause in ("distinctClause", "windowClause", "lockingClause"):
        if clause in body:
            raise _refuse_sets(f"with {described(clause.removesuffix('Clause'))}")
    targets: list[Body] = [node["ResTarget"] for node in body["targetList"]]
    named = [{**each, "name": each.get("name") or _named(each["val"], column_name)} for each in targets]
    for kind, found in walk([*targets, body.get("havingClause")]):
        if kind in {"SubLink", "A_Star"} or (kind == "FuncCall" and "over" in found):
            raise _refuse_sets("with *, a subquery or a window in the list or in HAVING")
    sets: list[list[Node]] = [[]]
    for node in body["groupClause"]:
        sets = [[*one, *other] for one in sets for other in _sets(node)]
        if len(sets) > _SETS_MAX:
            raise _refuse_sets(f"of more than {_SETS_MAX} sets")
    sets = [[_meant(node, targets) for node in listed] for listed in sets]
    if body.get("groupDistinct"):
        sets = _distinct(sets)
    every = [without_positions(node) for listed in sets for node in listed]
    _check_spelling([*targets, body.get("havingClause"), body["groupClause"], body.get("sortClause")])
    queries = [_grouped_query(body, named, listed, every) for listed in sets]
    tail: Body = {name: body[name] for name in ("limitOffset", "limitCount", "limitOption") if name in body}
    if "sortClause" in body:
        tail["sortClause"] = [_by_place(node, targets) for node in body["sortClause"]]
    whole = queries[0]
    for query in queries[1:]:
        whole = {"op": "SETOP_UNION", "all": True, "larg": whole, "rarg": query}
    return {**whole, **tail}


def _check_spelling(nodes: object) -> None:
    """Refuse a column by its name alone beside the same one with its table: here they would be two."""
    spelled: dict[str, int] = {}
    for kind, found in walk(nodes):
        if kind == "ColumnRef" and kind_of(found["fields"][-1]) == "String":
            names = names_of(found["fields"])
            if spelled.setdefault(names[-1], len(names)) != len(names):
                raise _refuse_sets(f"with {names[-1]!r} both with and without its table")


def _distinct(sets: Sequence[list[Node]]) -> list[list[Node]]:
    """Return the sets without those that are equal to an earlier one."""
    found: dict[frozenset[str], list[Node]] = {}
    for listed in sets:
        names = [names_of(node["ColumnRef"]["fields"]) if "ColumnRef" in node else [] for node in listed]
        if any(len(each) != 1 for each in names):
            raise _refuse_sets("with DISTINCT and something else than names of columns, without their table")
        found.setdefault(frozenset(name for [name] in names), listed)
    return list(found.values())


def _refuse_sets(what: str) -> Exception:
    return refuse(f"GROUPING SETS, CUBE or ROLLUP {what}.", fix="Use UNION ALL of queries, or a query around it.")


def _sets(node: Node) -> list[list[Node]]:
    """Return the sets of expressions that one item of GROUP BY stands for."""
    kind, body = split(node)
    if kind == "RowExpr":
        return [list(body.get("args", ()))]
    if kind != "GroupingSet":
        return [[node]]
    content: list[Node] = body.get("content", [])
    match body["kind"]:
        case "GROUPING_SET_SETS":
            return [listed for item in content for listed in _sets(item)]
        case "GROUPING_SET_ROLLUP":
            items = [_sets(item)[0] for item in content]
            return [[each for item in items[:count] for each in item] for count in range(len(items), -1, -1)]
        case "GROUPING_SET_CUBE":
            items = [_sets(item)[0] for item in content]
            counts = range(len(items), -1, -1)
            chosen = [list(each) for count in counts for each in combinations(items, count)]
            return [[each for item in listed for each in item] for listed in chosen]
        case _:
            return [[]]


def _meant(node: Node, targets: Sequence[Body]) -> Node:
    """Return the expression that a place in the list stands for; a name that may be an alias is refused."""
    if kind_of(node) == "A_Const":
        place = node["A_Const"].get("ival", {}).get("ival", 0)
        if not 1 <= place <= len(targets):
            raise wrong(f"GROUP BY {place}: there are {len(targets)} columns in the list.")
        return cast("Node", targets[place - 1]["val"])
    names = _last_name(node)
    for target in targets:
        if names and target.get("name") == names and _last_name(target["val"]) != names:
            raise _refuse_sets("by an alias")
    return node


def _last_name(node: Node) -> str:
    return names_of(node["ColumnRef"]["fields"])[-1] if kind_of(node) == "ColumnRef" else ""


def _grouped_query(body: Body, targets: Sequence[Body], listed: Sequence[Node], every: Sequence[object]) -> Body:
    inside = [without_positions(node) for node in listed]
    missing = [node for node in every if node not in inside]
    query: Body = {name: body[name] for name in ("fromClause", "whereClause") if name in body}
    query["targetList"] = [{"ResTarget": {**each, "val": _without(each["val"], missing, every)}} for each in targets]
    having = body.get("havingClause")
    if listed:
        query["groupClause"] = list({str(without_positions(node)): node for node in listed}.values())
    if having is not None:
        query["havingClause"] = _without(having, missing, every)
    elif not listed:
        query["havingClause"] = {"A_Const": {"boolval": {"boolval": True}}}
    return query


def _named(value: Node, column_name: Callable[[Node], str]) -> str:
    return "grouping" if kind_of(value) == "GroupingFunc" else column_name(value)


def _without(  # noqa: PLR0911 -- a case for each kind of node.
    value: object, missing: Sequence[object], every: Sequence[object]
) -> object:
    """Return a part of a tree with NULL in the place of expressions that are not grouped by, outside of aggregates."""
    if isinstance(value, list):
        return [_without(item, missing, every) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    node = cast("Node", value)
    plain = without_positions(node)
    if plain in missing:
        call = {"funcname": [{"String": {"sval": "any_value"}}], "args": [node], "funcformat": "COERCE_EXPLICIT_CALL"}
        never: Node = {"A_Const": {"boolval": {}}}
        return {"CaseExpr": {"args": [{"CaseWhen": {"expr": never, "result": {"FuncCall": call}}}]}}
    if plain in every:
        return node
    if "FuncCall" in node and names_of(node["FuncCall"]["funcname"])[-1] in NAMES:
        return node
    if "GroupingFunc" in node:
        return {"A_Const": {"ival": {"ival": _grouping(node["GroupingFunc"]["args"], missing, every)}}}
    last = _last_name(node) if "ColumnRef" in node else ""
    if last and any(last == _last_name(cast("Node", known)) for known in every if isinstance(known, dict)):
        raise _refuse_sets("with a column that is written in two ways")
    return {name: _without(member, missing, every) for name, member in node.items()}


def _grouping(arguments: Sequence[Node], missing: Sequence[object], every: Sequence[object]) -> int:
    number = 0
    for argument in arguments:
        plain = without_positions(argument)
        if plain not in every:
            raise wrong("GROUPING() of something else than an expression of GROUP BY.")
        number = 2 * number + (plain in missing)
    return number


def _by_place(node: Node, targets: Sequence[Body]) -> Node:
    """Return a key of ORDER BY as a place in the list, if it is an expression of it."""
    key = node["SortBy"]["node"]
    if kind_of(key) == "A_Const" or (_last_name(key) and len(key["ColumnRef"]["fields"]) == 1):
        return node
    plain = without_positions(key)
    for place, target in enumerate(targets, start=1):
        if without_positions(target["val"]) == plain:
            return {"SortBy": {**node["SortBy"], "node": {"A_Const": {"ival": {"ival": place}}}}}
    raise _refuse_sets("with ORDER BY something that is not in the list")
