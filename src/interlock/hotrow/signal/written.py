"""Keys of hot rows as Python values, decoded from what SQLite stores.

A uuid is stored as bytes, a timestamp as a number, a numeric as text. A lane publishes the declared types of its keys
with its rows, so no table has to be read under load.
"""

from typing import cast

from interlock.sql.datatypes import parse_declared
from interlock.sql.values import StoredValue, decoder

_STORED_AS: dict[str, type[int | str | bytes]] = {
    "bool": int,
    "numeric": str,
    "timestamptz": int,
    "uuid": bytes,
    "jsonb": str,
}


def as_written(key: object, declared: tuple[str, ...]) -> object:
    """Return the key of a row as Python's values, by the declared types of its columns."""
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
