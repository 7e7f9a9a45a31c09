"""The functions and the collation that a lane registers on each of its connections.

Translated statements call them where SQLite has no function of that meaning: errors instead of NULL, exact decimals,
PostgreSQL's rounding. They raise `TransactionError`, which apsw hands through. What depends on time or luck is given
by the lane as `Sources`, so that a simulation can repeat it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from interlock.sql import arrays, decimals, documents, documentvalues, literals, patterns, scalars, texts, times
from interlock.sql.accumulators import (
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
)
from interlock.sql.datatypes import INT2, INT4, INT8
from interlock.sql.frames import WINDOW_FUNCTIONS, WindowFunction
from interlock.sql.guards import SameValue, SingleRow, step, upsert_guards
from interlock.sql.values import StoredValue, microseconds


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
    _strict("float8_sign", 1, scalars.float_sign),
    _strict("float8_sqrt", 1, scalars.square_root),
    _strict("float8_power", 2, scalars.power),
    _strict("numeric_sign", 1, decimals.sign),
    _strict("numeric_truncate", 2, scalars.numeric_truncate),
    Function("interlock_greatest", scalars.choosing(max, _itself), ANY_NUMBER),
    Function("interlock_least", scalars.choosing(min, _itself), ANY_NUMBER),
    Function("interlock_numeric_greatest", scalars.choosing(max, _number), ANY_NUMBER),
    Function("interlock_numeric_least", scalars.choosing(min, _number), ANY_NUMBER),
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
    _strict("jsonb_from_text", 1, documentvalues.from_text),
    _strict("jsonb_from_float8", 1, documentvalues.from_float),
    _strict("jsonb_from_timestamptz", 1, documentvalues.from_moment),
    _strict("jsonb_from_array", 1, documents.read),
    _strict("jsonb_to_int2", 1, documentvalues.to_integer("int2")),
    _strict("jsonb_to_int4", 1, documentvalues.to_integer("int4")),
    _strict("jsonb_to_int8", 1, documentvalues.to_integer("int8")),
    _strict("jsonb_to_numeric", 1, documentvalues.to_numeric),
    _strict("jsonb_to_float8", 1, documentvalues.to_float),
    _strict("jsonb_to_bool", 1, documentvalues.to_bool),
    Function("interlock_jsonb_build_array", documentvalues.build_array, ANY_NUMBER),
    Function("interlock_jsonb_build_object", documentvalues.build_object, ANY_NUMBER),
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
    _strict("int2", 1, scalars.ranged(INT2)),
    _strict("int4", 1, scalars.ranged(INT4)),
    _strict("int8", 1, scalars.ranged(INT8)),
    _strict("float8", 1, scalars.finite),
    _strict("multiply", 2, scalars.multiply),
    _strict("divide", 2, scalars.divide),
    _strict("modulo", 2, scalars.modulo),
    _strict("float8_multiply", 2, scalars.float_multiply),
    _strict("float8_divide", 2, scalars.float_divide),
    _strict("float8_round", 1, scalars.float_round),
    _strict("float8_to_integer", 1, scalars.float_to_integer),
    _strict("float8_to_numeric", 1, scalars.float_to_numeric),
    _strict("numeric_add", 2, decimals.add),
    _strict("numeric_subtract", 2, decimals.subtract),
    _strict("numeric_multiply", 2, decimals.multiply),
    _strict("numeric_divide", 2, decimals.divide),
    _strict("numeric_modulo", 2, decimals.modulo),
    _strict("numeric_negate", 1, decimals.negate),
    _strict("numeric_absolute", 1, decimals.absolute),
    _strict("numeric_round", 2, scalars.numeric_round),
    _strict("numeric_floor", 1, decimals.floor),
    _strict("numeric_ceil", 1, decimals.ceiling),
    _strict("numeric_fit", 3, decimals.fit),
    _strict("numeric_to_float8", 1, decimals.to_float),
    _strict("numeric_to_integer", 1, scalars.numeric_to_integer),
    _strict("text_to_int2", 1, scalars.reading_integer(INT2)),
    _strict("text_to_int4", 1, scalars.reading_integer(INT4)),
    _strict("text_to_int8", 1, scalars.reading_integer(INT8)),
    _strict("text_to_numeric", 1, scalars.reading(literals.read_numeric, "numeric")),
    _strict("text_to_float8", 1, scalars.reading(literals.read_float, "float8")),
    _strict("text_to_bool", 1, scalars.reading_bool()),
    _strict("text_to_uuid", 1, scalars.reading(literals.read_uuid, "uuid")),
    _strict("text_to_timestamptz", 1, scalars.reading(literals.read_moment, "timestamptz")),
    _strict("text_to_jsonb", 1, scalars.reading(documents.read, "jsonb")),
    _strict("uuid_to_text", 1, scalars.uuid_to_text),
    _strict("float8_to_text", 1, texts.from_float),
    _strict("bytea_to_text", 1, texts.from_bytes),
    _strict("timestamptz_to_text", 1, times.moment_text),
    _strict("jsonb_to_text", 1, documents.read),
    _strict("varchar", 2, scalars.varchar),
    _strict("lower", 1, scalars.lower),
    _strict("upper", 1, scalars.upper),
    _strict("like", 3, patterns.like),
    _strict("ilike", 3, patterns.ilike),
    *_NUMBERS,
    *_TEXTS,
    *_TIMES,
    *_DOCUMENTS,
    *_ARRAYS,
    _strict("step", 1, step),
    Function("interlock_limit", scalars.limit, 1),
    Function("interlock_offset", scalars.offset, 1),
)
