"""Hot rows as their writers know them: the lane sees what SQLite stores, a user knows what they wrote.

A uuid is stored as bytes, a moment as a number, a numeric as text. The lane remembers the declared types of the keys it
met, so nothing has to be read in order to look at a lane in the middle of a storm.
"""

from typing import cast

import msgspec

from interlock.lanes.contention import Contention, HotRow
from interlock.sql.datatypes import parse_declared
from interlock.sql.values import StoredValue, decoder

_STORED_AS: dict[str, type[int | str | bytes]] = {
    "bool": int,
    "numeric": str,
    "timestamptz": int,
    "uuid": bytes,
    "jsonb": str,
}


def hot_rows(contention: Contention, now_s: float) -> list[HotRow]:
    """The rows that writers wait for each other on, worst first, with their keys as they were written."""
    return [
        msgspec.structs.replace(row, key=as_written(row.key, contention.key_types(row.table)))
        for row in contention.worst(now_s)
    ]


def as_written(key: object, declared: tuple[str, ...]) -> object:
    """The key of a row as Python's values, by the declared types of its columns."""
    if len(declared) == 1:
        return _decoded(key, declared[0])
    if not isinstance(key, tuple):
        return key
    stored = cast("tuple[object, ...]", key)
    if len(stored) != len(declared):
        return stored
    return tuple([_decoded(value, kind) for value, kind in zip(stored, declared, strict=True)])


def _decoded(stored: object, declared: str) -> object:
    kind = parse_declared(declared)
    if kind is None or not isinstance(stored, _STORED_AS.get(kind.name, ())):
        return stored
    decode = decoder(kind, checked=False)
    assert decode is not None
    try:
        return decode(cast("StoredValue", stored))
    except (ValueError, ArithmeticError):
        # The table was made anew since, with a key of another type: show what is there.
        return stored
