"""generate_series over whole numbers, as a relation of FROM.

SQLite counts by a recursive query. The bounds are computed once; a sum that leaves bigint becomes a float, and
counting ends there as it does in PostgreSQL. The arguments see nothing of FROM (no LATERAL).
"""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from interlock.errors import TransactionError
from interlock.sql.casts import convert
from interlock.sql.datatypes import INT4, INT8
from interlock.sql.expressions import expression
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Output, Relation, Scope
from interlock.sql.syntax import Node, child, maybe, only, quoted

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
    return Relation(name, (Output(column, kind, nullable=False),), quoted(name)), f"({text}) AS {quoted(name)}"


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
        f"SELECT n AS {quoted(column)} FROM pg_counted"
    )
