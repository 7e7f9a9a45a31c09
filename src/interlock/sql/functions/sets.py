"""Functions that give rows: the elements of a document, the parts of a text, a series; and parts of json as written.

SQLite's json_each() is what gives the rows, so each function here returns one JSON array: of stored values, or of
arrays of them for a function of several columns. The rows of a LATERAL subquery travel in the same way. A float is
written as the digits of its bytes, because SQLite may round the decimal ones.
"""

import json
import operator as operator_module
import re
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final, cast

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import decimals, documents, times
from interlock.sql.registry import Aggregate, Entry, Function, function, operator, strict
from interlock.sql.types import PLAIN_TYPES, refuse
from interlock.sql.values import StoredValue, array_items, is_storable, json_text, portable, rows_text

SERIES_ROWS_MAX: Final = 1_000_000

# --- Documents -------------------------------------------------------------------------------------------------------
# jsonb is read and written as PostgreSQL does; of json every part keeps its text, and a key given twice comes twice.


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
    return rows_text([json_text(value) for value in _elements(document)])


def elements_text(document: str) -> str:
    """jsonb_array_elements_text."""
    return rows_text([_text_of(value) for value in _elements(document)])


def record(document: StoredValue) -> str:
    """jsonb_to_record: one row, which is NULL if the document is."""
    if document is not None:
        _members(str(document))
    return rows_text([document])


def records(document: str) -> str:
    """jsonb_to_recordset: a row per element, each an object."""
    listed = _elements(document)
    if not all(isinstance(value, dict) for value in listed):
        raise TransactionError("jsonb_to_recordset() of an array with other elements than objects.", fix="Filter them.")
    return rows_text([json_text(value) for value in listed])


def keys(document: str) -> str:
    """jsonb_object_keys, in the order in which jsonb keeps them."""
    return rows_text([name for name, _ in _members(document)])


def members(document: str) -> str:
    """jsonb_each."""
    return rows_text([[name, json_text(value)] for name, value in _members(document)])


def members_text(document: str) -> str:
    """jsonb_each_text."""
    return rows_text([[name, _text_of(value)] for name, value in _members(document)])


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


def _json_item(document: str, place: int) -> str | None:
    items = [text for _, _, text in _parts(document, "[")]
    return items[place] if -len(items) <= place < len(items) else None


def _json_member(document: str, name: str) -> str | None:
    """Return the member of that name; of several the last one."""
    found = [text for known, _, text in _parts(document, "{") if known == name]
    return found[-1] if found else None


_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def _readable(document: str) -> None:
    """PostgreSQL reads all strings of a document to find one part of it."""
    if "\\u" in document:
        for found in _STRING.findall(document):
            _storable(json.loads(found))


def json_member(document: str, name: str) -> str | None:
    """-> with a name."""
    _readable(document)
    return _json_member(document, name) if document[_next(document, 0)] == "{" else None


def json_item(document: str, place: int) -> str | None:
    """-> with a number."""
    _readable(document)
    return _json_item(document, place) if document[_next(document, 0)] == "[" else None


def json_inside(document: str, path: str) -> str | None:
    """#>, by a path."""
    _readable(document)
    found: str | None = document.strip(_BLANK)
    for step in array_items(PLAIN_TYPES["text[]"], path):
        if found is None or not isinstance(step, str):
            return None
        if found[0] == "{":
            found = _json_member(found, step)
        else:
            place = documents.place_of(step)
            found = None if found[0] != "[" or place is None else _json_item(found, place)
    return found


def _json_text(part: str | None) -> str | None:
    return None if part is None else cast("str | None", _written_text(_decoded(part, 0)[0], part))


def json_member_text(document: str, name: str) -> str | None:
    """->> with a name."""
    return _json_text(json_member(document, name))


def json_item_text(document: str, place: int) -> str | None:
    """->> with a number."""
    return _json_text(json_item(document, place))


def json_inside_text(document: str, path: str) -> str | None:
    """#>>, by a path."""
    return _json_text(json_inside(document, path))


def json_elements(document: str) -> str:
    """json_array_elements."""
    return rows_text([text for _, _, text in _parts(document, "[")])


def json_elements_text(document: str) -> str:
    """json_array_elements_text."""
    return rows_text([_written_text(value, text) for _, value, text in _parts(document, "[")])


def json_keys(document: str) -> str:
    """json_object_keys."""
    return rows_text([_storable(name) for name, _, _ in _parts(document, "{")])


def json_members(document: str) -> str:
    """json_each."""
    return rows_text([[_storable(name), text] for name, _, text in _parts(document, "{")])


def json_members_text(document: str) -> str:
    """json_each_text."""
    return rows_text([[_storable(name), _written_text(value, text)] for name, value, text in _parts(document, "{")])


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


def _no_steps() -> TransactionError:
    return TransactionError("generate_series() by steps of zero.", why="It would never end.", fix="Use another step.")


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
    _set("jsonb_array_elements", "jsonb", elements, "jsonb_elements"),
    _set("jsonb_array_elements_text", "jsonb", elements_text, "jsonb_elements_text"),
    _set("jsonb_object_keys", "jsonb", keys, "jsonb_keys"),
    _set("jsonb_to_record", "jsonb", record, "jsonb_record", null=True),
    _set("jsonb_to_recordset", "jsonb", records, "jsonb_records"),
    _set("jsonb_each", "jsonb", members, "jsonb_members"),
    _set("jsonb_each_text", "jsonb", members_text, "jsonb_members_text"),
    _set("json_array_elements", "json", json_elements, "json_elements"),
    _set("json_array_elements_text", "json", json_elements_text, "json_elements_text"),
    _set("json_object_keys", "json", json_keys, "json_keys"),
    _set("json_each", "json", json_members, "json_members"),
    _set("json_each_text", "json", json_members_text, "json_members_text"),
    operator("->", "json, text", "json", json_member, sqlite="json_member"),
    operator("->>", "json, text", "text", json_member_text, sqlite="json_member_text"),
    operator("->", "json, int4", "json", json_item, sqlite="json_item"),
    operator("->>", "json, int4", "text", json_item_text, sqlite="json_item_text"),
    operator("#>", "json, text[]", "json", json_inside, sqlite="json_inside"),
    operator("#>>", "json, text[]", "text", json_inside_text, sqlite="json_inside_text"),
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
