"""jsonb: PostgreSQL's operators, functions and casts, on documents.

A document is stored as its text; each function here reads the text, keeping every digit of its numbers, and writes the
result as PostgreSQL would. PostgreSQL keeps a bare value as an array of one, which shows: `'5'::jsonb -> 0` is 5.
"""

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final, cast

from interlock.errors import TransactionError
from interlock.sql.functions import decimals, texts, times
from interlock.sql.types import INTEGER_RANGE, PLAIN_TYPES, Name, refuse
from interlock.sql.values import JsonNumber, StoredValue, array_items, json_text, numeric_text, out_of_range

_PATH: Final = PLAIN_TYPES["text[]"]
_PLACE: Final = re.compile(r"[ \t\n\r\f\v]*[+-]?[0-9]{1,20}", re.ASCII)
_MISSING: Final = object()


def loaded(text: str) -> object:
    """Parse a document from its text. Raises ValueError for invalid JSON."""
    return json.loads(text, parse_constant=_no_constant, parse_float=JsonNumber)


def _no_constant(text: str) -> object:
    raise ValueError(text)


def read(text: str) -> str:
    """A document as it is written, in its stored form."""
    try:
        return json_text(loaded(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _wrong(what: str, fix: str) -> TransactionError:
    return TransactionError(what, why="PostgreSQL has the same rule.", fix=fix)


# --- Extraction ------------------------------------------------------------------------------------------------------


def member(document: str, key: str) -> str | None:
    """-> with a name."""
    return _written(_member(loaded(document), key))


def member_text(document: str, key: str) -> str | None:
    """->> with a name."""
    return _as_text(_member(loaded(document), key))


def item(document: str, place: int) -> str | None:
    """-> with a number."""
    return _written(_item(loaded(document), place))


def item_text(document: str, place: int) -> str | None:
    """->> with a number."""
    return _as_text(_item(loaded(document), place))


def inside(document: str, path: str) -> str | None:
    """#>, by a path."""
    return _written(_inside(loaded(document), array_items(_PATH, path)))


def inside_text(document: str, path: str) -> str | None:
    """#>>, by a path."""
    return _as_text(_inside(loaded(document), array_items(_PATH, path)))


def _member(value: object, key: str) -> object:
    return cast("dict[str, object]", value).get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _item(value: object, place: int) -> object:
    if isinstance(value, dict):
        return _MISSING
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return items[place] if -len(items) <= place < len(items) else _MISSING


def _inside(value: object, path: Sequence[StoredValue]) -> object:
    for step in path:
        if step is None:
            return _MISSING
        assert isinstance(step, str)
        if isinstance(value, list):
            place = _place(step)
            value = _MISSING if place is None else _item(cast("object", value), place)
        else:
            value = _member(value, step)
    return value


def _place(step: str) -> int | None:
    """The number that a step of a path is, read as C's strtoint reads it."""
    if not _PLACE.fullmatch(step) or abs(int(step)) >= 2**31:
        return None
    return int(step)


def _written(value: object) -> str | None:
    return None if value is _MISSING else json_text(value)


def _as_text(value: object) -> str | None:
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else json_text(value)


# --- Containment, keys and types -------------------------------------------------------------------------------------


def contains(left: str, right: str) -> int:
    """@>: whether the second document is a part of the first."""
    return _contains(loaded(left), loaded(right), outermost=True)


def _contains(left: object, right: object, *, outermost: bool = False) -> bool:
    if isinstance(right, dict):
        if not isinstance(left, dict):
            return False
        known = cast("dict[str, object]", left)
        members = cast("dict[str, object]", right).items()
        return all(key in known and _contains(known[key], value) for key, value in members)
    if isinstance(right, list):
        if not isinstance(left, list):
            return False
        items = cast("list[object]", left)
        return all(any(_contains(known, value) for known in items) for value in cast("list[object]", right))
    if outermost and isinstance(left, list):
        # An array contains a bare value, as an exception to the rule that both must have the same shape.
        return any(_same(known, right) for known in cast("list[object]", left))
    return _same(left, right)


def _same(left: object, right: object) -> bool:
    return _key(left) == _key(right)


def key(document: str) -> str:
    """Return the key by which documents are compared: numbers without trailing zeros."""
    return _key(loaded(document))


def _key(value: object) -> str:
    return json_text(_normal(value))


def _normal(value: object) -> object:
    match value:
        case JsonNumber():
            text = numeric_text(value)
            return JsonNumber(text.rstrip("0").rstrip(".") if "." in text else text)
        case list():
            return [_normal(item) for item in cast("list[object]", value)]
        case dict():
            return {key: _normal(item) for key, item in cast("dict[str, object]", value).items()}
        case _:
            return value


def has_key(document: str, name: str) -> int:
    """?: whether the text is a key of the object or an element of the array."""
    value = loaded(document)
    return name in cast("dict[str, object]", value) if isinstance(value, dict) else name in _strings(value)


def has_any(document: str, names: str) -> int:
    """?|: whether one of the texts is."""
    return any(has_key(document, name) for name in array_items(_PATH, names) if isinstance(name, str))


def has_all(document: str, names: str) -> int:
    """?&: whether all of the texts are."""
    return all(has_key(document, name) for name in array_items(_PATH, names) if isinstance(name, str))


def _strings(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [known for known in items if isinstance(known, str)]


def typeof(document: str) -> str:
    """jsonb_typeof."""
    match loaded(document):
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def array_length(document: str) -> int:
    """jsonb_array_length."""
    value = loaded(document)
    if not isinstance(value, list):
        raise _wrong(f"the array length of a jsonb {typeof(document)}.", "Test jsonb_typeof() first, inside CASE.")
    return len(cast("list[object]", value))


# --- Changes ---------------------------------------------------------------------------------------------------------


def join(left: str, right: str) -> str:
    """||: two objects become one, everything else becomes an array."""
    values = [loaded(left), loaded(right)]
    if all(isinstance(value, dict) for value in values):
        first, second = cast("list[dict[str, object]]", values)
        return json_text({**first, **second})
    return json_text([item for value in values for item in _listed(value)])


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def remove(document: str, name: str) -> str:
    """- with a text: the object without that key, or the array without that text."""
    value = loaded(document)
    if isinstance(value, dict):
        return json_text({known: item for known, item in cast("dict[str, object]", value).items() if known != name})
    return json_text([item for item in _array(value) if item != name or not isinstance(item, str)])


def remove_item(document: str, place: int) -> str:
    """- with a number: the array without the element at that place."""
    value = loaded(document)
    if isinstance(value, dict):
        raise _wrong("deleting from a jsonb object by a number.", "Pass the key as text.")
    items = _array(value)
    if -len(items) <= place < len(items):
        del items[place]
    return json_text(items)


def _array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _wrong("deleting from a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    return cast("list[object]", value)


def remove_path(document: str, path: str) -> str:
    """#-: the document without what is at that path."""
    value, steps = loaded(document), array_items(_PATH, path)
    if not isinstance(value, dict | list):
        raise _wrong("deleting a path in a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    if steps and value:
        _change(cast("object", value), steps, 0, _MISSING, create=False)
    return json_text(cast("object", value))


def place(document: str, path: str, new: str, create: int = 1) -> str:
    """jsonb_set: the document with that at that path."""
    value, steps = loaded(document), array_items(_PATH, path)
    if not isinstance(value, dict | list):
        raise _wrong("jsonb_set() in a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    if not create and not cast("object", value):
        return document
    if steps:
        _change(cast("object", value), steps, 0, loaded(new), create=bool(create))
    return json_text(cast("object", value))


def _change(value: object, path: Sequence[StoredValue], depth: int, new: object, *, create: bool) -> None:
    step, last = path[depth], depth == len(path) - 1
    if step is None:
        raise _wrong(f"step {depth + 1} of a path is NULL.", "Name every step.")
    assert isinstance(step, str)
    if isinstance(value, dict):
        _change_member(cast("dict[str, object]", value), step, path, depth, new, create=create, last=last)
    elif isinstance(value, list):
        _change_item(cast("list[object]", value), step, path, depth, new, create=create, last=last)


def _change_member(
    members: dict[str, object],
    step: str,
    path: Sequence[StoredValue],
    depth: int,
    new: object,
    *,
    create: bool,
    last: bool,
) -> None:
    if not last:
        if step in members:
            _change(members[step], path, depth + 1, new, create=create)
    elif new is _MISSING:
        members.pop(step, None)
    elif create or step in members:
        members[step] = new


def _change_item(
    items: list[object], step: str, path: Sequence[StoredValue], depth: int, new: object, *, create: bool, last: bool
) -> None:
    place = _place(step)
    if place is None:
        raise _wrong(f"step {depth + 1} of a path, {step[:40]!r}, is not a position in an array.", "Pass a number.")
    found = -len(items) <= place < len(items)
    if not last:
        if found:
            _change(items[place], path, depth + 1, new, create=create)
    elif found:
        if new is _MISSING:
            del items[place]
        else:
            items[place] = new
    elif create and new is not _MISSING:
        items.insert(0 if place < 0 else len(items), new)


def strip_nulls(document: str) -> str:
    """jsonb_strip_nulls: the document without the members that are null."""
    return json_text(_stripped(loaded(document)))


def _stripped(value: object) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {name: _stripped(item) for name, item in members if item is not None}
    return [_stripped(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


# --- Documents made of values ----------------------------------------------------------------------------------------
# PostgreSQL makes a number of a number and a text of nearly everything else. The other way, only a number is cast to
# a number and only a truth to a boolean; `->>` gives the text, which can be cast like any other.


def build_array(*values: StoredValue) -> str:
    """jsonb_build_array, of documents; NULL is null."""
    return f"[{', '.join('null' if value is None else str(value) for value in values)}]"


def build_object(*values: StoredValue) -> str:
    """jsonb_build_object, of texts and documents by turns; of a key given twice the last one stays."""
    members: dict[str, object] = {}
    for name, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(name, str):
            raise TransactionError("a NULL as a key of a jsonb object.", fix="Use coalesce().")
        members[name] = None if value is None else loaded(str(value))
    return json_text(members)


def from_text(text: str) -> str:
    """A text as a document."""
    return json_text(text)


def from_float(value: float) -> str:
    """A float as a document: PostgreSQL writes it out and reads it as numeric."""
    return numeric_text(Decimal(texts.from_float(value)))


def from_moment(moment: int) -> str:
    """A moment as a document, in the form of ISO 8601."""
    return json_text(times.moment_text(moment, "T", ":00"))


# --- Casts -----------------------------------------------------------------------------------------------------------


def to_number(document: str, name: Name) -> str:
    """A document that is a number, as a stored numeric."""
    value = loaded(document)
    if value is None:
        raise _null(name)
    if isinstance(value, bool) or not isinstance(value, int | JsonNumber):
        raise _uncastable(document, name)
    return numeric_text(Decimal(value))


def to_integer(name: Name) -> Callable[[str], int]:
    """The cast to a whole number, half away from zero."""
    low, high = INTEGER_RANGE[name]

    def cast_document(document: str) -> int:
        number = int(decimals.rounded(Decimal(to_number(document, name)), 0))
        if not low <= number <= high:
            raise out_of_range(PLAIN_TYPES[name])
        return number

    return cast_document


def to_numeric(document: str) -> str:
    """The cast to numeric."""
    return to_number(document, "numeric")


def to_float(document: str) -> float:
    """The cast to double precision."""
    return decimals.to_float(to_number(document, "float8"))


def to_bool(document: str) -> int:
    """The cast to boolean."""
    value = loaded(document)
    if value is None:
        raise _null("bool")
    if not isinstance(value, bool):
        raise _uncastable(document, "bool")
    return value


def _null(name: Name) -> Exception:
    return refuse(
        f"a cast of the jsonb null to {PLAIN_TYPES[name]}.",
        why="It is NULL for PostgreSQL 18 and an error for the versions before it.",
        fix="Cast the text: (document ->> 'key')::" + f"{PLAIN_TYPES[name]}.",
    )


def _uncastable(document: str, name: Name) -> TransactionError:
    return TransactionError(
        f"a jsonb {typeof(document)} where {PLAIN_TYPES[name]} is needed.", fix="Test jsonb_typeof() first."
    )
