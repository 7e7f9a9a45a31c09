"""Scalar functions of translated statements: PostgreSQL's results where SQLite's own functions differ.

Each takes stored values and returns a stored value, or raises the error that PostgreSQL raises. None of them receives
NULL: the registration makes them strict, as their counterparts in PostgreSQL are.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

from interlock.errors import TransactionError
from interlock.sql import decimals, literals
from interlock.sql.datatypes import INT8, INTEGER_RANGE, PLAIN, Name, Type
from interlock.sql.refusal import refuse
from interlock.sql.values import NUMERIC_DIGITS_MAX, StoredValue, numeric_text, out_of_range

_Read = TypeVar("_Read", int, float, str, bytes)
_EXACT_BITS = 53
_INT8_LOW, _INT8_HIGH = INTEGER_RANGE["int8"]


def ranged(kind: Type) -> Callable[[float], int]:
    """The function that verifies a computed whole number; an overflow of SQLite's shows as a float."""
    low, high = INTEGER_RANGE[kind.name]

    def verify(value: float) -> int:
        if not isinstance(value, int) or not low <= value <= high:
            raise out_of_range(kind)
        return value

    return verify


def finite(value: float) -> float:
    """Verify a computed float."""
    if not math.isfinite(value):
        raise TransactionError("double precision out of range.", fix="Use numeric, or smaller values.")
    return value


def _bigint(value: int) -> int:
    if not _INT8_LOW <= value <= _INT8_HIGH:
        raise out_of_range(INT8)
    return value


def multiply(left: int, right: int) -> int:
    """A product of whole numbers."""
    return _bigint(left * right)


def divide(left: int, right: int) -> int:
    """A quotient of whole numbers, towards zero."""
    if right == 0:
        raise decimals.division_by_zero()
    quotient = abs(left) // abs(right)
    return _bigint(quotient if (left < 0) == (right < 0) else -quotient)


def modulo(left: int, right: int) -> int:
    """The rest of a division towards zero."""
    if right == 0:
        raise decimals.division_by_zero()
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def float_multiply(left: float, right: float) -> float:
    """A product of floats; PostgreSQL refuses overflow and underflow."""
    return _in_range(left * right, zero=left == 0 or right == 0)


def float_divide(left: float, right: float) -> float:
    """A quotient of floats; PostgreSQL refuses zero, overflow and underflow."""
    if right == 0:
        raise decimals.division_by_zero()
    return _in_range(left / right, zero=left == 0)


def _in_range(value: float, *, zero: bool) -> float:
    if value == 0 and not zero:
        raise TransactionError("double precision out of range: underflow.", fix="Use numeric.")
    return finite(value)


def float_round(value: float) -> float:
    """The nearest whole number, half to even."""
    return math.copysign(float(round(value)), value)


def float_to_integer(value: float) -> int:
    """The nearest whole number, half to even."""
    return _bigint(round(value))


def float_to_numeric(value: float) -> str:
    """The float with the fifteen digits that PostgreSQL takes for certain."""
    return numeric_text(Decimal(f"{value:.15g}"))


def numeric_to_integer(value: str) -> int:
    """The nearest whole number, half away from zero."""
    return _bigint(int(decimals.rounded(Decimal(value), 0)))


def numeric_round(value: str, scale: int) -> str:
    """Return the number rounded to this many digits after the point."""
    if abs(scale) >= NUMERIC_DIGITS_MAX:
        raise TransactionError(f"round() to {scale} digits.", fix=f"Stay below {NUMERIC_DIGITS_MAX}.")
    return decimals.round_to(value, scale)


def numeric_truncate(value: str, scale: int) -> str:
    """Return the number cut off after this many digits."""
    if abs(scale) >= NUMERIC_DIGITS_MAX:
        raise TransactionError(f"trunc() to {scale} digits.", fix=f"Stay below {NUMERIC_DIGITS_MAX}.")
    return decimals.truncate_to(value, scale)


def float_sign(value: float) -> float:
    """-1, 0 or 1."""
    return float((value > 0) - (value < 0))


def square_root(value: float) -> float:
    """The square root, which IEEE 754 defines to the last bit."""
    if value < 0:
        raise TransactionError("the square root of a negative number.", fix="Test its sign first, inside CASE.")
    return math.sqrt(value)


def power(base: float, exponent: float) -> float:
    """A power of whole numbers that a float holds exactly; of others the last digit depends on the machine."""
    if base.is_integer() and exponent.is_integer() and 0 <= exponent <= _EXACT_BITS:
        result = int(base) ** int(exponent)
        if abs(result) <= 2**_EXACT_BITS:
            return float(result)
    raise refuse(
        f"power({base}, {exponent}).",
        why="Only powers of whole numbers up to 2^53 have the same last digit everywhere.",
        fix="Multiply, or compute it in Python.",
    )


def choosing(best: Callable[..., StoredValue], key: Callable[[StoredValue], object]) -> Callable[..., StoredValue]:
    """greatest() or least(): NULLs are left out, and of equals the first one stays."""

    def choose(*values: StoredValue) -> StoredValue:
        given = [value for value in values if value is not None]
        return best(given, key=key) if given else None

    return choose


def reading(read: Callable[[str], _Read], name: Name) -> Callable[[str], _Read]:
    """The cast from text by that reader; what it cannot read is an error of the transaction."""

    def cast(text: str) -> _Read:
        try:
            return read(text)
        except (ValueError, ArithmeticError) as error:
            literals.refuse_wider(text, name, error)
            what = f"invalid input for type {PLAIN[name]}: {text[:40]!r}."
            raise TransactionError(what, fix="Correct the text.") from error

    return cast


def reading_integer(kind: Type) -> Callable[[str], int]:
    """The cast from text to a whole number."""
    return reading(lambda text: literals.read_integer(text, kind), kind.name)


def reading_bool() -> Callable[[str], int]:
    """The cast from text to boolean."""
    return reading(lambda text: int(literals.read_bool(text)), "bool")


def uuid_to_text(value: bytes) -> str:
    """A uuid in its usual form."""
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def varchar(text: str, length: int) -> str:
    """Text for a column of limited length: too many characters are an error, too many spaces are cut off."""
    if len(text) <= length:
        return text
    if text[length:].strip(" "):
        raise TransactionError(
            f"text of {len(text)} characters is too long for varchar({length}).", fix="Shorten it, or widen the column."
        )
    return text[:length]


def lower(text: str) -> str:
    """Small letters; beyond ASCII they depend on the locale."""
    return _ascii(text, "lower").lower()


def upper(text: str) -> str:
    """Capital letters; beyond ASCII they depend on the locale."""
    return _ascii(text, "upper").upper()


def _ascii(text: str, function: str) -> str:
    if not text.isascii():
        raise refuse(
            f"{function}() of text beyond ASCII.",
            why="PostgreSQL's answer depends on the locale of the database.",
            fix="Convert it in Python and store the result.",
        )
    return text


def limit(value: int | None) -> int:
    """Return the bound of LIMIT: NULL means unlimited."""
    return -1 if value is None else _not_negative(value, "LIMIT")


def offset(value: int | None) -> int:
    """Return the bound of OFFSET: NULL means 0."""
    return 0 if value is None else _not_negative(value, "OFFSET")


def _not_negative(value: int, word: str) -> int:
    if value < 0:
        raise TransactionError(f"{word} must not be negative.", fix="Pass zero or more.")
    return value
