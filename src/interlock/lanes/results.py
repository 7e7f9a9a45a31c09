"""Results that are kept with an idempotency key: written once, read back with the same types.

JSON with tags instead of pickle, because what is read from a file must never be able to run. The types are those that
a database hands out and takes: None, bool, int, float, str, bytes, Decimal, datetime, UUID, rows with names, and lists,
tuples and dictionaries of them. An int beyond 64 bits is written in hexadecimal: Python refuses to read or write very
long ones in decimal, because that takes quadratic time.
"""

import base64
import contextlib
import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any, cast

from interlock.errors import TransactionError

_TAG = "$"

DEPTH_MAX = 200
"""G6: levels of nesting in a value that is kept or compared."""

KEPT_TYPES = "None, numbers, texts, bytes, Decimal, datetime, UUID, and lists, tuples and dictionaries of them"

MakeRow = Callable[[tuple[str, ...], tuple[object, ...]], tuple[object, ...]]
"""Makes a row with names, from its names and values."""


class NotPlain(Exception):
    """The value, or something in it, has no plain form; the text names it. The caller says what that means."""


def encode_result(value: object) -> bytes:
    """Encode the value. Raises TransactionError for a type that could not be given back."""
    try:
        return json.dumps(plain(value), separators=(",", ":")).encode()
    except NotPlain as error:
        raise TransactionError(
            f"the result holds {error}, which cannot be kept with the idempotency key.",
            why="The same key again gives the first result back, so it is stored with the transaction.",
            fix=f"Return {KEPT_TYPES}.",
        ) from None


def decode_result(data: bytes, make_row: MakeRow = lambda _names, values: values) -> object:
    """Decode a value of `encode_result`; rows with names are made by the layer that knows them."""
    return _value(json.loads(data), make_row)


def plain(value: object, depth: int = 0, *, compared: bool = False) -> object:
    """Return the value in terms of JSON, with tags for types that JSON does not have. Raises NotPlain.

    One that is only `compared` is written alike for all values of its type that are equal: 1.0 and 1.00, 0.0 and -0.0,
    the same instant in two zones. Otherwise it is written as it is, so that it can be given back.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else {_TAG: "int", "v": hex(value)}
    for name, (kind, write, _) in _SCALARS.items():
        if isinstance(value, kind):
            return {_TAG: name, "v": _COMPARED.get(name, write)(value) if compared else write(value)}
    if depth >= DEPTH_MAX:
        raise NotPlain(f"a value nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, list | tuple):
        items = [plain(item, depth + 1, compared=compared) for item in cast("list[object]", value)]
        if isinstance(value, list):
            return items
        names = getattr(cast("object", value), "_fields", None)
        return {_TAG: "tuple", "v": items} if names is None else {_TAG: "row", "names": list(names), "v": items}
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        if not all(isinstance(name, str) for name in members):
            raise NotPlain("a dict with keys that are not text")
        return {_TAG: "dict", "v": {name: plain(item, depth + 1, compared=compared) for name, item in members.items()}}
    raise NotPlain(f"a value of type {type(value).__name__}")


def _value(plain: object, make_row: MakeRow) -> object:
    if isinstance(plain, list):
        return [_value(item, make_row) for item in cast("list[object]", plain)]
    if not isinstance(plain, dict):
        return plain
    tagged = cast("dict[str, Any]", plain)
    kind, inner = tagged[_TAG], tagged["v"]
    if kind in {"tuple", "row"}:
        values = tuple([_value(item, make_row) for item in inner])
        return values if kind == "tuple" else make_row(tuple(tagged["names"]), values)
    if kind == "dict":
        return {name: _value(item, make_row) for name, item in inner.items()}
    return int(inner, 16) if kind == "int" else _SCALARS[kind][2](inner)


_Scalar = tuple[type[object], Callable[[Any], str], Callable[[str], object]]

_SCALARS: dict[str, _Scalar] = {
    "float": (float, float.hex, float.fromhex),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "uuid": (uuid.UUID, str, uuid.UUID),
}


def _compared_decimal(value: decimal.Decimal) -> str:
    # Not `normalize`: that rounds to the precision of the context.
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):  # Infinity, or not a number.
        return str(value)
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return f"{'-' * sign}{kept}E{exponent + len(text) - len(kept)}" if kept else "0"


def _compared_datetime(value: datetime.datetime) -> str:
    with contextlib.suppress(OverflowError):  # Within a day of the first or the last year.
        value = value if value.tzinfo is None else value.astimezone(datetime.UTC)
    return value.isoformat()


_COMPARED: dict[str, Callable[[Any], str]] = {
    "float": lambda value: (value + 0.0).hex(),
    "decimal": _compared_decimal,
    "datetime": _compared_datetime,
}
