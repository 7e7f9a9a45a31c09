"""Moments and intervals in expressions: which operands go together, and what type they give.

The choice among PostgreSQL's operators follows its rule for a side of unknown type: it is taken for the type of the
other side if there is such an operator, so `now() - $1` wants a moment and `now() + $1` an interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interlock.sql import times
from interlock.sql.casts import convert
from interlock.sql.datatypes import FLOAT8, INTERVAL, NUMERIC, TEXT, TIMESTAMPTZ, UNKNOWN
from interlock.sql.literals import text_literal
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call

# The fields of extract() that PostgreSQL takes in the singular and in the plural.
_SAME: Final = {f"{unit}s": unit for unit in ("second", "minute", "hour", "day", "week", "month", "year")} | {
    "microsecond": "microseconds",
    "millisecond": "milliseconds",
}


def is_temporal(*terms: Term) -> bool:
    """Return whether an operator on these is one of this module."""
    return any(term.type in {TIMESTAMPTZ, INTERVAL} for term in terms)


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """+ - * / where one side is a moment or an interval."""
    if TIMESTAMPTZ in {left.type, right.type}:
        return _moments(operator, left, right)
    match operator, left.type.name, right.type.name:
        case "+" | "-", "interval" | "unknown", "interval" | "unknown":
            function = "interlock_interval_add" if operator == "+" else "interlock_interval_subtract"
            return call(function, INTERVAL, *(convert(side, INTERVAL, "implicit") for side in (left, right)))
        case "*" | "/", "interval", _ if right.type.is_number or right.type is UNKNOWN:
            function = "interlock_interval_multiply" if operator == "*" else "interlock_interval_divide"
            return call(function, INTERVAL, left, convert(right, FLOAT8, "implicit"))
        case "*", _, "interval" if left.type.is_number or left.type is UNKNOWN:
            return call("interlock_interval_multiply", INTERVAL, right, convert(left, FLOAT8, "implicit"))
        case _:
            raise _no_operator(operator, left, right)


def _moments(operator: str, left: Term, right: Term) -> Term:
    match operator, left.type.name, right.type.name:
        case "+", "timestamptz", "interval" | "unknown":
            return call("interlock_time_add", TIMESTAMPTZ, left, convert(right, INTERVAL, "implicit"))
        case "+", "interval" | "unknown", "timestamptz":
            return call("interlock_time_add", TIMESTAMPTZ, right, convert(left, INTERVAL, "implicit"))
        case "-", "timestamptz", "interval":
            return call("interlock_time_subtract", TIMESTAMPTZ, left, right)
        case "-", "timestamptz" | "unknown", "timestamptz" | "unknown":
            sides = (convert(side, TIMESTAMPTZ, "implicit") for side in (left, right))
            return call("interlock_time_difference", INTERVAL, *sides)
        case _:
            raise _no_operator(operator, left, right)


def _no_operator(operator: str, left: Term, right: Term) -> Exception:
    what = f"{left.type} {operator} {right.type}."
    return wrong(what, fix="Add an interval: at + interval '1 day', or at + 2 * interval '1 hour'.")


def extract(field: str, value: Term) -> Term:
    """EXTRACT(field FROM value), a numeric."""
    field = _SAME.get(field.lower(), field.lower())
    if value.type == TIMESTAMPTZ:
        known, function = times.MOMENT_PARTS, "interlock_time_part"
    elif value.type == INTERVAL:
        known, function = times.INTERVAL_PARTS, "interlock_interval_part"
    else:
        raise refuse(f"extract() from {value.type}.", fix="Cast it to timestamptz first.")
    if field not in known:
        raise refuse(f"extract({field[:20]} FROM {value.type}).", fix=f"Use one of {', '.join(sorted(known))}.")
    part = Term(text_literal(field), TEXT, nullable=False)
    return replace(call(function, NUMERIC, part, value), name="extract", nullable=value.nullable)


def _date_trunc(arguments: Sequence[Term]) -> Term:
    field, value = arguments
    if value.type not in {TIMESTAMPTZ, UNKNOWN}:
        raise refuse(f"date_trunc() of {value.type}.", fix="Cast it to timestamptz first.")
    field, value = convert(field, TEXT, "implicit"), convert(value, TIMESTAMPTZ, "implicit")
    if field.literal is not None:
        times.check_field(field.literal)
    return call("interlock_time_truncate", TIMESTAMPTZ, field, value)


def _to_timestamp(arguments: Sequence[Term]) -> Term:
    return call("interlock_time_from_epoch", TIMESTAMPTZ, convert(arguments[0], FLOAT8, "implicit"))


CALLS: Final[dict[str, tuple[tuple[int, ...], Callable[[Sequence[Term]], Term]]]] = {
    "date_trunc": ((2,), _date_trunc),
    "to_timestamp": ((1,), _to_timestamp),
}
