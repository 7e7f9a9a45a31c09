"""Arrays: parsing of array constants, and functions on arrays.

An array is one-dimensional here and counted from one, which is PostgreSQL's default. It is stored as JSON of its stored
elements, with one canonical text per value, so two arrays are equal when their texts are.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from itertools import zip_longest
from typing import Final, cast

from interlock.errors import TransactionError
from interlock.sql.values import StoredValue, array_text

_SPACE: Final = " \t\n\r\f\v"


def read_items(text: str) -> list[str | None]:
    """The elements of an array as PostgreSQL writes one: {1,2,NULL,"a b"}."""
    text = text.strip(_SPACE)
    if not (text.startswith("{") and text.endswith("}") and len(text) > 1):
        raise ValueError(text)
    inner = text[1:-1]
    if not inner.strip(_SPACE):
        return []
    items: list[str | None] = []
    place = 0
    while True:
        found, place = _read_item(inner, place)
        items.append(found)
        if place == len(inner):
            return items
        if inner[place] != ",":
            raise ValueError(text)
        place += 1


def _read_item(text: str, place: int) -> tuple[str | None, int]:
    """The element that begins there, and where it ends."""
    while place < len(text) and text[place] in _SPACE:
        place += 1
    if text[place : place + 1] == '"':
        return _read_quoted(text, place + 1)
    end = place
    while end < len(text) and text[end] != ",":
        if text[end] in '{}"\\':
            raise ValueError(text)
        end += 1
    word = text[place:end].rstrip(_SPACE)
    if not word:
        raise ValueError(text)
    return None if word.upper() == "NULL" else word, end


def _read_quoted(text: str, place: int) -> tuple[str, int]:
    letters: list[str] = []
    while place < len(text) and text[place] != '"':
        place += text[place] == "\\"
        letters.append(text[place : place + 1])
        place += 1
    if place >= len(text):
        raise ValueError(text)
    place += 1
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return "".join(letters), place


def make(*values: StoredValue) -> str:
    """ARRAY[…]."""
    return array_text(values)


def _plain(value: StoredValue) -> StoredValue:
    return value.hex() if isinstance(value, bytes) else value


def _same(value: StoredValue) -> Callable[[StoredValue], bool]:
    value = _plain(value)
    return lambda known: known == value


def _same_number(value: StoredValue) -> Callable[[StoredValue], bool]:
    number = Decimal(str(value))
    return lambda known: known is not None and Decimal(str(known)) == number


def membership(items: Callable[[str], list[StoredValue]], *, numeric: bool) -> Callable[..., StoredValue]:
    """= ANY: true if an element is equal, else NULL if one is NULL, else false."""
    same = _same_number if numeric else _same

    def member(value: StoredValue, array: StoredValue) -> StoredValue:
        if array is None:
            return None
        assert isinstance(array, str)
        listed = items(array)
        if not listed:
            return 0
        if value is None:
            return None
        if any(map(same(value), listed)):
            return 1
        return None if None in listed else 0

    return member


def length(items: list[StoredValue], dimension: int) -> int | None:
    """array_length: NULL for an array without elements, and for a dimension that it does not have."""
    return len(items) if items and dimension == 1 else None


def position(items: list[StoredValue], sought: StoredValue) -> int | None:
    """array_position, counted from one; NULL is found, too."""
    return next((place for place, known in enumerate(items, start=1) if known == _plain(sought)), None)


def without(items: list[StoredValue], removed: StoredValue) -> str:
    """array_remove."""
    return array_text([known for known in items if known != _plain(removed)])


def appended(items: list[StoredValue], added: StoredValue) -> str:
    """array_append."""
    return array_text([*items, _plain(added)])


def element(items: list[StoredValue], place: int) -> StoredValue:
    """array[n]."""
    return items[place - 1] if 1 <= place <= len(items) else None


def contains(left: list[StoredValue], right: list[StoredValue]) -> int:
    """@>: NULL is equal to nothing."""
    return all(known is not None and known in left for known in right)


def zipped(*arrays: StoredValue) -> str:
    """Arrays beside each other: a row for each place, filled up with NULL."""
    columns: list[list[StoredValue]] = [[] if array is None else json.loads(cast("str", array)) for array in arrays]
    return json.dumps(list(zip_longest(*columns)), ensure_ascii=False, separators=(",", ":"))


def joined(left: StoredValue, right: StoredValue) -> StoredValue:
    """Concatenate two arrays; NULL counts as an empty one."""
    if left is None or right is None:
        return right if left is None else left
    assert isinstance(left, str)
    assert isinstance(right, str)
    return array_text([*json.loads(left), *json.loads(right)])


def join_items(separator: StoredValue, array: StoredValue) -> StoredValue:
    """string_agg(DISTINCT …): join the texts of an array without its NULLs; NULL if no text is left."""
    items = cast("list[str | None]", [] if array is None else json.loads(cast("str", array)))
    texts = [item for item in items if item is not None]
    return ("" if separator is None else str(separator)).join(texts) if texts else None


def no_items(what: str) -> TransactionError:
    """Return the error for an empty ARRAY[] without a type."""
    return TransactionError(
        f"{what}: the type of an empty array is unknown.",
        why="PostgreSQL refuses it, too.",
        fix="Write its type: ARRAY[]::bigint[].",
    )
