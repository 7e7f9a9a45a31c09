"""Functions that give rows: the elements of a document, the parts of a text, a series.

SQLite's json_each() is what gives the rows, so each function here returns one JSON array: of stored values, or of
arrays of them for a function of several columns. The rows of a LATERAL subquery travel in the same way. A float is
written as the digits of its bytes, because SQLite may round the decimal ones.
"""

import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final, cast

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import decimals, documents, times
from interlock.sql.registry import Aggregate, Entry, Function, function, strict
from interlock.sql.types import refuse
from interlock.sql.values import StoredValue, is_storable, json_text

SERIES_ROWS_MAX: Final = 1_000_000

# --- Documents -------------------------------------------------------------------------------------------------------
# jsonb is read and written as PostgreSQL does; of json every part keeps its text, and a key given twice comes twice.


def _rows(values: list[object]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _text_of(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)


def _elements(document: str) -> list[object]:
    value = documents.loaded(document)
    if not isinstance(value, list):
        raise _not_a("array", document)
    return cast("list[object]", value)


def _members(document: str) -> list[tuple[str, object]]:
    value = documents.loaded(document)
    if not isinstance(value, dict):
        raise _not_a("object", document)
    members = cast("dict[str, object]", value).items()
    return sorted(members, key=lambda item: (len(item[0].encode()), item[0].encode()))


def _not_a(wanted: str, document: str) -> TransactionError:
    return TransactionError(
        f"the elements of a document that is not an {wanted} but {documents.typeof(document)}.",
        why="PostgreSQL has the same rule.",
        fix="Test its type first: CASE jsonb_typeof(document) WHEN … END.",
    )


def elements(document: str) -> str:
    """jsonb_array_elements."""
    return _rows([json_text(value) for value in _elements(document)])


def elements_text(document: str) -> str:
    """jsonb_array_elements_text."""
    return _rows([_text_of(value) for value in _elements(document)])


def keys(document: str) -> str:
    """jsonb_object_keys, in the order in which jsonb keeps them."""
    return _rows([name for name, _ in _members(document)])


def members(document: str) -> str:
    """jsonb_each."""
    return _rows([[name, json_text(value)] for name, value in _members(document)])


def members_text(document: str) -> str:
    """jsonb_each_text."""
    return _rows([[name, _text_of(value)] for name, value in _members(document)])


_BLANK: Final = " \t\n\r"
_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str)


def _next(text: str, place: int) -> int:
    while text[place] in _BLANK:
        place += 1
    return place


def _parts(document: str, opening: str) -> Iterator[tuple[object, object, str]]:
    """Yield key, value and written value of each element or member of a json document."""
    place = _next(document, 0)
    if document[place] != opening:
        raise _not_a("array" if opening == "[" else "object", document)
    place = _next(document, place + 1)
    while document[place] not in "]}":
        name: object = None
        if opening == "{":
            name, place = _decoded(document, place)
            place = _next(document, _next(document, place) + 1)  # After the colon.
        value, end = _decoded(document, place)
        yield name, value, document[place:end]
        place = _next(document, end)
        if document[place] == ",":
            place = _next(document, place + 1)


def _decoded(document: str, place: int) -> tuple[object, int]:
    found: tuple[object, int] = _DECODER.raw_decode(document, place)
    return found


def _storable(value: object) -> object:
    if isinstance(value, str) and not is_storable(value):
        raise TransactionError("a part of a json document that cannot be text: NUL or half a pair of surrogates.")
    return value


def _written_text(value: object, text: str) -> object:
    """Return a part of a json document as text: a string is read, null is NULL, everything else stays as written."""
    return _storable(value) if text.startswith('"') else None if value is None else text


def json_elements(document: str) -> str:
    """json_array_elements."""
    return _rows([text for _, _, text in _parts(document, "[")])


def json_elements_text(document: str) -> str:
    """json_array_elements_text."""
    return _rows([_written_text(value, text) for _, value, text in _parts(document, "[")])


def json_keys(document: str) -> str:
    """json_object_keys."""
    return _rows([_storable(name) for name, _, _ in _parts(document, "{")])


def json_members(document: str) -> str:
    """json_each."""
    return _rows([[_storable(name), text] for name, _, text in _parts(document, "{")])


def json_members_text(document: str) -> str:
    """json_each_text."""
    return _rows([[_storable(name), _written_text(value, text)] for name, value, text in _parts(document, "{")])


# --- Texts -----------------------------------------------------------------------------------------------------------


def parts_of_text(text: StoredValue, separator: StoredValue, null: StoredValue = None) -> str | None:
    """string_to_table: the parts between separators, or the characters if that is NULL."""
    if not isinstance(text, str):
        return None
    if not text:
        return "[]"
    parts = list(text) if separator is None else text.split(str(separator)) if separator else [text]
    return _rows([None if part == null else part for part in parts])


# --- Series ----------------------------------------------------------------------------------------------------------


def _counted(
    start: StoredValue, add: Callable[[StoredValue], StoredValue], within: Callable[[StoredValue], bool]
) -> str:
    listed: list[object] = []
    value = start
    while within(value):
        if len(listed) >= SERIES_ROWS_MAX:
            raise refuse(f"generate_series() of more than {SERIES_ROWS_MAX:,} rows here.", fix="Use a longer step.")
        listed.append(value)
        try:
            value = add(value)
        except DialectError:  # The next one would be after the year 9999 or before the year 1, and so beyond the end.
            break
    return _rows(listed)


def _no_steps() -> TransactionError:
    return TransactionError("generate_series() by steps of zero.", why="It would never end.", fix="Use another step.")


def integers(start: int, stop: int, step: int = 1) -> str:
    """generate_series of whole numbers."""
    if step == 0:
        raise _no_steps()
    count = max((stop - start) // step + 1, 0)
    if count > SERIES_ROWS_MAX:
        raise refuse(f"generate_series() of more than {SERIES_ROWS_MAX:,} rows here.", fix="Use a longer step.")
    return _rows(list(range(start, stop + (1 if step > 0 else -1), step)))


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

    return _counted(start, lambda value: times.add(cast("int", value), step), within)


# --- Rows of a LATERAL subquery --------------------------------------------------------------------------------------


class RowCollection:
    """Every row of a query, as an array of arrays of stored values; bytes and floats as hexadecimal digits."""

    def __init__(self) -> None:
        self.rows: list[object] = []

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self.rows.append([_portable(value) for value in values])

    def final(self) -> StoredValue:
        """The rows in one text."""
        return _rows(self.rows)


def _portable(value: StoredValue) -> StoredValue:
    if isinstance(value, bytes):
        return value.hex()
    return struct.pack(">d", value).hex() if isinstance(value, float) else value


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
}
"""The names and types of the columns that each gives. Without a name, a column is called like its relation."""

SET_FUNCTIONS: Final = frozenset({*COLUMNS, "generate_series", "unnest"})


def _set(name: str, takes: str, body: Callable[..., str | None], sqlite: str, *, null: bool = False) -> Entry:
    return function(f"interlock {name}", takes, "text", body, sqlite=f"rows_{sqlite}", null=null)


ENTRIES: Final = (
    _set("jsonb_array_elements", "jsonb", elements, "jsonb_elements"),
    _set("jsonb_array_elements_text", "jsonb", elements_text, "jsonb_elements_text"),
    _set("jsonb_object_keys", "jsonb", keys, "jsonb_keys"),
    _set("jsonb_each", "jsonb", members, "jsonb_members"),
    _set("jsonb_each_text", "jsonb", members_text, "jsonb_members_text"),
    _set("json_array_elements", "json", json_elements, "json_elements"),
    _set("json_array_elements_text", "json", json_elements_text, "json_elements_text"),
    _set("json_object_keys", "json", json_keys, "json_keys"),
    _set("json_each", "json", json_members, "json_members"),
    _set("json_each_text", "json", json_members_text, "json_members_text"),
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
