"""Aggregates that can also take rows back, for frames that move.

PostgreSQL starts an aggregate of floats anew when rows leave its frame, and gives exact results for the others; so the
rows of the frame are kept, and what is taken back is summed up again from them. A frame that only grows never does so.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from interlock.sql import decimals
from interlock.sql.accumulators import (
    Accumulator,
    FloatAverage,
    FloatSum,
    IntegerAverage,
    IntegerSum,
    NumericAverage,
    NumericSum,
)
from interlock.sql.values import StoredValue


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
