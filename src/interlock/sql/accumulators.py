"""Aggregates with PostgreSQL's results: exact sums and averages of numbers, plain sums of floats, collections.

SQLite's own sum overflows where PostgreSQL widens to numeric, its average is a float, and its sum of floats is
compensated, which PostgreSQL's is not. NULLs are left out, and a group without any value gives NULL.
"""

import math
from decimal import Decimal
from typing import Protocol

from interlock.errors import TransactionError
from interlock.sql import decimals, documentvalues
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
        return documentvalues.build_array(*self.values) if self.values else None


class DocumentObject(Collection):
    """jsonb_object_agg: keys and values by turns, of a key given twice the last one."""

    def final(self) -> StoredValue:
        """The values as one document."""
        return documentvalues.build_object(*self.values) if self.values else None
