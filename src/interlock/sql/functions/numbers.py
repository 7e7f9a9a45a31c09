"""Numbers: arithmetic, rounding and mathematical functions with PostgreSQL's types, results and errors.

Sums and differences are native and left `unchecked`: their overflow is visible in the result (a float, or outside the
width). Products of bigint are not, because a rounded float product can come back into range; division is not, because
SQLite answers NULL where PostgreSQL raises. Those call functions, unless the divisor is a written positive number.
Functions of floats such as exp and ln are those of the C library, whose last digit may depend on the machine, as on
PostgreSQL. Those of numeric, which PostgreSQL computes by a method of its own, are left out but where they are exact.
"""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import Any, Final

from msgspec.structs import replace

from interlock.sql.functions import decimals
from interlock.sql.registry import Entry, built, cast, function, internal, operator, written
from interlock.sql.scope import Term, call, combined
from interlock.sql.stored_values import StoredValue, numeric_scaled, numeric_text, out_of_range
from interlock.sql.types import INT2, INT4, INT8, INTEGER_RANGE, InvalidValue, Type, refuse

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
        raise InvalidValue("double precision out of range.", fix="Use numeric, or smaller values.")
    return value


def _bigint(value: int) -> int:
    if not _INT8_LOW <= value <= _INT8_HIGH:
        raise out_of_range(INT8)
    return value


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
        raise InvalidValue("double precision out of range: underflow.", fix="Use numeric.")
    return finite(value)


def float_to_numeric(value: float) -> str:
    """Return the float with the fifteen digits that PostgreSQL takes for certain."""
    return numeric_text(Decimal(f"{value:.15g}"))


def square_root(value: float) -> float:
    """Return the square root, which IEEE 754 defines to the last bit."""
    if value < 0:
        raise InvalidValue("the square root of a negative number.", fix="Test its sign first, inside CASE.")
    return math.sqrt(value)


def power(base: float, exponent: float) -> float:
    """Return a power of floats."""
    if base == 0 and exponent < 0:
        raise InvalidValue("zero raised to a negative power is undefined.", fix="Test it first, inside CASE.")
    if base < 0 and not exponent.is_integer():
        raise InvalidValue(
            "a negative number raised to a power that is not whole is complex.", fix="Test its sign first, inside CASE."
        )
    try:
        return _in_range(math.pow(base, exponent), zero=base == 0)
    except OverflowError:
        return finite(math.inf)


def _computed(
    body: Callable[..., float], *, positive: bool = False, poles: tuple[float, ...] | None = None
) -> Callable[..., float]:
    """Return a function of the C library, which PostgreSQL calls, too.

    `positive` says that it is never zero. With `poles` PostgreSQL gives infinity there and on overflow.
    """

    def called(*values: float) -> float:
        try:
            result = math.inf if poles is not None and values[0] in poles else body(*values)
        except OverflowError:
            result = math.inf
        except ValueError:
            raise InvalidValue("input is out of range.", fix="Test it first, inside CASE.") from None
        if poles is not None and math.isinf(result):
            why = "A lane keeps neither NaN nor infinity."
            raise refuse("an infinite result.", why=why, fix="Test the argument first.")
        return _in_range(result, zero=not positive)

    return called


def _cotangent(value: float) -> float:
    return 1.0 / math.tan(value)


_CUBE_ROOT: Final = _computed(math.cbrt)


def _direction(y: float, x: float) -> float:
    if y == 0 and x <= 0:
        why = "The sign of a zero decides here, and a lane's zero has none."
        raise refuse(f"atan2({y:g}, {x:g}).", why=why, fix="Test it first, inside CASE.")
    return math.atan2(y, x)


def _truncate(value: str, scale: int) -> str:
    return decimals.round_to(value, scale, ROUND_DOWN)


def _in_bigint(compute: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda left, right: _bigint(compute(left, right))


def _float_round(value: float) -> float:
    return math.copysign(float(round(value)), value)


def _sign(value: str) -> str:
    return str((Decimal(value) > 0) - (Decimal(value) < 0))


def _factorial(value: int) -> str:
    if value < 0:
        raise InvalidValue("the factorial of a negative number.", fix="Pass zero or more.")
    if value > _FACTORIAL_MAX:
        raise refuse(f"factorial({value}).", fix=f"Stay below {_FACTORIAL_MAX}.")
    return str(math.factorial(value))


_FACTORIAL_MAX: Final = 400


def choosing(best: Callable[..., StoredValue], key: Callable[[Any], object] | None) -> Callable[..., StoredValue]:
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


def _on_digits(compute: Callable[[int, int], int]) -> Callable[[str, str], str]:
    """Return gcd() or lcm() of numeric."""

    def called(left: str, right: str) -> str:
        scale = max(decimals.displayed_scale(left), decimals.displayed_scale(right))
        return numeric_scaled(compute(_unscaled(left, scale), _unscaled(right, scale)), scale)

    return called


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
        raise InvalidValue("width_bucket() with a count that is not greater than zero.", fix="Pass 1 or more.")
    if first == last:
        raise InvalidValue("width_bucket() with equal bounds.", fix="Pass two bounds.")
    rising = first < last
    if number < first if rising else number > first:
        return 0
    found = count if (number >= last if rising else number <= last) else place()
    if found >= INTEGER_RANGE["int4"][1]:
        raise InvalidValue("integer out of range.", fix="Use fewer buckets.")
    return found + 1


def _based(digits: str, bits: int) -> Callable[[int], str]:
    return lambda value: format(value if value >= 0 else value + 2**bits, digits)


def _between(low: int, high: int, fraction: float) -> int:
    """random(low, high), made of a random fraction."""
    if low > high:
        raise InvalidValue(f"random({low}, {high}): the first bound is the greater one.", fix="Exchange them.")
    # 53 bits of chance: a wider range has numbers that never come.
    return min(low + int(fraction * (high - low + 1)), high)


def _drawn(terms: Sequence[Term], result: Type) -> Term:
    return replace(call("interlock_random_between", result, *terms, extra="interlock_random()"), volatile=True)


_RADIANS_PER_DEGREE: Final = 0.0174532925199432957692


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


def _to_whole(name: str) -> Callable[[Sequence[Term], Type], Term]:
    return lambda terms, result: call(name, result, *terms, extra="0")


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


ENTRIES: Final = (
    *_integer_entries(),
    internal("int2", "int8", "int2", ranged(INT2)),
    internal("int4", "int8", "int4", ranged(INT4)),
    internal("int8", "int8", "int8", ranged(INT8)),
    internal("float8", "float8", "float8", finite),
    internal("multiply", "int8, int8", "int8", lambda left, right: _bigint(left * right)),
    internal("divide", "int8, int8", "int8", divide),
    internal("modulo", "int8, int8", "int8", modulo),
    internal("numeric_to_integer", "numeric", "int8", lambda value: _bigint(int(decimals.rounded(Decimal(value), 0)))),
    internal("float8_to_integer", "float8", "int8", lambda value: _bigint(round(value))),
    internal("numeric_to_float8", "numeric", "float8", decimals.to_float),
    internal("numeric_fit", "numeric, int4, int4", "numeric", decimals.fit),
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
    function("div", "numeric, numeric", "numeric", decimals.divide_whole, sqlite="numeric_div"),
    *(
        function(name, "numeric", "numeric", body, sqlite=f"numeric_{sqlite}")
        for name, sqlite, body in (
            ("floor", "floor", decimals.floor),
            ("ceil", "ceil", decimals.ceiling),
            ("ceiling", "ceil", decimals.ceiling),
            ("sign", "sign", _sign),
            ("trim_scale", "trim_scale", decimals.trimmed),
        )
    ),
    function("scale", "numeric", "int4", decimals.displayed_scale, sqlite="numeric_scale"),
    function("round", "numeric, int4", "numeric", decimals.round_to, sqlite="numeric_round"),
    function("trunc", "numeric, int4", "numeric", _truncate, sqlite="numeric_truncate"),
    built("function", "round", "numeric", "numeric", _to_whole("interlock_numeric_round")),
    built("function", "trunc", "numeric", "numeric", _to_whole("interlock_numeric_truncate")),
    function("round", "float8", "float8", _float_round, sqlite="float8_round"),
    function("sign", "float8", "float8", lambda value: float((value > 0) - (value < 0)), sqlite="float8_sign"),
    *(
        declare(name, f"{kind}, {kind}", kind, body, sqlite=f"{kind}_power")
        for kind, body in (("numeric", decimals.power), ("float8", power))
        for declare, name in ((function, "power"), (function, "pow"), (operator, "^"))
    ),
    *(
        function(name, takes, "numeric", body, sqlite=f"numeric_{sqlite}")
        for name, takes, sqlite, body in (
            ("exp", "numeric", "exp", decimals.exponential),
            ("ln", "numeric", "ln", decimals.logarithm),
            ("log", "numeric", "log10", decimals.common_logarithm),
            ("log10", "numeric", "log10", decimals.common_logarithm),
            ("log", "numeric, numeric", "log", decimals.logarithm_of_base),
        )
    ),
    function("sqrt", "numeric", "numeric", decimals.square_root, sqlite="numeric_sqrt"),
    function("sqrt", "float8", "float8", square_root, sqlite="float8_sqrt"),
    operator("|/", "float8", "float8", square_root, sqlite="float8_sqrt"),
    *(
        written("function", name, "float8", "float8", f"{sqlite}({{0}})")
        for name, sqlite in (("floor", "floor"), ("ceil", "ceil"), ("ceiling", "ceil"), ("trunc", "trunc"))
    ),
    operator("||/", "float8", "float8", _CUBE_ROOT, sqlite="float8_cbrt"),
    function("pi", "", "float8", lambda: math.pi),
    *(
        function(name, ", ".join(["float8"] * count), "float8", body, sqlite=f"float8_{name}")
        for name, count, body in (
            ("exp", 1, _computed(math.exp, positive=True)),
            ("ln", 1, _computed(math.log)),
            ("log", 1, _computed(math.log10)),
            ("log10", 1, _computed(math.log10)),
            ("cbrt", 1, _CUBE_ROOT),
            ("sin", 1, _computed(math.sin)),
            ("cos", 1, _computed(math.cos)),
            ("tan", 1, _computed(math.tan)),
            ("cot", 1, _computed(_cotangent, poles=(0.0,))),
            ("asin", 1, _computed(math.asin)),
            ("acos", 1, _computed(math.acos)),
            ("atan", 1, _computed(math.atan)),
            ("atan2", 2, _computed(_direction)),
            ("sinh", 1, _computed(math.sinh, poles=())),
            ("cosh", 1, _computed(math.cosh, poles=())),
            ("tanh", 1, _computed(math.tanh)),
            ("asinh", 1, _computed(math.asinh)),
            ("acosh", 1, _computed(math.acosh)),
            ("atanh", 1, _computed(math.atanh, poles=(1.0, -1.0))),
        )
    ),
    *(
        function(name, f"{kind}, {kind}", kind, _in_bigint(compute), unchecked=kind == "int4")
        for name, compute in (("gcd", math.gcd), ("lcm", math.lcm))
        for kind in ("int4", "int8")
    ),
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
    *(
        operator("#", f"{kind}, {kind}", kind, lambda left, right: left ^ right, sqlite="exclusive_or")
        for kind in _INTEGERS
    ),
    function("gcd", "numeric, numeric", "numeric", _on_digits(math.gcd), sqlite="numeric_gcd"),
    function("lcm", "numeric, numeric", "numeric", _on_digits(math.lcm), sqlite="numeric_lcm"),
    function("min_scale", "numeric", "int4", lambda value: decimals.displayed_scale(decimals.trimmed(value))),
    function("width_bucket", "numeric, numeric, numeric, int4", "int4", _bucket),
    function("width_bucket", "float8, float8, float8, int4", "int4", _float_bucket, sqlite="float8_width_bucket"),
    function("degrees", "float8", "float8", lambda value: float_divide(value, _RADIANS_PER_DEGREE)),
    function("radians", "float8", "float8", lambda value: float_multiply(value, _RADIANS_PER_DEGREE)),
    internal("random_between", "int8, int8, float8", "int8", _between),
    *(built("function", "random", f"{kind}, {kind}", kind, _drawn) for kind in ("int4", "int8")),
    built("cast", "", "numeric", "float8", _numeric_to_float),
    cast("float8", "numeric", float_to_numeric),
    built("cast", "", "bool", "int4", _itself),
    written("cast", "", "int4", "bool", "{0} <> 0"),
)


CHOICES: Final = tuple(
    (f"interlock_{prefix}{word}", choosing(best, key))
    for prefix, key in (("", None), ("numeric_", Decimal))
    for word, best in (("greatest", max), ("least", min))
)
"""GREATEST and LEAST, which PostgreSQL's catalog does not have."""
