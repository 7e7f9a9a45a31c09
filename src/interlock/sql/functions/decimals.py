"""PostgreSQL's numeric on text: exact sums and products, its scales, its rounding.

A numeric is kept as the text of its digits ("1.50"), because SQLite would make a float of it. Each operation reads the
texts, computes exactly, and writes the result with the scale PostgreSQL gives it: the larger one for sums, both
together for products, and for quotients at least sixteen significant digits by the rule of its `select_div_scale`.
Rounding is half away from zero. Roots, powers and logarithms have sixteen significant digits by the estimates that
PostgreSQL makes; one that lies next to the middle of two last digits is refused.
"""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Final, cast

from interlock.sql.stored_values import NUMERIC_DIGITS_MAX, numeric_text
from interlock.sql.types import InvalidValue, refuse

# Enough for the product of the two longest numbers, so that nothing is ever rounded by accident.
EXACT: Final = Context(prec=4 * NUMERIC_DIGITS_MAX + 100, rounding=ROUND_HALF_UP)
_QUOTIENT_DIGITS: Final = 16
_EXPONENT_MAX: Final = 1000
_HALF: Final = Decimal("0.5")
_DOUBT: Final = Decimal("0.0001")
_FINE_DOUBT: Final = Decimal("0.000001")
_NEAR_ONE: Final = Decimal("0.1")
_ESTIMATE_DIGITS: Final = 8
_GUARD_DIGITS: Final = 12
_LOGARITHM_DOUBT: Final = 1e-9
_GROUP: Final = 4  # PostgreSQL computes in groups of four decimal digits.


def division_by_zero() -> InvalidValue:
    """Return the error of a division by zero."""
    return InvalidValue("division by zero.", fix="Test the divisor first: CASE WHEN d <> 0 THEN n / d END.")


def _exactly(compute: Callable[[Decimal, Decimal], Decimal]) -> Callable[[str, str], str]:
    return lambda left, right: numeric_text(compute(Decimal(left), Decimal(right)))


add: Final = _exactly(EXACT.add)
subtract: Final = _exactly(EXACT.subtract)
multiply: Final = _exactly(EXACT.multiply)


def _divided(compute: Callable[[Decimal, Decimal], Decimal]) -> Callable[[str, str], str]:
    def called(left: str, right: str) -> str:
        dividend, divisor = Decimal(left), Decimal(right)
        if not divisor:
            raise division_by_zero()
        return numeric_text(compute(dividend, divisor))

    return called


def _quotient(dividend: Decimal, divisor: Decimal) -> Decimal:
    # Rounded down here and to the nearest later: one digit more and a trace of the rest decide as the whole would.
    digits = quotient_scale(dividend, divisor)
    scale = digits + 1
    with localcontext(EXACT):
        shifted = abs(dividend).scaleb(scale)
        whole, rest = divmod(shifted, abs(divisor))
        if rest:
            whole = whole * 10 + 1
            scale += 1
        return rounded((whole if (dividend < 0) == (divisor < 0) else -whole).scaleb(-scale), digits)


def _rest(dividend: Decimal, divisor: Decimal) -> Decimal:
    return rounded(EXACT.remainder(dividend, divisor), max(scale_of(dividend), scale_of(divisor)))


divide: Final = _divided(_quotient)
"""The quotient, with the scale that PostgreSQL selects."""
modulo: Final = _divided(_rest)
"""The rest of the division towards zero, with the sign of the dividend."""
divide_whole: Final = _divided(EXACT.divide_int)
"""The whole part of the quotient: div()."""


def square_root(value: str) -> str:
    """The square root, with the scale that PostgreSQL's `numeric_sqrt` selects."""
    number = Decimal(value)
    if number < 0:
        raise InvalidValue("the square root of a negative number.", fix="Test its sign first, inside CASE.")
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
    """A power, with the scale that PostgreSQL's `power_var_int` or `power_var` selects."""

    def refused(why: str, fix: str = "Compute it in Python.") -> Exception:
        return refuse(f"power({base[:40]}, {exponent[:40]}).", why=why, fix=fix)

    number, times = Decimal(base), Decimal(exponent)
    if not number and times < 0:
        raise InvalidValue("zero raised to a negative power is undefined.", fix="Test the base first.")
    if times != times.to_integral_value():
        return numeric_text(_fractional_power(number, times))
    if abs(times) > _EXPONENT_MAX:
        raise refused(f"A lane has whole exponents up to {_EXPONENT_MAX}.")
    count = int(times)
    scale = min(max(_power_scale(number, count), scale_of(number), scale_of(times), 0), NUMERIC_DIGITS_MAX)
    if not number:
        return numeric_text(rounded(Decimal(0 if count else 1), scale))
    if abs(count) * len(number.as_tuple().digits) > EXACT.prec:
        raise refused("It has too many digits.")
    with localcontext(EXACT) as context:
        context.prec = 2 * EXACT.prec
        exact = number ** abs(count)
        result = exact if count >= 0 else 1 / exact
    # PostgreSQL computes some digits more and rounds then; a square is exact there.
    if result.adjusted() >= NUMERIC_DIGITS_MAX:
        raise refused("It has too many digits.")
    return numeric_text(_settled(result, scale, doubt=_DOUBT, is_exact=abs(count) <= 2))  # noqa: PLR2004 -- a square


def _settled(result: Decimal, scale: int, *, doubt: Decimal = _FINE_DOUBT, is_exact: bool = False) -> Decimal:
    """Return the result rounded; refused where PostgreSQL's few further digits may decide otherwise."""
    with localcontext(EXACT) as context:
        context.prec = 2 * EXACT.prec
        rest = abs(result.scaleb(scale)) % 1
    if abs(rest - _HALF) < doubt and not (is_exact and rest == _HALF):
        raise refuse("a power or a logarithm whose last digit is in doubt.", fix="Round the value first.")
    return rounded(result, scale)


def _fractional_power(number: Decimal, times: Decimal) -> Decimal:
    if number < 0:
        raise InvalidValue(
            "a negative number raised to a power that is not whole is complex.", fix="Test its sign first, inside CASE."
        )
    if not number:
        return rounded(number, _QUOTIENT_DIGITS)
    weight = _logarithm_weight(number)
    # PostgreSQL estimates the digits before the point with a logarithm of eight digits.
    digits = max(_ESTIMATE_DIGITS - weight, 0)
    estimate = rounded(EXACT.multiply(rounded(_logarithm(number, digits + 1), digits), times), digits)
    before = int(_decimal_weight(estimate))
    scale = _scale(before, number, times)
    precision = scale + max(before, 0) - weight + _GUARD_DIGITS
    return _settled(_exponential(EXACT.multiply(_logarithm(number, precision), times), scale + _GUARD_DIGITS), scale)


def exponential(value: str) -> str:
    """The power of e, with the scale that PostgreSQL's `numeric_exp` selects."""
    number = Decimal(value)
    scale = _scale(int(_decimal_weight(number)), number)
    result = _exponential(number, scale + _GUARD_DIGITS)
    return numeric_text(_settled(result, scale, is_exact=not number))


def logarithm(value: str) -> str:
    """The natural logarithm, with the scale that PostgreSQL's `numeric_ln` selects."""
    number = _positive(value)
    scale = _scale(_logarithm_weight(number), number)
    return numeric_text(_settled(_logarithm(number, scale + _GUARD_DIGITS), scale, is_exact=number == 1))


def logarithm_of_base(base: str, value: str) -> str:
    """The logarithm to a base, with the scale that PostgreSQL's `log_var` selects."""
    root_number, number = _positive(base), _positive(value)
    base_weight, weight = _logarithm_weight(root_number), _logarithm_weight(number)
    scale = _scale(weight - base_weight, root_number, number)
    if root_number == 1:
        raise division_by_zero()
    digits = scale + abs(base_weight) + abs(weight) + _GUARD_DIGITS
    with localcontext(EXACT):
        quotient = _logarithm(number, digits) / _logarithm(root_number, digits)
    return numeric_text(_settled(quotient, scale, is_exact=number == 1))


def common_logarithm(value: str) -> str:
    """The logarithm to the base ten."""
    return logarithm_of_base("10", value)


def _positive(value: str) -> Decimal:
    number = Decimal(value)
    if number <= 0:
        sign = "zero" if not number else "a negative number"
        raise InvalidValue(f"cannot take logarithm of {sign}.", fix="Test the value first, inside CASE.")
    return number


def _scale(weight: int, *numbers: Decimal) -> int:
    """Return the digits after the point: sixteen significant ones, and no fewer than any of the numbers shows."""
    return min(max(_QUOTIENT_DIGITS - weight, *map(scale_of, numbers), 0), NUMERIC_DIGITS_MAX)


def _logarithm(number: Decimal, digits: int) -> Decimal:
    """Return the natural logarithm with at least these digits after the point."""
    return number.ln(Context(prec=max(digits, 0) + len(str(abs(number.adjusted()))) + _GUARD_DIGITS))


def _exponential(number: Decimal, digits: int) -> Decimal:
    """Return the power of e with at least these digits after the point."""
    weight = _decimal_weight(number)
    if abs(weight) >= NUMERIC_DIGITS_MAX:
        raise refuse(f"a power with {int(abs(weight))} digits.", fix="Compute it in Python.")
    return number.exp(Context(prec=digits + int(max(weight, 0)) + _GUARD_DIGITS))


def _decimal_weight(number: Decimal) -> float:
    """Return the digits before the point of the power of e, as PostgreSQL estimates them."""
    return max(min(float(number) * 0.434294481903252, 2.0 * NUMERIC_DIGITS_MAX), -2.0 * NUMERIC_DIGITS_MAX)


def _logarithm_weight(number: Decimal) -> int:
    """PostgreSQL's `estimate_ln_dweight`: the place of the first digit of the natural logarithm."""
    if abs(number - 1) <= _NEAR_ONE:
        return (number - 1).adjusted() if number != 1 else 0
    weight, first = _leading_group(number)
    with localcontext(EXACT):
        digits = int(number.scaleb(_GROUP - weight * _GROUP))
    place = _GROUP * (weight - 1)
    if digits % 10**_GROUP == 0:
        digits, place = first, _GROUP * weight
    return int(math.log10(abs(math.log(digits) + place * 2.302585092994046)))


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


def round_to(value: str, scale: int, rounding: str = ROUND_HALF_UP) -> str:
    """Return the number with `scale` digits after the point; a negative scale rounds before it."""
    if abs(scale) >= NUMERIC_DIGITS_MAX:
        raise refuse(f"round() or trunc() to {scale} digits.", fix=f"Stay below {NUMERIC_DIGITS_MAX}.")
    number = Decimal(value).quantize(Decimal((0, (1,), -scale)), rounding=rounding, context=EXACT)
    return numeric_text(number if scale >= 0 else rounded(number, 0))


def floor(value: str) -> str:
    """The largest whole number that is not larger."""
    return numeric_text(Decimal(value).to_integral_value(rounding=ROUND_FLOOR))


def ceiling(value: str) -> str:
    """The smallest whole number that is not smaller."""
    return numeric_text(Decimal(value).to_integral_value(rounding=ROUND_CEILING))


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
        raise InvalidValue(
            f"numeric field overflow: {value[:40]} does not fit into numeric({precision},{scale}).",
            fix="Use a larger precision, or a smaller value.",
        )
    return numeric_text(number)


def to_float(value: str) -> float:
    """The nearest double precision number."""
    number = float(value)
    if abs(number) == float("inf") or (number == 0 and Decimal(value) != 0):
        raise InvalidValue(f"{value[:40]} is out of range for double precision.", fix="Stay with numeric.")
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
