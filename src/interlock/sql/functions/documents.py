"""jsonb: PostgreSQL's operators, functions and casts, on documents.

A document is stored as its text; each function here reads the text, keeping every digit of its numbers, and writes the
result as PostgreSQL would. PostgreSQL keeps a bare value as an array of one, which shows: `'5'::jsonb -> 0` is 5.

Sections: extraction, containment, changes, documents made of values, casts, order, entries.
"""

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final, cast

from interlock.errors import TransactionError
from interlock.sql.functions import decimals, texts, times
from interlock.sql.registry import cast as cast_entry
from interlock.sql.registry import function, operator, swapped, written
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
        raise refuse("a document that is nested too deeply.", fix="Make it flatter.") from error


def read_json(text: str) -> str:
    """A document of type json: the text as it is written, if it is valid."""
    try:
        loaded(text)
    except RecursionError as error:
        raise refuse("a document that is nested too deeply.", fix="Make it flatter.") from error
    return text


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
            place = place_of(step)
            value = _MISSING if place is None else _item(cast("object", value), place)
        else:
            value = _member(value, step)
    return value


def place_of(step: str) -> int | None:
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
    place = place_of(step)
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


def insert(document: str, path: str, new: str, after: int = 0) -> str:
    """jsonb_insert: the document with a new element before or after that place, or a new member."""
    value, steps = loaded(document), array_items(_PATH, path)
    if not isinstance(value, dict | list):
        raise _wrong("jsonb_insert() in a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    if not steps:
        return document
    around = cast("object", value)
    for depth, step in enumerate(steps, start=1):
        _check_step(around, step)
        if depth < len(steps):
            around = _inside(around, [step])
        if around is _MISSING:
            break
    _insert_at(around, cast("str", steps[-1]), loaded(new), after=bool(after))
    return json_text(cast("object", value))


def _check_step(around: object, step: StoredValue) -> None:
    if not isinstance(step, str):
        raise _wrong("a step of a path is NULL.", "Name every step.")
    if isinstance(around, list) and place_of(step) is None:
        raise _wrong(f"the step {step!r} of a path is not a position in an array.", "Pass a number.")


def _insert_at(around: object, last: str, new: object, *, after: bool) -> None:
    if isinstance(around, dict):
        members = cast("dict[str, object]", around)
        if last in members:
            raise _wrong(f"jsonb_insert() of the key {last!r}, which is there already.", "Use jsonb_set().")
        members[last] = new
    elif isinstance(around, list):
        place = place_of(last)
        assert place is not None
        items = cast("list[object]", around)
        if place < -len(items):
            items.insert(0, new)
        elif place >= len(items):
            items.append(new)
        else:
            items.insert(place + (len(items) if place < 0 else 0) + after, new)


def object_of_pairs(array: str) -> str:
    """jsonb_object of keys and values by turns."""
    items = array_items(_PATH, array)
    if len(items) % 2:
        raise _wrong("jsonb_object() of an odd number of elements.", "Pass keys and values by turns.")
    return _object(items[::2], items[1::2])


def object_of_arrays(names: str, values: str) -> str:
    """jsonb_object of an array of keys and one of values."""
    return _object(array_items(_PATH, names), array_items(_PATH, values))


def _object(names: Sequence[StoredValue], values: Sequence[StoredValue]) -> str:
    if len(names) != len(values):
        raise _wrong("jsonb_object() of arrays of different lengths.", "Pass a value for each key.")
    if None in names:
        raise _wrong("a NULL as a key of a jsonb object.", "Use coalesce().")
    return json_text(dict(zip(cast("Sequence[str]", names), values, strict=True)))


def strip_nulls(document: str, arrays: int = 0) -> str:
    """jsonb_strip_nulls: the document without the members that are null, and with `arrays` without such elements."""
    return json_text(_stripped(loaded(document), arrays=bool(arrays)))


def _stripped(value: object, *, arrays: bool) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {name: _stripped(item, arrays=arrays) for name, item in members if item is not None}
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    return [_stripped(item, arrays=arrays) for item in items if item is not None or not arrays]


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


def from_timestamp(moment: int) -> str:
    """A timestamp as a document, in the form of ISO 8601."""
    return json_text(times.timestamp_text(moment, "T"))


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


# --- Order and further functions -------------------------------------------------------------------------------------


def compare(left: str, right: str) -> int:
    """Return the order of two documents as PostgreSQL's index has it: the collation of jsonb."""
    return 0 if left == right else _compared(loaded(left), loaded(right), outermost=True)


def _rank(value: object) -> int:
    match value:
        case None:
            return 0
        case str():
            return 1
        case bool():
            return 3
        case list():
            return 4
        case dict():
            return 5
        case _:
            return 2


def _compared(left: object, right: object, *, outermost: bool = False) -> int:  # noqa: PLR0911 -- a case per type.
    first, second = _rank(left), _rank(right)
    if first != second:
        if outermost:
            # An empty array is less than everything: PostgreSQL compares a bare value as an array of one.
            for value, other, sign in ((left, right, -1), (right, left, 1)):
                if value == [] and not isinstance(other, dict):
                    return sign
            if {first, second} & {4} and 5 not in {first, second}:  # noqa: PLR2004 -- the ranks of arrays and objects
                return -1 if second == 4 else 1  # noqa: PLR2004
        return -1 if first < second else 1
    if isinstance(left, list) and isinstance(right, list):
        return _compared_lists(cast("list[object]", left), cast("list[object]", right))
    if isinstance(left, dict) and isinstance(right, dict):
        return _compared_objects(cast("dict[str, object]", left), cast("dict[str, object]", right))
    if isinstance(left, str):
        one, other = left.encode(), str(right).encode()
        return (one > other) - (one < other)
    if left is None:
        return 0
    a, b = Decimal(cast("int", left)), Decimal(cast("int", right))
    return (a > b) - (a < b)


def _compared_lists(left: list[object], right: list[object]) -> int:
    if len(left) != len(right):
        return -1 if len(left) < len(right) else 1
    return next((found for found in map(_compared, left, right) if found), 0)


def _compared_objects(left: dict[str, object], right: dict[str, object]) -> int:
    if len(left) != len(right):
        return -1 if len(left) < len(right) else 1
    # Keys are kept by length and then by bytes, and compared like texts.
    pairs = zip(
        *(sorted(each.items(), key=lambda item: (len(item[0].encode()), item[0].encode())) for each in (left, right)),
        strict=True,
    )
    for (key_of_left, value), (key_of_right, other) in pairs:
        found = _compared(key_of_left, key_of_right) or _compared(value, other)
        if found:
            return found
    return 0


def json_array(*items: StoredValue) -> str:
    """json_build_array: each item is JSON already, or NULL."""
    return f"[{', '.join('null' if item is None else str(item) for item in items)}]"


def json_object(*pairs: StoredValue) -> str:
    """json_build_object: keys as text and values as JSON, by turns; a key given twice stays twice."""
    written_pairs: list[str] = []
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if name is None:
            raise _wrong("a key of an object must not be NULL.", "Filter such rows, or use coalesce().")
        written_pairs.append(f"{json_text(name)} : {'null' if value is None else str(value)}")
    return f"{{{', '.join(written_pairs)}}}"


def json_items(array: str) -> str:
    """to_json() of an array of whole numbers or texts."""
    items = cast("list[object]", loaded(array))
    return f"[{','.join(json_text(item) for item in items)}]"


def extract_path(document: str, *path: StoredValue) -> str | None:
    """jsonb_extract_path."""
    return _written(_inside(loaded(document), path))


def extract_path_text(document: str, *path: StoredValue) -> str | None:
    """jsonb_extract_path_text."""
    return _as_text(_inside(loaded(document), path))


def remove_names(document: str, names: str) -> str:
    """- with an array of texts: the document without these keys."""
    for name in array_items(_PATH, names):
        if isinstance(name, str):
            document = remove(document, name)
    if not isinstance(loaded(document), dict | list):
        raise _wrong("deleting from a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    return document


def pretty(document: str) -> str:
    """jsonb_pretty."""
    return _pretty(loaded(document), 0)


def _pretty(value: object, depth: int) -> str:
    indent = "    " * (depth + 1)
    if isinstance(value, dict):
        keys = sorted(cast("dict[str, object]", value), key=lambda key: (len(key.encode()), key.encode()))
        lines = [
            f"{indent}{json_text(key)}: {_pretty(cast('dict[str, object]', value)[key], depth + 1)}" for key in keys
        ]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        lines = [f"{indent}{_pretty(item, depth + 1)}" for item in cast("list[object]", value)]
        opening, closing = "[", "]"
    else:
        return json_text(value)
    return opening + "\n" + ",\n".join(lines) + ("\n" if lines else "") + "    " * depth + closing


# --- Entries ---------------------------------------------------------------------------------------------------------

ENTRIES: Final = (
    operator("->", "jsonb, text", "jsonb", member, sqlite="jsonb_member"),
    operator("->>", "jsonb, text", "text", member_text, sqlite="jsonb_member_text"),
    operator("->", "jsonb, int4", "jsonb", item, sqlite="jsonb_item"),
    operator("->>", "jsonb, int4", "text", item_text, sqlite="jsonb_item_text"),
    operator("#>", "jsonb, text[]", "jsonb", inside, sqlite="jsonb_inside"),
    operator("#>>", "jsonb, text[]", "text", inside_text, sqlite="jsonb_inside_text"),
    operator("@>", "jsonb, jsonb", "bool", contains, sqlite="jsonb_contains"),
    operator("<@", "jsonb, jsonb", "bool", swapped(contains), sqlite="jsonb_contained"),
    operator("?", "jsonb, text", "bool", has_key, sqlite="jsonb_has_key"),
    operator("?|", "jsonb, text[]", "bool", has_any, sqlite="jsonb_has_any"),
    operator("?&", "jsonb, text[]", "bool", has_all, sqlite="jsonb_has_all"),
    operator("||", "jsonb, jsonb", "jsonb", join, sqlite="jsonb_join"),
    operator("-", "jsonb, text", "jsonb", remove, sqlite="jsonb_remove"),
    operator("-", "jsonb, int4", "jsonb", remove_item, sqlite="jsonb_remove_item"),
    operator("-", "jsonb, text[]", "jsonb", remove_names, sqlite="jsonb_remove_names"),
    operator("#-", "jsonb, text[]", "jsonb", remove_path, sqlite="jsonb_remove_path"),
    function("interlock jsonb_key", "jsonb", "text", key, sqlite="jsonb_key"),
    function("jsonb_typeof", "jsonb", "text", typeof),
    function("jsonb_array_length", "jsonb", "int4", array_length),
    function("jsonb_strip_nulls", "jsonb", "jsonb", strip_nulls),
    function("jsonb_strip_nulls", "jsonb, bool", "jsonb", strip_nulls),
    *(function("jsonb_insert", f"jsonb, text[], jsonb{rest}", "jsonb", insert) for rest in ("", ", bool")),
    function("jsonb_object", "text[]", "jsonb", object_of_pairs, sqlite="jsonb_object_of_pairs"),
    function("jsonb_object", "text[], text[]", "jsonb", object_of_arrays, sqlite="jsonb_object_of_arrays"),
    function("json_typeof", "json", "text", typeof, sqlite="jsonb_typeof"),
    function("json_array_length", "json", "int4", array_length, sqlite="jsonb_array_length"),
    function("interlock extract_path", "any", "jsonb", extract_path, sqlite="jsonb_extract_path"),
    function("interlock extract_path_text", "any", "text", extract_path_text, sqlite="jsonb_extract_path_text"),
    function("jsonb_set", "jsonb, text[], jsonb", "jsonb", place),
    function("jsonb_set", "jsonb, text[], jsonb, bool", "jsonb", place),
    function("jsonb_pretty", "jsonb", "text", pretty),
    function("interlock jsonb_from_text", "text", "jsonb", from_text, sqlite="jsonb_from_text"),
    function("interlock jsonb_from_float8", "float8", "jsonb", from_float, sqlite="jsonb_from_float8"),
    function("interlock jsonb_from_timestamptz", "timestamptz", "jsonb", from_moment, sqlite="jsonb_from_timestamptz"),
    function(
        "interlock jsonb_from_timestamp",
        "timestamp",
        "jsonb",
        from_timestamp,
        sqlite="jsonb_from_timestamp",
    ),
    function("interlock jsonb_from_array", "text[]", "jsonb", read, sqlite="jsonb_from_array"),
    function("interlock jsonb_build_array", "any", "jsonb", build_array, sqlite="jsonb_build_array", null=True),
    function("interlock jsonb_build_object", "any", "jsonb", build_object, sqlite="jsonb_build_object", null=True),
    function("interlock json_build_array", "any", "json", json_array, sqlite="json_build_array", null=True),
    function("interlock json_build_object", "any", "json", json_object, sqlite="json_build_object", null=True),
    function("interlock json_items", "text[]", "json", json_items, sqlite="json_items"),
    *(cast_entry("jsonb", name, to_integer(name)) for name in INTEGER_RANGE),
    cast_entry("jsonb", "numeric", to_numeric),
    cast_entry("jsonb", "float8", to_float),
    cast_entry("jsonb", "bool", to_bool),
    cast_entry("jsonb", "text", read),
    cast_entry("jsonb", "varchar", read, sqlite="jsonb_to_text"),
    written("cast", "", "json", "text", "{0}"),
    written("cast", "", "json", "varchar", "{0}"),
    cast_entry("json", "jsonb", read, sqlite="jsonb_to_text"),
    # A column as it is would bring its collation along.
    cast_entry("jsonb", "json", read, sqlite="jsonb_to_text"),
)
