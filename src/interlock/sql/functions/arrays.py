"""Arrays: parsing of array constants, and functions on arrays.

An array is one-dimensional here and counted from one, which is PostgreSQL's default. It is stored as JSON of its stored
elements, with one canonical text per value, so two arrays are equal when their texts are.
"""

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final, Literal, cast

from interlock.sql.functions import decimals
from interlock.sql.functions.texts import varchar
from interlock.sql.registry import Body, Entry, built, function, internal, operator, strict, swapped
from interlock.sql.scope import Term, call
from interlock.sql.stored_values import ARRAY_ITEMS_MAX, StoredValue, array_text, rows_text
from interlock.sql.types import InvalidValue, Type, refuse

_SPACE: Final = " \t\n\r\f\v"
_ITEM: Final = re.compile(rf'[{_SPACE}]*(?:"((?:[^"\\]|\\.)*)"[{_SPACE}]*|([^,{{}}"\\]+))(,|\Z)', re.DOTALL)


def read_items(text: str) -> list[str | None]:
    """Return the elements of an array as PostgreSQL writes one: {1,2,NULL,"a b"}."""
    text = text.strip(_SPACE)
    if not (text.startswith("{") and text.endswith("}") and len(text) > 1):
        raise ValueError(text)
    inner, place = text[1:-1].strip(_SPACE), 0
    items: list[str | None] = []
    more = "," if inner else ""
    while more:
        found = _ITEM.match(inner, place)
        if found is None:
            raise ValueError(text)
        quoted, word, more = found.groups()
        if quoted is not None:
            items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            items.append(None if word.rstrip(_SPACE).upper() == "NULL" else word.rstrip(_SPACE))
        place = found.end()
    return items


# --- Elements --------------------------------------------------------------------------------------------------------


def _items(text: str) -> list[Any]:
    items: list[Any] = json.loads(text)
    return items


def _plain(value: StoredValue) -> StoredValue:
    return value.hex() if isinstance(value, bytes) else value


def _of_array(body: Body, *, empty: bool = False) -> Callable[..., StoredValue]:
    """Return a function on the elements of an array, whose further arguments may be NULL, in the form of elements."""
    implementation: Callable[..., StoredValue] = body

    def called(array: StoredValue, *values: StoredValue) -> StoredValue:
        if array is None and not empty:
            return None
        return implementation([] if array is None else _items(cast("str", array)), *map(_plain, values))

    return called


def _array(*values: StoredValue) -> str:
    return array_text(values)


def _member(*, numeric: bool) -> Callable[..., StoredValue]:
    """= ANY: true if an element is equal, else NULL if one is NULL, else false."""

    def member(value: StoredValue, array: StoredValue) -> StoredValue:
        if array is None:
            return None
        listed = _items(cast("str", array))
        if not listed or value is None:
            return None if listed else 0
        known = [None if item is None else Decimal(item) for item in listed] if numeric else listed
        if (Decimal(str(value)) if numeric else _plain(value)) in known:
            return 1
        return None if None in listed else 0

    return member


def _zipped(*arrays: StoredValue) -> str:
    """Arrays beside each other: a row for each place, filled up with NULL."""
    columns = ([] if array is None else _items(cast("str", array)) for array in arrays)
    return rows_text(list(zip_longest(*columns)))


def _joined(left: StoredValue, right: StoredValue) -> StoredValue:
    """Concatenate two arrays; NULL counts as an empty one."""
    if left is None or right is None:
        return right if left is None else left
    return array_text([*_items(cast("str", left)), *_items(cast("str", right))])


def _position(items: list[StoredValue], sought: StoredValue, *start: int | None) -> int | None:
    """array_position, counted from one, also from a place on; NULL is found, too."""
    if not items or (sought is None and None not in items):
        return None
    if None in start:
        raise InvalidValue("the place where array_position() begins is NULL.", fix="Pass a number.")
    first = max(cast("int", start[0]), 1) if start else 1
    return next((place for place in range(first, len(items) + 1) if items[place - 1] == sought), None)


def _positions(items: list[StoredValue], sought: StoredValue) -> str:
    return array_text([place for place, known in enumerate(items, start=1) if known == sought])


def _element(items: list[StoredValue], place: int | None) -> StoredValue:
    """array[n]; NULL has no element."""
    return items[place - 1] if place is not None and 1 <= place <= len(items) else None


def _sliced(items: list[StoredValue], low: int | None, high: int | None) -> str | None:
    """array[low:high], counted from one again; NULL if a bound is."""
    return None if low is None or high is None else array_text(items[max(low - 1, 0) : max(high, 0)])


def _contains(left: list[StoredValue], right: str) -> int:
    """@>: NULL is equal to nothing."""
    return all(known is not None and known in left for known in _items(right))


def _filled(value: StoredValue, sizes: StoredValue) -> str:
    """array_fill, of one dimension."""
    lengths = [None] if sizes is None else _items(cast("str", sizes))
    if None in lengths:
        raise InvalidValue("a size of array_fill() is NULL.", fix="Pass ARRAY[size].")
    if len(lengths) > 1:
        raise refuse("array_fill() of several dimensions.", fix="Use jsonb.")
    length = cast("int", lengths[0]) if lengths else 0
    if not 0 <= length <= ARRAY_ITEMS_MAX:
        raise InvalidValue(f"an array of {length} elements.", fix=f"Use 0 to {ARRAY_ITEMS_MAX:,}.")
    return array_text([value] * length)


def _trimmed(items: list[StoredValue], count: int | None) -> str | None:
    """trim_array."""
    if count is None:
        return None
    if not 0 <= count <= len(items):
        raise InvalidValue(f"trim_array() by {count!r} of {len(items)} elements.", fix="Pass 0 up to its length.")
    return array_text(items[: len(items) - count])


def _sorted(items: list[Any], descending: int = 0, nulls_first: int | None = None) -> str:
    """array_sort: NULLs last, or first if it is descending."""
    # The elements are of one type: whole numbers or texts.
    known = sorted([item for item in items if item is not None], reverse=bool(descending))
    nulls: list[Any] = [None] * (len(items) - len(known))
    first = descending if nulls_first is None else nulls_first
    return array_text([*nulls, *known] if first else [*known, *nulls])


# --- Texts -----------------------------------------------------------------------------------------------------------


def _to_text(items: list[StoredValue], separator: StoredValue, null: StoredValue = None) -> str | None:
    """array_to_string: without NULLs, or with a text for them."""
    if separator is None:
        return None
    texts = [null if item is None else item for item in items]
    return str(separator).join(str(item) for item in texts if item is not None)


def _join_items(separator: StoredValue, array: StoredValue) -> StoredValue:
    """string_agg(DISTINCT …): join the texts of an array without its NULLs; NULL if no text is left."""
    texts = [item for item in _items(cast("str", array or "[]")) if item is not None]
    return str(separator or "").join(texts) if texts else None


def parts_of_text(text: StoredValue, separator: StoredValue, null: StoredValue = None) -> str | None:
    """string_to_array: the parts between separators, or the characters if that is NULL."""
    if not isinstance(text, str):
        return None
    parts = [] if not text else list(text) if separator is None else text.split(str(separator)) if separator else [text]
    return array_text([None if part == null else part for part in parts])


def _fitted(items: list[str | None], length: int) -> str:
    """Return the elements, as a column of varchar(length)[] takes them."""
    return array_text([None if item is None else varchar(item, length) for item in items])


def _fitted_numbers(items: list[str | None], precision: int, scale: int) -> str:
    """Return the elements, as a column of numeric(precision, scale)[] takes them."""
    return array_text([None if item is None else decimals.fit(item, precision, scale) for item in items])


def _cut(items: list[str | None], length: int) -> str:
    """Return the beginnings of the elements: a cast to varchar(length)[]."""
    return array_text([None if item is None else item[:length] for item in items])


# --- Order -----------------------------------------------------------------------------------------------------------


def compare(left: str, right: str) -> int:
    """Return the order of two arrays: element by element, NULL last, the shorter one first."""
    return _compare(left, right, lambda value: value)


def compare_numeric(left: str, right: str) -> int:
    """Return the order of two arrays of numeric."""
    return _compare(left, right, lambda value: Decimal(str(value)))


def _compare(left: str, right: str, key: Callable[[Any], Any]) -> int:
    first, second = _items(left), _items(right)
    for one, other in zip(first, second, strict=False):
        if one is None or other is None:
            if one is not other:
                return 1 if one is None else -1
        elif key(one) != key(other):
            return 1 if key(one) > key(other) else -1
    return (len(first) > len(second)) - (len(first) < len(second))


# --- Entries ---------------------------------------------------------------------------------------------------------

_ARRAY: Final = "anycompatiblearray"
_WITH_ITEM: Final = f"{_ARRAY}, anycompatible"
_INEXACT: Final = frozenset({"numeric", "float8", "jsonb", "interval"})


def _equated(
    name: str,
    takes: str,
    gives: str,
    body: Body,
    *,
    sqlite: str = "",
    kind: Literal["function", "operator"] = "function",
) -> Entry:
    """Declare a function that compares elements by their texts, which no inexact type allows."""
    declared = function(name, takes, gives, body, sqlite=sqlite or name, null=True)

    def build(terms: Sequence[Term], result: Type) -> Term:
        for term in terms:
            if term.type.is_array and term.type.element.name in _INEXACT:
                raise refuse(
                    f"elements of {term.type} compared here.",
                    why="1.0 and 1.00 are equal and kept apart.",
                    fix="Unnest it.",
                )
        return declared.build(terms, result)

    return declared._replace(kind=kind, build=build)


def _joining(terms: Sequence[Term], result: Type) -> Term:
    if terms[0].type.element.name not in {"text", "varchar", "int2", "int4", "int8", "numeric"}:
        raise refuse(f"array_to_string() of {terms[0].type}.", fix="Cast it: array_to_string(a::text[], ',').")
    return call("interlock_array_to_string", result, *terms)


_APPEND: Final = _of_array(lambda items, added: array_text([*items, added]), empty=True)
_PREPEND: Final = swapped(_of_array(lambda items, added: array_text([added, *items]), empty=True))
_LENGTH: Final = _of_array(lambda items, dimension: len(items) if items and dimension == 1 else None)
_CONTAINS: Final = strict(_of_array(_contains))


def _nullable(name: str, takes: str, gives: str, body: Body, *, sqlite: str = "") -> Entry:
    return function(name, takes, gives, body, sqlite=sqlite, null=True)


ENTRIES: Final[tuple[Entry, ...]] = (
    internal("array", "any", "text[]", _array, null=True),
    internal("member", "any", "bool", _member(numeric=False), null=True),
    internal("numeric_member", "any", "bool", _member(numeric=True), null=True),
    internal("array_element", "any", "text", _of_array(_element), null=True),
    internal("array_slice", "any", "text", _of_array(_sliced), null=True),
    internal("array_zip", "any", "text", _zipped, null=True),
    internal("join_items", "any", "text", _join_items, null=True),
    internal("array_to_string", "any", "text", _of_array(_to_text), null=True),
    internal("varchar_items", "text[], int4", "text[]", _of_array(_fitted)),
    internal("varchar_array", "text[], int4", "text[]", _of_array(_cut)),
    internal("numeric_items", "numeric[], int4, int4", "numeric[]", _of_array(_fitted_numbers)),
    *(built("function", "array_to_string", f"anyarray, text{rest}", "text", _joining) for rest in ("", ", text")),
    *(_nullable("string_to_array", f"text, text{rest}", "text[]", parts_of_text) for rest in ("", ", text")),
    *(
        entry
        for name, takes, sqlite, body in (
            ("array_append", _WITH_ITEM, "array_append", _APPEND),
            ("array_prepend", f"anycompatible, {_ARRAY}", "array_prepend", _PREPEND),
            ("array_cat", f"{_ARRAY}, {_ARRAY}", "array_join", _joined),
        )
        for entry in (
            function(name, takes, _ARRAY, body, sqlite=sqlite, null=True),
            operator("||", takes, _ARRAY, body, sqlite=sqlite, null=True),
        )
    ),
    _nullable("array_length", "anyarray, int4", "int4", _LENGTH),
    _nullable("array_upper", "anyarray, int4", "int4", _LENGTH, sqlite="array_length"),
    _nullable(
        "array_lower",
        "anyarray, int4",
        "int4",
        _of_array(lambda items, dimension: 1 if items and dimension == 1 else None),
    ),
    _nullable("array_ndims", "anyarray", "int4", _of_array(lambda items: 1 if items else None)),
    _nullable("array_dims", "anyarray", "text", _of_array(lambda items: f"[1:{len(items)}]" if items else None)),
    _nullable("array_reverse", "anyarray", "anyarray", _of_array(lambda items: array_text(items[::-1]))),
    _nullable("array_fill", "anyelement, int4[]", "anyarray", _filled),
    _nullable("trim_array", "anyarray, int4", "anyarray", _of_array(_trimmed)),
    built("function", "cardinality", "anyarray", "int4", lambda terms, kind: call("json_array_length", kind, *terms)),
    _equated("array_position", _WITH_ITEM, "int4", _of_array(_position)),
    _equated("array_position", f"{_WITH_ITEM}, int4", "int4", _of_array(_position), sqlite="array_position_from"),
    _equated("array_positions", _WITH_ITEM, "int4[]", _of_array(_positions)),
    _equated(
        "array_remove",
        _WITH_ITEM,
        _ARRAY,
        _of_array(lambda items, removed: array_text([known for known in items if known != removed])),
    ),
    _equated(
        "array_replace",
        f"{_WITH_ITEM}, anycompatible",
        _ARRAY,
        _of_array(lambda items, old, new: array_text([new if known == old else known for known in items])),
    ),
    *(
        _equated("array_sort", f"anyarray{rest}", "anyarray", strict(_of_array(_sorted)), sqlite=f"array_sort{place}")
        for place, rest in enumerate(("", ", bool", ", bool, bool"))
    ),
    _equated("@>", "anyarray, anyarray", "bool", _CONTAINS, sqlite="array_contains", kind="operator"),
    _equated("<@", "anyarray, anyarray", "bool", swapped(_CONTAINS), sqlite="array_contained", kind="operator"),
    _equated(
        "&&",
        "anyarray, anyarray",
        "bool",
        strict(_of_array(lambda left, right: any(item is not None and item in left for item in _items(right)))),
        sqlite="array_overlaps",
        kind="operator",
    ),
)
