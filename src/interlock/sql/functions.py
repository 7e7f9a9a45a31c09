"""The functions and the collation that a lane registers on each of its connections.

Translated statements call them where SQLite has no function of that meaning: errors instead of NULL, exact decimals,
PostgreSQL's rounding. They raise `TransactionError`, which apsw hands through. What depends on time or luck is given
by the lane as `Sources`, so that a simulation can repeat it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from interlock.sql import decimals, literals, patterns, scalars
from interlock.sql.accumulators import (
    Accumulator,
    FloatAverage,
    FloatSum,
    IntegerAverage,
    IntegerSum,
    NumericAverage,
    NumericSum,
)
from interlock.sql.datatypes import INT2, INT4, INT8
from interlock.sql.frames import WINDOW_FUNCTIONS, WindowFunction
from interlock.sql.guards import SameValue, SingleRow, step, upsert_guards
from interlock.sql.values import StoredValue, microseconds


@dataclass(frozen=True, slots=True)
class Sources:
    """What the lane provides: the transaction's time (fixed within one transaction), chance in [0, 1), new ids."""

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
    _strict("uuid_to_text", 1, scalars.uuid_to_text),
    _strict("varchar", 2, scalars.varchar),
    _strict("lower", 1, scalars.lower),
    _strict("upper", 1, scalars.upper),
    _strict("like", 3, patterns.like),
    _strict("step", 1, step),
    Function("interlock_limit", scalars.limit, 1),
    Function("interlock_offset", scalars.offset, 1),
)
