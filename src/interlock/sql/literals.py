"""Constants of a statement, converted to SQLite's text of their type.

PostgreSQL gives a bare 'string' the type that its context requires and reads it by that type's rules, when it parses
the statement. This module does the same: a constant needs no function at run time, and an invalid one is refused
immediately. Notations that only PostgreSQL reads (hexadecimal, infinity) are refused.
"""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from interlock.errors import TransactionError
from interlock.sql import arrays, documents, times
from interlock.sql.datatypes import INT4, INT8, INTEGER_RANGE, NUMERIC, PLAIN, UNKNOWN, Name, Type
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term
from interlock.sql.values import encoder, is_storable, microseconds, numeric_text

_INTEGER = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]+)[ \t\n\r\f\v]*")
_NUMBER = re.compile(r"[ \t\n\r\f\v]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)[ \t\n\r\f\v]*")
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(?: ?(Z|z|[+-]\d{2}(?::?\d{2})?))?)?", re.ASCII
)
_BYTES = re.compile(r"(?:\\x((?:[0-9a-fA-F]{2})*))?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OFFSET_HOURS_MAX: Final = 15
_TRUTHS: Final = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), False),
}


# What PostgreSQL may read beyond the readers below: refused, not called wrong.
_DIGITS: Final = re.compile(r"^\s*[+-]?(?:0[xXoObB]|[0-9]+_|nan|inf)", re.IGNORECASE)
_WIDER: Final[dict[Name, re.Pattern[str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float8"), _DIGITS),
    **{name: re.compile(r"^\s*\[|\{\s*\{|\\") for name, kind in PLAIN.items() if kind.is_array},
    "bytea": re.compile(""),
    "timestamptz": re.compile(r"[0-9]|now|today|yesterday|tomorrow|epoch|inf", re.IGNORECASE),
    "interval": re.compile(r"[0-9]|inf", re.IGNORECASE),
    "uuid": re.compile(r"^\{?(?:[0-9a-fA-F]{4}-?){8}\}?$"),
}
_PLAIN_FORM: Final[dict[Name, str]] = {
    "bytea": r"Write '\x00ff', or pass a parameter.",
    "timestamptz": "Write '2030-12-31 23:59:59+00', or pass a parameter.",
    "interval": "Write numbers with units: '1 day 12 hours', '1.5 seconds', '02:30:00'.",
    "uuid": "Write it with four hyphens, or pass a parameter.",
}


def number(text: str, *, negative: bool = False) -> Term:
    """A number as it stands in the statement, with its sign: integer, bigint or numeric, by its size and form."""
    if text.isdecimal() and text.isascii():
        value = -int(text) if negative else int(text)
        for kind in (INT4, INT8):
            low, high = INTEGER_RANGE[kind.name]
            if low <= value <= high:
                return Term(str(value), kind, atomic=value >= 0, literal=str(value), nullable=False)
    try:
        written = read_numeric(f"-{text}" if negative else text)
    except (ValueError, TransactionError) as error:
        raise refuse(f"the number {text}.", fix="Write plain decimal digits.") from error
    return Term(text_literal(written), NUMERIC, literal=written, nullable=False)


def string(text: str) -> Term:
    """A string as it stands in the statement, of no type yet."""
    return Term(text_literal(text), UNKNOWN, literal=text)


def null() -> Term:
    """NULL, of no type yet."""
    return Term("NULL", UNKNOWN)


def text_literal(text: str) -> str:
    """Text as SQLite reads it."""
    if not is_storable(text):
        raise wrong("a string with NUL or a lone surrogate.")
    return "'" + text.replace("'", "''") + "'"


def typed(text: str, kind: Type) -> str:
    """The constant that PostgreSQL makes of the string for that type, as SQLite's text. Length limits come later."""
    try:
        return _READERS[kind.name](text, kind)
    except (ValueError, ArithmeticError, TransactionError) as error:
        refuse_wider(text, kind.name, error)
        what = f"invalid input for type {kind}: {text!r}."
        raise wrong(what, fix=f"Write a {kind}, or pass it as a parameter.") from error


def refuse_wider(text: str, name: Name, error: Exception) -> None:
    """Refuse what PostgreSQL may be able to read as that type."""
    wider = _WIDER.get(name)
    if wider is not None and wider.search(text):
        raise refuse(
            f"the text {text[:40]!r} for type {PLAIN[name]}.",
            why="PostgreSQL may read it; a lane reads the plain form alone.",
            fix=_PLAIN_FORM.get(name, "Write plain decimal digits, or pass a parameter."),
        ) from error


def read_integer(text: str, kind: Type) -> int:
    """A whole number in decimal digits, within its type."""
    matched = _INTEGER.fullmatch(text)
    low, high = INTEGER_RANGE[kind.name]
    if matched is None or not low <= int(matched[1]) <= high:
        raise ValueError(text)
    return int(matched[1])


def read_numeric(text: str) -> str:
    """A decimal number, as it is stored."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return numeric_text(Decimal(matched[1]))


def read_float(text: str) -> float:
    """A finite float. One that PostgreSQL would call out of range is refused."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    value = float(matched[1])
    if abs(value) == float("inf") or (value == 0 and Decimal(matched[1]) != 0):
        raise ValueError(text)
    return value + 0.0


def read_bool(text: str) -> bool:
    """A truth value in one of PostgreSQL's spellings."""
    truth = _TRUTHS.get(text.strip(" \t\n\r\f\v").lower())
    if truth is None:
        raise ValueError(text)
    return truth


def read_moment(text: str) -> int:
    """A moment with date, time and offset, as it is stored. Without an offset it is UTC, as every session is."""
    matched = _MOMENT.fullmatch(text.strip())
    if matched is None:
        raise ValueError(text)
    day, clock, offset = matched[1], matched[2] or "00:00", matched[3] or "Z"
    if offset in {"Z", "z"}:
        offset = "+00:00"
    digits = offset[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > _OFFSET_HOURS_MAX:
        raise ValueError(text)
    return microseconds(datetime.fromisoformat(f"{day}T{clock}{offset[0]}{digits[:2]}:{digits[2:]}"))


def read_uuid(text: str) -> bytes:
    """A uuid in its usual form."""
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return UUID(text).bytes


def _read_bytes(text: str) -> bytes:
    matched = _BYTES.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return bytes.fromhex(matched[1] or "")


def _read_array(text: str, kind: Type) -> str:
    element = encoder(kind.element)
    read = _ELEMENTS.get(kind.element.name)
    if read is None:
        raise refuse(f"a constant of type {kind}.", fix="Write ARRAY[…], or pass a parameter.")
    items = [None if item is None else element(read(item), 0) for item in arrays.read_items(text)]
    return text_literal(arrays.make(*items))


_ELEMENTS: Final[dict[Name, Callable[[str], object]]] = {
    **{name: (lambda text: read_integer(text, INT8)) for name in ("int2", "int4", "int8")},
    "numeric": lambda text: Decimal(read_numeric(text)),
    "float8": read_float,
    "text": str,
    "bool": read_bool,
    "uuid": lambda text: UUID(bytes=read_uuid(text)),
}

_READERS: Final[dict[Name, Callable[[str, Type], str]]] = {
    **{name: (lambda text, kind: str(read_integer(text, kind))) for name in ("int2", "int4", "int8")},
    "numeric": lambda text, _: text_literal(read_numeric(text)),
    "float8": lambda text, _: repr(read_float(text)),
    "text": lambda text, _: text_literal(text),
    "varchar": lambda text, _: text_literal(text),
    "bool": lambda text, _: str(int(read_bool(text))),
    "bytea": lambda text, _: f"X'{_read_bytes(text).hex()}'",
    "timestamptz": lambda text, _: str(read_moment(text)),
    "uuid": lambda text, _: f"X'{read_uuid(text).hex()}'",
    "jsonb": lambda text, _: text_literal(documents.read(text)),
    "interval": lambda text, _: text_literal(times.read_interval(text)),
}
for _name, _kind in PLAIN.items():
    if _kind.is_array:
        _READERS[_name] = _read_array
