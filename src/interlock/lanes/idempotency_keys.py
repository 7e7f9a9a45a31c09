"""Idempotency keys: a transaction with a key happens once, and a repetition returns the first result.

The key, a digest of the call, and the result are written in the same transaction (G3), so neither exists without the
other. Retention is bounded by age and by number; every keyed transaction removes a few of the oldest, so that no
call ever pays for a big clean-up.

A stored result is read back with the same types. It is JSON with tags instead of pickle: what is read from a file must
never be able to run.
"""

import base64
import contextlib
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

from interlock.errors import KeyReused, TransactionError
from interlock.lanes.lane_settings import LaneSettings

# --- Results ---------------------------------------------------------------------------------------------------------
# The types are those that a database hands out and takes: KEPT_TYPES, and rows with names. An int beyond 64 bits is
# written in hexadecimal: Python refuses to read or write very long ones in decimal, because that takes quadratic time.

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
    return _decode_value(json.loads(data), make_row)


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


def _decode_value(plain: object, make_row: MakeRow) -> object:
    if isinstance(plain, list):
        return [_decode_value(item, make_row) for item in cast("list[object]", plain)]
    if not isinstance(plain, dict):
        return plain
    tagged = cast("dict[str, Any]", plain)
    kind, inner = tagged[_TAG], tagged["v"]
    if kind in {"tuple", "row"}:
        values = tuple([_decode_value(item, make_row) for item in inner])
        return values if kind == "tuple" else make_row(tuple(tagged["names"]), values)
    if kind == "dict":
        return {name: _decode_value(item, make_row) for name, item in inner.items()}
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


# --- Keys ------------------------------------------------------------------------------------------------------------

SCHEMA = """
CREATE TABLE IF NOT EXISTS interlock_keys (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    result BLOB NOT NULL,
    at_us INTEGER NOT NULL
)
"""
FIND = "SELECT digest, result FROM interlock_keys WHERE key = ?1"
INSERT = "INSERT INTO interlock_keys (key, digest, result, at_us) VALUES (?1, ?2, ?3, ?4)"
REMOVE = """
DELETE FROM interlock_keys WHERE number IN (SELECT number FROM interlock_keys ORDER BY number LIMIT ?1)
AND (at_us < ?2 OR number <= (SELECT max(number) FROM interlock_keys) - ?3)"""
REMOVED_PER_TRANSACTION = 4
KEY_CHARACTERS_MAX = 500

Query = Callable[[str, tuple[int | str | bytes, ...]], Sequence[tuple[object, ...]]]
"""Runs a statement in the transaction whose key it is; returns its rows."""


class Keys:
    """The keys of one lane."""

    def __init__(self, settings: LaneSettings, *, mark: str, make_row: MakeRow) -> None:
        # Marked as the writer's control statements are: a user who writes the same text must not get ours.
        self._find = FIND + mark
        self._insert = INSERT + mark
        self._remove = REMOVE + mark
        self._make_row = make_row
        self._retained_us = int(settings.keys_retained_s * 1_000_000)
        self._keys_max = settings.keys_max
        self._result_bytes_max = settings.key_result_bytes_max

    def first_result(self, query: Query, key: str, digest: bytes) -> tuple[bool, object]:
        """Return (True, first result) for a key used with the same call, (False, None) for a new one."""
        rows = query(self._find, (key,))
        if not rows:
            return False, None
        before, result = rows[0]
        if before != digest:
            raise KeyReused(
                f"key {key!r} was used before, for another transaction.",
                why="A key stands for one call: the same method, the same SQL or function, the same arguments. The "
                "first result is not this one's, and giving it back would hide that this one never ran.",
                fix="Repeat a key only with the very same call, and use a new key for a new one.",
            )
        assert isinstance(result, bytes)
        return True, decode_result(result, self._make_row)

    def remember(self, query: Query, now_us: int, key: str, digest: bytes, result: object) -> None:
        """Keep the result with its key, and remove a few keys that are too old or too many."""
        data = encode_result(result)
        if len(data) > self._result_bytes_max:
            raise TransactionError(
                f"the result has {len(data):,} bytes; with a key at most {self._result_bytes_max:,} are kept.",
                why="The same key again gives the first result back, so it is stored with the transaction.",
                fix="Return less, or raise key_result_bytes_max.",
            )
        query(self._insert, (key, digest, data, now_us))
        query(self._remove, (REMOVED_PER_TRANSACTION, now_us - self._retained_us, self._keys_max))
