"""Results that are kept with an idempotency key: written once, read back with the same types.

JSON with tags instead of pickle, because what is read from a file must never be able to run. The types are those that
a database hands out and takes: None, bool, int, float, str, bytes, Decimal, datetime, UUID, and lists, tuples and
dictionaries of them.
"""

import base64
import datetime
import decimal
import json
import uuid

from interlock.errors import TransactionError

_TAG = "$"


def encode_result(value: object) -> bytes:
    """The value as bytes. Raises TransactionError for a type that could not be given back."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode_result(data: bytes) -> object:
    """The value that `encode_result` was given."""
    return _value(json.loads(data))


def _plain(value: object) -> object:  # noqa: PLR0911 -- one line per type.
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {_TAG: "float", "v": value.hex()}
    if isinstance(value, bytes):
        return {_TAG: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, decimal.Decimal):
        return {_TAG: "decimal", "v": str(value)}
    if isinstance(value, datetime.datetime):
        return {_TAG: "datetime", "v": value.isoformat()}
    if isinstance(value, uuid.UUID):
        return {_TAG: "uuid", "v": str(value)}
    if isinstance(value, tuple):
        return {_TAG: "tuple", "v": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {_TAG: "dict", "v": {name: _plain(item) for name, item in value.items()}}
    raise TransactionError(
        f"the result {type(value).__name__} cannot be kept with the idempotency key.",
        why="The same key again gives the first result back, so it is stored with the transaction.",
        fix="Return None, a number, a text, bytes, Decimal, datetime, UUID, or lists, tuples and dictionaries of them.",
    )


def _value(plain: object) -> object:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind, inner = plain[_TAG], plain["v"]
    if kind == "tuple":
        return tuple(_value(item) for item in inner)
    if kind == "dict":
        return {name: _value(item) for name, item in inner.items()}
    return _SCALARS[kind](inner)


_SCALARS = {
    "float": float.fromhex,
    "bytes": base64.b64decode,
    "decimal": decimal.Decimal,
    "datetime": datetime.datetime.fromisoformat,
    "uuid": uuid.UUID,
}
