"""Rows compared with rows: (a, b) < (1, 2), and IN with a list or a subquery.

SQLite compares them as PostgreSQL does: from left to right, and NULL where a NULL leaves it open. Each pair meets in
its own type, and a numeric brings its collation with it.
"""

from collections.abc import Sequence

from interlock.sql.casts import convert, unified
from interlock.sql.datatypes import BOOL, UNKNOWN
from interlock.sql.operators import comparable, keyed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Query
from interlock.sql.terms import Term, combined


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


def in_query(left: Sequence[Term], query: Query) -> Term:
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
