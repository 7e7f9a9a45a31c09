"""The functions and the collation that a lane registers on each of its connections.

Translated statements call them where SQLite has no function of that meaning: errors instead of NULL, exact decimals,
PostgreSQL's rounding. They raise `TransactionError`, which apsw hands through. Functions of time or chance come from
the lane as `Sources`, so that a simulation can repeat them.

Sections: scalar functions, guards, registration.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, TypeVar, cast
from uuid import UUID

from interlock.errors import DialectError, TransactionError
from interlock.sql import casts
from interlock.sql.functions import arrays, decimals, documents, texts, times
from interlock.sql.functions.accumulators import (
    WINDOW_FUNCTIONS,
    Accumulator,
    Collection,
    DocumentArray,
    DocumentObject,
    FloatAverage,
    FloatSum,
    IntegerAverage,
    IntegerSum,
    NumericAverage,
    NumericSum,
    TextJoin,
    WindowFunction,
)
from interlock.sql.types import INT2, INT4, INT8, INTEGER_RANGE, PLAIN_TYPES, Name, Type, refuse
from interlock.sql.values import NUMERIC_DIGITS_MAX, StoredValue, microseconds, numeric_text, out_of_range

# --- Scalar functions ------------------------------------------------------------------------------------------------
# Each takes stored values and returns a stored value, or raises the error that PostgreSQL raises. None of them
# receives NULL: the registration makes them strict, as their counterparts in PostgreSQL are.

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
            casts.refuse_wider(text, name, error)
            what = f"invalid input for type {PLAIN_TYPES[name]}: {text[:40]!r}."
            raise TransactionError(what, fix="Correct the text.") from error

    return cast


def reading_integer(kind: Type) -> Callable[[str], int]:
    """The cast from text to a whole number."""
    return reading(lambda text: casts.read_integer(text, kind), kind.name)


def reading_bool() -> Callable[[str], int]:
    """The cast from text to boolean."""
    return reading(lambda text: int(casts.read_bool(text)), "bool")


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


# --- Guards, which raise where PostgreSQL raises or where its result would be arbitrary ------------------------------
# A subquery as a value may give one row; an upsert may touch a row once; a row that UPDATE … FROM finds twice must
# be given the same values twice. SQLite would go on silently in all three. A series does not stand still.


class SingleRow:
    """The value of a subquery that must not give a second row; NULL without any."""

    def __init__(self) -> None:
        self._value: StoredValue = None
        self._count = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self._count += 1
        if self._count > 1:
            raise TransactionError(
                "a subquery as a value gave more than one row.",
                why="A value is one row of one column; PostgreSQL refuses it, too.",
                fix="Ask for the whole primary key, use an aggregate, or add LIMIT 1.",
            )
        [self._value] = values

    def final(self) -> StoredValue:
        """The value."""
        return self._value


class SameValue:
    """The value that all source rows of one target row must agree on."""

    def __init__(self) -> None:
        self._value: StoredValue = None
        self._count = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        self._count += 1
        if self._count > 1 and (type(value) is not type(self._value) or value != self._value):
            raise DialectError(
                f"UPDATE … FROM found several rows for one row, with different values: {self._value!r} and {value!r}.",
                why="PostgreSQL would take any of them.",
                fix="Join by a key, or take one of them in a subquery: SET a = (SELECT … ORDER BY … LIMIT 1).",
            )
        self._value = value

    def final(self) -> StoredValue:
        """The value."""
        return self._value


class Upserts:
    """The keys that one INSERT … ON CONFLICT DO UPDATE has proposed so far. One statement runs at a time."""

    def __init__(self) -> None:
        self._number = 0
        self._seen: set[tuple[StoredValue, ...]] = set()

    def begin(self) -> StoredValue:
        """Called once per statement."""
        self._number += 1
        self._seen = set()
        return self._number

    def propose(
        self, number: StoredValue, conditional: StoredValue, kinds: StoredValue, *key: StoredValue
    ) -> StoredValue:
        """Note the key of one row and give its first column back; a key that was proposed before raises."""
        assert number == self._number
        if None not in key:
            assert isinstance(kinds, str)
            compared = tuple(
                _decimal_key(str(value)) if kind == "n" else value for kind, value in zip(kinds, key, strict=True)
            )
            if compared in self._seen:
                raise _second_time(key, conditional=bool(conditional))
            self._seen.add(compared)
        return key[0]


def _decimal_key(text: str) -> str:
    """The same text for equal numbers, whatever zeros they end in."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _second_time(key: tuple[StoredValue, ...], *, conditional: bool) -> Exception:
    shown = ", ".join(map(repr, key))
    if conditional:
        return DialectError(
            f"ON CONFLICT DO UPDATE … WHERE was given two rows with the key {shown}.",
            why="Whether PostgreSQL refuses the second one depends on whether the first one changed anything.",
            fix="Give each key once per statement.",
        )
    return TransactionError(
        f"ON CONFLICT DO UPDATE was given two rows with the key {shown}.",
        why="A statement changes a row once; PostgreSQL refuses it, too.",
        fix="Give each key once per statement.",
    )


def step(value: StoredValue) -> StoredValue:
    """The step of a series, which must not be zero."""
    if value == 0:
        raise TransactionError("generate_series() by steps of zero.", why="It would never end.", fix="Use 1 or -1.")
    return value


Guard = tuple[str, Callable[..., StoredValue], int]


def upsert_guards() -> tuple[Guard, ...]:
    """The functions for one connection: name, function, number of arguments. They count, so none is deterministic."""
    upserts = Upserts()
    return (
        ("interlock_begin_upsert", upserts.begin, 0),
        ("interlock_propose", upserts.propose, -1),
    )


# --- Registration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sources:
    """The lane's sources: the transaction's time (fixed within one transaction), random numbers in [0, 1), new ids."""

    now: Callable[[], datetime]
    random: Callable[[], float]
    uuid: Callable[[], UUID]


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function: `apsw.Connection.create_scalar_function(name, call, arguments, deterministic=…)`."""

    name: str
    call: Callable[..., StoredValue]
    arguments: int
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate function: `apsw.Connection.create_aggregate_function(name, make, arguments)`."""

    name: str
    make: Callable[[], Accumulator]
    arguments: int = 1


@dataclass(frozen=True, slots=True)
class Collation:
    """One collation: `apsw.Connection.create_collation(name, compare)`."""

    name: str
    compare: Callable[[str, str], int]


def scalar_functions(sources: Sources) -> tuple[Function, ...]:
    """Everything to register as a scalar function."""
    return (
        *_PURE,
        *(Function(name, call, arguments, deterministic=False) for name, call, arguments in upsert_guards()),
        Function("interlock_now", lambda: microseconds(sources.now()), 0, deterministic=False),
        Function("interlock_random", sources.random, 0, deterministic=False),
        Function("interlock_uuid", lambda: sources.uuid().bytes, 0, deterministic=False),
    )


def aggregate_functions() -> tuple[Aggregate, ...]:
    """Everything to register as an aggregate."""
    return (
        Aggregate("interlock_sum_integer", IntegerSum),
        Aggregate("interlock_avg_integer", IntegerAverage),
        Aggregate("interlock_sum_numeric", NumericSum),
        Aggregate("interlock_avg_numeric", NumericAverage),
        Aggregate("interlock_sum_float8", FloatSum),
        Aggregate("interlock_avg_float8", FloatAverage),
        Aggregate("interlock_string_agg", TextJoin, 2),
        Aggregate("interlock_array_agg", Collection),
        Aggregate("interlock_jsonb_agg", DocumentArray),
        Aggregate("interlock_jsonb_object_agg", DocumentObject, 2),
        Aggregate("interlock_single", SingleRow),
        Aggregate("interlock_same", SameValue),
    )


def window_functions() -> tuple[WindowFunction, ...]:
    """Everything to register as a window function."""
    return WINDOW_FUNCTIONS


def collations() -> tuple[Collation, ...]:
    """Everything to register as a collation."""
    return (Collation("interlock_numeric", decimals.compare),)


def _strict(name: str, arguments: int, function: Callable[..., StoredValue]) -> Function:
    """A function that gives NULL for NULL, as nearly all of PostgreSQL's do."""

    def call(*values: StoredValue) -> StoredValue:
        return None if None in values else function(*values)

    return Function(f"interlock_{name}", call, arguments)


def _itself(value: StoredValue) -> object:
    return value


def _number(value: StoredValue) -> object:
    return Decimal(str(value))


ANY_NUMBER: Final = -1  # Of arguments.


def _items(text: str) -> list[StoredValue]:
    return cast("list[StoredValue]", json.loads(text))


def _of_array(function: Callable[..., StoredValue], *, empty: bool = False) -> Callable[..., StoredValue]:
    """A function on the elements of an array, whose further arguments may be NULL."""

    def call(array: StoredValue, *values: StoredValue) -> StoredValue:
        if array is None and not empty:
            return None
        return function([] if array is None else _items(cast("str", array)), *values)

    return call


def _contains(left: str, right: str) -> int:
    return arrays.contains(_items(left), _items(right))


_NUMBERS: Final = (
    _strict("float8_sign", 1, float_sign),
    _strict("float8_sqrt", 1, square_root),
    _strict("float8_power", 2, power),
    _strict("numeric_sign", 1, decimals.sign),
    _strict("numeric_truncate", 2, numeric_truncate),
    Function("interlock_greatest", choosing(max, _itself), ANY_NUMBER),
    Function("interlock_least", choosing(min, _itself), ANY_NUMBER),
    Function("interlock_numeric_greatest", choosing(max, _number), ANY_NUMBER),
    Function("interlock_numeric_least", choosing(min, _number), ANY_NUMBER),
)
_TEXTS: Final = (
    _strict("left", 2, texts.left),
    _strict("md5", 1, texts.md5),
    _strict("octet_length", 1, texts.octet_length),
    _strict("pad_left", 2, texts.pad_left),
    _strict("pad_left_with", 3, texts.pad_left),
    _strict("pad_right", 2, texts.pad_right),
    _strict("pad_right_with", 3, texts.pad_right),
    _strict("position", 2, texts.position),
    _strict("repeat", 2, texts.repeat),
    _strict("replace", 3, texts.replace),
    _strict("reverse", 1, texts.reverse),
    _strict("right", 2, texts.right),
    _strict("split_part", 3, texts.split_part),
    _strict("starts_with", 2, texts.starts_with),
    _strict("substring", 3, texts.substring),
    _strict("substring_from", 2, texts.substring),
    _strict("trim", 1, texts.trim),
    _strict("trim_of", 2, texts.trim),
    _strict("trim_left", 1, texts.trim_left),
    _strict("trim_left_of", 2, texts.trim_left),
    _strict("trim_right", 1, texts.trim_right),
    _strict("trim_right_of", 2, texts.trim_right),
    Function("interlock_concat", texts.concat, ANY_NUMBER),
    Function("interlock_concat_ws", texts.concat_ws, ANY_NUMBER),
)
_TIMES: Final = (
    _strict("time_add", 2, times.add),
    _strict("time_subtract", 2, times.subtract),
    _strict("time_difference", 2, times.difference),
    _strict("time_part", 2, times.part),
    _strict("time_truncate", 2, times.truncate),
    _strict("time_from_epoch", 1, times.from_epoch),
    _strict("interval_add", 2, times.plus),
    _strict("interval_subtract", 2, times.minus),
    _strict("interval_negate", 1, times.negate),
    _strict("interval_multiply", 2, times.multiply),
    _strict("interval_divide", 2, times.divide),
    _strict("interval_key", 1, times.interval_key),
    _strict("interval_part", 2, times.interval_part),
)
_DOCUMENTS: Final = (
    _strict("jsonb_member", 2, documents.member),
    _strict("jsonb_member_text", 2, documents.member_text),
    _strict("jsonb_item", 2, documents.item),
    _strict("jsonb_item_text", 2, documents.item_text),
    _strict("jsonb_inside", 2, documents.inside),
    _strict("jsonb_inside_text", 2, documents.inside_text),
    _strict("jsonb_contains", 2, documents.contains),
    _strict("jsonb_has_key", 2, documents.has_key),
    _strict("jsonb_has_any", 2, documents.has_any),
    _strict("jsonb_has_all", 2, documents.has_all),
    _strict("jsonb_key", 1, documents.key),
    _strict("jsonb_typeof", 1, documents.typeof),
    _strict("jsonb_array_length", 1, documents.array_length),
    _strict("jsonb_join", 2, documents.join),
    _strict("jsonb_remove", 2, documents.remove),
    _strict("jsonb_remove_item", 2, documents.remove_item),
    _strict("jsonb_remove_path", 2, documents.remove_path),
    _strict("jsonb_set", 4, documents.place),
    _strict("jsonb_strip_nulls", 1, documents.strip_nulls),
    _strict("jsonb_from_text", 1, documents.from_text),
    _strict("jsonb_from_float8", 1, documents.from_float),
    _strict("jsonb_from_timestamptz", 1, documents.from_moment),
    _strict("jsonb_from_array", 1, documents.read),
    _strict("jsonb_to_int2", 1, documents.to_integer("int2")),
    _strict("jsonb_to_int4", 1, documents.to_integer("int4")),
    _strict("jsonb_to_int8", 1, documents.to_integer("int8")),
    _strict("jsonb_to_numeric", 1, documents.to_numeric),
    _strict("jsonb_to_float8", 1, documents.to_float),
    _strict("jsonb_to_bool", 1, documents.to_bool),
    Function("interlock_jsonb_build_array", documents.build_array, ANY_NUMBER),
    Function("interlock_jsonb_build_object", documents.build_object, ANY_NUMBER),
)
_ARRAYS: Final = (
    Function("interlock_array", arrays.make, ANY_NUMBER),
    Function("interlock_member", arrays.membership(_items, numeric=False), 2),
    Function("interlock_numeric_member", arrays.membership(_items, numeric=True), 2),
    Function("interlock_array_append", _of_array(arrays.appended, empty=True), 2),
    Function("interlock_array_element", _of_array(arrays.element), 2),
    Function("interlock_array_length", _of_array(arrays.length), 2),
    Function("interlock_array_position", _of_array(arrays.position), 2),
    Function("interlock_array_remove", _of_array(arrays.without), 2),
    _strict("array_contains", 2, _contains),
    Function("interlock_array_join", arrays.joined, 2),
    Function("interlock_join_items", arrays.join_items, 2),
    Function("interlock_array_zip", arrays.zipped, ANY_NUMBER),
)
_PURE: Final = (
    _strict("int2", 1, ranged(INT2)),
    _strict("int4", 1, ranged(INT4)),
    _strict("int8", 1, ranged(INT8)),
    _strict("float8", 1, finite),
    _strict("multiply", 2, multiply),
    _strict("divide", 2, divide),
    _strict("modulo", 2, modulo),
    _strict("float8_multiply", 2, float_multiply),
    _strict("float8_divide", 2, float_divide),
    _strict("float8_round", 1, float_round),
    _strict("float8_to_integer", 1, float_to_integer),
    _strict("float8_to_numeric", 1, float_to_numeric),
    _strict("numeric_add", 2, decimals.add),
    _strict("numeric_subtract", 2, decimals.subtract),
    _strict("numeric_multiply", 2, decimals.multiply),
    _strict("numeric_divide", 2, decimals.divide),
    _strict("numeric_modulo", 2, decimals.modulo),
    _strict("numeric_negate", 1, decimals.negate),
    _strict("numeric_absolute", 1, decimals.absolute),
    _strict("numeric_round", 2, numeric_round),
    _strict("numeric_floor", 1, decimals.floor),
    _strict("numeric_ceil", 1, decimals.ceiling),
    _strict("numeric_fit", 3, decimals.fit),
    _strict("numeric_to_float8", 1, decimals.to_float),
    _strict("numeric_to_integer", 1, numeric_to_integer),
    _strict("text_to_int2", 1, reading_integer(INT2)),
    _strict("text_to_int4", 1, reading_integer(INT4)),
    _strict("text_to_int8", 1, reading_integer(INT8)),
    _strict("text_to_numeric", 1, reading(casts.read_numeric, "numeric")),
    _strict("text_to_float8", 1, reading(casts.read_float, "float8")),
    _strict("text_to_bool", 1, reading_bool()),
    _strict("text_to_uuid", 1, reading(casts.read_uuid, "uuid")),
    _strict("text_to_timestamptz", 1, reading(casts.read_moment, "timestamptz")),
    _strict("text_to_jsonb", 1, reading(documents.read, "jsonb")),
    _strict("uuid_to_text", 1, uuid_to_text),
    _strict("float8_to_text", 1, texts.from_float),
    _strict("bytea_to_text", 1, texts.from_bytes),
    _strict("timestamptz_to_text", 1, times.moment_text),
    _strict("jsonb_to_text", 1, documents.read),
    _strict("varchar", 2, varchar),
    _strict("lower", 1, lower),
    _strict("upper", 1, upper),
    _strict("like", 3, texts.like),
    _strict("ilike", 3, texts.ilike),
    *_NUMBERS,
    *_TEXTS,
    *_TIMES,
    *_DOCUMENTS,
    *_ARRAYS,
    _strict("step", 1, step),
    Function("interlock_limit", limit, 1),
    Function("interlock_offset", offset, 1),
)
