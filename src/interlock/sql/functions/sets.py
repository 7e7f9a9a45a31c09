"""Functions that give rows: the elements of a document, the parts of a text, a series.

SQLite's json_each() is what gives the rows, so each function here returns one JSON array: of stored values, or of
arrays of them for a function of several columns. The rows of a LATERAL subquery travel in the same way. A float is
written as the digits of its bytes, because SQLite may round the decimal ones.
"""

import operator as operator_module
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final, cast

from interlock.errors import DialectError
from interlock.sql.functions import decimals, times
from interlock.sql.registry import Aggregate, Entry, Function, function, strict
from interlock.sql.stored_values import StoredValue, portable, rows_text
from interlock.sql.types import InvalidValue, refuse

SERIES_ROWS_MAX: Final = 1_000_000

# --- Texts -----------------------------------------------------------------------------------------------------------


def parts_of_text(text: StoredValue, separator: StoredValue, null: StoredValue = None) -> str | None:
    """string_to_table: the parts between separators, or the characters if that is NULL."""
    if not isinstance(text, str):
        return None
    if not text:
        return "[]"
    parts = list(text) if separator is None else text.split(str(separator)) if separator else [text]
    return rows_text([None if part == null else part for part in parts])


# --- Series ----------------------------------------------------------------------------------------------------------


def _counted(
    start: StoredValue,
    add: Callable[[StoredValue], StoredValue],
    within: Callable[[StoredValue], bool],
    is_next: Callable[[StoredValue, StoredValue], bool] = operator_module.ne,
) -> str:
    listed: list[object] = []
    value = start
    while within(value):
        if len(listed) >= SERIES_ROWS_MAX:
            raise refuse(f"generate_series() of more than {SERIES_ROWS_MAX:,} rows here.", fix="Use a longer step.")
        listed.append(value)
        before = value
        try:
            value = add(value)
        except DialectError:  # The next one would be after the year 9999 or before the year 1, and so beyond the end.
            break
        if not is_next(before, value):
            # A month less 29 days is a step back from the last day of January.
            raise refuse("generate_series() by a step that goes back from some days.", fix="Use days or months alone.")
    return rows_text(listed)


def _no_steps() -> InvalidValue:
    return InvalidValue("generate_series() by steps of zero.", why="It would never end.", fix="Use another step.")


def integers(start: int, stop: int, step: int = 1) -> str:
    """generate_series of whole numbers."""
    if step == 0:
        raise _no_steps()
    count = max((stop - start) // step + 1, 0)
    if count > SERIES_ROWS_MAX:
        raise refuse(f"generate_series() of more than {SERIES_ROWS_MAX:,} rows here.", fix="Use a longer step.")
    return rows_text(list(range(start, stop + (1 if step > 0 else -1), step)))


def numerics(start: str, stop: str, step: str = "1") -> str:
    """generate_series of numeric."""
    end, sign = Decimal(stop), Decimal(step)
    if sign == 0:
        raise _no_steps()

    def within(value: StoredValue) -> bool:
        return Decimal(str(value)) <= end if sign > 0 else Decimal(str(value)) >= end

    return _counted(start, lambda value: decimals.add(str(value), step), within)


def moments(start: int, stop: int, step: str) -> str:
    """generate_series of timestamp and timestamptz, each the one before it plus the interval."""
    sign = times.interval_key(step)
    if sign == 0:
        raise _no_steps()

    def within(value: StoredValue) -> bool:
        assert isinstance(value, int)
        return value <= stop if sign > 0 else value >= stop

    def is_next(before: StoredValue, value: StoredValue) -> bool:
        return (cast("int", value) - cast("int", before)) * sign > 0

    return _counted(start, lambda value: times.add(cast("int", value), step), within, is_next)


# --- Rows of a LATERAL subquery --------------------------------------------------------------------------------------


class RowCollection:
    """Every row of a query, as an array of arrays of stored values; bytes and floats as hexadecimal digits."""

    def __init__(self) -> None:
        self.rows: list[object] = []

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self.rows.append([portable(value) for value in values])

    def final(self) -> StoredValue:
        """The rows in one text."""
        return rows_text(self.rows)


def float_of_digits(digits: str) -> float:
    """Return the float that was written as the hexadecimal digits of its bytes."""
    value: float = struct.unpack(">d", bytes.fromhex(digits))[0]
    return value


# --- Entries ---------------------------------------------------------------------------------------------------------

ROWS: Final = Aggregate("interlock_rows", RowCollection, -1)
FLOAT_OF_DIGITS: Final = Function("interlock_float_of_digits", strict(float_of_digits), 1)
KEY_AND_VALUE: Final = ("key", "value")
COLUMNS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "jsonb_array_elements": (("value",), ("jsonb",)),
    "jsonb_array_elements_text": (("value",), ("text",)),
    "jsonb_object_keys": (("",), ("text",)),
    "jsonb_each": (KEY_AND_VALUE, ("text", "jsonb")),
    "jsonb_each_text": (KEY_AND_VALUE, ("text", "text")),
    "json_array_elements": (("value",), ("json",)),
    "json_array_elements_text": (("value",), ("text",)),
    "json_object_keys": (("",), ("text",)),
    "json_each": (KEY_AND_VALUE, ("text", "json")),
    "json_each_text": (KEY_AND_VALUE, ("text", "text")),
    "string_to_table": (("",), ("text",)),
    "jsonb_path_query": (("",), ("jsonb",)),
    "regexp_matches": (("",), ("text[]",)),
    "regexp_split_to_table": (("",), ("text",)),
}
"""The names and types of the columns that each gives. Without a name, a column is called like its relation."""

RECORD_FUNCTIONS: Final = frozenset({"jsonb_to_record", "jsonb_to_recordset"})
"""Functions whose columns the statement defines: AS t (a integer, b text)."""

SET_FUNCTIONS: Final = frozenset({*COLUMNS, *RECORD_FUNCTIONS, "generate_series", "unnest"})


def _set(name: str, takes: str, body: Callable[..., str | None], sqlite: str, *, null: bool = False) -> Entry:
    return function(f"interlock {name}", takes, "text", body, sqlite=f"rows_{sqlite}", null=null)


ENTRIES: Final = (
    _set("string_to_table", "text, text", parts_of_text, "parts", null=True),
    _set("string_to_table", "text, text, text", parts_of_text, "parts", null=True),
    *(
        _set("generate_series", ", ".join([name] * count), body, f"series_{name}")
        for name, body in (("int4", integers), ("int8", integers), ("numeric", numerics))
        for count in (2, 3)
    ),
    _set("generate_series", "timestamp, timestamp, interval", moments, "series_moments"),
    _set("generate_series", "timestamptz, timestamptz, interval", moments, "series_moments"),
)
