"""The walk over expressions: each listed node becomes a term, every other one is refused.

The list is by exact class, and each handler names the arguments it reads (`only`), so neither a new node nor a new
argument of sqlglot can slip through. Names, types and functions are decided elsewhere; here is only the grammar.
sqlglot's precedence is not always PostgreSQL's, so a predicate directly inside another needs its parentheses.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlglot import exp

from interlock.sql import aggregation, branches, calls, literals, predicates, rowvalues, special
from interlock.sql.casts import convert
from interlock.sql.columntypes import cast_type
from interlock.sql.datatypes import BOOL, UNKNOWN
from interlock.sql.operators import comparison, condition
from interlock.sql.overloads import arithmetic, concatenation, negation
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import MergedColumn, Query, Scope
from interlock.sql.syntax import Node, child, children, flag, identifier, maybe, only, quoted, string, unsupported
from interlock.sql.terms import Term, combined, named

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


# --- Leaves -----------------------------------------------------------------------------------------------------------


def _literal(node: Node, _: Scope) -> Term:
    only(node, "this", "is_string")
    return literals.string(string(node)) if flag(node, "is_string") else literals.number(string(node))


def _null(node: Node, _: Scope) -> Term:
    only(node)
    return literals.null()


def _boolean(node: Node, _: Scope) -> Term:
    only(node, "this")
    return Term("1" if flag(node, "this") else "0", BOOL, nullable=False)


def _parameter(node: Node, scope: Scope) -> Term:
    only(node, "this")
    written = string(child(node))
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
    key = (identifier(child(node), "column"), int(string(child(node, "part"))))
    return scope.grouped_term(scope.merged[key].term)


def _paren(node: Node, scope: Scope) -> Term:
    only(node, "this")
    return expression(child(node), scope)


# --- Operators --------------------------------------------------------------------------------------------------------


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
        return literals.number(string(inner), negative=negative)
    return negation(expression(child(node), scope))


def _comparison(operator: str) -> Handler:
    def handle(node: Node, scope: Scope) -> Term:
        only(node, "this", "expression")
        if type(child(node)) is exp.Tuple:
            return rowvalues.compare(operator, _row(child(node), scope), _row(child(node, "expression"), scope))
        over = special.quantified(child(node, "expression"))
        if over is not None:
            _operand(node, "this", scope)
            left = stable(child(node), scope, over[0])
            return special.quantified_comparison(operator, left, over, scope, expression, subquery)
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
            return rowvalues.in_query(row, subquery(query, scope))
        return rowvalues.in_rows(row, [_row(item, scope) for item in listed])
    _operand(node, "this", scope)
    left = stable(child(node), scope, "IN")
    if query is not None:
        return predicates.in_query(left, subquery(query, scope))
    return predicates.in_list(left, [expression(item, scope) for item in listed])


def _like(node: Node, scope: Scope) -> Term:
    escape = "\\"
    negated = flag(node, "negate")
    if type(node) is exp.Escape:
        only(node, "this", "expression")
        written = child(node, "expression")
        if type(written) is not exp.Literal or not flag(written, "is_string") or len(string(written)) != 1:
            raise refuse("an ESCAPE that is not one character.", fix="Write ESCAPE '!', for example.")
        escape = string(written)
        node = child(node)
        if type(node) not in {exp.Like, exp.ILike}:
            raise unsupported(node)
        negated = flag(node, "negate")
    only(node, "this", "expression", "negate")
    left, right = _operand(node, "this", scope), _operand(node, "expression", scope)
    return predicates.like(left, right, escape, negated=negated, cased=type(node) is exp.Like)


# --- Branches, casts, calls -------------------------------------------------------------------------------------------


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
    results.append(literals.null() if default is None else expression(default, scope))
    term = branches.case(conditions, results)
    # PostgreSQL names the result after the ELSE, if that has a name of its own.
    last = results[-1]
    strong = last.name is not None and not last.weak
    return named(term, last.name if strong else "case", weak=not strong)


def _coalesce(node: Node, scope: Scope) -> Term:
    only(node, "this", "expressions")
    parts = [stable(part, scope, "COALESCE") for part in (child(node), *children(node))]
    return named(branches.coalesce(parts), "coalesce")


def _nullif(node: Node, scope: Scope) -> Term:
    only(node, "this", "expression")
    left = stable(child(node), scope, "NULLIF")
    right = stable(child(node, "expression"), scope, "NULLIF")
    return named(branches.nullif(left, right), "nullif")


def _cast(node: Node, scope: Scope) -> Term:
    only(node, "this", "to", "_type")
    kind, serial = cast_type(child(node, "to"))
    if serial:
        raise wrong("a cast to a serial type.", fix="Cast to bigint.")
    if type(child(node)) is exp.Array and kind.is_array:
        return special.array(child(node), scope, expression, kind.element)
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
    return lambda node, scope: aggregation.counted(node, scope, name, expression)


# --- Subqueries -------------------------------------------------------------------------------------------------------


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
        text = f"SELECT interlock_single(s.{quoted(output.name)}) FROM ({text}) AS s"  # noqa: S608 - quoted names
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
    exp.Extract: _walked(special.extract),
    exp.Trim: _walked(special.trim),
    exp.Substring: _walked(special.substring),
    exp.StrPosition: _walked(special.position),
    exp.Anonymous: _walked(special.called),
    exp.Array: _walked(special.array),
    exp.Bracket: _walked(special.subscript),
    exp.JSONExtract: _walked(special.document_operator),
    exp.JSONExtractScalar: _walked(special.document_operator),
    exp.JSONBExtract: _walked(special.document_operator),
    exp.JSONBExtractScalar: _walked(special.document_operator),
    exp.JSONBContainsTopKey: _walked(special.document_operator),
    exp.JSONBContainsAnyTopKeys: _walked(special.document_operator),
    exp.JSONBContainsAllTopKeys: _walked(special.document_operator),
    exp.JSONBDeleteAtPath: _walked(special.document_operator),
    exp.ArrayContainsAll: _walked(special.document_operator),
    exp.ArrayContainedBy: _walked(special.document_operator),
    exp.Filter: _walked(aggregation.filtered),
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
