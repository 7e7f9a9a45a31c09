"""PostgreSQL's numeric on text: exact sums and products, its scales, its rounding.

A numeric is kept as the text of its digits ("1.50"), because SQLite would make a float of it. Each operation reads the
texts, computes exactly, and writes the result with the scale PostgreSQL gives it: the larger one for sums, both
together for products, and for quotients at least sixteen significant digits by the rule of its `select_div_scale`.
Rounding is half away from zero.
"""

import math
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Final, cast

from interlock.errors import TransactionError
from interlock.sql.types import refuse
from interlock.sql.values import NUMERIC_DIGITS_MAX, numeric_text

# Enough for the product of the two longest numbers, so that nothing is ever rounded by accident.
EXACT: Final = Context(prec=4 * NUMERIC_DIGITS_MAX + 100, rounding=ROUND_HALF_UP)
_QUOTIENT_DIGITS: Final = 16
_EXPONENT_MAX: Final = 1000
_HALF: Final = Decimal("0.5")
_DOUBT: Final = Decimal("0.0001")
_LOGARITHM_DOUBT: Final = 1e-9
_GROUP: Final = 4  # PostgreSQL computes in groups of four decimal digits.


def division_by_zero() -> TransactionError:
    """The error of a division by zero."""
    return TransactionError("division by zero.", fix="Test the divisor first: CASE WHEN d <> 0 THEN n / d END.")


def add(left: str, right: str) -> str:
    """The sum."""
    return numeric_text(EXACT.add(Decimal(left), Decimal(right)))


def subtract(left: str, right: str) -> str:
    """The difference."""
    return numeric_text(EXACT.subtract(Decimal(left), Decimal(right)))


def multiply(left: str, right: str) -> str:
    """The product."""
    return numeric_text(EXACT.multiply(Decimal(left), Decimal(right)))


def divide(left: str, right: str) -> str:
    """The quotient, with the scale that PostgreSQL selects."""
    dividend, divisor = Decimal(left), Decimal(right)
    if not divisor:
        raise division_by_zero()
    return numeric_text(rounded(_quotient(dividend, divisor), quotient_scale(dividend, divisor)))


def _quotient(dividend: Decimal, divisor: Decimal) -> Decimal:
    # Rounded down here and to the nearest later: one digit more and a trace of the rest decide as the whole would.
    scale = quotient_scale(dividend, divisor) + 1
    with localcontext(EXACT):
        shifted = abs(dividend).scaleb(scale)
        whole, rest = divmod(shifted, abs(divisor))
        if rest:
            whole = whole * 10 + 1
            scale += 1
        return (whole if (dividend < 0) == (divisor < 0) else -whole).scaleb(-scale)


def modulo(left: str, right: str) -> str:
    """The rest of the division towards zero, with the sign of the dividend."""
    dividend, divisor = Decimal(left), Decimal(right)
    if not divisor:
        raise division_by_zero()
    rest = EXACT.remainder(dividend, divisor)
    return numeric_text(rounded(rest, max(scale_of(dividend), scale_of(divisor))))


def square_root(value: str) -> str:
    """The square root, with the scale that PostgreSQL's `numeric_sqrt` selects."""
    number = Decimal(value)
    if number < 0:
        raise TransactionError("the square root of a negative number.", fix="Test its sign first, inside CASE.")
    weight, _ = _leading_group(number)
    scale = max(_QUOTIENT_DIGITS - ((weight + 1) * _GROUP // 2 - 1), scale_of(number), 0)
    return numeric_text(root(number, min(scale, NUMERIC_DIGITS_MAX)))


def root(number: Decimal, scale: int) -> Decimal:
    """Return the square root rounded to `scale` digits after the point."""
    with localcontext(EXACT):
        # Cut off one digit later: that digit alone decides how the others are rounded.
        whole = math.isqrt(int(number.scaleb(2 * scale + 2)))
        return rounded(Decimal(whole).scaleb(-scale - 1), scale)


def power(base: str, exponent: str) -> str:
    """A power with a whole exponent, with the scale that PostgreSQL's `power_var_int` selects."""
    number, times = Decimal(base), Decimal(exponent)
    if times != times.to_integral_value() or abs(times) > _EXPONENT_MAX:
        raise refuse(
            f"power({base[:40]}, {exponent[:40]}).",
            why=f"A lane has whole exponents up to {_EXPONENT_MAX}.",
            fix="Compute it in Python.",
        )
    if not number and times < 0:
        raise TransactionError("zero raised to a negative power is undefined.", fix="Test the base first.")
    count = int(times)
    scale = min(max(_power_scale(number, count), scale_of(number), scale_of(times), 0), NUMERIC_DIGITS_MAX)
    if not number:
        return numeric_text(rounded(Decimal(0 if count else 1), scale))
    with localcontext(EXACT) as context:
        context.prec = 2 * EXACT.prec
        if abs(count) * len(number.as_tuple().digits) > EXACT.prec:
            raise refuse(
                f"power({base[:40]}, {exponent[:40]}).", why="It has too many digits.", fix="Compute it in Python."
            )
        exact = number ** abs(count)
        result = exact if count >= 0 else 1 / exact
        rest = abs(result.scaleb(scale)) % 1
    # PostgreSQL computes some digits more and rounds then; next to the middle that may go either way.
    if abs(rest - _HALF) < _DOUBT and (rest != _HALF or abs(count) > 2):  # noqa: PLR2004 -- a square is exact there
        raise refuse(
            f"power({base[:40]}, {exponent[:40]}).", why="Its last digit is in doubt.", fix="Round the base first."
        )
    if result.adjusted() >= NUMERIC_DIGITS_MAX:
        raise refuse(
            f"power({base[:40]}, {exponent[:40]}).", why="It has too many digits.", fix="Compute it in Python."
        )
    return numeric_text(rounded(result, scale))


def _power_scale(number: Decimal, count: int) -> int:
    """Return sixteen less the estimated number of digits before the point."""
    if not number:
        return _QUOTIENT_DIGITS
    weight = count * (math.log10(int("".join(map(str, number.as_tuple().digits))[:16])) + _shift(number))
    if weight != round(weight) and abs(weight - round(weight)) < _LOGARITHM_DOUBT:
        raise refuse("a power whose number of digits is in doubt.", fix="Compute it in Python.")
    return _QUOTIENT_DIGITS - math.trunc(weight)


def _shift(number: Decimal) -> int:
    return number.adjusted() + 1 - min(len(number.as_tuple().digits), 16)


def negate(value: str) -> str:
    """The number with the other sign."""
    return numeric_text(Decimal(value).copy_negate())


def absolute(value: str) -> str:
    """The number without its sign."""
    return numeric_text(Decimal(value).copy_abs())


def round_to(value: str, scale: int) -> str:
    """Return the number rounded to `scale` digits after the point; a negative scale rounds before it."""
    number = rounded(Decimal(value), scale)
    return numeric_text(number if scale >= 0 else rounded(number, 0))


def floor(value: str) -> str:
    """The largest whole number that is not larger."""
    return numeric_text(Decimal(value).to_integral_value(rounding="ROUND_FLOOR"))


def ceiling(value: str) -> str:
    """The smallest whole number that is not smaller."""
    return numeric_text(Decimal(value).to_integral_value(rounding="ROUND_CEILING"))


def truncate_to(value: str, scale: int) -> str:
    """Return the number cut off after `scale` digits; a negative scale cuts before the point."""
    number = Decimal(value).quantize(Decimal((0, (1,), -scale)), rounding="ROUND_DOWN", context=EXACT)
    return numeric_text(number if scale >= 0 else rounded(number, 0))


def sign(value: str) -> str:
    """-1, 0 or 1."""
    number = Decimal(value)
    return str((number > 0) - (number < 0))


def quotient_truncated(left: str, right: str) -> str:
    """Return the whole part of the quotient: div()."""
    dividend, divisor = Decimal(left), Decimal(right)
    if not divisor:
        raise division_by_zero()
    with localcontext(EXACT):
        return numeric_text(dividend // divisor)


def trimmed(value: str) -> str:
    """Return the number without zeros at the end of its fraction: trim_scale()."""
    return value.rstrip("0").rstrip(".") if "." in value else value


def displayed_scale(value: str) -> int:
    """Return the number of digits after the point: scale()."""
    return scale_of(Decimal(value))


def fit(value: str, precision: int, scale: int) -> str:
    """The number as a numeric(precision, scale) keeps it, or the error of a field that is too small."""
    number = rounded(Decimal(value), scale)
    if number and number.adjusted() >= precision - scale:
        raise TransactionError(
            f"numeric field overflow: {value[:40]} does not fit into numeric({precision},{scale}).",
            fix="Use a larger precision, or a smaller value.",
        )
    return numeric_text(number)


def to_float(value: str) -> float:
    """The nearest double precision number."""
    number = float(value)
    if abs(number) == float("inf") or (number == 0 and Decimal(value) != 0):
        raise TransactionError(f"{value[:40]} is out of range for double precision.", fix="Stay with numeric.")
    return number + 0.0


def compare(left: str, right: str) -> int:
    """The order of two numbers: the collation of numeric columns."""
    first, second = Decimal(left), Decimal(right)
    return (first > second) - (first < second)


def rounded(number: Decimal, scale: int) -> Decimal:
    """Return the number with exactly `scale` digits after the point, rounded half away from zero."""
    return number.quantize(Decimal((0, (1,), -scale)), context=EXACT)


def scale_of(number: Decimal) -> int:
    """Return the number of digits after the point."""
    return max(0, -cast("int", number.as_tuple().exponent))


def quotient_scale(dividend: Decimal, divisor: Decimal) -> int:
    """PostgreSQL's `select_div_scale`: sixteen significant digits, and no fewer than either operand shows."""
    weight, first = _leading_group(dividend)
    divisor_weight, divisor_first = _leading_group(divisor)
    quotient_weight = weight - divisor_weight - (first <= divisor_first)
    scale = _QUOTIENT_DIGITS - quotient_weight * _GROUP
    return min(max(scale, scale_of(dividend), scale_of(divisor), 0), NUMERIC_DIGITS_MAX)


def _leading_group(number: Decimal) -> tuple[int, int]:
    if not number:
        return 0, 0
    weight = number.adjusted() // _GROUP
    with localcontext(EXACT):
        return weight, int(abs(number).scaleb(-weight * _GROUP))
