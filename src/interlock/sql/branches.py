"""Values that are chosen: CASE, COALESCE, NULLIF, each in the one type that PostgreSQL gives all its branches."""

from collections.abc import Sequence

from interlock.sql.casts import unified
from interlock.sql.datatypes import TEXT, UNKNOWN
from interlock.sql.operators import comparable, keyed
from interlock.sql.refusal import refuse
from interlock.sql.terms import Term, combined


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
