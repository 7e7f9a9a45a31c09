"""FROM: tables, common table expressions, subqueries and series, and the joins between them.

A comma binds more loosely than JOIN in PostgreSQL and like it in SQLite, so what stands between commas is kept apart:
an ON sees its own part alone, and an outer join that would take in the part before it is refused. USING and NATURAL
are written out as conditions; what their columns mean without a relation is decided in the scope.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from interlock.errors import TransactionError
from interlock.sql.casts import convert
from interlock.sql.expressions import coalesce, expression, predicate
from interlock.sql.operators import comparison
from interlock.sql.parse import (
    COMMA,
    Node,
    argument,
    child,
    children,
    identifier,
    maybe,
    only,
    quoted_name,
    unsupported,
)
from interlock.sql.scope import Merged, MergedColumn, Output, Query, Relation, Scope, Term
from interlock.sql.types import INT4, INT8, UNKNOWN, Type, refuse, wrong

# --- generate_series over whole numbers ------------------------------------------------------------------------------
# SQLite counts by a recursive query. The bounds are computed once; a sum that leaves bigint becomes a float, and
# counting ends there as it does in PostgreSQL. The arguments see nothing of FROM (no LATERAL).

SERIES: Final = exp.ExplodingGenerateSeries
_NAME: Final = "generate_series"


def series(node: Node, scope: Scope, alias: str | None, columns: Sequence[str]) -> tuple[Relation, str]:
    """The relation and its text; an alias names its one column, too."""
    only(node, "start", "end", "step")
    if len(columns) > 1:
        raise wrong(f"{len(columns)} names for the one column of {_NAME}().")
    name = alias or _NAME
    column = columns[0] if columns else name
    alone = Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place=f"{_NAME}()")
    step = maybe(node, "step")
    try:
        given = [
            expression(part, alone) for part in (child(node, "start"), child(node, "end"), step) if part is not None
        ]
    except TransactionError as error:
        if node.find(exp.Column) is None:
            raise
        raise refuse(
            f"{_NAME}() of columns beside it: {error.what}", fix="Join a series that is long enough."
        ) from error
    kind = INT8 if any(term.type == INT8 for term in given) else INT4
    if not all(term.type.is_integer or term.parameter is not None for term in given):
        raise refuse(f"{_NAME}() over something else than whole numbers.", fix="Count by bigint and compute the rest.")
    if all(not term.type.is_integer for term in given):
        raise refuse(f"the types of what is given to {_NAME}() are unknown.", fix="Cast one: $1::bigint.")
    bounds = [convert(term, kind, "implicit").checked.text for term in given]
    text = _text(bounds if step is not None else [*bounds, "1"], column)
    scope.translation.subqueries += 1
    return Relation(
        name, (Output(column, kind, nullable=False),), quoted_name(name)
    ), f"({text}) AS {quoted_name(name)}"


def _text(bounds: Sequence[str], column: str) -> str:
    """Count by a recursive query. No table and no query of a lane has a name with pg_, and none is hidden by these.

    A name with interlock_ would be denied by the lane's authorizer where no column of the series is read.
    """
    start, end, step = bounds
    within = "CASE WHEN step > 0 THEN {0} <= stop ELSE {0} >= stop END"
    return (
        f"WITH RECURSIVE pg_bounds (start, stop, step) AS (SELECT {start}, {end}, interlock_step({step})), "  # noqa: S608 - made of quoted names, literals and ?n alone
        f"pg_counted (n) AS (SELECT start FROM pg_bounds WHERE {within.format('start')} "
        f"UNION ALL SELECT n + step FROM pg_counted, pg_bounds "
        f"WHERE typeof(n + step) = 'integer' AND {within.format('n + step')}) "
        f"SELECT n AS {quoted_name(column)} FROM pg_counted"
    )


# --- unnest: one row for each element of an array --------------------------------------------------------------------
# Several arrays stand beside each other, and the shorter ones are filled up with NULL. The arguments see nothing of
# FROM (no LATERAL). Floats are left out, because SQLite may round what it reads from text.

UNNEST: Final = exp.Unnest
_UNNEST_NAME: Final = "unnest"
_BYTES: Final = frozenset({"bytea", "uuid"})


def unnested(node: Node, scope: Scope, alias: str | None, columns: Sequence[str]) -> tuple[Relation, str]:
    """The relation and its text; the alias of one array names its one column, too."""
    only(node, "expressions", "alias")
    arrays = _arrays(node, scope)
    name = alias or _UNNEST_NAME
    names = list(columns) if columns or len(arrays) > 1 else [name]
    if len(names) > len(arrays):
        raise wrong(f"{len(names)} names for the {len(arrays)} columns of {_UNNEST_NAME}().")
    if len(names) < len(arrays) or len({known.lower() for known in names}) != len(names):
        raise refuse(f"{_UNNEST_NAME}() of several arrays without a name for each.", fix="Write AS name (a, b).")
    elements = [array.type.element for array in arrays]
    listed = ", ".join(
        f"{_value(element, place, len(arrays))} AS {quoted_name(column)}"
        for place, (element, column) in enumerate(zip(elements, names, strict=True))
    )
    rows = arrays[0].text if len(arrays) == 1 else f"interlock_array_zip({', '.join(array.text for array in arrays)})"
    text = f"(SELECT {listed} FROM json_each({rows})) AS {quoted_name(name)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    scope.translation.subqueries += 1
    outputs = tuple(Output(column, element) for column, element in zip(names, elements, strict=True))
    return Relation(name, outputs, quoted_name(name)), text


def _arrays(node: Node, scope: Scope) -> list[Term]:
    alone = Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place=f"{_UNNEST_NAME}()")
    try:
        terms = [expression(part, alone) for part in children(node)]
    except TransactionError as error:
        if node.find(exp.Column) is None:
            raise
        raise refuse(f"{_UNNEST_NAME}() of columns beside it: {error.what}", fix="Use = ANY (array).") from error
    for term in terms:
        if term.type is UNKNOWN:
            raise refuse(f"{_UNNEST_NAME}() of an array of unknown type.", fix="Cast it: unnest($1::bigint[]).")
        if not term.type.is_array:
            raise wrong(f"{_UNNEST_NAME}() of {term.type}.")
        if term.type.element.name == "float8":
            raise refuse(f"{_UNNEST_NAME}() of {term.type}.", fix="Use numeric[].")
    return terms


def _value(element: Type, place: int, count: int) -> str:
    value = "value" if count == 1 else f"json_extract(value, '$[{place}]')"
    return f"unhex({value})" if element.name in _BYTES else value


# --- Relations and joins ---------------------------------------------------------------------------------------------

Derived = Callable[[Node, Scope, Sequence[str]], Query]


def relations(node: Node, scope: Scope, derived: Derived) -> str:
    """FROM and its joins; brings their relations into the scope."""
    source = maybe(node, "from_")
    joins = children(node, "joins")
    if source is None:
        if joins:
            raise unsupported(node)
        return ""
    only(source, "this")
    return f" FROM {sources(child(source), joins, scope, derived)}"


def sources(first: Node, joins: Sequence[Node], scope: Scope, derived: Derived) -> str:
    """Relations and the joins between them, as they are written after FROM or USING."""
    part = _Part(scope)
    relation, text = _relation(first, scope, derived)
    scope.add(relation)
    for join in joins:
        only(join, "this", "side", "kind", "on", "using", "method")
        if argument(join, "kind") == COMMA:
            # What stands in the parts before is neither seen by this part's conditions nor changed by its joins.
            part = _Part(scope)
            relation, written = _relation(child(join), scope, derived)
            scope.add(relation)
            text += f", {written}"
        else:
            text += _join(join, part, derived)
    return text


class _Part:
    """The part of FROM between two commas: the relations of the scope from that place on, and their columns."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.first = len(scope.relations)
        self.star = len(scope.star)

    @property
    def relations(self) -> list[Relation]:
        return self.scope.relations[self.first :]

    def alone(self) -> Scope:
        """The scope as conditions inside the part see it."""
        known = {relation.name for relation in self.relations}
        merged = {key: entry for key, entry in self.scope.merged.items() if entry.relations <= known}
        seen = replace(self.scope, relations=self.relations, merged=merged)
        seen.number = self.scope.number
        return seen

    def make_outer(self) -> None:
        """All relations so far may be without a row."""
        for place in range(self.first, len(self.scope.relations)):
            self.scope.relations[place] = replace(self.scope.relations[place], outer=True)
        for key, entry in self.scope.merged.items():
            self.scope.merged[key] = replace(entry, term=replace(entry.term, nullable=True))


_SIDES = {"": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}


def _join(node: Node, part: _Part, derived: Derived) -> str:
    side, kind = str(argument(node, "side") or "").upper(), str(argument(node, "kind") or "").upper()
    natural = str(argument(node, "method") or "").upper()
    condition, using = maybe(node, "on"), children(node, "using")
    scope = part.scope
    relation, text = _relation(child(node), scope, derived)
    if kind == "CROSS":
        if side or natural or using or condition is not None:
            raise unsupported(node)
        scope.add(relation)
        return f" CROSS JOIN {text}"
    if side not in _SIDES or kind not in {"", "OUTER" if side else "INNER"} or natural not in {"", "NATURAL"}:
        raise refuse(" ".join(f"{natural} {side} {kind} JOIN.".split()), fix="Use [LEFT | RIGHT | FULL] JOIN … ON.")
    if side in {"RIGHT", "FULL"} and part.first:
        raise refuse(f"{side} JOIN after a comma in FROM.", fix="Put it before the comma, or write CROSS JOIN.")
    left = part.alone()
    names = [identifier(name, "column") for name in using]
    if natural:
        right = {output.name for output in relation.columns}
        listed = [identifier(child(column), "column") for column in scope.star[part.star :]]
        names = [name for name in listed if name in right]
        if not names:
            raise refuse("NATURAL JOIN without a common column.", fix="Write CROSS JOIN.")
    if bool(names) is (condition is not None):
        raise wrong(f"{side} JOIN without a condition.".strip(), fix="Write JOIN … ON …, or CROSS JOIN.")
    if side in {"RIGHT", "FULL"}:
        part.make_outer()
    if side in {"LEFT", "FULL"}:
        relation = replace(relation, outer=True)
    pairs = [(name, left.column(None, name), _named(relation, name, scope)) for name in names]
    scope.add(relation)
    if condition is None:
        written = " AND ".join(_merge(name, sides, side, part, relation) for name, *sides in pairs)
        _merge_star(names, part)
        return f" {_SIDES[side]} {text} ON {written}"
    seen = part.alone()
    with seen.at("JOIN … ON", volatile=False):
        term = predicate(condition, seen, "JOIN … ON")
    if side == "FULL" and not _equates(condition):
        raise refuse("FULL JOIN on something else than column = column.", fix="Use UNION ALL of two LEFT JOINs.")
    return f" {_SIDES[side]} {text} ON {term.checked.text}"


def _equates(node: Node) -> bool:
    """Return whether PostgreSQL can be sure to join both sides in full: it needs columns that are equal."""
    if type(node) is exp.Paren:
        return _equates(child(node))
    if type(node) is exp.And:
        return _equates(child(node)) and _equates(child(node, "expression"))
    return type(node) is exp.EQ and all(type(child(node, side)) is exp.Column for side in ("this", "expression"))


def _named(relation: Relation, name: str, scope: Scope) -> Term:
    found = [output for output in relation.columns if output.name == name]
    if not found:
        raise wrong(f"there is no column {name!r} in {relation.name!r} to join by.")
    return scope.term(relation, found[0])


def _merge(name: str, sides: Sequence[Term], side: str, part: _Part, relation: Relation) -> str:
    left, right = sides
    if left.type != right.type:
        raise refuse(f"USING ({name}) of {left.type} and {right.type}.", fix="Write ON, with a cast.")
    term = right if side == "RIGHT" else replace(coalesce(sides), name=name) if side == "FULL" else left
    before = part.scope.merged.get((name, part.first))
    known = {known.name for known in part.relations if any(output.name == name for output in known.columns)}
    covered = (before.relations if before else frozenset[str]()) | known | {relation.name}
    part.scope.merged[name, part.first] = Merged(term, covered)
    return comparison("=", left, right).text


def _merge_star(names: Sequence[str], part: _Part) -> None:
    """PostgreSQL lists the common columns first, once, then the others of both sides."""
    listed = part.scope.star
    others = [column for column in listed[part.star :] if identifier(child(column), "column") not in names]
    common: list[Node] = [
        MergedColumn(this=exp.Identifier(this=name, quoted=True), part=exp.Literal.number(part.first)) for name in names
    ]
    listed[part.star :] = common + others


def _relation(node: Node, scope: Scope, derived: Derived) -> tuple[Relation, str]:
    alias, columns = _alias(maybe(node, "alias"))
    if type(node) is exp.Values or (type(node) is exp.Subquery and type(child(node)) is not exp.Table):
        if alias is None:
            raise refuse("a subquery in FROM without a name.", fix="Write (SELECT …) AS name.")
        if type(node) is exp.Subquery:
            only(node, "this", "alias")
            node = child(node)
        query = derived(node, scope, columns)
        return Relation(alias, query.columns, quoted_name(alias)), f"({query.text}) AS {quoted_name(alias)}"
    if type(node) is UNNEST:
        return unnested(node, scope, alias, columns)
    if type(node) is not exp.Table:
        raise unsupported(node)
    only(node, "this", "alias")
    if type(child(node)) is SERIES:
        return series(child(node), scope, alias, columns)
    if columns:
        raise refuse("names for the columns of a table.", fix="Write (SELECT a AS x, … FROM t) AS name.")
    name = identifier(child(node), "table")
    common = scope.query_named(name)
    if common is not None:
        written = quoted_name(alias or name)
        text = f"{quoted_name(name)} AS {written}" if alias else quoted_name(name)
        return Relation(alias or name, common.columns, written), text
    return table_relation(name, alias, scope), f"{quoted_name(name)} AS {quoted_name(alias)}" if alias else quoted_name(
        name
    )


def _alias(node: Node | None) -> tuple[str | None, list[str]]:
    if node is None:
        return None, []
    only(node, "this", "columns")
    return identifier(child(node), "alias"), [identifier(name, "column") for name in children(node, "columns")]


def table_relation(name: str, alias: str | None, scope: Scope) -> Relation:
    """A table of the schema as a relation."""
    table = scope.translation.table(name)
    columns = tuple(Output(column.name, column.type, nullable=column.nullable) for column in table.columns)
    return Relation(alias or name, columns, quoted_name(alias or name), primary_key=table.primary_key)
