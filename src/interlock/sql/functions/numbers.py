"""Numbers: arithmetic, rounding and mathematical functions with PostgreSQL's types, results and errors.

Sums and differences are native and left `unchecked`: their overflow is visible in the result (a float, or outside the
width). Products of bigint are not, because a rounded float product can come back into range; division is not, because
SQLite answers NULL where PostgreSQL raises. Those call functions, unless the divisor is a written positive number.
Functions whose last digit depends on the C library (powers of floats, exp, ln) are left out, but where they are exact.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from interlock.errors import TransactionError
from interlock.sql.functions import decimals
from interlock.sql.registry import Entry, built, cast, function, operator, written
from interlock.sql.scope import Term, call, combined
from interlock.sql.types import INT2, INT4, INT8, INTEGER_RANGE, Type, refuse
from interlock.sql.values import NUMERIC_DIGITS_MAX, StoredValue, numeric_scaled, numeric_text, out_of_range

_EXACT_BITS: Final = 53
_INT8_LOW, _INT8_HIGH = INTEGER_RANGE["int8"]
_INTEGERS: Final = ("int2", "int4", "int8")

# --- Bodies ----------------------------------------------------------------------------------------------------------


def ranged(kind: Type) -> Callable[[float], int]:
    """Return the function that verifies a computed whole number; an overflow of SQLite's shows as a float."""
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
    """Return a product of whole numbers."""
    return _bigint(left * right)


def divide(left: int, right: int) -> int:
    """Return a quotient of whole numbers, towards zero."""
    if right == 0:
        raise decimals.division_by_zero()
    quotient = abs(left) // abs(right)
    return _bigint(quotient if (left < 0) == (right < 0) else -quotient)


def modulo(left: int, right: int) -> int:
    """Return the rest of a division towards zero."""
    if right == 0:
        raise decimals.division_by_zero()
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def float_multiply(left: float, right: float) -> float:
    """Return a product of floats; PostgreSQL refuses overflow and underflow."""
    return _in_range(left * right, zero=left == 0 or right == 0)


def float_divide(left: float, right: float) -> float:
    """Return a quotient of floats; PostgreSQL refuses zero, overflow and underflow."""
    if right == 0:
        raise decimals.division_by_zero()
    return _in_range(left / right, zero=left == 0)


def _in_range(value: float, *, zero: bool) -> float:
    if value == 0 and not zero:
        raise TransactionError("double precision out of range: underflow.", fix="Use numeric.")
    return finite(value)


def float_round(value: float) -> float:
    """Return the nearest whole number, half to even."""
    return math.copysign(float(round(value)), value)


def float_to_integer(value: float) -> int:
    """Return the nearest whole number, half to even."""
    return _bigint(round(value))


def float_to_numeric(value: float) -> str:
    """Return the float with the fifteen digits that PostgreSQL takes for certain."""
    return numeric_text(Decimal(f"{value:.15g}"))


def numeric_to_integer(value: str) -> int:
    """Return the nearest whole number, half away from zero."""
    return _bigint(int(decimals.rounded(Decimal(value), 0)))


def numeric_round(value: str, scale: int) -> str:
    """Return the number rounded to this many digits after the point."""
    if abs(scale) >= NUMERIC_DIGITS_MAX:
        raise refuse(f"round() to {scale} digits.", fix=f"Stay below {NUMERIC_DIGITS_MAX}.")
    return decimals.round_to(value, scale)


def numeric_truncate(value: str, scale: int) -> str:
    """Return the number cut off after this many digits."""
    if abs(scale) >= NUMERIC_DIGITS_MAX:
        raise refuse(f"trunc() to {scale} digits.", fix=f"Stay below {NUMERIC_DIGITS_MAX}.")
    return decimals.truncate_to(value, scale)


def float_sign(value: float) -> float:
    """Return -1, 0 or 1."""
    return float((value > 0) - (value < 0))


def square_root(value: float) -> float:
    """Return the square root, which IEEE 754 defines to the last bit."""
    if value < 0:
        raise TransactionError("the square root of a negative number.", fix="Test its sign first, inside CASE.")
    return math.sqrt(value)


def power(base: float, exponent: float) -> float:
    """Return a power of whole numbers that a float holds exactly; of others the last digit depends on the machine."""
    if base.is_integer() and exponent.is_integer() and 0 <= exponent <= _EXACT_BITS:
        result = int(base) ** int(exponent)
        if abs(result) <= 2**_EXACT_BITS:
            return float(result)
    raise refuse(
        f"power({base}, {exponent}).",
        why="Only powers of whole numbers up to 2^53 have the same last digit everywhere.",
        fix="Multiply, or compute it in Python.",
    )


def _gcd(left: int, right: int) -> int:
    return _bigint(math.gcd(left, right))


def _lcm(left: int, right: int) -> int:
    return _bigint(math.lcm(left, right))


def _factorial(value: int) -> str:
    if value < 0:
        raise TransactionError("the factorial of a negative number.", fix="Pass zero or more.")
    if value > _FACTORIAL_MAX:
        raise refuse(f"factorial({value}).", fix=f"Stay below {_FACTORIAL_MAX}.")
    return str(math.factorial(value))


_FACTORIAL_MAX: Final = 400


def choosing(best: Callable[..., StoredValue], key: Callable[[StoredValue], object]) -> Callable[..., StoredValue]:
    """Return greatest() or least(): NULLs are left out, and of equals the first one stays."""

    def choose(*values: StoredValue) -> StoredValue:
        known = [value for value in values if value is not None]
        return best(known, key=key) if known else None

    return choose


def _shifted(bits: int) -> tuple[Callable[[int, int], int], Callable[[int, int], int]]:
    """Return << and >> of whole numbers of that width: C takes the count modulo the width."""

    def left(value: int, count: int) -> int:
        shifted: int = (value << (count % bits)) & (2**bits - 1)
        return shifted - 2**bits if shifted >> (bits - 1) else shifted

    return left, lambda value, count: value >> (count % bits)


def _numeric_gcd(left: str, right: str) -> str:
    scale = max(decimals.displayed_scale(left), decimals.displayed_scale(right))
    return numeric_scaled(math.gcd(_unscaled(left, scale), _unscaled(right, scale)), scale)


def _numeric_lcm(left: str, right: str) -> str:
    scale = max(decimals.displayed_scale(left), decimals.displayed_scale(right))
    return numeric_scaled(math.lcm(_unscaled(left, scale), _unscaled(right, scale)), scale)


def _unscaled(value: str, scale: int) -> int:
    # By its digits: arithmetic with Decimal would round them.
    whole, _, fraction = value.partition(".")
    return int(whole + fraction.ljust(scale, "0"))


def _bucket(value: str, low: str, high: str, count: int) -> int:
    """width_bucket of numeric."""
    number, first, last = Fraction(value), Fraction(low), Fraction(high)
    return _bucket_of(number, first, last, count, lambda: int(abs(number - first) * count // abs(last - first)))


def _float_bucket(number: float, first: float, last: float, count: int) -> int:
    """width_bucket of floats."""
    return _bucket_of(
        number, first, last, count, lambda: min(int(count * (abs(number - first) / abs(last - first))), count - 1)
    )


def _bucket_of(
    number: Fraction | float, first: Fraction | float, last: Fraction | float, count: int, place: Callable[[], int]
) -> int:
    if count <= 0:
        raise TransactionError("width_bucket() with a count that is not greater than zero.", fix="Pass 1 or more.")
    if first == last:
        raise TransactionError("width_bucket() with equal bounds.", fix="Pass two bounds.")
    rising = first < last
    if number < first if rising else number > first:
        return 0
    found = count if (number >= last if rising else number <= last) else place()
    if found >= INTEGER_RANGE["int4"][1]:
        raise TransactionError("integer out of range.", fix="Use fewer buckets.")
    return found + 1


def _based(digits: str, bits: int) -> Callable[[int], str]:
    return lambda value: format(value if value >= 0 else value + 2**bits, digits)


def _between(low: int, high: int, fraction: float) -> int:
    """random(low, high), made of a random fraction."""
    if low > high:
        raise TransactionError(f"random({low}, {high}): the first bound is the greater one.", fix="Exchange them.")
    # 53 bits of chance: a wider range has numbers that never come.
    return min(low + int(fraction * (high - low + 1)), high)


def _drawn(terms: Sequence[Term], result: Type) -> Term:
    return replace(call("interlock_random_between", result, *terms, extra="interlock_random()"), volatile=True)


_RADIANS_PER_DEGREE: Final = 0.0174532925199432957692


def _degrees(value: float) -> float:
    return float_divide(value, _RADIANS_PER_DEGREE)


def _radians(value: float) -> float:
    return float_multiply(value, _RADIANS_PER_DEGREE)


def _exclusive_or(left: int, right: int) -> int:
    return left ^ right


def _min_scale(value: str) -> int:
    return decimals.displayed_scale(decimals.trimmed(value))


# --- Builders --------------------------------------------------------------------------------------------------------


def _native(sign: str) -> Callable[[Sequence[Term], Type], Term]:
    def build(terms: Sequence[Term], result: Type) -> Term:
        left, right = terms
        return combined(f"{left.operand} {sign} {right.operand}", result, terms, unchecked=True)

    return build


def _product(terms: Sequence[Term], result: Type) -> Term:
    return call("interlock_multiply", result, *terms) if result.name == "int8" else _native("*")(terms, result)


def _quotient(sign: str, name: str) -> Callable[[Sequence[Term], Type], Term]:
    def build(terms: Sequence[Term], result: Type) -> Term:
        left, right = terms
        if right.literal is not None and right.atomic and int(right.literal) > 0:
            return combined(f"{left.operand} {sign} {right.operand}", result, terms)
        # The smallest number divided by -1 leaves its type.
        return call(name, result, left, right, unchecked=sign == "/" and result.name != "int8")

    return build


def _negated(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    return combined(f"-{value.operand}", result, terms, unchecked=result.is_integer)


def _itself(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    return combined(value.text, result, terms, atomic=value.atomic, unchecked=value.unchecked)


def _absolute(terms: Sequence[Term], result: Type) -> Term:
    return call("abs", result, *terms, unchecked=result.name in {"int2", "int4"})


def _narrow(terms: Sequence[Term], result: Type) -> Term:
    """Mark a whole number as unverified in the narrower type: the check is made where the value is used."""
    [value] = terms
    checked = value.checked
    return combined(checked.text, result, terms, atomic=checked.atomic, unchecked=True)


def _widen(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    checked = value.checked
    literal = checked.literal
    term = combined(checked.text, result, terms, atomic=checked.atomic)
    return Term(term.text, result, term.atomic, literal=literal, nullable=False) if literal is not None else term


def _integer_to_numeric(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    if value.literal is not None:
        return Term(f"'{value.literal}'", result, literal=value.literal, nullable=False)
    return combined(f"CAST({value.checked.text} AS TEXT)", result, terms, atomic=True)


def _integer_to_float(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    if value.literal is not None:
        text = repr(float(value.literal))
        return Term(text, result, atomic=not text.startswith("-"), nullable=False)
    return combined(f"CAST({value.checked.text} AS REAL)", result, terms, atomic=True)


def _numeric_to_float(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    if value.literal is not None:
        text = repr(decimals.to_float(value.literal))
        return Term(text, result, atomic=not text.startswith("-"), nullable=False)
    return call("interlock_numeric_to_float8", result, value)


def _to_integer(name: str) -> Callable[[Sequence[Term], Type], Term]:
    return lambda terms, result: call(name, result, *terms, unchecked=result.name != "int8")


# --- Entries ---------------------------------------------------------------------------------------------------------


def _integer_entries() -> list[Entry]:
    entries: list[Entry] = []
    for left in _INTEGERS:
        entries += [
            built("operator", "-", left, left, _negated),
            built("operator", "+", left, left, _itself),
            built("operator", "@", left, left, _absolute),
            built("function", "abs", left, left, _absolute),
            written("operator", "~", left, left, "~{0}"),
            built("cast", "", f"{left}", "numeric", _integer_to_numeric),
            built("cast", "", f"{left}", "float8", _integer_to_float),
            built("cast", "", "numeric", left, _to_integer("interlock_numeric_to_integer")),
            built("cast", "", "float8", left, _to_integer("interlock_float8_to_integer")),
            built("function", "mod", f"{left}, {left}", left, _quotient("%", "interlock_modulo")),
        ]
        entries += [written("operator", sign, f"{left}, {left}", left, f"{{0}} {sign} {{1}}") for sign in ("&", "|")]
        for right in _INTEGERS:
            wide = max(left, right, key=_INTEGERS.index)
            takes = f"{left}, {right}"
            entries += [built("operator", sign, takes, wide, _native(sign)) for sign in ("+", "-")]
            entries += [
                built("operator", "*", takes, wide, _product),
                built("operator", "/", takes, wide, _quotient("/", "interlock_divide")),
            ]
            if left == right:
                entries.append(built("operator", "%", takes, wide, _quotient("%", "interlock_modulo")))
            elif _INTEGERS.index(left) < _INTEGERS.index(right):
                entries.append(built("cast", "", left, right, _widen))
            else:
                entries.append(built("cast", "", left, right, _narrow))
    return entries


def _plain(name: str, body: Callable[..., StoredValue], takes: str, gives: str) -> Entry:
    """Declare a SQLite function that other entries call by its name; PostgreSQL has none of that name."""
    return function(f"interlock {name}", takes, gives, body, sqlite=name)


ENTRIES: Final = (
    *_integer_entries(),
    _plain("int2", ranged(INT2), "int8", "int2"),
    _plain("int4", ranged(INT4), "int8", "int4"),
    _plain("int8", ranged(INT8), "int8", "int8"),
    _plain("float8", finite, "float8", "float8"),
    _plain("multiply", multiply, "int8, int8", "int8"),
    _plain("divide", divide, "int8, int8", "int8"),
    _plain("modulo", modulo, "int8, int8", "int8"),
    _plain("numeric_to_integer", numeric_to_integer, "numeric", "int8"),
    _plain("float8_to_integer", float_to_integer, "float8", "int8"),
    _plain("numeric_to_float8", decimals.to_float, "numeric", "float8"),
    _plain("numeric_fit", decimals.fit, "numeric, int4, int4", "numeric"),
    *(built("operator", sign, "float8, float8", "float8", _native(sign)) for sign in ("+", "-")),
    operator("*", "float8, float8", "float8", float_multiply, sqlite="float8_multiply"),
    operator("/", "float8, float8", "float8", float_divide, sqlite="float8_divide"),
    built("operator", "-", "float8", "float8", _negated),
    built("operator", "+", "float8", "float8", _itself),
    built("operator", "@", "float8", "float8", _absolute),
    built("function", "abs", "float8", "float8", _absolute),
    operator("+", "numeric, numeric", "numeric", decimals.add, sqlite="numeric_add"),
    operator("-", "numeric, numeric", "numeric", decimals.subtract, sqlite="numeric_subtract"),
    operator("*", "numeric, numeric", "numeric", decimals.multiply, sqlite="numeric_multiply"),
    operator("/", "numeric, numeric", "numeric", decimals.divide, sqlite="numeric_divide"),
    operator("%", "numeric, numeric", "numeric", decimals.modulo, sqlite="numeric_modulo"),
    operator("-", "numeric", "numeric", decimals.negate, sqlite="numeric_negate"),
    built("operator", "+", "numeric", "numeric", _itself),
    operator("@", "numeric", "numeric", decimals.absolute, sqlite="numeric_absolute"),
    function("abs", "numeric", "numeric", decimals.absolute, sqlite="numeric_absolute"),
    function("mod", "numeric, numeric", "numeric", decimals.modulo, sqlite="numeric_modulo"),
    function("div", "numeric, numeric", "numeric", decimals.quotient_truncated, sqlite="numeric_div"),
    *(
        function(name, "numeric", "numeric", body, sqlite=f"numeric_{sqlite}")
        for name, sqlite, body in (
            ("floor", "floor", decimals.floor),
            ("ceil", "ceil", decimals.ceiling),
            ("ceiling", "ceil", decimals.ceiling),
            ("sign", "sign", decimals.sign),
            ("trim_scale", "trim_scale", decimals.trimmed),
        )
    ),
    function("scale", "numeric", "int4", decimals.displayed_scale, sqlite="numeric_scale"),
    function("round", "numeric, int4", "numeric", numeric_round, sqlite="numeric_round"),
    function("trunc", "numeric, int4", "numeric", numeric_truncate, sqlite="numeric_truncate"),
    built(
        "function", "round", "numeric", "numeric", lambda t, kind: call("interlock_numeric_round", kind, *t, extra="0")
    ),
    built(
        "function",
        "trunc",
        "numeric",
        "numeric",
        lambda t, kind: call("interlock_numeric_truncate", kind, *t, extra="0"),
    ),
    function("round", "float8", "float8", float_round, sqlite="float8_round"),
    function("sign", "float8", "float8", float_sign, sqlite="float8_sign"),
    function("sqrt", "numeric", "numeric", decimals.square_root, sqlite="numeric_sqrt"),
    function("power", "numeric, numeric", "numeric", decimals.power, sqlite="numeric_power"),
    function("pow", "numeric, numeric", "numeric", decimals.power, sqlite="numeric_power"),
    operator("^", "numeric, numeric", "numeric", decimals.power, sqlite="numeric_power"),
    operator("^", "float8, float8", "float8", power, sqlite="float8_power"),
    function("sqrt", "float8", "float8", square_root, sqlite="float8_sqrt"),
    function("power", "float8, float8", "float8", power, sqlite="float8_power"),
    function("pow", "float8, float8", "float8", power, sqlite="float8_power"),
    *(
        written("function", name, "float8", "float8", f"{sqlite}({{0}})")
        for name, sqlite in (("floor", "floor"), ("ceil", "ceil"), ("ceiling", "ceil"), ("trunc", "trunc"))
    ),
    function("pi", "", "float8", lambda: math.pi),
    *(function("gcd", f"{name}, {name}", name, _gcd, unchecked=name == "int4") for name in ("int4", "int8")),
    *(function("lcm", f"{name}, {name}", name, _lcm, unchecked=name == "int4") for name in ("int4", "int8")),
    function("factorial", "int8", "numeric", _factorial),
    *(
        function(name, kind, "text", _based(digits, bits), sqlite=f"{kind}_{name}")
        for name, digits in (("to_hex", "x"), ("to_oct", "o"), ("to_bin", "b"))
        for kind, bits in (("int8", 64), ("int4", 32))
    ),
    *(
        operator(sign, f"{kind}, int4", kind, body, sqlite=f"{kind}_shift_{word}")
        for kind, bits in (("int4", 32), ("int8", 64))
        for sign, word, body in zip(("<<", ">>"), ("left", "right"), _shifted(bits), strict=True)
    ),
    *(operator("#", f"{kind}, {kind}", kind, _exclusive_or, sqlite="exclusive_or") for kind in _INTEGERS),
    function("gcd", "numeric, numeric", "numeric", _numeric_gcd, sqlite="numeric_gcd"),
    function("lcm", "numeric, numeric", "numeric", _numeric_lcm, sqlite="numeric_lcm"),
    function("min_scale", "numeric", "int4", _min_scale),
    function("width_bucket", "numeric, numeric, numeric, int4", "int4", _bucket),
    function("width_bucket", "float8, float8, float8, int4", "int4", _float_bucket, sqlite="float8_width_bucket"),
    function("degrees", "float8", "float8", _degrees),
    function("radians", "float8", "float8", _radians),
    _plain("random_between", _between, "int8, int8, float8", "int8"),
    *(built("function", "random", f"{kind}, {kind}", kind, _drawn) for kind in ("int4", "int8")),
    operator("|/", "float8", "float8", square_root, sqlite="float8_sqrt"),
    built("cast", "", "numeric", "float8", _numeric_to_float),
    cast("float8", "numeric", float_to_numeric),
    built("cast", "", "bool", "int4", _itself),
    written("cast", "", "int4", "bool", "{0} <> 0"),
)


def _same(value: StoredValue) -> object:
    return value


def _decimal(value: StoredValue) -> object:
    return Decimal(str(value))


CHOICES: Final[tuple[tuple[str, Callable[..., StoredValue]], ...]] = (
    ("interlock_greatest", choosing(max, _same)),
    ("interlock_least", choosing(min, _same)),
    ("interlock_numeric_greatest", choosing(max, _decimal)),
    ("interlock_numeric_least", choosing(min, _decimal)),
)
"""GREATEST and LEAST, which PostgreSQL's catalog does not have."""
