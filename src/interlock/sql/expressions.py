"""The walk over expressions: each listed node becomes a term, every other one is refused.

The list is by kind of node, and each handler names the fields it reads (`only`), so nothing that PostgreSQL's grammar
knows can slip through unread. Types, operators and functions are chosen in `postgres_catalog`, names in `scope`.

Sections: the walk, leaves, operators, rows, membership, branches, casts and arrays, calls, subqueries, column names.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final, cast

from msgspec.structs import replace

from interlock.sql import aggregates, casts, operators_and_functions, postgres_catalog
from interlock.sql.casts import convert, settled, unified
from interlock.sql.literals import text_literal
from interlock.sql.operators_and_functions import (
    comparable,
    compare,
    computable,
    condition,
    keyed,
    member,
    operate,
    sides,
    with_array,
)
from interlock.sql.parse import UNPARSABLE, Body, Node, kind_of, names_of, only, quoted_name, split, unsupported
from interlock.sql.scope import Query, Scope, Term, call, combined, texts_of
from interlock.sql.stored_values import ARRAY_ITEMS_MAX
from interlock.sql.types import (
    BOOL,
    DATE,
    INT4,
    INTERVAL,
    JSON,
    PLAIN_TYPES,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Type,
    array_of,
    refuse,
    wrong,
)

Handler = Callable[[Body, Scope], Term]

# --- The walk --------------------------------------------------------------------------------------------------------


def expression(node: Node, scope: Scope) -> Term:
    """Return the term of an expression in that scope."""
    kind, body = split(node)
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise unsupported(node)
    term = handler(body, scope)
    if term.volatile and not scope.volatile:
        raise refuse(
            f"{_volatile_call(term)} in {scope.place}.",
            why="SQLite may evaluate it another number of times than PostgreSQL does.",
            fix="Use it directly in the outermost SELECT, VALUES or SET, or pass the value as a parameter.",
        )
    if scope.grouped and term.text in scope.grouped:
        return replace(term, bare=frozenset(item for item in term.bare if item[0] != scope.number))
    return term


def predicate(node: Node, scope: Scope, place: str) -> Term:
    """Return the term of a condition."""
    return condition(expression(node, scope), place)


def stable(node: Node, scope: Scope, what: str) -> Term:
    """Return the term of an operand that the translation may repeat, or that PostgreSQL repeats."""
    return _stable(expression(node, scope), what)


def _stable(term: Term, what: str) -> Term:
    if term.volatile:
        raise refuse(f"{_volatile_call(term)} in {what}.", fix="Pass the value as a parameter.")
    return term


_VOLATILE: Final = re.compile(r"\binterlock_(random|nextval|currval|setval|lastval)\(")


def _volatile_call(term: Term) -> str:
    """Return the call in a term that gives another value each time."""
    found = _VOLATILE.search(term.text)
    return f"{found[1]}()" if found else "gen_random_uuid()"


# --- Leaves ----------------------------------------------------------------------------------------------------------


def _constant(body: Body, _: Scope) -> Term:
    for field, value in body.items():
        match field:
            case "ival":
                return casts.number(str(value.get("ival", 0)))
            case "sval":
                return casts.string(value.get("sval", ""))
            case "fval":
                return casts.number(value["fval"])
            case "boolval":
                return Term("1" if value.get("boolval") else "0", BOOL, nullable=False)
            case "isnull":
                return casts.null()
            case "bsval":
                raise refuse("a bit string.", fix=r"Write bytes as '\xff'::bytea.")
            case _:
                pass
    raise AssertionError(body)


def _parameter(body: Body, scope: Scope) -> Term:
    return scope.translation.parameter(body.get("number", 0))


def _column(body: Body, scope: Scope) -> Term:
    fields = body["fields"]
    if kind_of(fields[-1]) == "A_Star":
        raise refuse("a whole row as a value.", fix="Name its columns.")
    match names_of(fields):
        case [name]:
            return scope.column(None, name)
        case [relation, name] | ["public", relation, name]:
            return scope.column(relation, name)
        case parts:
            raise refuse(f"the column {'.'.join(parts)} of another schema.", fix="Name its table alone: t.name.")


_NOW: Final[dict[str, tuple[Type, str]]] = {
    "SVFOP_CURRENT_TIMESTAMP": (TIMESTAMPTZ, "interlock_now()"),
    "SVFOP_LOCALTIMESTAMP": (TIMESTAMP, "interlock_now()"),
    "SVFOP_CURRENT_DATE": (DATE, "interlock_day_of(interlock_now())"),
    "SVFOP_LOCALTIME": (TIME, "interlock_clock_of(interlock_now())"),
}


def _value_function(body: Body, _: Scope) -> Term:
    only("SQLValueFunction", body, "op", "typmod")
    kind, text = _NOW.get(body["op"], (None, ""))
    if kind is None or body.get("typmod", -1) != -1:
        raise refuse(f"{body['op'].removeprefix('SVFOP_')} here.", fix="Pass the value as a parameter.")
    return Term(text, kind, nullable=False)


# --- Operators -------------------------------------------------------------------------------------------------------


def _expression(body: Body, scope: Scope) -> Term:
    handler = _EXPRESSIONS.get(body["kind"])
    if handler is None:
        raise refuse(f"{body['kind'].removeprefix('AEXPR_').replace('_', ' ')} is outside the subset.")
    return handler(body, scope)


def _operator_name(body: Body) -> str:
    names = names_of(body["name"])
    if len(names) > 1 and names[0] != "pg_catalog":
        raise refuse(f"the operator {'.'.join(names)} of another schema.")
    return "<>" if names[-1] == "!=" else names[-1]


def _operator(body: Body, scope: Scope) -> Term:
    name = _operator_name(body)
    if "lexpr" not in body:
        return operate(name, expression(body["rexpr"], scope))
    if kind_of(body["lexpr"]) == "RowExpr" or kind_of(body["rexpr"]) == "RowExpr":
        return compare_rows(name, _row(body["lexpr"], scope), _row(body["rexpr"], scope))
    named = [node["CollateClause"]["collname"] for node in (body["lexpr"], body["rexpr"]) if "CollateClause" in node]
    if len(named) > 1 and names_of(named[0]) != names_of(named[1]):
        raise wrong("two collations in one comparison.", fix="Leave one out.")
    read = compared if name in operators_and_functions.COMPARISONS else expression
    return operate(name, read(body["lexpr"], scope), read(body["rexpr"], scope))


def compared(node: Node, scope: Scope) -> Term:
    """Return the term of an operand of a comparison or a key of ORDER BY: COLLATE "C" changes nothing there."""
    if kind_of(node) == "CollateClause":
        return _collated(node["CollateClause"], scope, sorts=True)
    return expression(node, scope)


def _distinct(body: Body, scope: Scope) -> Term:
    if "RowExpr" in (kind_of(body["lexpr"]), kind_of(body["rexpr"])):
        raise refuse("IS DISTINCT FROM on rows.", fix="Compare column by column.")
    one, other = expression(body["lexpr"], scope), expression(body["rexpr"], scope)
    if JSON in (one.type, other.type):
        # PostgreSQL accepts the constant NULL beside it, although json has no equality.
        raise refuse("IS DISTINCT FROM on json.", fix="Use IS NULL, or cast it to jsonb.")
    for value, beside in ((one, other), (other, one)):
        if value.parameter is not None and beside.type is UNKNOWN and beside.text == "NULL":
            operators_and_functions.determined(value)  # PostgreSQL makes IS NULL of it.
    left, right = sides(one, other)
    return replace(compare("IS" if body["kind"] == "AEXPR_NOT_DISTINCT" else "IS NOT", left, right), nullable=False)


def _nullif(body: Body, scope: Scope) -> Term:
    left, right = stable(body["lexpr"], scope, "NULLIF"), stable(body["rexpr"], scope, "NULLIF")
    value, other = sides(left, right)
    test = compare("=", value, other)
    # The result is the left operand of =. Beside a moment a date is compared as its beginning, and stays a date.
    value = left if left.type.name == "date" else value
    return combined(f"CASE WHEN {test.text} THEN NULL ELSE {value.checked.text} END", value.type, (test, value))


def _between(body: Body, scope: Scope) -> Term:
    low, high = body["rexpr"]["List"]["items"]
    # As PostgreSQL does: two comparisons, the first one complete before the second bound is read, each with a value of
    # its own. What is random is evaluated twice there, too.
    kind = body["kind"]
    if kind.endswith("_SYM"):
        return _between_symmetric(body, low, high, scope)
    negated = kind == "AEXPR_NOT_BETWEEN"
    first, second, word = ("<", ">", "OR") if negated else (">=", "<=", "AND")
    at_least = operate(first, expression(body["lexpr"], scope), expression(low, scope))
    at_most = operate(second, expression(body["lexpr"], scope), expression(high, scope))
    return combined(f"{at_least.text} {word} {at_most.text}", BOOL, (at_least, at_most))


def _between_symmetric(body: Body, low: Node, high: Node, scope: Scope) -> Term:
    parts: list[Term] = []
    for one, other in ((low, high), (high, low)):
        for operator, bound in ((">=", one), ("<=", other)):
            # Each time anew: the first comparison may have given a parameter its type.
            value = stable(body["lexpr"], scope, "BETWEEN SYMMETRIC")
            parts.append(operate(operator, value, stable(bound, scope, "BETWEEN")))
    first, second, third, fourth = (part.text for part in parts)
    text = f"({first} AND {second}) OR ({third} AND {fourth})"
    return combined(f"NOT ({text})" if body["kind"] == "AEXPR_NOT_BETWEEN_SYM" else text, BOOL, parts)


def _like(body: Body, scope: Scope) -> Term:
    name, right = _operator_name(body), body["rexpr"]
    if kind_of(right) != "FuncCall" or names_of(right["FuncCall"]["funcname"])[-1] != "like_escape":
        return operate(name, expression(body["lexpr"], scope), expression(right, scope))
    pattern, escape = right["FuncCall"]["args"]
    letter = escape.get("A_Const", {}).get("sval")
    if letter is None or len(letter.get("sval", "")) != 1:
        raise refuse("an ESCAPE that is not one written character.", fix="Write ESCAPE '!', for example.")
    sides = [convert(expression(node, scope), TEXT, "implicit") for node in (body["lexpr"], pattern)]
    function = "interlock_ilike" if name.endswith("*") else "interlock_like"
    matched = call(function, BOOL, *sides, extra=text_literal(letter["sval"]))
    return combined(f"NOT {matched.text}", BOOL, sides) if name.startswith("!") else matched


def _connective(body: Body, scope: Scope) -> Term:
    word = body["boolop"].removesuffix("_EXPR")
    if word == "NOT":
        term = predicate(body["args"][0], scope, "what NOT negates")
        return combined(f"NOT {term.operand}", BOOL, [term])
    terms = [predicate(node, scope, f"a side of {word}") for node in body["args"]]
    deciding = "0" if word == "AND" else "1"
    computable(takewhile(lambda term: term.text != deciding, terms), word)
    return replace(combined(f" {word} ".join(term.operand for term in terms), BOOL, terms), failing=None)


def _null_test(body: Body, scope: Scope) -> Term:
    if kind_of(body["arg"]) == "RowExpr":
        raise refuse("IS NULL of a row.", fix="Test column by column.")
    term = expression(body["arg"], scope)
    if term.parameter is not None:
        raise wrong(f"the type of ${term.parameter.number} is unknown at IS NULL.", fix="Write its type: $1::text.")
    word = "IS NOT" if body["nulltesttype"] == "IS_NOT_NULL" else "IS"
    return replace(combined(f"{term.operand} {word} NULL", BOOL, [term]), nullable=False)


_TRUTHS: Final = {
    "IS_TRUE": "IS 1",
    "IS_NOT_TRUE": "IS NOT 1",
    "IS_FALSE": "IS 0",
    "IS_NOT_FALSE": "IS NOT 0",
    "IS_UNKNOWN": "IS NULL",
    "IS_NOT_UNKNOWN": "IS NOT NULL",
}


def _boolean_test(body: Body, scope: Scope) -> Term:
    test = _TRUTHS[body["booltesttype"]]
    term = predicate(body["arg"], scope, f"the argument of {body['booltesttype'].replace('_', ' ')}")
    return replace(combined(f"{term.operand} {test}", BOOL, [term]), nullable=False)


# --- Rows ------------------------------------------------------------------------------------------------------------
# SQLite compares them as PostgreSQL does: from left to right, and NULL where a NULL leaves it open. Each pair meets
# in its own types, and a value with a collation brings it along.


def _row(node: Node, scope: Scope) -> list[Term]:
    if kind_of(node) != "RowExpr":
        raise refuse("a row compared with something else than a row.", fix="Write (a, b) = (1, 2).")
    return [stable(item, scope, "a row") for item in node["RowExpr"].get("args", ())]


def compare_rows(operator: str, left: Sequence[Term], right: Sequence[Term]) -> Term:
    """Return one of = <> < <= > >= on two rows of the same length."""
    if operator not in {"=", "<>", "<", "<=", ">", ">="}:
        raise refuse(f"{operator} on rows.", fix="Compare column by column.")
    if len(left) != len(right):
        raise wrong(f"a row of {len(left)} values compared with one of {len(right)}.")
    if not left:
        raise wrong("rows without a value cannot be compared.")
    lefts: list[str] = []
    rights: list[str] = []
    for one, other in zip(left, right, strict=True):
        first, second = sides(one, other)
        lefts.append(keyed(first, second.text))
        rights.append(second.operand)
    return combined(f"({', '.join(lefts)}) {operator} ({', '.join(rights)})", BOOL, (*left, *right))


# --- Membership ------------------------------------------------------------------------------------------------------


def _in(body: Body, scope: Scope) -> Term:
    items: list[Node] = body["rexpr"]["List"]["items"]
    negated = _operator_name(body) == "<>"
    if kind_of(body["lexpr"]) == "RowExpr":
        left = _row(body["lexpr"], scope)
        parts = [compare_rows("=", left, _row(item, scope)) for item in items]
        return _negated_if(combined(" OR ".join(f"({part.text})" for part in parts), BOOL, parts), negated=negated)
    value = stable(body["lexpr"], scope, "IN")
    terms = [_stable(expression(item, scope), "a list") for item in items]
    found = _in_terms(value, terms, scope)
    return _negated_if(found, negated=negated)


def _in_terms(value: Term, terms: list[Term], scope: Scope) -> Term:
    """Return IN with a list: constants are compared in one common type, columns one by one, as PostgreSQL does."""
    constants = [term for term in terms if not any(number == scope.number for number, _ in term.bare)]
    others = [term for term in terms if term not in constants] if len(constants) < len(terms) else []
    common = postgres_catalog.common_type([value.type.name, *(term.type.name for term in constants)])
    parts: list[Term] = []
    if len(constants) > 1 and common is not None and not (kind := PLAIN_TYPES[common]).is_array:
        parts.append(_in_constants(value, [convert(term, kind, "implicit") for term in constants], kind))
    else:
        parts += [operate("=", value, term) for term in constants]
    parts += [operate("=", value, term) for term in others]
    if len(parts) == 1:
        return parts[0]
    return combined(" OR ".join(part.operand for part in parts), BOOL, parts)


def _in_constants(value: Term, terms: list[Term], kind: Type) -> Term:
    if value.type is UNKNOWN:
        value = convert(value, kind, "implicit")
    left, first = sides(value, terms[0])
    # All of them have one type by now: what the first one is not converted to, none is.
    listed = terms if first is terms[0] else [sides(value, term)[1] for term in terms]
    text = texts_of(listed)
    return combined(f"{keyed(left, text)} IN ({text})", BOOL, (left, *listed))


def _negated_if(term: Term, *, negated: bool) -> Term:
    return combined(f"NOT {term.operand}", BOOL, [term]) if negated else term


def _any_array(body: Body, scope: Scope) -> Term:
    """Return an operator with ANY or ALL of an array."""
    operator, over_all = _operator_name(body), body["kind"] == "AEXPR_OP_ALL"
    left = stable(body["lexpr"], scope, "ANY")
    right = body["rexpr"]
    if (
        kind_of(right) == "A_ArrayExpr"
        and right["A_ArrayExpr"].get("elements")
        and operator == ("<>" if over_all else "=")
    ):
        items = [_stable(expression(item, scope), "ANY") for item in right["A_ArrayExpr"]["elements"]]
        kind, items = unified(items, "ARRAY")
        if kind.is_array:
            raise refuse("ANY or ALL of an array of arrays.", fix="Use IN.")
        return _negated_if(_in_terms(left, items, scope), negated=over_all)
    array = expression(right, scope)
    element = array.type.element if array.type.is_array else left.type
    if operator == ("<>" if over_all else "=") and element.collation in {None, "interlock_numeric"}:
        return _negated_if(member(*with_array(left, array)), negated=over_all)
    if array.type is UNKNOWN:
        found = array_of(TEXT if left.type.is_text else left.type)
        if found is None or left.type is UNKNOWN:
            raise refuse(f"{operator} ANY of an array of unknown type.", fix="Cast it: $1::bigint[].")
        array = convert(array, found, "implicit")
    if not array.type.is_array:
        raise wrong(f"{operator} ANY ({array.type}).", fix="Pass an array.")
    element = array.type.element
    if element.name == "float8":
        raise refuse(f"{operator} ANY ({array.type}).", fix="Use numeric[].")
    if element.name == "jsonb" and array.text.startswith("?"):
        # A list inside the list is an array of two dimensions for PostgreSQL's driver, and a document here.
        raise refuse(f"{operator} ANY of a parameter of type {array.type}.", fix="Use IN, or ARRAY[$1, $2].")
    value = Term("unhex(value)" if element.name in {"bytea", "uuid"} else "value", element)
    test = _repeated(operator, left, value)
    text = _quantified(test.text, f"json_each({array.checked.text})", over_all=over_all)
    return combined(f"CASE WHEN {array.operand} IS NULL THEN NULL ELSE {text} END", BOOL, (left, array))


def _repeated(operator: str, left: Term, right: Term) -> Term:
    """Return the test of ANY or ALL, which a subquery repeats: SQLite has no aggregate of the query around it there."""
    if left.aggregate or " OVER (" in left.text:
        raise refuse(f"an aggregate or a window before {operator} ANY or ALL.", fix="Compute it in a subquery in FROM.")
    test = operate(operator, left, right)
    if test.type != BOOL:
        raise wrong(f"{operator} ANY or ALL, which is not a comparison.", fix="Use an operator that gives a boolean.")
    return test


def _quantified(test: str, source: str, *, over_all: bool) -> str:
    """Return ANY or ALL of a test over the rows of a source: the deciding row first, then NULL, then the default."""
    decided, otherwise = (0, 1) if over_all else (1, 0)
    return (
        f"(SELECT CASE WHEN count(*) FILTER (WHERE ({test}) IS {decided}) THEN {decided} "  # noqa: S608 -- quoted names
        f"WHEN count(*) FILTER (WHERE ({test}) IS NULL) THEN NULL ELSE {otherwise} END FROM {source})"
    )


# --- Branches: CASE, COALESCE, GREATEST, each in the one type of all its branches ------------------------------------


def _case(body: Body, scope: Scope) -> Term:
    only("CaseExpr", body, "arg", "args", "defresult")
    subject: Term | None = None
    if "arg" in body:
        subject = settled(stable(body["arg"], scope, "CASE"))
    conditions: list[Term] = []
    results: list[Term] = []
    for node in body["args"]:
        branch = node["CaseWhen"]
        only("CaseWhen", branch, "expr", "result")
        if subject is None:
            conditions.append(predicate(branch["expr"], scope, "WHEN"))
        else:
            conditions.append(operate("=", subject, expression(branch["expr"], scope)))
        results.append(expression(branch["result"], scope))
    default = expression(body["defresult"], scope) if "defresult" in body else casts.null()
    # PostgreSQL takes the result of ELSE for the most significant one.
    kind, [default, *results] = unified([default, *results], "CASE")
    _check_branches(conditions, results, default)
    pairs = zip(conditions, results, strict=True)
    written = " ".join(f"WHEN {when.checked.text} THEN {then.checked.text}" for when, then in pairs)
    whole = combined(f"CASE {written} ELSE {default.checked.text} END", kind, (*conditions, *results, default))
    return replace(whole, failing=None)


def _check_branches(conditions: Sequence[Term], results: Sequence[Term], default: Term) -> None:
    """Check what PostgreSQL computes although no row may take the branch: all after a condition that it cannot know."""
    is_open = False
    for test, result in zip(conditions, results, strict=True):
        if is_open:
            computable([test], "CASE")
        is_open = is_open or not test.is_known
        if is_open and test.text not in {"0", "NULL"}:
            computable([result], "CASE")
        if test.text == "1":
            return
    if is_open:
        computable([default], "CASE")


def coalesce(terms: Sequence[Term]) -> Term:
    """Return COALESCE."""
    kind, typed = unified(terms, "COALESCE")
    known = list(takewhile(lambda term: term.is_known, typed))
    if len(known) < len(typed) and not any(term.literal for term in known):
        computable(takewhile(lambda term: not term.literal, typed[len(known) :]), "COALESCE")
    if len(typed) == 1:
        return typed[0]
    term = combined(f"coalesce({texts_of(typed)})", kind, typed, atomic=True)
    return replace(term, nullable=all(part.nullable for part in typed), failing=typed[0].failing)


def _coalesce(body: Body, scope: Scope) -> Term:
    only("CoalesceExpr", body, "args")
    return coalesce([stable(node, scope, "COALESCE") for node in body["args"]])


def _choice(body: Body, scope: Scope) -> Term:
    only("MinMaxExpr", body, "op", "args")
    name = "least" if body["op"] == "IS_LEAST" else "greatest"
    kind, terms = unified([expression(node, scope) for node in body["args"]], name.upper())
    comparable(kind, f"{name}()")
    return call(f"{kind.collation or 'interlock'}_{name}", kind, *terms)


_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)

# --- Casts and arrays ------------------------------------------------------------------------------------------------


def _cast(body: Body, scope: Scope) -> Term:
    only("TypeCast", body, "arg", "typeName")
    if body.get("location") == -1 and kind_of(body["arg"]) == "ParamRef":
        # The library's grammar takes a parameter where PostgreSQL's has a constant alone.
        raise refuse("a type before a parameter.", why=UNPARSABLE, fix="Write the type after it: $1::integer.")
    unit = casts.interval_unit(body["typeName"])
    if unit and _WHOLE.fullmatch(count := body["arg"].get("A_Const", {}).get("sval", {}).get("sval", "")):
        return convert(casts.string(f"{count} {unit}"), INTERVAL, "explicit")
    kind = casts.cast_type(body["typeName"], scope.translation)
    if kind_of(body["arg"]) == "A_ArrayExpr" and kind.is_array:
        made = _array_of(body["arg"]["A_ArrayExpr"].get("elements", ()), scope, kind.element)
        return convert(made, kind, "explicit")
    return convert(expression(body["arg"], scope), kind, "explicit")


def _array(body: Body, scope: Scope) -> Term:
    return _array_of(body.get("elements", ()), scope, None)


def _array_of(nodes: Sequence[Node], scope: Scope, element: Type | None) -> Term:
    if any(kind_of(node) == "A_ArrayExpr" for node in nodes):
        raise refuse("an array of arrays.", fix="Use jsonb.")
    if len(nodes) >= operators_and_functions.ARGUMENTS_MAX:
        raise refuse(f"ARRAY[…] of {len(nodes)} elements.", fix="Pass a list as a parameter: $1::bigint[].")
    terms = [expression(node, scope) for node in nodes]
    if element is not None:
        terms = [convert(term, element, "explicit") for term in terms]
    elif terms:
        element, terms = unified(terms, "ARRAY")
    else:
        raise wrong("the type of an empty array is unknown.", fix="Write its type: ARRAY[]::bigint[].")
    kind = array_of(element)
    if kind is None:
        raise refuse(f"an array of {element}.", fix="Use jsonb_build_array(), or cast the elements.")
    return call("interlock_array", kind, *terms)


def _indirection(body: Body, scope: Scope) -> Term:
    only("A_Indirection", body, "arg", "indirection")
    term = expression(body["arg"], scope)
    places: list[Term] = []
    for node in body["indirection"]:
        if kind_of(node) != "A_Indices":
            raise refuse("a part of a value by a name.", fix="Select columns.")
        if node["A_Indices"].get("is_slice"):
            if not term.type.is_array or len(body["indirection"]) > 1:
                raise refuse("such a slice.", fix="Slice an array once: a[2:3].")
            return _slice(term, node["A_Indices"], scope)
        places.append(expression(node["A_Indices"]["uidx"], scope))
    if term.type.name == "jsonb":
        return _inside(term, places)
    if term.type.is_array and len(places) > 1:
        raise refuse("an element of an array of arrays.", fix="Use jsonb.")
    return _subscript(term, places[0])


def _slice(term: Term, indices: Body, scope: Scope) -> Term:
    bounds = [
        convert(expression(indices[name], scope), INT4, "assignment") if name in indices else casts.number(default)
        for name, default in (("lidx", "1"), ("uidx", str(ARRAY_ITEMS_MAX)))
    ]
    return call("interlock_array_slice", term.type, term, *bounds)


def _inside(term: Term, places: Sequence[Term]) -> Term:
    """Return document['a'][0]: the part at a path, as #> finds it. An assignable number is a step by its digits."""
    steps = [
        convert(convert(place, INT4, "assignment"), TEXT, "explicit")
        if place.type.is_integer
        else convert(place, TEXT, "implicit")
        for place in places
    ]
    return operate("#>", term, call("interlock_array", PLAIN_TYPES["text[]"], *steps))


def _subscript(term: Term, place: Term) -> Term:
    if not term.type.is_array:
        raise wrong(f"cannot subscript {term.type}.", fix="Use -> with jsonb, or cast it to an array.")
    element = term.type.element
    inner = call("interlock_array_element", element, term, convert(place, INT4, "assignment"))
    return call("unhex", element, inner) if element.name in {"bytea", "uuid"} else inner


def _collated(body: Body, scope: Scope, *, sorts: bool = False) -> Term:
    term = expression(body["arg"], scope)
    if term.type.is_array or term.type.name == "bpchar":
        raise refuse(f"COLLATE of the type {term.type}.", fix="Leave it out.")
    if not (term.type is UNKNOWN or term.type.is_text):
        raise wrong(f"COLLATE of the type {term.type}.", fix="Leave it out.")
    casts.check_collation(names_of(body["collname"]), sorts=sorts)
    return term


# --- Calls -----------------------------------------------------------------------------------------------------------


def _by_position(name: str, nodes: Sequence[Node]) -> list[Node]:
    """Return arguments with names at their positions."""
    known = operators_and_functions.NAMED_ARGUMENTS.get(name)
    if known is None:
        raise refuse(f"{name}() with named arguments.", fix="Pass them by position.")
    nothing: Node = {"A_Const": {"ival": {}}}
    listed = {place: node for place, node in zip(known, nodes, strict=False) if kind_of(node) != "NamedArgExpr"}
    for node in nodes:
        if kind_of(node) != "NamedArgExpr":
            continue
        argument = node["NamedArgExpr"]["name"]
        if argument in listed or argument not in known:
            raise wrong(f"{name}() with the argument {argument!r} twice, or without one of that name.")
        listed[argument] = node["NamedArgExpr"]["arg"]
    return [listed.get(argument, nothing) for argument in known]


_OF_ROWS: Final = frozenset({"to_jsonb", "to_json", "row_to_json", "jsonb_agg"})


def _whole_row(body: Body, scope: Scope) -> list[tuple[str, Term]] | None:
    """Return the columns of the one argument if it is a whole row: to_jsonb(t) or to_jsonb(t.*)."""
    nodes: list[Node] = body.get("args", [])
    if len(nodes) != 1 or kind_of(nodes[0]) != "ColumnRef":
        return None
    fields = nodes[0]["ColumnRef"]["fields"]
    starred = kind_of(fields[-1]) == "A_Star"
    names = names_of(fields[:-1] if starred else fields)
    return scope.whole_row(names[0], starred=starred) if len(names) == 1 else None


def _call(body: Body, scope: Scope) -> Term:
    names = names_of(body["funcname"])
    if len(names) > 1 and names[0] != "pg_catalog":
        raise refuse(f"the function {'.'.join(names)}() of another schema.", fix="Use functions of PostgreSQL's own.")
    name = names[-1]
    if "over" in body:
        return scope.translation.window({"FuncCall": body}, scope)
    row = _whole_row(body, scope) if name in _OF_ROWS else None
    if row is not None and name in aggregates.NAMES:
        to_jsonb = {"funcname": [{"String": {"sval": "to_jsonb"}}], "args": body["args"]}
        body = {**body, "args": [{"FuncCall": to_jsonb}]}
    if name in aggregates.NAMES:
        return aggregates.called(name, body, scope, expression)
    only("FuncCall", body, "funcname", "args", "funcformat")
    if name == "extract" and body["funcformat"] == "COERCE_SQL_SYNTAX" and kind_of(body["args"][0]) == "ParamRef":
        raise refuse("a parameter as the field of EXTRACT.", why=UNPARSABLE, fix="Use date_part($1, …).")
    if row is not None:
        return operators_and_functions.row_document(name, row)
    if any(kind_of(node) == "NamedArgExpr" for node in body.get("args", ())):
        body = {**body, "args": _by_position(name, body["args"])}
    if name in operators_and_functions.SEQUENCE_FUNCTIONS:
        nodes = body.get("args", ())
        return operators_and_functions.of_sequence(
            name, nodes, [expression(node, scope) for node in nodes[1:]], scope.translation
        )
    return operators_and_functions.called(name, [expression(node, scope) for node in body.get("args", ())])


# --- Subqueries ------------------------------------------------------------------------------------------------------


def subquery(node: Node, scope: Scope) -> Query:
    """Return a query inside an expression."""
    if not scope.subqueries:
        raise refuse(f"a subquery in {scope.place}.", fix="Query first, then pass the value as a parameter.")
    return scope.translation.subquery(node, scope)


def _sublink(body: Body, scope: Scope) -> Term:
    kind = body["subLinkType"]
    if kind == "EXISTS_SUBLINK":
        query = subquery(_with_column(body["subselect"]), scope)
        return Term(f"EXISTS ({query.text})", BOOL, bare=query.bare, nullable=False)
    if kind == "EXPR_SUBLINK":
        return _scalar(subquery(body["subselect"], scope))
    if kind == "ARRAY_SUBLINK":
        return _array_query(subquery(body["subselect"], scope))
    if kind in {"ANY_SUBLINK", "ALL_SUBLINK"}:
        return _in_query(body, scope, over_all=kind == "ALL_SUBLINK")
    raise refuse("such a subquery as a value.", fix="Use EXISTS, IN, or a subquery of one column.")


def _with_column(node: Node) -> Node:
    """Return the query of EXISTS with a column if it has none: EXISTS (SELECT FROM t)."""
    select = node["SelectStmt"]
    if not {"targetList", "valuesLists", "larg"}.isdisjoint(select):
        return node
    one: Node = {"A_Const": {"ival": {"ival": 1}}}
    return {"SelectStmt": {**select, "targetList": [{"ResTarget": {"val": one}}]}}


def _single_column(query: Query, what: str, alias: str = "s") -> tuple[str, Type]:
    if len(query.columns) != 1:
        raise wrong(f"a subquery of {len(query.columns)} columns {what}.", fix="Select one column.")
    [output] = query.columns
    return f"{alias}.{quoted_name(output.name)}", output.type


def _scalar(query: Query) -> Term:
    column, kind = _single_column(query, "as a value")
    text = query.text
    if not query.single:
        text = f"SELECT interlock_single({column}) FROM ({text}) AS s"  # noqa: S608 -- quoted names
    return Term(f"({text})", kind, bare=query.bare)


def _array_query(query: Query) -> Term:
    column, kind = _single_column(query, "in ARRAY(…)")
    array = array_of(kind)
    if array is None:
        raise refuse(f"ARRAY(…) of {kind}.", fix="Use jsonb_agg().")
    text = f"SELECT coalesce(interlock_array_agg({column}), '[]') FROM ({query.text}) AS s"  # noqa: S608 -- quoted names
    return Term(f"({text})", array, bare=query.bare, nullable=False)


def _in_query(body: Body, scope: Scope, *, over_all: bool) -> Term:
    operator = names_of(body["operName"])[-1] if "operName" in body else "="
    operator = "<>" if operator == "!=" else operator
    if kind_of(body["testexpr"]) == "RowExpr":
        return _row_in_query(
            _row(body["testexpr"], scope), subquery(body["subselect"], scope), operator, over_all=over_all
        )
    left = stable(body["testexpr"], scope, "IN")
    query = subquery(body["subselect"], scope)
    alias = scope.free_alias()
    column, kind = _single_column(query, "in IN", alias)
    inner = Term(column, kind)
    outside = (left, Term("", BOOL, bare=query.bare))
    if operator != ("<>" if over_all else "="):
        source = f"({query.text}) AS {alias}"
        test = _repeated(operator, left, inner)
        return combined(_quantified(test.text, source, over_all=over_all), BOOL, outside)
    first, second = sides(left, inner)
    text = query.text if second.text == column else f"SELECT {second.checked.text} FROM ({query.text}) AS {alias}"  # noqa: S608
    return _negated_if(combined(f"{keyed(first, text)} IN ({text})", BOOL, outside), negated=over_all)


def _row_in_query(left: Sequence[Term], query: Query, operator: str, *, over_all: bool) -> Term:
    if operator != ("<>" if over_all else "="):
        raise refuse(f"{operator} ANY or ALL of rows.", fix="Use EXISTS with a condition per column.")
    if len(query.columns) != len(left):
        raise wrong(f"a subquery of {len(query.columns)} columns for a row of {len(left)}.")
    pairs = [
        sides(term, Term(f"s.{quoted_name(output.name)}", output.type))
        for term, output in zip(left, query.columns, strict=True)
    ]
    columns = [f"s.{quoted_name(output.name)}" for output in query.columns]
    seconds = [second.checked.text for _, second in pairs]
    text = query.text if seconds == columns else f"SELECT {', '.join(seconds)} FROM ({query.text}) AS s"  # noqa: S608
    firsts = ", ".join(keyed(first, text) for first, _ in pairs)
    outside = (*left, Term("", BOOL, bare=query.bare))
    return _negated_if(combined(f"({firsts}) IN ({text})", BOOL, outside), negated=over_all)


# --- Names of columns ------------------------------------------------------------------------------------------------

_STRONG, _WEAK, _NONE = 2, 1, 0
STAR: Final = "*"
"""The name of a subquery whose first column is not written out."""

_FIXED_NAMES: Final = {
    "A_ArrayExpr": "array",
    "RowExpr": "row",
    "CoalesceExpr": "coalesce",
    "GroupingFunc": "grouping",
}


def column_name(node: Node) -> str:
    """Return the name that PostgreSQL gives a column of a result."""
    return _figured(node)[0] or "?column?"


def _figured(node: Node | None) -> tuple[str, int]:  # noqa: PLR0911 -- a case for each kind of node.
    """Return a name and how strong it is: a cast or a CASE replaces a weak one."""
    if not node:
        return "", _NONE
    kind, body = split(node)
    match kind:
        case "ColumnRef":
            return cast("str", body["fields"][-1].get("String", {}).get("sval", STAR)), _STRONG
        case "A_Indirection":
            last = body["indirection"][-1].get("String")
            return (last["sval"], _STRONG) if last else _figured(body["arg"])
        case "FuncCall":
            return names_of(body["funcname"])[-1], _STRONG
        case "A_Expr" if body["kind"] == "AEXPR_NULLIF":
            return "nullif", _STRONG
        case "TypeCast":
            name, strength = _figured(body["arg"])
            return (name, strength) if strength > _WEAK else (names_of(body["typeName"]["names"])[-1], _WEAK)
        case "CollateClause":
            return _figured(body["arg"])
        case "CaseExpr":
            name, strength = _figured(body.get("defresult"))
            return (name, strength) if strength > _WEAK else ("case", _WEAK)
        case "MinMaxExpr":
            return ("least" if body["op"] == "IS_LEAST" else "greatest"), _STRONG
        case "SQLValueFunction":
            return body["op"].removeprefix("SVFOP_").removesuffix("_N").lower(), _STRONG
        case "SubLink":
            return _sublink_name(body)
        case _:
            return _FIXED_NAMES.get(kind, ""), _STRONG if kind in _FIXED_NAMES else _NONE


def _sublink_name(body: Body) -> tuple[str, int]:
    if body["subLinkType"] == "EXISTS_SUBLINK":
        return "exists", _STRONG
    if body["subLinkType"] == "ARRAY_SUBLINK":
        return "array", _STRONG
    if body["subLinkType"] != "EXPR_SUBLINK":
        return "", _NONE
    select = body["subselect"]["SelectStmt"]
    while "larg" in select:
        select = select["larg"]
    if "valuesLists" in select:
        return "column1", _STRONG
    if "targetList" not in select:
        return "", _NONE
    target = select["targetList"][0]["ResTarget"]
    return target.get("name") or column_name(target["val"]), _STRONG


_EXPRESSIONS: Final[dict[str, Handler]] = {
    "AEXPR_OP": _operator,
    "AEXPR_OP_ANY": _any_array,
    "AEXPR_OP_ALL": _any_array,
    "AEXPR_DISTINCT": _distinct,
    "AEXPR_NOT_DISTINCT": _distinct,
    "AEXPR_NULLIF": _nullif,
    "AEXPR_IN": _in,
    "AEXPR_LIKE": _like,
    "AEXPR_ILIKE": _like,
    "AEXPR_BETWEEN": _between,
    "AEXPR_NOT_BETWEEN": _between,
    "AEXPR_BETWEEN_SYM": _between,
    "AEXPR_NOT_BETWEEN_SYM": _between,
}
_HANDLERS: Final[dict[str, Handler]] = {
    "A_Const": _constant,
    "ParamRef": _parameter,
    "ColumnRef": _column,
    "SQLValueFunction": _value_function,
    "A_Expr": _expression,
    "BoolExpr": _connective,
    "NullTest": _null_test,
    "BooleanTest": _boolean_test,
    "CaseExpr": _case,
    "CoalesceExpr": _coalesce,
    "MinMaxExpr": _choice,
    "TypeCast": _cast,
    "A_ArrayExpr": _array,
    "A_Indirection": _indirection,
    "CollateClause": _collated,
    "FuncCall": _call,
    "SubLink": _sublink,
}
