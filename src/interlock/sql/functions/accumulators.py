"""Aggregates with PostgreSQL's results: exact sums and averages of numbers, plain sums of floats, collections.

SQLite's own sum overflows where PostgreSQL widens to numeric, its average is a float, and its sum of floats is
compensated, which PostgreSQL's is not. NULLs are left out, and a group without any value gives NULL.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from interlock.errors import TransactionError
from interlock.sql.functions import decimals, documents
from interlock.sql.values import StoredValue, array_text


class Accumulator(Protocol):
    """The state of one aggregate over one group."""

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        ...

    def final(self) -> StoredValue:
        """The result of the group."""
        ...


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
        self._behind = False

    def step(self, *values: StoredValue) -> None:
        """Take one row more."""
        self._taken.append(values)
        if not self._behind:
            self._state.step(*values)

    def inverse(self, *_: StoredValue) -> None:
        """Give back the row that was taken first."""
        self._taken.popleft()
        self._behind = True

    def value(self) -> StoredValue:
        """The result of the frame as it is."""
        if self._behind:
            self._state = self._make()
            for values in self._taken:
                self._state.step(*values)
            self._behind = False
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
