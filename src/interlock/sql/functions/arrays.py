"""Arrays: parsing of array constants, and functions on arrays.

An array is one-dimensional here and counted from one, which is PostgreSQL's default. It is stored as JSON of its stored
elements, with one canonical text per value, so two arrays are equal when their texts are.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Final, cast

from interlock.errors import TransactionError
from interlock.sql.registry import Entry, built, function, operator, strict, swapped
from interlock.sql.scope import Term, call
from interlock.sql.types import Type, refuse
from interlock.sql.values import ARRAY_ITEMS_MAX, StoredValue, array_text

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


def element(items: list[StoredValue], place: int | None) -> StoredValue:
    """array[n]; NULL has no element."""
    return items[place - 1] if place is not None and 1 <= place <= len(items) else None


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


def _items(text: str) -> list[StoredValue]:
    return cast("list[StoredValue]", json.loads(text))


def _of_array(body: Callable[..., StoredValue], *, empty: bool = False) -> Callable[..., StoredValue]:
    """Return a function on the elements of an array, whose further arguments may be NULL."""

    def called(array: StoredValue, *values: StoredValue) -> StoredValue:
        if array is None and not empty:
            return None
        return body([] if array is None else _items(cast("str", array)), *values)

    return called


def _contains(left: str, right: str) -> int:
    return contains(_items(left), _items(right))


def _overlaps(left: str, right: str) -> int:
    known = _items(left)
    return any(item is not None and item in known for item in _items(right))


def lower_bound(items: list[StoredValue], dimension: int) -> int | None:
    """array_lower."""
    return 1 if items and dimension == 1 else None


def dimensions(items: list[StoredValue]) -> int | None:
    """array_ndims."""
    return 1 if items else None


def prepended(items: list[StoredValue], added: StoredValue) -> str:
    """array_prepend."""
    return array_text([_plain(added), *items])


def positions(items: list[StoredValue], sought: StoredValue) -> str:
    """array_positions."""
    return array_text([place for place, known in enumerate(items, start=1) if known == _plain(sought)])


def replaced(items: list[StoredValue], old: StoredValue, new: StoredValue) -> str:
    """array_replace."""
    return array_text([_plain(new) if known == _plain(old) else known for known in items])


def position_from(items: list[StoredValue], sought: StoredValue, start: StoredValue) -> int | None:
    """array_position from a place on."""
    if not items or (sought is None and None not in items):
        return None
    if start is None:
        raise TransactionError("the place where array_position() begins is NULL.", fix="Pass a number.")
    first = max(cast("int", start), 1)
    return next((place for place in range(first, len(items) + 1) if items[place - 1] == _plain(sought)), None)


def sliced(items: list[StoredValue], low: int | None, high: int | None) -> str | None:
    """array[low:high], counted from one again; NULL if a bound is."""
    return None if low is None or high is None else array_text(items[max(low - 1, 0) : max(high, 0)])


def filled(value: StoredValue, sizes: StoredValue) -> str:
    """array_fill, of one dimension."""
    if sizes is None:
        raise TransactionError("the sizes of array_fill() are NULL.", fix="Pass ARRAY[size].")
    lengths = _items(cast("str", sizes))
    if None in lengths:
        raise TransactionError("a size of array_fill() is NULL.", fix="Pass ARRAY[size].")
    if len(lengths) > 1:
        raise refuse("array_fill() of several dimensions.", fix="Use jsonb.")
    length = cast("int", lengths[0]) if lengths else 0
    if length < 0 or length > ARRAY_ITEMS_MAX:
        raise TransactionError(f"an array of {length} elements.", fix=f"Use 0 to {ARRAY_ITEMS_MAX:,}.")
    return array_text([_plain(value)] * length)


def trimmed(items: list[StoredValue], count: StoredValue) -> str | None:
    """trim_array."""
    if count is None:
        return None
    if not 0 <= cast("int", count) <= len(items):
        raise TransactionError(f"trim_array() by {count!r} of {len(items)} elements.", fix="Pass 0 up to its length.")
    return array_text(items[: len(items) - cast("int", count)])


def turned(array: str) -> str:
    """array_reverse."""
    return array_text(_items(array)[::-1])


def written_dimensions(array: str) -> str | None:
    """array_dims."""
    count = len(_items(array))
    return f"[1:{count}]" if count else None


def sort_items(array: str, descending: int = 0, nulls_first: int | None = None) -> str:
    """array_sort: NULLs last, or first if it is descending."""
    items = _items(array)
    # The elements are of one type: whole numbers or texts.
    known = sorted(cast("list[str]", [item for item in items if item is not None]), reverse=bool(descending))
    nulls: list[StoredValue] = [None] * (len(items) - len(known))
    first = descending if nulls_first is None else nulls_first
    return array_text([*nulls, *known] if first else [*known, *nulls])


def to_text(array: StoredValue, separator: StoredValue, null: StoredValue = None) -> str | None:
    """array_to_string: without NULLs, or with a text for them."""
    if array is None or separator is None:
        return None
    items = [null if item is None else item for item in _items(cast("str", array))]
    return str(separator).join(str(item) for item in items if item is not None)


def from_parts(text: StoredValue, separator: StoredValue, null: StoredValue = None) -> str | None:
    """string_to_array: the parts between separators, or the characters if that is NULL."""
    if not isinstance(text, str):
        return None
    parts = [] if not text else list(text) if separator is None else text.split(str(separator)) if separator else [text]
    return array_text([None if part == null else part for part in parts])


def compare(left: str, right: str) -> int:
    """Return the order of two arrays: element by element, NULL last, the shorter one first."""
    return _compare(left, right, lambda value: value)


def compare_numeric(left: str, right: str) -> int:
    """Return the order of two arrays of numeric."""
    return _compare(left, right, lambda value: Decimal(str(value)))


def _compare(left: str, right: str, key: Callable[[StoredValue], object]) -> int:
    first, second = _items(left), _items(right)
    for one, other in zip(first, second, strict=False):
        if one is None or other is None:
            if one is not other:
                return 1 if one is None else -1
            continue
        a, b = key(one), key(other)
        if a != b:
            return 1 if cast("int", a) > cast("int", b) else -1
    return (len(first) > len(second)) - (len(first) < len(second))


# --- Entries ---------------------------------------------------------------------------------------------------------

_ANY: Final = "anycompatiblearray, anycompatible"


def _equating(sqlite: str) -> Callable[[Sequence[Term], Type], Term]:
    def build(terms: Sequence[Term], result: Type) -> Term:
        for term in terms:
            _refuse_inexact(term.type)
        return call(sqlite, result, *terms)

    return build


def _refuse_inexact(kind: Type) -> None:
    if kind.is_array and kind.element.name in {"numeric", "float8", "jsonb", "interval"}:
        raise refuse(
            f"elements of {kind} compared here.", why="1.0 and 1.00 are equal and kept apart.", fix="Unnest it."
        )


def _joining(terms: Sequence[Term], result: Type) -> Term:
    kind = terms[0].type.element
    if kind.name not in {"text", "varchar", "int2", "int4", "int8", "numeric"}:
        raise refuse(f"array_to_string() of {terms[0].type}.", fix="Cast it: array_to_string(a::text[], ',').")
    return call("interlock_array_to_string", result, *terms)


def _equated(name: str, takes: str, gives: str, body: Callable[..., StoredValue], sqlite: str, kind: str) -> Entry:
    declared = function(name, takes, gives, body, sqlite=sqlite, null=True)
    return declared._replace(kind=kind, build=_equating(f"interlock_{sqlite}"))  # type: ignore[arg-type]


ENTRIES: Final = (
    function("interlock array", "any", "text[]", make, sqlite="array", null=True),
    function("interlock member", "any", "bool", membership(_items, numeric=False), sqlite="member", null=True),
    function(
        "interlock numeric_member", "any", "bool", membership(_items, numeric=True), sqlite="numeric_member", null=True
    ),
    function("interlock array_element", "any", "text", _of_array(element), sqlite="array_element", null=True),
    function("interlock array_zip", "any", "text", zipped, sqlite="array_zip", null=True),
    function("interlock join_items", "any", "text", join_items, sqlite="join_items", null=True),
    function("array_append", _ANY, "anycompatiblearray", _of_array(appended, empty=True), null=True),
    function(
        "array_prepend",
        "anycompatible, anycompatiblearray",
        "anycompatiblearray",
        swapped(_of_array(prepended, empty=True)),
        null=True,
    ),
    function(
        "array_cat",
        "anycompatiblearray, anycompatiblearray",
        "anycompatiblearray",
        joined,
        sqlite="array_join",
        null=True,
    ),
    function("array_length", "anyarray, int4", "int4", _of_array(length), null=True),
    function("array_upper", "anyarray, int4", "int4", _of_array(length), sqlite="array_length", null=True),
    function(
        "array_lower",
        "anyarray, int4",
        "int4",
        _of_array(lower_bound),
        null=True,
    ),
    function("array_ndims", "anyarray", "int4", _of_array(dimensions), null=True),
    _equated("array_position", _ANY, "int4", _of_array(position), "array_position", "function"),
    _equated("array_positions", _ANY, "int4[]", _of_array(positions), "array_positions", "function"),
    _equated("array_remove", _ANY, "anycompatiblearray", _of_array(without), "array_remove", "function"),
    _equated(
        "array_replace",
        "anycompatiblearray, anycompatible, anycompatible",
        "anycompatiblearray",
        _of_array(replaced),
        "array_replace",
        "function",
    ),
    _equated("array_position", f"{_ANY}, int4", "int4", _of_array(position_from), "array_position_from", "function"),
    function("interlock array_slice", "any", "text", _of_array(sliced), sqlite="array_slice", null=True),
    function("array_fill", "anyelement, int4[]", "anyarray", filled, null=True),
    function("trim_array", "anyarray, int4", "anyarray", _of_array(trimmed), null=True),
    function("array_reverse", "anyarray", "anyarray", turned),
    *(
        _equated("array_sort", f"anyarray{rest}", "anyarray", strict(sort_items), f"array_sort{place}", "function")
        for place, rest in enumerate(("", ", bool", ", bool, bool"))
    ),
    function("array_dims", "anyarray", "text", written_dimensions),
    function("interlock array_to_string", "any", "text", to_text, sqlite="array_to_string", null=True),
    *(built("function", "array_to_string", f"anyarray, text{rest}", "text", _joining) for rest in ("", ", text")),
    *(function("string_to_array", f"text, text{rest}", "text[]", from_parts, null=True) for rest in ("", ", text")),
    built("function", "cardinality", "anyarray", "int4", lambda terms, kind: call("json_array_length", kind, *terms)),
    _equated("@>", "anyarray, anyarray", "bool", strict(_contains), "array_contains", "operator"),
    _equated(
        "<@",
        "anyarray, anyarray",
        "bool",
        strict(swapped(_contains)),
        "array_contained",
        "operator",
    ),
    _equated("&&", "anyarray, anyarray", "bool", strict(_overlaps), "array_overlaps", "operator"),
    operator(
        "||", "anycompatiblearray, anycompatiblearray", "anycompatiblearray", joined, sqlite="array_join", null=True
    ),
    operator("||", _ANY, "anycompatiblearray", _of_array(appended, empty=True), sqlite="array_append", null=True),
    operator(
        "||",
        "anycompatible, anycompatiblearray",
        "anycompatiblearray",
        swapped(_of_array(prepended, empty=True)),
        sqlite="array_prepend",
        null=True,
    ),
)
