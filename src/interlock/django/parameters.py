"""Statements and values between Django and PEP 249: `%s` becomes `$n`, each value gets PostgreSQL's type for it.

psycopg writes a value into the statement as a literal, of a type that depends on the value. `$n` alone has no type
where no context gives it one, so each `$n` has a cast to the type that the literal would have. Text has none: like a
literal in quotes it gets its type from the context; before a cast it is text, which the cast reads.

Equal values in a query share one `$n`, because the query may group by an expression that it selects.
"""

# pyright: basic
# Django has no types.

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import ProgrammingError
from django.utils.functional import Promise

from interlock.dbapi.connections import Description
from interlock.dbapi.pep249 import OIDS

_PLACEHOLDERS: Final = re.compile(
    r"%(?:\((?P<name>[^)]*)\)s|(?P<what>.|$))(?=(?P<cast>\)*::|\s+AS\s+[a-z][a-z ]*(?:\([0-9, ]+\))?\))?)", re.DOTALL
)
"""`cast` is what follows a value that is cast: `(%s)::date` or CAST(%s AS date)."""
_INTEGER_MAX: Final = 2**31
_BIGINT_MAX: Final = 2**63


class JsonText(NamedTuple):
    """A value of a JSONField as its encoder wrote it."""

    text: str


Parameters = Sequence[object] | Mapping[str, object]


def convert(sql: str, params: Parameters) -> tuple[str, list[object]]:
    """Return the statement with `$n` for each `%s` or `%(name)s`, and the values of `$1`, `$2` and so on."""
    binding = _Binding(sql)
    return _replaced(sql, params, binding.bind), binding.values


def literals(sql: str, params: Parameters) -> str:
    """Return the statement with its values as literals."""
    return _replaced(sql, params, lambda value, _: literal(value))


def _replaced(sql: str, params: Parameters, write: Callable[[object, bool], str]) -> str:
    """Return the statement with what `write` makes of each value; it also gets whether the value is cast."""
    left = iter(() if isinstance(params, Mapping) else params)

    def replace(found: re.Match[str]) -> str:
        name, what, is_cast = found["name"], found["what"], found["cast"] is not None
        if what == "%":
            return "%"
        if name is not None and isinstance(params, Mapping):
            return write(params[name], is_cast)
        if what != "s" or isinstance(params, Mapping):
            raise ProgrammingError(f"{found[0]!r} is not a placeholder: {sql}. Write %s, and %% for a percent sign.")
        try:
            value = next(left)
        except StopIteration:
            raise ProgrammingError(f"a placeholder has no parameter: {sql}. Pass one for each %s.") from None
        return write(value, is_cast)

    text = _PLACEHOLDERS.sub(replace, sql)
    if any(True for _ in left):
        raise ProgrammingError(f"a parameter has no placeholder: {sql}. Pass one for each %s.")
    return text


class _Binding:
    """The values of one statement."""

    def __init__(self, sql: str) -> None:
        self.values: list[object] = []
        self._shared = sql.lstrip("( \n").upper().startswith(("SELECT", "WITH"))
        self._written = " OVER (" in sql
        """Whether whole numbers are literals: PostgreSQL takes those of lag() and ntile() as constants of a plan."""
        self._numbers: dict[object, int] = {}

    def bind(self, value: object, is_cast: bool) -> str:  # noqa: FBT001 -- called by position, for each value.
        """Return the text for a value: its number with a cast."""
        if value is None and self._shared:
            return "NULL"
        value, cast = _typed(value)
        if is_cast and isinstance(value, str):
            cast = cast or "::text"
        if self._written and cast in {"::integer", "::bigint"}:
            return f"({value})"
        key = (type(value), cast, str(value))
        if self._shared and key in self._numbers:
            number = self._numbers[key]
        else:
            self.values.append(value)
            number = self._numbers[key] = len(self.values)
        return f"(${number}){cast}" if cast else f"${number}"


def _typed(value: object) -> tuple[object, str]:
    """Return the value for the driver, and the cast to the type that PostgreSQL has for a literal of it."""
    found = _TYPES.get(type(value)) or next((_TYPES[kind] for kind in _TYPES if isinstance(value, kind)), None)
    return (value, "") if found is None else found(value)


def _with_cast(cast: str) -> Callable[[Any], tuple[object, str]]:
    return lambda value: (value, cast)


def _integer(value: int) -> tuple[int, str]:
    if -_INTEGER_MAX <= value < _INTEGER_MAX:
        return int(value), "::integer"
    return int(value), "::bigint" if -_BIGINT_MAX <= value < _BIGINT_MAX else "::numeric"


_TYPES: Final[dict[type, Callable[[Any], tuple[object, str]]]] = {
    str: lambda value: (str(value), ""),
    bool: _with_cast("::boolean"),
    int: _integer,
    float: _with_cast("::double precision"),
    Decimal: _with_cast("::numeric"),
    datetime: lambda value: (value, "::timestamp" if value.tzinfo is None else "::timestamptz"),
    date: _with_cast("::date"),
    time: _with_cast("::time"),
    timedelta: _with_cast("::interval"),
    UUID: _with_cast("::uuid"),
    JsonText: lambda value: (value.text, "::text::jsonb"),
    bytes: _with_cast("::bytea"),
    bytearray: lambda value: (bytes(value), "::bytea"),
    memoryview: lambda value: (bytes(value), "::bytea"),
    list: lambda value: ([_typed(item)[0] for item in value], ""),
    tuple: lambda value: ([_typed(item)[0] for item in value], ""),
    Promise: lambda value: (str(value), ""),
}
"""A type comes before its bases: an instance of a subclass is what the first of its bases here is."""


def literal(value: object) -> str:
    """Return a value as a literal, for definitions, which have no parameters."""
    value, cast = _typed(value)
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case float() | Decimal():
            return f"{value}{cast}"
        case bytes():
            text = f"\\x{value.hex()}"
        case list():
            text = _array_text(value)
        case timedelta():
            text = f"{value.days} days {value.seconds}.{value.microseconds:06} seconds"
        case _:
            text = str(value)
    return _quoted(text) + cast.removeprefix("::text")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _array_text(items: list[object]) -> str:
    """Return an array as PostgreSQL writes it; its type comes from the column."""
    return "{" + ",".join(_array_text(item) if isinstance(item, list) else _element(item) for item in items) + "}"


def _element(item: object) -> str:
    escaped = str(item).replace("\\", "\\\\").replace('"', '\\"')
    return "NULL" if item is None else f'"{escaped}"'


def converters(
    description: Iterable[Description], timezone: Callable[[datetime], datetime]
) -> list[tuple[int, Callable[..., object]]]:
    """Return the place of each result column whose values Django wants differently, and the function for it."""
    wanted = {OIDS["timestamptz"]: timezone, OIDS["jsonb"]: json_text, OIDS["json"]: json_text}
    return [(place, wanted[column[1]]) for place, column in enumerate(description) if column[1] in wanted]


def json_text(value: object) -> str:
    """Return JSON as the text that a JSONField decodes with its own decoder."""
    return json.dumps(value, ensure_ascii=False)
