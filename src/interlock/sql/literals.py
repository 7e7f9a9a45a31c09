"""Constants: read the text of a literal, or of a cast from text, as PostgreSQL's input functions read it.

PostgreSQL gives a bare 'string' the type that its context requires and reads it by that type's rules, when it parses
the statement. So a constant needs no function at run time, and an invalid one is refused immediately. A lane reads the
plain forms; a text that PostgreSQL may read and a lane does not (hexadecimal digits, infinity, names of months) is
refused as being outside the subset, and not called invalid.
"""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Final

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import arrays, documents, times
from interlock.sql.stored_values import TIME_MAX, TIME_MIN, StoredValue, array_text, is_storable, numeric_text
from interlock.sql.types import INTEGER_RANGE, PLAIN_TYPES, Name, Type, invalid, refuse, wrong

_SPACE: Final = " \t\n\r\f\v"
_INTEGER = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]+)[ \t\n\r\f\v]*")
_NUMBER = re.compile(r"[ \t\n\r\f\v]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)[ \t\n\r\f\v]*")
_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,15}))?)?"
    r"(?: ?(Z|z|[+-]\d{2}(?::?\d{2})?|[+-]\d(?::\d{2})?))?)?",
    re.ASCII,
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,15}))?)?", re.ASCII)
_BYTES = re.compile(r"(?:\\x((?:[0-9a-fA-F]{2})*))?")
_UUID = re.compile(r"(\{)?(?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}(?(1)\})")
_OFFSET_HOURS_MAX: Final = 15
_TRUTHS: Final = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), 1),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), 0),
}

_DIGITS: Final = re.compile(r"^\s*[+-]?(?:0[xXoObB]|[0-9.]+_|nan|inf|[0-9.]+e[+-]?[0-9_]{4})", re.IGNORECASE)
_TIMES: Final = re.compile(r"[0-9]|now|today|yesterday|tomorrow|epoch|inf|allballs", re.IGNORECASE)
_WIDER: Final[dict[Name, re.Pattern[str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float8"), _DIGITS),
    **{name: re.compile(r"^\s*\[|\{\s*\{|\\") for name, kind in PLAIN_TYPES.items() if kind.is_array},
    **dict.fromkeys(("timestamptz", "timestamp", "date", "time"), _TIMES),
    "bytea": re.compile(""),
    "interval": re.compile(r"[0-9]|inf|^pt$", re.IGNORECASE),
}
"""What PostgreSQL may read beyond the readers below."""

_PLAIN_FORM: Final[dict[Name, str]] = {
    "bytea": r"Write '\x00ff', or pass a parameter.",
    "date": "Write '2030-12-31', or pass a parameter.",
    "time": "Write '23:59:59', or pass a parameter.",
    "timestamp": "Write '2030-12-31 23:59:59', or pass a parameter.",
    "timestamptz": "Write '2030-12-31 23:59:59+00', or pass a parameter.",
    "interval": "Write numbers with units: '1 day 12 hours', '1.5 seconds', '02:30:00', 'P1DT12H'.",
}


def read(text: str, kind: Type) -> StoredValue:
    """Return the stored value of a text. Raises TransactionError where PostgreSQL does, or DialectError."""
    try:
        if kind.labels:
            return kind.labels.index(text)
        return _READERS[kind.name](text) if not kind.is_array else _read_array(text, kind)
    except DialectError:
        raise
    except (ValueError, ArithmeticError, TransactionError) as error:
        wider = _WIDER.get(kind.name)
        if wider is not None and wider.search(text):
            raise refuse(
                f"the text {text[:40]!r} for type {kind}.",
                why="PostgreSQL may read it; a lane reads the plain form alone.",
                fix=_PLAIN_FORM.get(kind.name, "Write plain decimal digits, or pass a parameter."),
            ) from error
        what = f"invalid input for type {kind}: {text[:40]!r}."
        raise invalid(what, fix=f"Write a value of type {kind}, or pass it as a parameter.") from error


def written(value: StoredValue) -> str:
    """Return a stored value as a constant of SQLite."""
    match value:
        case str():
            return text_literal(value)
        case bytes():
            return f"X'{value.hex()}'"
        case float():
            return repr(value)
        case _:
            return "NULL" if value is None else str(value)


def text_literal(text: str) -> str:
    """Return text as SQLite reads it."""
    if not is_storable(text):
        raise wrong("a string with NUL or a lone surrogate.")
    return "'" + text.replace("'", "''") + "'"


def _integer_reader(name: Name) -> Callable[[str], int]:
    low, high = INTEGER_RANGE[name]

    def read_integer(text: str) -> int:
        matched = _INTEGER.fullmatch(text)
        if matched is None or not low <= int(matched[1]) <= high:
            raise ValueError(text)
        return int(matched[1])

    return read_integer


def read_numeric(text: str) -> str:
    """Return a decimal number as it is stored."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return numeric_text(Decimal(matched[1]))


def read_float(text: str) -> float:
    """Return a finite float. One that PostgreSQL would call out of range is refused."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    value = float(matched[1])
    if abs(value) == float("inf") or (value == 0 and Decimal(matched[1]) != 0):
        raise ValueError(text)
    return value + 0.0


def _read_bool(text: str) -> int:
    truth = _TRUTHS.get(text.strip(_SPACE).lower())
    if truth is None:
        raise ValueError(text)
    return truth


def _read_moment(text: str, *, is_zoned: bool) -> int:
    """Return a date with its time as microseconds since 1970. Without an offset it is UTC, as every session is."""
    if text.strip().lower() == "epoch":
        return 0
    matched = _MOMENT.fullmatch(text.strip())
    if matched is None:
        raise ValueError(text)
    year, month, day, hours, minutes, seconds, fraction, offset = matched.groups()
    micros = times.days_of(date(int(year), int(month), int(day))) * times.DAY_US
    micros += times.clock_us(hours or "0", minutes or "0", seconds or "0", fraction or "")
    shift = _offset(offset)  # Verified also where PostgreSQL ignores it.
    micros -= shift if is_zoned else 0
    if not TIME_MIN <= micros <= TIME_MAX:
        raise ValueError(text)
    return micros


def _offset(text: str | None) -> int:
    if text is None or text in {"Z", "z"}:
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) < 3 else (digits[:-2], digits[-2:])  # noqa: PLR2004 -- hours alone
    if int(hours) > _OFFSET_HOURS_MAX:
        raise ValueError(text)
    micros = times.clock_us(hours, minutes, "0", "")
    return -micros if text[0] == "-" else micros


def _read_timestamptz(text: str) -> int:
    return _read_moment(text, is_zoned=True)


def _read_timestamp(text: str) -> int:
    """Return a date and time as stored; PostgreSQL ignores an offset here."""
    return _read_moment(text, is_zoned=False)


def _read_date(text: str) -> int:
    if "." in text:
        # PostgreSQL does not carry a fraction that rounds up to midnight.
        _read_moment(text, is_zoned=False)
        text = text.partition(".")[0]
    return _read_moment(text, is_zoned=False) // times.DAY_US


def _read_time(text: str) -> int:
    matched = _CLOCK.fullmatch(text.strip())
    if matched is None:
        raise ValueError(text)
    clock = times.clock_us(matched[1], matched[2], matched[3] or "0", matched[4] or "")
    if clock >= times.DAY_US:
        raise ValueError(text)
    return clock


def _read_uuid(text: str) -> bytes:
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return bytes.fromhex(text.strip("{}").replace("-", ""))


def _read_bytes(text: str) -> bytes:
    matched = _BYTES.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return bytes.fromhex(matched[1] or "")


def _read_text(text: str) -> str:
    if not is_storable(text):
        raise ValueError(text)
    return text


def _read_array(text: str, kind: Type) -> str:
    element = kind.element
    return array_text([None if item is None else read(item, element) for item in arrays.read_items(text)])


_READERS: Final[dict[Name, Callable[[str], StoredValue]]] = {
    **{name: _integer_reader(name) for name in INTEGER_RANGE},
    "numeric": read_numeric,
    "float8": read_float,
    "text": _read_text,
    "varchar": _read_text,
    "bpchar": _read_text,
    "bool": _read_bool,
    "bytea": _read_bytes,
    "date": _read_date,
    "time": _read_time,
    "timestamp": _read_timestamp,
    "timestamptz": _read_timestamptz,
    "interval": times.read_interval,
    "uuid": _read_uuid,
    "json": documents.read_json,
    "jsonb": documents.read,
}
