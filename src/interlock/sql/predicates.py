"""Conditions made of translated terms: ranges, membership, patterns.

All of them compare in the type where both sides meet, as PostgreSQL does; SQLite's own rules (affinity, a LIKE that
ignores case) never apply, because both sides have one storage class by then.
"""

from collections.abc import Sequence

from interlock.sql.casts import convert, unified
from interlock.sql.datatypes import BOOL, FLOAT8, TEXT, UNKNOWN
from interlock.sql.literals import text_literal
from interlock.sql.operators import comparable, keyed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Query
from interlock.sql.terms import Term, call, combined


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
