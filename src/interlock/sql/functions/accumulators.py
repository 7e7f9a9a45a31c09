"""Aggregates with PostgreSQL's results: exact sums, averages and spreads of numbers, ordered sets, collections.

SQLite's own sum overflows where PostgreSQL widens to numeric, its average is a float, and its sum of floats is
compensated, which PostgreSQL's is not. NULLs are left out, and a group without any value gives NULL.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from interlock.errors import TransactionError
from interlock.sql.functions import decimals, documents
from interlock.sql.registry import Accumulator, Entry, aggregate
from interlock.sql.values import StoredValue, array_text, numeric_text


class IntegerSum:
    """sum(bigint): a numeric, so it never overflows."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            assert isinstance(value, int)
            self.count += 1
            self.total += value

    def final(self) -> StoredValue:
        """The sum, as stored."""
        return str(self.total) if self.count else None


class IntegerAverage(IntegerSum):
    """avg of whole numbers: a numeric."""

    def final(self) -> StoredValue:
        """The average, as stored."""
        return decimals.divide(str(self.total), str(self.count)) if self.count else None


class NumericSum:
    """sum(numeric)."""

    def __init__(self) -> None:
        self.count = 0
        self.total = "0"

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            assert isinstance(value, str)
            self.count += 1
            self.total = decimals.add(self.total, value)

    def final(self) -> StoredValue:
        """The sum, as stored."""
        return self.total if self.count else None


class NumericAverage(NumericSum):
    """avg(numeric)."""

    def final(self) -> StoredValue:
        """The average, as stored."""
        return decimals.divide(self.total, str(Decimal(self.count))) if self.count else None


class FloatSum:
    """sum(double precision): added up in the order of the rows, as PostgreSQL does."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            assert isinstance(value, float)
            self.count += 1
            self.total += value
            if not math.isfinite(self.total):
                raise TransactionError("double precision out of range.", fix="Use numeric, or smaller values.")

    def final(self) -> StoredValue:
        """The sum."""
        return self.total if self.count else None


class FloatAverage(FloatSum):
    """avg(double precision)."""

    def final(self) -> StoredValue:
        """The average."""
        return self.total / self.count if self.count else None


class NumberSpread:
    """stddev() and variance() of whole numbers and numerics: exact sums of the values and of their squares."""

    def __init__(self, *, is_sample: bool, is_root: bool) -> None:
        self._is_sample, self._is_root = is_sample, is_root
        self._count = 0
        self._total = self._squares = "0"

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            text = str(value)
            self._count += 1
            self._total = decimals.add(self._total, text)
            self._squares = decimals.add(self._squares, decimals.multiply(text, text))

    def final(self) -> StoredValue:
        """The variance or its root, with the scale of PostgreSQL's `numeric_stddev_internal`."""
        count = self._count
        if count <= self._is_sample:
            return None
        product = decimals.multiply(self._total, self._total)
        rest = Decimal(decimals.subtract(decimals.multiply(str(count), self._squares), product))
        if rest <= 0:
            return "0"
        divisor = count * (count - self._is_sample)
        variance = decimals.divide(f"{rest:f}", str(divisor))
        if not self._is_root:
            return variance
        return numeric_text(decimals.root(Decimal(variance), decimals.displayed_scale(variance)))


class FloatSpread:
    """stddev() and variance() of floats, by the steps of PostgreSQL's `float8_accum`."""

    def __init__(self, *, is_sample: bool, is_root: bool) -> None:
        self._is_sample, self._is_root = is_sample, is_root
        self._count = self._total = self._squares = 0.0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is None:
            return
        assert isinstance(value, float)
        before, self._count = self._count, self._count + 1.0
        self._total += value
        if before > 0:
            rest = value * self._count - self._total
            self._squares += rest * rest / (self._count * before)
        if not math.isfinite(self._total) or not math.isfinite(self._squares):
            raise TransactionError("double precision out of range.", fix="Use numeric, or smaller values.")

    def final(self) -> StoredValue:
        """The variance or its root."""
        if self._count <= self._is_sample:
            return None
        variance = self._squares / (self._count - self._is_sample)
        return math.sqrt(variance) if self._is_root else variance


class FirstValue:
    """any_value(): the first value that is not NULL."""

    def __init__(self) -> None:
        self._value: StoredValue = None

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        if self._value is None:
            [self._value] = values

    def final(self) -> StoredValue:
        """The value."""
        return self._value


class Bits:
    """bit_and(), bit_or() and bit_xor() of whole numbers."""

    def __init__(self, join: Callable[[int, int], int]) -> None:
        self._join = join
        self._value: int | None = None

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is not None:
            assert isinstance(value, int)
            self._value = value if self._value is None else self._join(self._value, value)

    def final(self) -> StoredValue:
        """The bits."""
        return self._value


# --- Ordered sets ----------------------------------------------------------------------------------------------------
# SQLite gives the values in the order of WITHIN GROUP; the fraction is the same for all rows.


class OrderedSet:
    """The values of a group in their order, without NULLs, and the fraction that is asked for."""

    def __init__(self) -> None:
        self.values: list[StoredValue] = []
        self.fraction: float | None = None

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        value, *rest = values
        if rest:
            [fraction] = rest
            assert fraction is None or isinstance(fraction, float)
            if fraction is not None and not 0 <= fraction <= 1:
                raise TransactionError(f"percentile value {fraction} is not between 0 and 1.", fix="Pass 0.5, say.")
            self.fraction = fraction
        if value is not None:
            self.values.append(value)

    def final(self) -> StoredValue:
        """The result of the group."""
        raise NotImplementedError


class ContinuousPercentile(OrderedSet):
    """percentile_cont(): between two values in proportion."""

    def final(self) -> StoredValue:
        """The value, a float."""
        if self.fraction is None or not self.values:
            return None
        place = self.fraction * (len(self.values) - 1)
        first, second = math.floor(place), math.ceil(place)
        low, high = self.values[first], self.values[second]
        assert isinstance(low, float)
        assert isinstance(high, float)
        return low if first == second else low + (place - first) * (high - low)


class DiscretePercentile(OrderedSet):
    """percentile_disc(): the first value at or after the fraction."""

    def final(self) -> StoredValue:
        """The value."""
        if self.fraction is None or not self.values:
            return None
        return self.values[max(0, math.ceil(self.fraction * len(self.values)) - 1)]


class Mode(OrderedSet):
    """mode(): the value that is there most often, of several the first one."""

    def final(self) -> StoredValue:
        """The value."""
        counts = Counter(self.values)
        return max(counts, key=counts.__getitem__) if counts else None


# --- Collections -----------------------------------------------------------------------------------------------------


class TextJoin:
    """string_agg: each text after its separator, but for the first one."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        text, separator = values
        if isinstance(text, str):
            self.parts += [separator, text] if self.parts and isinstance(separator, str) else [text]

    def final(self) -> StoredValue:
        """The texts in one."""
        return "".join(self.parts) if self.parts else None


class BytesJoin:
    """string_agg of bytea: each value after its separator, but for the first one."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        value, separator = values
        if isinstance(value, bytes):
            self.parts += [separator, value] if self.parts and isinstance(separator, bytes) else [value]

    def final(self) -> StoredValue:
        """The values in one."""
        return b"".join(self.parts) if self.parts else None


class Collection:
    """array_agg: every value, NULL included."""

    def __init__(self) -> None:
        self.values: list[StoredValue] = []

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self.values.extend(values)

    def final(self) -> StoredValue:
        """The values as a stored array."""
        return array_text(self.values) if self.values else None


class DocumentArray(Collection):
    """jsonb_agg: every value as a document, NULL as null."""

    def final(self) -> StoredValue:
        """The values as one document."""
        return documents.build_array(*self.values) if self.values else None


class DocumentObject(Collection):
    """jsonb_object_agg: keys and values by turns, of a key given twice the last one."""

    def final(self) -> StoredValue:
        """The values as one document."""
        return documents.build_object(*self.values) if self.values else None


class JsonArray(Collection):
    """json_agg: every value as JSON, NULL as null."""

    def final(self) -> StoredValue:
        """The values as one text."""
        return documents.json_array(*self.values) if self.values else None


class JsonObject(Collection):
    """json_object_agg: keys and values by turns, each pair as it comes."""

    def final(self) -> StoredValue:
        """The values as one text."""
        return f"{{ {documents.json_object(*self.values)[1:-1]} }}" if self.values else None


# --- Aggregates of moving frames -------------------------------------------------------------------------------------
# PostgreSQL starts an aggregate of floats anew when rows leave its frame, and gives exact results for the others; so
# the rows of the frame are kept, and what is taken back is summed up again from them. A frame that only grows never
# does so.


class Frame(Protocol):
    """The state of one aggregate over the frame of a window."""

    def step(self, *values: StoredValue) -> None:
        """Take one row more."""
        ...

    def inverse(self, *values: StoredValue) -> None:
        """Give back the row that was taken first."""
        ...

    def value(self) -> StoredValue:
        """The result of the frame as it is."""
        ...

    def final(self) -> StoredValue:
        """The result at the end."""
        ...


class NumericExtreme:
    """min or max of numeric: of equal ones with different scales PostgreSQL keeps the one that came last."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._value: StoredValue = None

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        if value is None:
            return
        known = self._value
        if known is None or self._sign * decimals.compare(str(known), str(value)) <= 0:
            self._value = value

    def final(self) -> StoredValue:
        """The result."""
        return self._value


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
        """The result of the frame as it is."""
        if self._is_stale:
            self._state = self._make()
            for values in self._taken:
                self._state.step(*values)
            self._is_stale = False
        return self._state.final()

    final = value


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """One window function: `apsw.Connection.create_window_function(name, make, arguments)`."""

    name: str
    make: Callable[[], Frame]
    arguments: int = 1


def _moving(make: Callable[[], Accumulator]) -> Callable[[], Frame]:
    return lambda: MovingAggregate(make)


WINDOW_FUNCTIONS: Final = (
    WindowFunction("interlock_window_sum_integer", _moving(IntegerSum)),
    WindowFunction("interlock_window_avg_integer", _moving(IntegerAverage)),
    WindowFunction("interlock_window_sum_numeric", _moving(NumericSum)),
    WindowFunction("interlock_window_avg_numeric", _moving(NumericAverage)),
    WindowFunction("interlock_window_sum_float8", _moving(FloatSum)),
    WindowFunction("interlock_window_avg_float8", _moving(FloatAverage)),
    WindowFunction("interlock_window_min_numeric", _moving(lambda: NumericExtreme(-1))),
    WindowFunction("interlock_window_max_numeric", _moving(lambda: NumericExtreme(1))),
)


# --- Entries ---------------------------------------------------------------------------------------------------------
# count, min, max and the like are SQLite's own: `aggregates` builds them.

_NUMBERS: Final = (
    ("int2", "int8"),
    ("int4", "int8"),
    ("int8", "numeric"),
    ("numeric", "numeric"),
    ("float8", "float8"),
)


def _sums() -> list[Entry]:
    sums: dict[str, Callable[[], Accumulator]] = {"numeric": NumericSum, "float8": FloatSum}
    averages: dict[str, Callable[[], Accumulator]] = {"numeric": NumericAverage, "float8": FloatAverage}
    entries: list[Entry] = []
    for name, gives in _NUMBERS:
        form = name if name in sums else "integer"
        entries.append(aggregate("sum", name, gives, sums.get(name, IntegerSum), sqlite=f"sum_{form}"))
        average = averages.get(name, IntegerAverage)
        result = "float8" if name == "float8" else "numeric"
        entries.append(aggregate("avg", name, result, average, sqlite=f"avg_{form}"))
    return entries


def _spread(name: str, *, is_sample: bool, is_root: bool) -> Iterator[Entry]:
    """Declare one of stddev() and variance() for all numbers."""

    def of_numbers() -> Accumulator:
        return NumberSpread(is_sample=is_sample, is_root=is_root)

    def of_floats() -> Accumulator:
        return FloatSpread(is_sample=is_sample, is_root=is_root)

    for kind in ("int2", "int4", "int8", "numeric"):
        yield aggregate(name, kind, "numeric", of_numbers, sqlite=f"{name}_numeric")
    yield aggregate(name, "float8", "float8", of_floats, sqlite=f"{name}_float8")


def _and(left: int, right: int) -> int:
    return left & right


def _or(left: int, right: int) -> int:
    return left | right


def _xor(left: int, right: int) -> int:
    return left ^ right


def _bits(name: str, join: Callable[[int, int], int]) -> Iterator[Entry]:
    def make() -> Accumulator:
        return Bits(join)

    for kind in ("int2", "int4", "int8"):
        yield aggregate(name, kind, kind, make)


ENTRIES: Final = (
    *_sums(),
    *_spread("stddev", is_sample=True, is_root=True),
    *_spread("stddev_samp", is_sample=True, is_root=True),
    *_spread("stddev_pop", is_sample=False, is_root=True),
    *_spread("variance", is_sample=True, is_root=False),
    *_spread("var_samp", is_sample=True, is_root=False),
    *_spread("var_pop", is_sample=False, is_root=False),
    *_bits("bit_and", _and),
    *_bits("bit_or", _or),
    *_bits("bit_xor", _xor),
    aggregate("any_value", "anyelement", "anyelement", FirstValue),
    aggregate("json_agg", "anyelement", "json", JsonArray),
    aggregate("json_object_agg", "any, any", "json", JsonObject),
    aggregate("percentile_cont", "float8, float8", "float8", ContinuousPercentile),
    aggregate("percentile_disc", "float8, anyelement", "anyelement", DiscretePercentile),
    aggregate("mode", "anyelement", "anyelement", Mode),
    aggregate("string_agg", "text, text", "text", TextJoin),
    aggregate("string_agg", "bytea, bytea", "bytea", BytesJoin, sqlite="string_agg_bytes"),
    aggregate("array_agg", "anynonarray", "anyarray", Collection),
    aggregate("jsonb_agg", "anyelement", "jsonb", DocumentArray),
    aggregate("jsonb_object_agg", "any, any", "jsonb", DocumentObject),
)
