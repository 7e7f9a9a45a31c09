"""Arithmetic and comparison of translated terms, each with PostgreSQL's type and PostgreSQL's errors.

Sums and differences are native and left `unchecked`: their overflow is visible in the result (a float, or outside the
width). Products of bigint are not, because a rounded float product can come back into range; division is not, because
SQLite answers NULL where PostgreSQL raises. Those call functions, unless the divisor is a written positive number.
"""

from typing import Final

from interlock.sql.casts import convert, settled, unified
from interlock.sql.scope import Term, call, combined
from interlock.sql.types import BOOL, FLOAT8, INT8, INTERVAL, JSONB, NUMERIC, TEXT, UNKNOWN, Type, refuse, wrong

_EQUALITIES: Final = frozenset({"=", "<>", "IS", "IS NOT"})
COLLATED: Final = "COLLATE interlock_numeric"
# Beside numbers and text. PostgreSQL reads a literal beside bytea as bytea.
_JOINED_TO_TEXT: Final = frozenset({"bool", "uuid", "timestamptz"})
_NUMERIC_FUNCTIONS: Final = {
    "+": "interlock_numeric_add",
    "-": "interlock_numeric_subtract",
    "*": "interlock_numeric_multiply",
    "/": "interlock_numeric_divide",
    "%": "interlock_numeric_modulo",
}


def number_arithmetic(operator: str, left: Term, right: Term) -> Term:
    """One of + - * / % on two numbers of the same or of different types."""
    if left.type is UNKNOWN and right.type is UNKNOWN:
        raise wrong(f"the types of both sides of {operator} are unknown.", fix="Cast one side: $1::bigint.")
    kind, (left, right) = unified(left, right)
    if kind.is_integer:
        return _integer_arithmetic(operator, left, right, kind)
    if kind == NUMERIC:
        return call(_NUMERIC_FUNCTIONS[operator], NUMERIC, left, right)
    if kind == FLOAT8:
        return _float_arithmetic(operator, left, right)
    raise refuse(f"{operator} on {kind}.", why="Arithmetic is for numbers.", fix="Compute it in Python.")


def _integer_arithmetic(operator: str, left: Term, right: Term, kind: Type) -> Term:
    native = f"{left.operand} {operator} {right.operand}"
    match operator:
        case "+" | "-":
            return combined(native, kind, (left, right), unchecked=True)
        case "*" if kind.name != "int8":
            return combined(native, kind, (left, right), unchecked=True)
        case "*":
            return call("interlock_multiply", kind, left, right)
        case _ if right.literal is not None and int(right.literal) > 0 and right.atomic:
            return combined(native, kind, (left, right))
        case "/":
            return call("interlock_divide", kind, left, right, unchecked=kind.name != "int8")
        case _:
            return call("interlock_modulo", kind, left, right)


def _float_arithmetic(operator: str, left: Term, right: Term) -> Term:
    match operator:
        case "+" | "-":
            return combined(f"{left.operand} {operator} {right.operand}", FLOAT8, (left, right), unchecked=True)
        case "*":
            return call("interlock_float8_multiply", FLOAT8, left, right)
        case "/":
            return call("interlock_float8_divide", FLOAT8, left, right)
        case _:
            raise wrong("% on double precision.", fix="Use numeric or integers.")


def negation(term: Term) -> Term:
    """The number with the other sign."""
    if term.type is UNKNOWN:
        raise wrong("the type of what follows the minus is unknown.", fix="Cast it: -($1::bigint).")
    if term.type.name == "numeric":
        return call("interlock_numeric_negate", NUMERIC, term)
    if term.type.is_integer:
        return combined(f"-{term.operand}", term.type, [term], unchecked=True)
    if term.type.name == "float8":
        return combined(f"-{term.operand}", FLOAT8, [term])
    raise wrong(f"minus on {term.type}.")


def comparison(operator: str, left: Term, right: Term) -> Term:
    """One of = <> < <= > >= and IS [NOT] DISTINCT FROM (SQLite's IS NOT and IS), in the type where both sides meet."""
    kind, (left, right) = unified(left, right)
    if kind == INTERVAL:
        left, right = (call("interlock_interval_key", INT8, term) for term in (left, right))
    elif kind == JSONB and operator in _EQUALITIES:
        left, right = (call("interlock_jsonb_key", TEXT, term) for term in (left, right))
    elif not (kind.is_array and kind.element.name not in {"numeric", "float8"} and operator in _EQUALITIES):
        comparable(kind, operator)
    if left.volatile or right.volatile:
        # PostgreSQL asks each row anew; SQLite would ask once and look the answer up in an index.
        return combined(f"+{keyed(left, right.text)} {operator} +{right.operand}", BOOL, (left, right))
    return combined(f"{keyed(left, right.text)} {operator} {right.operand}", BOOL, (left, right))


def keyed(term: Term, other: str = "") -> str:
    """The text by which SQLite compares, sorts and groups the term as PostgreSQL does; `other` is the other side."""
    if term.type.name == "numeric":
        return f"{term.operand} {COLLATED}"
    # A COLLATE anywhere inside an operand, in the condition of a CASE for instance, would govern the comparison.
    if term.type.is_text and ("COLLATE" in term.text or "COLLATE" in other):
        return f"{term.operand} COLLATE BINARY"
    return term.operand


def sorting_key(term: Term) -> str:
    """The text of the term in ORDER BY or GROUP BY."""
    if term.type == BOOL and not term.atomic:
        # SQLite makes 0 or 1 of `3 IS NOT NULL` while it reads it, and then takes it for the place of a column.
        return f"CAST({term.checked.text} AS INTEGER)"
    return keyed(term)


def comparable(kind: Type, purpose: str) -> None:
    """Refuse types that a lane cannot compare."""
    if kind.name in {"jsonb", "interval"} or kind.is_array:
        raise refuse(
            f"{purpose} on {kind}.",
            why="A lane has no order of such values.",
            fix="Keep what you sort and search by in columns of its own.",
        )


def concatenation(left: Term, right: Term) -> Term:
    """Text joined to text."""
    left, right = (settled(term) if term.type is UNKNOWN and term.parameter is None else term for term in (left, right))
    if not (left.type.is_text or right.type.is_text):
        raise refuse(f"|| on {left.type} and {right.type}.", fix="Cast both sides to text.")
    for term in (left, right):
        if not (term.type is UNKNOWN or term.type.is_text or term.type.name in _JOINED_TO_TEXT or term.type.is_number):
            raise refuse(f"|| on {term.type}.", fix="Cast it to text: CAST(… AS text).")
    left, right = convert(left, TEXT, "explicit"), convert(right, TEXT, "explicit")
    return combined(f"{left.operand} || {right.operand}", TEXT, (left, right))


def condition(term: Term, place: str) -> Term:
    """A term that must be boolean."""
    if term.type is UNKNOWN:
        return convert(term, BOOL, "implicit")
    if term.type != BOOL:
        raise wrong(f"{place} must be boolean, not {term.type}.", fix="Compare it with something: … <> 0.")
    return term
