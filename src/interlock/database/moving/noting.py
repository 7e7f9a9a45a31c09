"""Encoding of keys in the notes of a trigger on PostgreSQL.

A note is an array of texts, one per column of the key, which depends on no setting of the session that wrote the row:
moments, floats and bytes are written as hexadecimal digits of what PostgreSQL would send.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final

from interlock.database.moving.shape import Table
from interlock.database.moving.values import StoredRow, received_time
from interlock.sql.datatypes import Name
from interlock.sql.syntax import quoted
from interlock.sql.values import StoredValue

_NOTED: Final[dict[Name, str]] = {
    "bool": "{}::integer::text",
    "bytea": "encode({}, 'hex')",
    "float8": "encode(float8send({}), 'hex')",
    "timestamptz": "encode(timestamptz_send({}), 'hex')",
    "uuid": "encode(uuid_send({}), 'hex')",
}
_READ: Final[dict[Name, Callable[[str], StoredValue]]] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "bool": int,
    "bytea": bytes.fromhex,
    "uuid": bytes.fromhex,
    "float8": lambda noted: float(struct.unpack(">d", bytes.fromhex(noted))[0]) + 0.0,
    "timestamptz": lambda noted: received_time(bytes.fromhex(noted)),
}


def noted(table: Table, row: str) -> str:
    """Return the expression of a note, a text[]; `row` is NEW or OLD."""
    parts = [
        _NOTED.get(column.type.name, "{}::text").format(f"{row}.{quoted(column.name)}") for column in table.key_columns
    ]
    return f"ARRAY[{', '.join(parts)}]"


def key_noted(table: Table, note: Sequence[str]) -> StoredRow:
    """Decode a note to the key as a lane stores it."""
    return tuple(_READ.get(column.type.name, str)(text) for column, text in zip(table.key_columns, note, strict=True))
