"""Results that are kept with an idempotency key: written once, read back with the same types.

JSON with tags instead of pickle, because what is read from a file must never be able to run. The types are those that
a database hands out and takes: None, bool, int, float, str, bytes, Decimal, datetime, UUID, rows with names, and lists,
tuples and dictionaries of them.
"""

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any, cast

from interlock.errors import TransactionError

_TAG = "$"

MakeRow = Callable[[tuple[str, ...], tuple[object, ...]], tuple[object, ...]]
"""Makes a row with names, from its names and values."""


def encode_result(value: object) -> bytes:
    """The value as bytes. Raises TransactionError for a type that could not be given back."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode_result(data: bytes, make_row: MakeRow = lambda _names, values: values) -> object:
    """The value that `encode_result` was given; rows with names are made by the layer that knows them."""
    return _value(json.loads(data), make_row)


def _plain(value: object) -> object:
    kind_name = type(value).__name__
    if value is None or isinstance(value, bool | int | str):
        return value
    for name, (kind, write, _) in _SCALARS.items():
        if isinstance(value, kind):
            return {_TAG: name, "v": write(value)}
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in cast("list[object]", value)]
        if isinstance(value, list):
            return items
        names = getattr(cast("object", value), "_fields", None)
        return {_TAG: "tuple", "v": items} if names is None else {_TAG: "row", "names": list(names), "v": items}
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        if all(isinstance(name, str) for name in members):
            return {_TAG: "dict", "v": {name: _plain(item) for name, item in members.items()}}
    raise TransactionError(
        f"the result {kind_name} cannot be kept with the idempotency key.",
        why="The same key again gives the first result back, so it is stored with the transaction.",
        fix="Return None, a number, a text, bytes, Decimal, datetime, UUID, or lists, tuples and dictionaries of them.",
    )


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
    read = _SCALARS[kind][2]
    return read(inner)


_Scalar = tuple[type[object], Callable[[Any], str], Callable[[str], object]]

_SCALARS: dict[str, _Scalar] = {
    "float": (float, float.hex, float.fromhex),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "uuid": (uuid.UUID, str, uuid.UUID),
}
