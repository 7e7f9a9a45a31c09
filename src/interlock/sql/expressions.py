"""The walk over expressions: each listed node becomes a term, every other one is refused.

The list is by exact class, and each handler names the arguments it reads (`only`), so neither a new node nor a new
argument of sqlglot can slip through. Names, types and functions are decided in `scope`, `casts` and `calls`.
sqlglot's precedence is not always PostgreSQL's, so a predicate directly inside another needs its parentheses.

Sections: branches, rows, conditions, special forms, walk, leaves, operators, casts and calls, subqueries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from interlock.sql import aggregates, calls, casts
from interlock.sql.calls import arithmetic, concatenation, negation
from interlock.sql.casts import cast_type, convert, text_literal, unified
from interlock.sql.operators import comparable, comparison, condition, keyed
from interlock.sql.parse import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    quoted_name,
    string_literal,
    unsupported,
)
from interlock.sql.scope import MergedColumn, Query, Scope, Term, call, combined, named
from interlock.sql.types import BOOL, FLOAT8, INT4, TEXT, UNKNOWN, Type, refuse, wrong

# --- Branches: CASE, COALESCE, NULLIF, each in the one type of all its branches --------------------------------------


def case(conditions: Sequence[Term], results: Sequence[Term]) -> Term:
    """CASE: a result per condition, and one more for ELSE."""
    kind, typed = unified(*results)
    *chosen, default = typed
    pairs = zip(conditions, chosen, strict=True)
    written = " ".join(f"WHEN {when.checked.text} THEN {then.checked.text}" for when, then in pairs)
    return combined(f"CASE {written} ELSE {default.checked.text} END", kind, (*conditions, *typed))


def coalesce(parts: Sequence[Term]) -> Term:
    """COALESCE."""
    kind, typed = unified(*parts)
    if len(typed) == 1:
        return typed[0]
    listed = ", ".join(part.checked.text for part in typed)
    return combined(f"coalesce({listed})", kind, typed, atomic=True)


def nullif(left: Term, right: Term) -> Term:
    """NULLIF; its result has the type of the first argument, so both must be of that type."""
    result = left.type
    kind, (left, right) = unified(left, right)
    if result is not UNKNOWN and result.plain != kind and not result.is_text:
        raise refuse(f"NULLIF of {result} and {kind}.", fix="Cast one side, so that both are of one type.")
    comparable(kind, "NULLIF")
    kind = TEXT if kind.is_text else kind  # As the operator = has it, which PostgreSQL compares them by.
    text = f"CASE WHEN {keyed(left, right.text)} = {right.operand} THEN NULL ELSE {left.checked.text} END"
    return combined(text, kind, (left, right))


# --- Rows compared with rows -----------------------------------------------------------------------------------------
# SQLite compares them as PostgreSQL does: from left to right, and NULL where a NULL leaves it open. Each pair meets
# in its own type, and a numeric brings its collation with it.


def compare(operator: str, left: Sequence[Term], right: Sequence[Term]) -> Term:
    """One of = <> < <= > >= on two rows of the same length."""
    if operator not in {"=", "<>", "<", "<=", ">", ">="}:
        raise refuse("IS DISTINCT FROM on rows.", fix="Compare column by column.")
    if len(left) != len(right):
        raise wrong(f"a row of {len(left)} values compared with one of {len(right)}.")
    lefts: list[str] = []
    rights: list[str] = []
    for one, other in zip(left, right, strict=True):
        kind, (first, second) = unified(one, other)
        comparable(kind, operator)
        lefts.append(keyed(first, second.text))
        rights.append(second.operand)
    return combined(f"({', '.join(lefts)}) {operator} ({', '.join(rights)})", BOOL, (*left, *right))


def in_rows(left: Sequence[Term], rows: Sequence[Sequence[Term]]) -> Term:
    """IN with a list of rows."""
    compared = [compare("=", left, row) for row in rows]
    return combined(" OR ".join(f"({term.text})" for term in compared), BOOL, compared)


def row_in_query(left: Sequence[Term], query: Query) -> Term:
    """IN with a subquery, whose columns must be of the same types."""
    if len(query.columns) != len(left):
        raise wrong(f"a subquery of {len(query.columns)} columns for a row of {len(left)}.")
    typed: list[Term] = []
    for term, output in zip(left, query.columns, strict=True):
        kind = output.type
        value = convert(term, kind, "implicit") if term.type is UNKNOWN else term
        same = value.type.name == kind.name or (value.type.is_text and kind.is_text)
        if not (same or (value.type.is_integer and kind.is_integer)) or kind.name == "numeric":
            raise refuse(
                f"{value.type} IN a subquery of rows with {kind}.", fix="Use EXISTS with a condition per column."
            )
        comparable(kind, "IN")
        typed.append(value)
    inner = Term(query.text, BOOL, bare=query.bare)
    listed = ", ".join(keyed(term, query.text) for term in typed)
    return combined(f"({listed}) IN ({query.text})", BOOL, (*typed, inner))


# --- Conditions: ranges, membership, patterns ------------------------------------------------------------------------
# All of them compare in the type where both sides meet, as PostgreSQL does; SQLite's own rules (affinity, a LIKE
# that ignores case) never apply, because both sides have one storage class by then.


def in_list(left: Term, items: Sequence[Term]) -> Term:
    """IN with a list."""
    if not items:
        raise wrong("an empty IN list.")
    if any(item.volatile for item in items):
        raise refuse("random() or gen_random_uuid() in a list.", fix="Pass the value as a parameter.")
    mixed = len({term.type.name for term in (left, *items) if term.type is not UNKNOWN}) > 1
    kind, (left, *converted) = unified(left, *items)
    if mixed and kind == FLOAT8 and any(item.bare for item in items):
        raise refuse(
            "double precision and another type in one IN list that has columns.",
            why="PostgreSQL compares each column in a type of its own, and large numbers meet only as floats.",
            fix="Compare one by one, with OR.",
        )
    comparable(kind, "IN")
    listed = ", ".join(item.checked.text for item in converted)
    return combined(f"{keyed(left, listed)} IN ({listed})", BOOL, (left, *converted))


def in_query(left: Term, query: Query) -> Term:
    """IN with a subquery, whose column must be of the same type."""
    if len(query.columns) != 1:
        raise wrong(f"a subquery of {len(query.columns)} columns in IN.", fix="Select one column.")
    kind = query.columns[0].type
    left = convert(left, kind, "implicit") if left.type is UNKNOWN else left
    same = left.type.name == kind.name or (left.type.is_text and kind.is_text)
    if not (same or (left.type.is_integer and kind.is_integer)):
        raise refuse(f"{left.type} IN a subquery of {kind}.", fix=f"Cast it: CAST(… AS {kind}).")
    comparable(kind, "IN")
    inner = Term(query.text, kind, bare=query.bare)
    return combined(f"{keyed(left, query.text)} IN ({query.text})", BOOL, (left, inner))


def like(left: Term, right: Term, escape: str, *, negated: bool, cased: bool = True) -> Term:
    """[NOT] LIKE, which heeds case in PostgreSQL, or [NOT] ILIKE, which does not."""
    left, right = convert(left, TEXT, "implicit"), convert(right, TEXT, "implicit")
    matched = call("interlock_like" if cased else "interlock_ilike", BOOL, left, right, extra=text_literal(escape))
    return negated_if(matched, negated=negated)


def negated_if(term: Term, *, negated: bool) -> Term:
    """The condition, or its opposite."""
    return combined(f"NOT {term.operand}", BOOL, [term]) if negated else term


# --- Special forms: EXTRACT, TRIM, SUBSTRING, POSITION, jsonb operators, arrays --------------------------------------
# Each handler is given the walk over its parts. PostgreSQL's operators that are neither arithmetic nor comparison
# bind all alike and to the left; sqlglot lets @> take what follows it, so that needs its parentheses here.

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
    return calls.extract(string_literal(field), walk(child(node, "expression"), scope))


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
    name = string_literal(node).lower()
    if name in aggregates.AGGREGATES:
        return aggregates.called(name, children(node), scope, walk)
    return calls.scalar(name, [walk(part, scope) for part in children(node)])


def document_operator(node: Node, scope: Scope, walk: Walk) -> Term:
    """One of jsonb's operators."""
    only(node, "this", "expression")
    left, right = walk(child(node), scope), walk(_right(node), scope)
    if type(node) in _EXTRACTIONS:
        return calls.extraction(_EXTRACTIONS[type(node)], left, right)
    if type(node) in _KEYS:
        return calls.keys(_KEYS[type(node)], left, right)
    if type(node) is exp.JSONBDeleteAtPath:
        return calls.path_removal(left, right)
    return calls.containment(left, right) if type(node) is exp.ArrayContainsAll else calls.containment(right, left)


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
    return calls.construct([walk(item, scope) for item in children(node)], element)


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
    place = casts.number(string_literal(places[0]))
    if place.type != INT4:
        raise refuse(f"the element {string_literal(places[0])} of an array.", fix="Write a whole number: array[1].")
    return calls.element_at(walk(child(node), scope), place)


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
        return negated_if(in_query(left, subquery(inner, scope)), negated=negated)
    if type(inner) is exp.Array and children(inner):
        _check_items(inner)
        _, items = unified(*(walk(item, scope) for item in children(inner)))
        return negated_if(in_list(left, items), negated=negated)
    return calls.membership(left, walk(inner, scope), negated=negated)


# --- Walk ------------------------------------------------------------------------------------------------------------

Handler = Callable[[Node, Scope], Term]


def expression(node: Node, scope: Scope) -> Term:
    """The term of an expression in that scope."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise unsupported(node)
    term = handler(node, scope)
    if term.volatile and not scope.volatile:
        raise refuse(
            f"random() or gen_random_uuid() in {scope.place}.",
            why="SQLite may evaluate it another number of times than PostgreSQL does.",
            fix="Use it directly in the outermost SELECT, VALUES or SET, or pass the value as a parameter.",
        )
    if term.text in scope.grouped:
        return replace(term, bare=frozenset(item for item in term.bare if item[0] != scope.number))
    return term


def predicate(node: Node, scope: Scope, place: str) -> Term:
    """The term of a condition."""
    return condition(expression(node, scope), place)


def stable(node: Node, scope: Scope, what: str) -> Term:
    """The term of an operand that the translation may repeat, or that PostgreSQL repeats."""
    term = expression(node, scope)
    if term.volatile:
        raise refuse(f"random() or gen_random_uuid() in {what}.", fix="Pass the value as a parameter.")
    return term


# --- Leaves ----------------------------------------------------------------------------------------------------------


def _literal(node: Node, _: Scope) -> Term:
    only(node, "this", "is_string")
    return casts.string(string_literal(node)) if flag(node, "is_string") else casts.number(string_literal(node))


def _null(node: Node, _: Scope) -> Term:
    only(node)
    return casts.null()


def _boolean(node: Node, _: Scope) -> Term:
    only(node, "this")
    return Term("1" if flag(node, "this") else "0", BOOL, nullable=False)


def _parameter(node: Node, scope: Scope) -> Term:
    only(node, "this")
    written = string_literal(child(node))
    if not written.isdecimal():
        raise refuse(f"the parameter ${written}.", fix="Write parameters as $1, $2, …")
    parameter = scope.translation.parameter(int(written))
    place = (scope.number, scope.place)
    if parameter.type is not None and parameter.place == place and scope.place in _IN_ORDER:
        # PostgreSQL's rule: the first use decides, and the others are values of that type. A lane reads the parts of
        # one clause in the same order, but not the clauses.
        return Term(f"?{parameter.number}", parameter.type)
    parameter.place = parameter.place or place
    return Term(f"?{parameter.number}", UNKNOWN, parameter=parameter)


def _column(node: Node, scope: Scope) -> Term:
    only(node, "this", "table")
    table = maybe(node, "table")
    return scope.column(None if table is None else identifier(table, "relation"), identifier(child(node), "column"))


def _merged_column(node: Node, scope: Scope) -> Term:
    key = (identifier(child(node), "column"), int(string_literal(child(node, "part"))))
    return scope.grouped_term(scope.merged[key].term)


def _paren(node: Node, scope: Scope) -> Term:
    only(node, "this")
    return expression(child(node), scope)


# --- Operators -------------------------------------------------------------------------------------------------------


def _arithmetic(operator: str) -> Handler:
    def handle(node: Node, scope: Scope) -> Term:
        only(node, "this", "expression", "typed", "safe")
        if operator == "/" and (flag(node, "safe") or not flag(node, "typed")):
            raise unsupported(node)
        left, right = expression(child(node), scope), expression(child(node, "expression"), scope)
        return arithmetic(operator, left, right)

    return handle


def _negation(node: Node, scope: Scope) -> Term:
    only(node, "this")
    inner, negative = child(node), True
    while type(inner) in {exp.Paren, exp.Neg}:
        only(inner, "this")
        negative = negative is (type(inner) is exp.Paren)
        inner = child(inner)
    if type(inner) is exp.Literal and not flag(inner, "is_string"):
        # PostgreSQL reads the sign as part of the number: -2147483648 is an integer.
        return casts.number(string_literal(inner), negative=negative)
    return negation(expression(child(node), scope))


def _comparison(operator: str) -> Handler:
    def handle(node: Node, scope: Scope) -> Term:
        only(node, "this", "expression")
        if type(child(node)) is exp.Tuple:
            return compare(operator, _row(child(node), scope), _row(child(node, "expression"), scope))
        over = quantified(child(node, "expression"))
        if over is not None:
            _operand(node, "this", scope)
            left = stable(child(node), scope, over[0])
            return quantified_comparison(operator, left, over, scope, expression, subquery)
        left, right = _operand(node, "this", scope), _operand(node, "expression", scope)
        return comparison(operator, left, right)

    return handle


def _row(node: Node, scope: Scope) -> list[Term]:
    if type(node) is not exp.Tuple:
        raise refuse("a row compared with something else than a row.", fix="Write (a, b) = (1, 2).")
    only(node, "expressions")
    return [stable(item, scope, "a row") for item in children(node)]


def _operand(node: Node, name: str, scope: Scope) -> Term:
    part = child(node, name)
    if type(part) in _PREDICATES:
        raise refuse(
            "a condition inside another one without parentheses.",
            why="It is easily read in two ways, and PostgreSQL refuses most of them.",
            fix="Put the inner condition into parentheses.",
        )
    return expression(part, scope)


def _concatenation(node: Node, scope: Scope) -> Term:
    only(node, "this", "expression", "safe")
    return concatenation(expression(child(node), scope), expression(child(node, "expression"), scope))


def _connective(word: str) -> Handler:
    def handle(node: Node, scope: Scope) -> Term:
        only(node, "this", "expression")
        left = predicate(child(node), scope, f"the left side of {word}")
        right = predicate(child(node, "expression"), scope, f"the right side of {word}")
        return combined(f"{left.operand} {word} {right.operand}", BOOL, (left, right))

    return handle


def _not(node: Node, scope: Scope) -> Term:
    only(node, "this")
    term = predicate(child(node), scope, "what NOT negates")
    return combined(f"NOT {term.operand}", BOOL, [term])


def _is(node: Node, scope: Scope) -> Term:
    only(node, "this", "expression", "negate")
    left = _operand(node, "this", scope)
    right = child(node, "expression")
    word = "IS NOT" if flag(node, "negate") else "IS"
    if type(right) is exp.Null:
        return combined(f"{left.operand} {word} NULL", BOOL, [left])
    if type(right) is exp.Boolean:
        left = condition(left, f"what {word} asks about")
        return combined(f"{left.operand} {word} {1 if flag(right, 'this') else 0}", BOOL, [left])
    raise unsupported(node)


def _between(node: Node, scope: Scope) -> Term:
    only(node, "this", "low", "high")
    # As PostgreSQL does: two comparisons, the first one complete before the second bound is read, each with a value of
    # its own. What is random is evaluated twice there, too.
    value = _operand(node, "this", scope)
    at_least = comparison(">=", value, _operand(node, "low", scope))
    at_most = comparison("<=", value, _operand(node, "high", scope))
    return combined(f"{at_least.text} AND {at_most.text}", BOOL, (at_least, at_most))


def _in(node: Node, scope: Scope) -> Term:
    only(node, "this", "expressions", "query")
    listed = children(node)
    query = listed[0] if [type(item) for item in listed] == [exp.Values] else maybe(node, "query")
    if type(child(node)) is exp.Tuple:
        row = _row(child(node), scope)
        if query is not None:
            return row_in_query(row, subquery(query, scope))
        return in_rows(row, [_row(item, scope) for item in listed])
    _operand(node, "this", scope)
    left = stable(child(node), scope, "IN")
    if query is not None:
        return in_query(left, subquery(query, scope))
    return in_list(left, [expression(item, scope) for item in listed])


def _like(node: Node, scope: Scope) -> Term:
    escape = "\\"
    negated = flag(node, "negate")
    if type(node) is exp.Escape:
        only(node, "this", "expression")
        written = child(node, "expression")
        if type(written) is not exp.Literal or not flag(written, "is_string") or len(string_literal(written)) != 1:
            raise refuse("an ESCAPE that is not one character.", fix="Write ESCAPE '!', for example.")
        escape = string_literal(written)
        node = child(node)
        if type(node) not in {exp.Like, exp.ILike}:
            raise unsupported(node)
        negated = flag(node, "negate")
    only(node, "this", "expression", "negate")
    left, right = _operand(node, "this", scope), _operand(node, "expression", scope)
    return like(left, right, escape, negated=negated, cased=type(node) is exp.Like)


# --- Casts and calls -------------------------------------------------------------------------------------------------


def _case(node: Node, scope: Scope) -> Term:
    only(node, "this", "ifs", "default")
    subject = maybe(node, "this")
    conditions: list[Term] = []
    results: list[Term] = []
    for branch in children(node, "ifs"):
        only(branch, "this", "true")
        if subject is None:
            conditions.append(predicate(child(branch), scope, "WHEN"))
        else:
            value = stable(subject, scope, "CASE")
            conditions.append(comparison("=", value, expression(child(branch), scope)))
        results.append(expression(child(branch, "true"), scope))
    default = maybe(node, "default")
    results.append(casts.null() if default is None else expression(default, scope))
    term = case(conditions, results)
    # PostgreSQL names the result after the ELSE, if that has a name of its own.
    last = results[-1]
    strong = last.name is not None and not last.weak
    return named(term, last.name if strong else "case", weak=not strong)


def _coalesce(node: Node, scope: Scope) -> Term:
    only(node, "this", "expressions")
    parts = [stable(part, scope, "COALESCE") for part in (child(node), *children(node))]
    return named(coalesce(parts), "coalesce")


def _nullif(node: Node, scope: Scope) -> Term:
    only(node, "this", "expression")
    left = stable(child(node), scope, "NULLIF")
    right = stable(child(node, "expression"), scope, "NULLIF")
    return named(nullif(left, right), "nullif")


def _cast(node: Node, scope: Scope) -> Term:
    only(node, "this", "to", "_type")
    kind, serial = cast_type(child(node, "to"))
    if serial:
        raise wrong("a cast to a serial type.", fix="Cast to bigint.")
    if type(child(node)) is exp.Array and kind.is_array:
        return array(child(node), scope, expression, kind.element)
    inner = expression(child(node), scope)
    strong = inner.name is not None and not inner.weak
    name = inner.name if strong else (kind.element if kind.is_array else kind).name
    return named(convert(inner, kind, "explicit"), name, weak=not strong)


def _now(node: Node, _: Scope) -> Term:
    only(node)
    return calls.scalar("current_timestamp", [])


def _walked(handler: Callable[[Node, Scope, Handler], Term]) -> Handler:
    """A handler of another module, which is given the walk."""
    return lambda node, scope: handler(node, scope, expression)


def _aggregate(name: str) -> Handler:
    return lambda node, scope: aggregates.counted(node, scope, name, expression)


# --- Subqueries ------------------------------------------------------------------------------------------------------


def subquery(node: Node, scope: Scope) -> Query:
    """A query inside an expression."""
    if not scope.subqueries:
        raise refuse(f"a subquery in {scope.place}.", fix="Query first, then pass the value as a parameter.")
    return scope.translation.subquery(node, scope)


def _scalar_subquery(node: Node, scope: Scope) -> Term:
    only(node, "this")
    query = subquery(child(node), scope)
    if len(query.columns) != 1:
        raise wrong(f"a subquery of {len(query.columns)} columns as a value.", fix="Select one column.")
    [output] = query.columns
    text = query.text
    if not query.single:
        text = f"SELECT interlock_single(s.{quoted_name(output.name)}) FROM ({text}) AS s"  # noqa: S608 - quoted names
    return Term(f"({text})", output.type, bare=query.bare, name=output.name)


def _exists(node: Node, scope: Scope) -> Term:
    only(node, "this")
    query = subquery(child(node), scope)
    return Term(f"EXISTS ({query.text})", BOOL, bare=query.bare, name="exists", nullable=False)


_PREDICATES: Final = frozenset(
    {
        exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In,
        exp.Between, exp.Like, exp.ILike, exp.Escape, exp.Not, exp.And, exp.Or,
    }
)  # fmt: skip

# The clauses whose parts PostgreSQL completes one after the other.
_IN_ORDER: Final = frozenset({"WHERE", "HAVING", "JOIN … ON", "the SELECT list"})

_HANDLERS: Final[dict[type[Node], Handler]] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Parameter: _parameter,
    exp.Column: _column,
    MergedColumn: _merged_column,
    exp.Paren: _paren,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.Mod: _arithmetic("%"),
    exp.Neg: _negation,
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _comparison("IS"),
    exp.NullSafeNEQ: _comparison("IS NOT"),
    exp.DPipe: _concatenation,
    exp.And: _connective("AND"),
    exp.Or: _connective("OR"),
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Cast: _cast,
    exp.CurrentTimestamp: _now,
    exp.Extract: _walked(extract),
    exp.Trim: _walked(trim),
    exp.Substring: _walked(substring),
    exp.StrPosition: _walked(position),
    exp.Anonymous: _walked(called),
    exp.Array: _walked(array),
    exp.Bracket: _walked(subscript),
    exp.JSONExtract: _walked(document_operator),
    exp.JSONExtractScalar: _walked(document_operator),
    exp.JSONBExtract: _walked(document_operator),
    exp.JSONBExtractScalar: _walked(document_operator),
    exp.JSONBContainsTopKey: _walked(document_operator),
    exp.JSONBContainsAnyTopKeys: _walked(document_operator),
    exp.JSONBContainsAllTopKeys: _walked(document_operator),
    exp.JSONBDeleteAtPath: _walked(document_operator),
    exp.ArrayContainsAll: _walked(document_operator),
    exp.ArrayContainedBy: _walked(document_operator),
    exp.Filter: _walked(aggregates.filtered),
    exp.GroupConcat: _aggregate("string_agg"),
    exp.Count: _aggregate("count"),
    exp.Sum: _aggregate("sum"),
    exp.Avg: _aggregate("avg"),
    exp.Min: _aggregate("min"),
    exp.Max: _aggregate("max"),
    exp.Subquery: _scalar_subquery,
    exp.Window: lambda node, scope: scope.translation.window(node, scope),
    exp.Exists: _exists,
}
