"""Conversion of values between the engines, in the form in which a lane stores them.

Nothing is converted on the lane's side, and PostgreSQL converts most values itself: it receives text, cast to the type
of the column (`text_of`), and returns the expressions of `selected`, so that little is left to Python (`received`).
The texts do not depend on settings of a session: digits, ISO moments in UTC, bytes in hexadecimal.

PostgreSQL also finds values that a lane cannot hold (`unfit`): NaN and infinity, moments outside of the years 1 to
9999, numerics of more than a thousand digits, arrays of several dimensions. Zero has no sign in a lane, and loses it
here.
"""

# ruff: noqa: S608 -- made of quoted names alone.

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final, cast

from interlock.errors import DialectError
from interlock.sql.datatypes import FLOAT_MAX, Name, Type
from interlock.sql.values import (
    JSON_DEPTH_MAX,
    NUMERIC_DIGITS_MAX,
    StoredValue,
    array_items,
    array_text,
)

StoredRow = tuple[StoredValue, ...]
"""A row as a lane stores it, the form that movers pass on and digest."""

TextOf = Callable[[StoredValue], str]
Received = Callable[[object], StoredValue]

POSTGRES_EPOCH_US: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""Epoch of the moments that PostgreSQL sends, in microseconds since 1970."""

DAYS_CACHED: Final = 10_000
_DAY_S: Final = 86_400
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

ARRAYS_LISTED: Final[frozenset[Name]] = frozenset({"int2[]", "int4[]", "int8[]", "float8[]", "text[]"})
"""Arrays whose items the driver returns as a lane stores them."""


def text_of(kind: Type) -> TextOf:
    """Return the function that writes a stored value of that type for PostgreSQL. Not for NULL."""
    if kind.is_array:
        item = text_of(kind.element)
        return lambda value: _array_literal(array_items(kind, cast("str", value)), item)
    return _TEXTS.get(kind.name, cast("TextOf", str))


def selected(kind: Type, column: str) -> str:
    """Return the expression that selects a value nearly as a lane stores it; `column` is quoted already."""
    if kind.is_array:
        return _selected_array(kind, column)
    return _SELECTED.get(kind.name, "{}").format(column)


def received(kind: Type) -> Received | None:
    """Return the function that converts a `selected` value; None if it needs no conversion. Not for NULL."""
    if kind.name in ARRAYS_LISTED:
        zeroed = kind.name == "float8[]"
        return lambda value: _listed(cast("list[StoredValue]", value), zeroed=zeroed)
    if kind.is_array:
        item = received(kind.element) or _same
        return lambda value: array_text([None if each is None else item(each) for each in cast("list[object]", value)])
    return _RECEIVED.get(kind.name)


def unfit(kind: Type, column: str) -> str | None:
    """Return the SQL condition of values that a lane cannot hold; None if all fit. NULL means that a value fits."""
    if kind.is_array:
        inner = _UNFIT.get(kind.element.name)
        several = f"(array_ndims({column}) > 1 OR array_lower({column}, 1) <> 1)"
        if inner is None:
            return several
        return f"({several} OR EXISTS (SELECT 1 FROM unnest({column}) AS item WHERE {inner.format('item')}))"
    condition = _UNFIT.get(kind.name)
    return None if condition is None else f"({condition.format(column)})"


# --- To PostgreSQL ----------------------------------------------------------------------------------------------------


def _time_text(value: StoredValue) -> str:
    seconds, microseconds = divmod(cast("int", value), 1_000_000)
    days, seconds = divmod(seconds, _DAY_S)
    return f"{_day(days)} {_clock(seconds)}.{microseconds:06}+00"


@lru_cache(maxsize=DAYS_CACHED)
def _day(number: int) -> str:
    return date.fromordinal(_EPOCH_DAY + number).isoformat()


@lru_cache(maxsize=_DAY_S)
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _array_literal(items: Sequence[StoredValue], text: TextOf) -> str:
    return "{" + ",".join(["NULL" if item is None else _item(text(item)) for item in items]) + "}"


def _item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_TEXTS: Final[dict[Name, TextOf]] = {
    "float8": repr,
    "bool": lambda value: "t" if value else "f",
    "bytea": lambda value: "\\x" + cast("bytes", value).hex(),
    "timestamptz": _time_text,
    "uuid": lambda value: cast("bytes", value).hex(),
    "numeric": lambda value: cast("str", value),
    "text": lambda value: cast("str", value),
    "varchar": lambda value: cast("str", value),
    "jsonb": lambda value: cast("str", value),
}

# --- From PostgreSQL --------------------------------------------------------------------------------------------------

_SELECTED: Final[dict[Name, str]] = {
    "numeric": "{}::text",
    "bool": "{}::integer",
    "timestamptz": "timestamptz_send({})",
    "uuid": "uuid_send({})",
    "jsonb": "{}::text",
}


def _selected_array(kind: Type, column: str) -> str:
    if kind.name in ARRAYS_LISTED:
        return column
    item = selected(kind.element, "item")
    listed = f"ARRAY(SELECT {item} FROM unnest({column}) WITH ORDINALITY AS listed (item, place) ORDER BY place)"
    return f"CASE WHEN {column} IS NOT NULL THEN {listed} END"


def _same(value: object) -> StoredValue:
    return cast("StoredValue", value)


def received_time(value: object) -> int:
    """Convert a moment from PostgreSQL to microseconds since 1970."""
    return int.from_bytes(cast("bytes", value), "big", signed=True) + POSTGRES_EPOCH_US


def _document(value: object) -> StoredValue:
    """Return a document unchanged. Raises DialectError if a lane could not read it."""
    text = cast("str", value)
    if (text.count("[") + text.count("{") > JSON_DEPTH_MAX and _depth(text) > JSON_DEPTH_MAX) or (
        len(text) > NUMERIC_DIGITS_MAX and _LONG_NUMBER.search(_WORDS.sub("", text))
    ):
        raise DialectError(
            f"a document has no place in a lane: {text[:60]}….",
            why=f"It is nested deeper than {JSON_DEPTH_MAX}, or has a number of more than {NUMERIC_DIGITS_MAX} digits.",
            fix="Change or remove such documents first.",
        )
    return text


_WORDS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LONG_NUMBER: Final = re.compile(rf"\d{{{NUMERIC_DIGITS_MAX + 1},}}")


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in re.findall(r"[\[{}\]]", _WORDS.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _listed(items: list[StoredValue], *, zeroed: bool) -> str:
    if zeroed:
        items = [None if item is None else cast("float", item) + 0.0 for item in items]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


_RECEIVED: Final[dict[Name, Received]] = {
    "float8": lambda value: cast("float", value) + 0.0,
    "timestamptz": received_time,
    "jsonb": _document,
}

# NaN is above everything in PostgreSQL's order, so one comparison finds it and both infinities.
_UNFIT: Final[dict[Name, str]] = {
    "numeric": f"abs({{0}}) >= 1e{NUMERIC_DIGITS_MAX} OR scale({{0}}) >= {NUMERIC_DIGITS_MAX}",
    "float8": f"abs({{0}}) > {FLOAT_MAX}::double precision",
    "timestamptz": "{0} < '0001-01-01 00:00:00+00' OR {0} > '9999-12-31 23:59:59.999999+00'",
}
