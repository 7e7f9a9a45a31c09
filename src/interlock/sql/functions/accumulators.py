"""Aggregates with PostgreSQL's results: exact sums, averages and spreads of numbers, ordered sets, collections.

SQLite's own sum overflows where PostgreSQL widens to numeric, its average is a float, and its sum of floats is
compensated, which PostgreSQL's is not. NULLs are left out, and a group without any value gives NULL. An aggregate is
either a fold, which keeps a state, or a collection, which keeps every argument of every row.
"""

import math
import operator
from collections import Counter, deque
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from interlock.sql.functions import decimals, documents, times
from interlock.sql.registry import Accumulator, Entry, aggregate
from interlock.sql.stored_values import StoredValue, array_text, numeric_text
from interlock.sql.types import InvalidValue


class Fold:
    """A state to which each value is added; the result is made of it and of the number of values."""

    def __init__(
        self, start: object, add: Callable[[Any, Any], object], finish: Callable[[Any, int], StoredValue]
    ) -> None:
        self._state, self._add, self._finish = start, add, finish
        self._count = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            self._count += 1
            self._state = self._add(self._state, value)

    def final(self) -> StoredValue:
        """Return the result of the group."""
        return self._finish(self._state, self._count) if self._count else None


class Collection:
    """The arguments of all rows, one row after the other."""

    def __init__(self, finish: Callable[[list[Any]], StoredValue]) -> None:
        self._values: list[StoredValue] = []
        self._finish = finish

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self._values.extend(values)

    def final(self) -> StoredValue:
        """Return the result of the group."""
        return self._finish(self._values) if self._values else None


# --- Sums, averages and spreads --------------------------------------------------------------------------------------


def _state(state: StoredValue, _: int) -> StoredValue:
    return state


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidValue("double precision out of range.", fix="Use numeric, or smaller values.")
    return value


def _average(total: int | str, count: int) -> str:
    return decimals.divide(str(total), str(count))


def _add_squared(state: tuple[str, str], value: StoredValue) -> tuple[str, str]:
    text = str(value)
    return decimals.add(state[0], text), decimals.add(state[1], decimals.multiply(text, text))


def _add_deviation(state: tuple[float, float, float], value: float) -> tuple[float, float, float]:
    """PostgreSQL's `float8_accum`, from the count, the total and the squares of deviations."""
    before, total, squares = state[0], state[1] + value, state[2]
    if before > 0:
        rest = value * (before + 1.0) - total
        squares += rest * rest / ((before + 1.0) * before)
    return before + 1.0, total, squares


def _float_average(state: tuple[float, float, float], count: int) -> float:
    """Return the average. PostgreSQL also computes the squares, and raises if they overflow."""
    _finite(state[2])
    return _finite(state[1]) / count


def _spread(state: tuple[str, str], count: int, *, is_sample: bool, is_root: bool) -> str | None:
    """Return the variance or its root, with the scale of PostgreSQL's `numeric_stddev_internal`."""
    total, squares = state
    if count <= is_sample:
        return None
    product = decimals.multiply(total, total)
    rest = Decimal(decimals.subtract(decimals.multiply(str(count), squares), product))
    if rest <= 0:
        return "0"
    variance = decimals.divide(f"{rest:f}", str(count * (count - is_sample)))
    return numeric_text(decimals.root(Decimal(variance), decimals.displayed_scale(variance))) if is_root else variance


def _float_spread(state: tuple[float, float, float], count: int, *, is_sample: bool, is_root: bool) -> float | None:
    if count <= is_sample:
        return None
    _finite(state[1])
    variance = _finite(state[2]) / (count - is_sample)
    return math.sqrt(variance) if is_root else variance


def _extreme(sign: int) -> Callable[[], Accumulator]:
    """Return min or max of numeric: of equal ones with different scales PostgreSQL keeps the one that came last."""

    def choose(known: str | None, value: str) -> str:
        return value if known is None or sign * decimals.compare(known, value) <= 0 else known

    return partial(Fold, None, choose, _state)


SUMS: Final[dict[str, Callable[[], Accumulator]]] = {
    "sum_integer": partial(Fold, 0, operator.add, lambda total, _: str(total)),
    "avg_integer": partial(Fold, 0, operator.add, _average),
    "sum_numeric": partial(Fold, "0", decimals.add, _state),
    "avg_numeric": partial(Fold, "0", decimals.add, _average),
    # Added up in the order of the rows, as PostgreSQL does. A sum that was infinite stays so, or becomes no number.
    "sum_float8": partial(Fold, 0.0, operator.add, lambda total, _: _finite(total)),
    "avg_float8": partial(Fold, (0.0, 0.0, 0.0), _add_deviation, _float_average),
    "sum_interval": partial(Fold, "0 0 0", times.plus, _state),
    "avg_interval": partial(Fold, "0 0 0", times.plus, times.divide),
    "min_numeric": _extreme(-1),
    "max_numeric": _extreme(1),
}


# --- Ordered sets and collections ------------------------------------------------------------------------------------
# SQLite gives the values of an ordered set in the order of WITHIN GROUP; the fraction is the same for all rows.


def _percentile(
    take: Callable[[list[Any], float], StoredValue],
) -> Callable[[], Accumulator]:
    def finish(values: list[Any]) -> StoredValue:
        fraction = cast("float | None", values[1])
        if fraction is not None and not 0 <= fraction <= 1:
            raise InvalidValue(f"percentile value {fraction} is not between 0 and 1.", fix="Pass 0.5, say.")
        known = [value for value in values[::2] if value is not None]
        return take(known, fraction) if known and fraction is not None else None

    return partial(Collection, finish)


def _between(values: list[float], fraction: float) -> float:
    place = fraction * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low if place.is_integer() else low + (place - math.floor(place)) * (high - low)


def _discrete(values: list[StoredValue], fraction: float) -> StoredValue:
    """Return the first value at or after the fraction."""
    return values[max(0, math.ceil(fraction * len(values)) - 1)]


def _most_frequent(values: list[StoredValue]) -> StoredValue:
    """Return the value that is there most often, of several the first one."""
    counts = Counter(value for value in values if value is not None)
    return max(counts, key=counts.__getitem__) if counts else None


def _joined(values: list[Any], empty: str | bytes) -> StoredValue:
    """Return each text after its separator, but for the first one."""
    parts: list[Any] = []
    arguments = iter(values)
    for text, separator in zip(arguments, arguments, strict=True):
        if text is not None:
            parts += [separator, text] if parts and separator is not None else [text]
    return empty.join(parts) if parts else None


# --- Aggregates of moving frames -------------------------------------------------------------------------------------
# PostgreSQL starts an aggregate of floats anew when rows leave its frame, and gives exact results for the others; so
# the rows of the frame are kept, and what is taken back is summed up again from them. A frame that only grows never
# does so.


class Frame(Accumulator, Protocol):
    """The state of one aggregate over the frame of a window."""

    def inverse(self, *values: StoredValue) -> None:
        """Give back the row that was taken first."""
        ...

    def value(self) -> StoredValue:
        """Return the result of the frame as it is."""
        ...


class MovingAggregate:
    """An aggregate that keeps what it has taken."""

    def __init__(self, make: Callable[[], Accumulator]) -> None:
        self._make = make
        self._taken: deque[tuple[StoredValue, ...]] = deque()
        self._state = make()
        self._is_stale = False

    def step(self, *values: StoredValue) -> None:
        """Take one row more."""
        self._taken.append(values)
        if not self._is_stale:
            self._state.step(*values)

    def inverse(self, *_: StoredValue) -> None:
        """Give back the row that was taken first."""
        self._taken.popleft()
        self._is_stale = True

    def value(self) -> StoredValue:
        """Return the result of the frame as it is."""
        if self._is_stale:
            self._state = self._make()
            for values in self._taken:
                self._state.step(*values)
            self._is_stale = False
        return self._state.final()

    final = value


class WindowFunction(NamedTuple):
    """One window function: `apsw.Connection.create_window_function(name, make, arguments)`."""

    name: str
    make: Callable[[], Frame]
    arguments: int = 1


WINDOW_FUNCTIONS: Final = tuple(
    WindowFunction(f"interlock_window_{name}", partial(MovingAggregate, make)) for name, make in SUMS.items()
)


# --- Entries ---------------------------------------------------------------------------------------------------------
# count, min, max and the like are SQLite's own: `aggregates` builds them.

_INTEGERS: Final = ("int2", "int4", "int8")


def _number_entries(kind: str) -> tuple[Entry, ...]:
    form = "integer" if kind in _INTEGERS else kind
    total = {"int2": "int8", "int4": "int8", "float8": "float8"}.get(kind, "numeric")
    return (
        aggregate("sum", kind, total, SUMS[f"sum_{form}"], sqlite=f"sum_{form}"),
        aggregate("avg", kind, "float8" if kind == "float8" else "numeric", SUMS[f"avg_{form}"], sqlite=f"avg_{form}"),
    )


def _spread_entries(name: str, *, is_sample: bool, is_root: bool) -> tuple[Entry, ...]:
    exact = partial(Fold, ("0", "0"), _add_squared, partial(_spread, is_sample=is_sample, is_root=is_root))
    floats = partial(
        Fold, (0.0, 0.0, 0.0), _add_deviation, partial(_float_spread, is_sample=is_sample, is_root=is_root)
    )
    return (
        *(aggregate(name, kind, "numeric", exact, sqlite=f"{name}_numeric") for kind in (*_INTEGERS, "numeric")),
        aggregate(name, "float8", "float8", floats, sqlite=f"{name}_float8"),
    )


_BITS: Final[dict[str, tuple[int, Callable[[int, int], int]]]] = {
    "bit_and": (-1, int.__and__),
    "bit_or": (0, int.__or__),
    "bit_xor": (0, int.__xor__),
}

ENTRIES: Final[tuple[Entry, ...]] = (
    *(entry for kind in (*_INTEGERS, "numeric", "float8") for entry in _number_entries(kind)),
    aggregate("sum", "interval", "interval", SUMS["sum_interval"], sqlite="sum_interval"),
    aggregate("avg", "interval", "interval", SUMS["avg_interval"], sqlite="avg_interval"),
    *_spread_entries("stddev", is_sample=True, is_root=True),
    *_spread_entries("stddev_samp", is_sample=True, is_root=True),
    *_spread_entries("stddev_pop", is_sample=False, is_root=True),
    *_spread_entries("variance", is_sample=True, is_root=False),
    *_spread_entries("var_samp", is_sample=True, is_root=False),
    *_spread_entries("var_pop", is_sample=False, is_root=False),
    *(
        aggregate(name, kind, kind, partial(Fold, start, join, _state))
        for name, (start, join) in _BITS.items()
        for kind in _INTEGERS
    ),
    aggregate(
        "any_value",
        "anyelement",
        "anyelement",
        partial(Fold, None, lambda known, new: new if known is None else known, _state),
    ),
    aggregate("percentile_cont", "float8, float8", "float8", _percentile(_between)),
    aggregate("percentile_disc", "float8, anyelement", "anyelement", _percentile(_discrete)),
    aggregate("mode", "anyelement", "anyelement", partial(Collection, _most_frequent)),
    aggregate("string_agg", "text, text", "text", partial(Collection, partial(_joined, empty=""))),
    aggregate(
        "string_agg",
        "bytea, bytea",
        "bytea",
        partial(Collection, partial(_joined, empty=b"")),
        sqlite="string_agg_bytes",
    ),
    aggregate("array_agg", "anynonarray", "anyarray", partial(Collection, array_text)),
    aggregate("jsonb_agg", "anyelement", "jsonb", partial(Collection, lambda values: documents.build_array(*values))),
    aggregate("json_agg", "anyelement", "json", partial(Collection, lambda values: documents.build_array(*values))),
    aggregate(
        "jsonb_object_agg", "any, any", "jsonb", partial(Collection, lambda values: documents.build_object(*values))
    ),
    aggregate(
        "json_object_agg",
        "any, any",
        "json",
        partial(Collection, lambda values: f"{{ {documents.json_object(*values)[1:-1]} }}"),
    ),
)
