"""json and jsonb: PostgreSQL's operators, functions and casts, on documents.

A jsonb document is stored as its text; each function here reads the text, keeping every digit of its numbers, and
writes the result as PostgreSQL would. PostgreSQL keeps a bare value as an array of one, which shows: `'5'::jsonb -> 0`
is 5. Of json every part keeps its text, and a key given twice comes twice.

Sections: parts, json as it is written, containment, changes, documents made of values, casts, order, entries.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final, TypeGuard, cast

from interlock.sql.functions import decimals, texts, times
from interlock.sql.registry import Entry, function, internal, operator, swapped, written
from interlock.sql.registry import cast as cast_entry
from interlock.sql.stored_values import (
    JsonNumber,
    StoredValue,
    array_items,
    is_storable,
    json_text,
    numeric_text,
    out_of_range,
    rows_text,
)
from interlock.sql.types import INTEGER_RANGE, PLAIN_TYPES, InvalidValue, Name, refuse

_PATH: Final = PLAIN_TYPES["text[]"]
_PLACE: Final = re.compile(r"[ \t\n\r\f\v]*[+-]?[0-9]{1,20}", re.ASCII)
_MISSING: Final = object()
_TYPES: Final = ("null", "string", "number", "boolean", "array", "object")
"""The types of values, in the order in which PostgreSQL sorts them."""


def loaded(text: str) -> object:
    """Parse a document from its text. Raises ValueError for invalid JSON."""
    return json.loads(text, parse_constant=_no_constant, parse_float=JsonNumber)


def _no_constant(text: str) -> object:
    raise ValueError(text)


def _loaded_flat(text: str) -> object:
    try:
        return loaded(text)
    except RecursionError as error:
        raise refuse("a document that is nested too deeply.", fix="Make it flatter.") from error


def read(text: str) -> str:
    """Return a document as it is written in its stored form."""
    value = _loaded_flat(text)
    try:
        return json_text(value)
    except RecursionError as error:
        raise refuse("a document that is nested too deeply.", fix="Make it flatter.") from error


def read_json(text: str) -> str:
    """Return a document of type json: the text as it is written, if it is valid."""
    _loaded_flat(text)
    return text


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value of a document is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a value of a document is an array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[int | JsonNumber]:
    """Return whether a value of a document is a number."""
    return isinstance(value, int | JsonNumber) and not isinstance(value, bool)


def type_of(value: object) -> str:
    """Return the type of a value of a document."""
    match value:
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


def _typeof(document: str) -> str:
    return type_of(loaded(document))


def _wrong(what: str, fix: str) -> InvalidValue:
    return InvalidValue(what, why="PostgreSQL has the same rule.", fix=fix)


def _not_a(wanted: str, found: str) -> InvalidValue:
    return _wrong(
        f"the elements of a document that is not an {wanted} but {found}.",
        "Test its type first: CASE jsonb_typeof(document) WHEN … END.",
    )


# --- Parts -----------------------------------------------------------------------------------------------------------


def _member(value: object, key: str) -> object:
    return value.get(key, _MISSING) if is_object(value) else _MISSING


def _item(value: object, place: int) -> object:
    if isinstance(value, dict):
        return _MISSING
    items = listed(value)
    return items[place] if -len(items) <= place < len(items) else _MISSING


def listed(value: object) -> list[object]:
    """Return the elements of an array, or anything else as an array of one."""
    return value if is_array(value) else [value]


def _inside(value: object, path: Sequence[StoredValue]) -> object:
    for step in path:
        if not isinstance(step, str):
            return _MISSING
        if is_array(value):
            place = place_of(step)
            value = _MISSING if place is None else _item(value, place)
        else:
            value = _member(value, step)
    return value


def _extract(write: Callable[[object], str | None]) -> Callable[..., str | None]:
    def called(document: str, *path: StoredValue) -> str | None:
        return write(_inside(loaded(document), path))

    return called


def place_of(step: str) -> int | None:
    """The number that a step of a path is, read as C's strtoint reads it."""
    if not _PLACE.fullmatch(step) or abs(int(step)) >= 2**31:
        return None
    return int(step)


def _as_json(value: object) -> str | None:
    return None if value is _MISSING else json_text(value)


def _as_text(value: object) -> str | None:
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else json_text(value)


def _found(
    find: Callable[[Any, Any], object], write: Callable[[object], str | None]
) -> Callable[[str, StoredValue], str | None]:
    return lambda document, step: write(find(loaded(document), step))


def _parts(document: str, wanted: str) -> list[tuple[str, object]]:
    """Return the members of an object, in the order in which jsonb keeps them, or the elements of an array."""
    value = loaded(document)
    if type_of(value) != wanted:
        raise _not_a(wanted, type_of(value))
    if is_object(value):
        return sorted(value.items(), key=_order_of_member)
    return [("", item) for item in listed(value)]


def _order_of_member(member: tuple[str, object]) -> tuple[int, bytes]:
    key = member[0].encode()
    return len(key), key


def _record(document: StoredValue) -> str:
    """jsonb_to_record: one row, which is NULL if the document is."""
    if document is not None:
        _parts(str(document), "object")
    return rows_text([document])


def _records(document: str) -> str:
    """jsonb_to_recordset: a row per element, each an object."""
    items = [item for _, item in _parts(document, "array")]
    if not all(map(is_object, items)):
        raise InvalidValue("jsonb_to_recordset() of an array with other elements than objects.", fix="Filter them.")
    return rows_text([json_text(item) for item in items])


# --- json as it is written -------------------------------------------------------------------------------------------
# A part is its value, decoded, and its text.

JsonPart = tuple[Any, str]
JsonFind = Callable[[str, Any], str | None]
_BLANK: Final = " \t\n\r"
_OPENING: Final = {"array": "[", "object": "{"}
_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str)
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def _next(text: str, place: int) -> int:
    while text[place] in _BLANK:
        place += 1
    return place


def _json_parts(document: str, wanted: str) -> Iterator[tuple[str, JsonPart]]:
    """Yield key and part of each member or element of a json document."""
    place = _next(document, 0)
    if document[place] != _OPENING[wanted]:
        raise _not_a(wanted, _typeof(document))
    place = _next(document, place + 1)
    while document[place] not in "]}":
        name = ""
        if wanted == "object":
            name, place = _decoded(document, place)
            place = _next(document, _next(document, place) + 1)  # After the colon.
        value, end = _decoded(document, place)
        yield name, (value, document[place:end])
        place = _next(document, end)
        if document[place] == ",":
            place = _next(document, place + 1)


def _decoded(document: str, place: int) -> tuple[Any, int]:
    return _DECODER.raw_decode(document, place)


def _storable(text: str) -> str:
    if not is_storable(text):
        raise InvalidValue("a part of a json document that cannot be text: NUL or half a pair of surrogates.")
    return text


def _text_of_part(part: JsonPart) -> str | None:
    """Return a part of a json document as text: a string is read, null is NULL, everything else stays as written."""
    value, text = part
    return _storable(value) if text.startswith('"') else None if value is None else text


def _json_found(find: JsonFind, *, is_text: bool) -> Callable[[str, StoredValue], str | None]:
    """Return an operator that finds a part; PostgreSQL reads all strings of a document to find one part of it."""

    def called(document: str, step: StoredValue) -> str | None:
        if "\\u" in document:
            for string in _STRING.findall(document):
                _storable(json.loads(string))
        found = find(document.strip(_BLANK), step)
        return found if found is None or not is_text else _text_of_part((_decoded(found, 0)[0], found))

    return called


def _json_item(document: str, place: int) -> str | None:
    if not document.startswith("["):
        return None
    items = [text for _, (_, text) in _json_parts(document, "array")]
    return items[place] if -len(items) <= place < len(items) else None


def _json_member(document: str, name: str) -> str | None:
    """Return the member of that name; of several the last one."""
    if not document.startswith("{"):
        return None
    return {known: text for known, (_, text) in _json_parts(document, "object")}.get(name)


def _json_inside(document: str, path: str) -> str | None:
    found: str | None = document
    for step in array_items(_PATH, path):
        if found is None or not isinstance(step, str):
            return None
        if found[0] == "{":
            found = _json_member(found, step)
        else:
            place = place_of(step)
            found = None if place is None else _json_item(found, place)
    return found


# --- Containment and keys --------------------------------------------------------------------------------------------


def contains(left: str, right: str) -> int:
    """@>: whether the second document is a part of the first."""
    known, value = loaded(left), loaded(right)
    if is_array(known) and type_of(value) not in {"object", "array"}:
        # An array contains a bare value, as an exception to the rule that both must have the same shape.
        return _contains(known, [value])
    return _contains(known, value)


def _contains(left: object, right: object) -> bool:
    if is_object(right):
        return is_object(left) and all(key in left and _contains(left[key], value) for key, value in right.items())
    if is_array(right):
        return is_array(left) and all(any(_contains(known, value) for known in left) for value in right)
    return _key(left) == _key(right)


def key(document: str) -> str:
    """Return the key by which documents are compared: numbers without trailing zeros."""
    return _key(loaded(document))


def _key(value: object) -> str:
    return json_text(_normal(value))


def _normal(value: object) -> object:
    if isinstance(value, JsonNumber):
        return JsonNumber(decimals.trimmed(numeric_text(value)))
    if is_array(value):
        return [_normal(item) for item in value]
    return {name: _normal(item) for name, item in value.items()} if is_object(value) else value


def _has_key(document: str, name: str) -> int:
    """Return whether the text is a key of the object or an element of the array."""
    value = loaded(document)
    return name in (value if is_object(value) else [item for item in listed(value) if isinstance(item, str)])


def _has_some(
    decide: Callable[[Iterator[int]], int],
) -> Callable[[str, str], int]:
    return lambda document, names: decide(
        _has_key(document, name) for name in array_items(_PATH, names) if isinstance(name, str)
    )


def array_length(document: str) -> int:
    """jsonb_array_length."""
    value = loaded(document)
    if not is_array(value):
        raise _wrong(f"the array length of a jsonb {type_of(value)}.", "Test jsonb_typeof() first, inside CASE.")
    return len(value)


# --- Changes ---------------------------------------------------------------------------------------------------------


def _join(left: str, right: str) -> str:
    """||: two objects become one, everything else becomes an array."""
    first, second = loaded(left), loaded(right)
    if is_object(first) and is_object(second):
        return json_text({**first, **second})
    return json_text([*listed(first), *listed(second)])


def remove(document: str, *names: StoredValue) -> str:
    """- with texts: the object without these keys, or the array without these texts."""
    value = loaded(document)
    if is_object(value):
        return json_text({known: item for known, item in value.items() if known not in names})
    return json_text([item for item in _array(value) if not isinstance(item, str) or item not in names])


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
    if not is_array(value):
        raise _wrong("deleting from a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    return value


def _around(document: str, path: str, what: str) -> tuple[object, list[StoredValue], object]:
    """Return a document, the steps of a path, and what the last step is in, if the steps before it lead somewhere."""
    whole, steps = loaded(document), array_items(_PATH, path)
    if not isinstance(whole, dict | list):
        raise _wrong(f"{what} in a jsonb that is neither object nor array.", "Test jsonb_typeof() first.")
    around = cast("object", whole)
    for depth, step in enumerate(steps, start=1):
        if not isinstance(step, str):
            raise _wrong(f"step {depth} of a path is NULL.", "Name every step.")
        if is_array(around) and place_of(step) is None:
            raise _wrong(f"step {depth} of a path, {step[:40]!r}, is not a position in an array.", "Pass a number.")
        if depth < len(steps):
            around = _inside(around, [step])
        if around is _MISSING:
            break
    return cast("object", whole), steps, around


def _position(items: list[object], step: StoredValue) -> tuple[int, bool]:
    """Return the position that a step is, from the beginning, and whether there is an element."""
    place = place_of(str(step))
    assert place is not None
    return (place + len(items) if place < 0 else place), -len(items) <= place < len(items)


def remove_path(document: str, path: str) -> str:
    """#-: the document without what is at that path."""
    if document in {"{}", "[]"}:
        return document
    whole, steps, around = _around(document, path, "deleting a path")
    if steps and is_object(around):
        around.pop(str(steps[-1]), None)
    elif steps and is_array(around):
        place, is_there = _position(around, steps[-1])
        del around[place : place + is_there]
    return json_text(whole)


def place(document: str, path: str, new: str, create: int = 1) -> str:
    """jsonb_set: the document with that at that path."""
    if not create and document in {"{}", "[]"}:
        return document
    whole, steps, around = _around(document, path, "jsonb_set()")
    if steps and is_object(around):
        if create or steps[-1] in around:
            around[str(steps[-1])] = loaded(new)
    elif steps and is_array(around):
        position, is_there = _position(around, steps[-1])
        if create or is_there:
            position = max(position, 0)
            around[position : position + is_there] = [loaded(new)]
    return json_text(whole)


def _insert(document: str, path: str, new: str, after: int = 0) -> str:
    """jsonb_insert: the document with a new element before or after that place, or a new member."""
    whole, steps, around = _around(document, path, "jsonb_insert()")
    if steps and is_object(around):
        if steps[-1] in around:
            raise _wrong(f"jsonb_insert() of the key {steps[-1]!r}, which is there already.", "Use jsonb_set().")
        around[str(steps[-1])] = loaded(new)
    elif steps and is_array(around):
        position, is_there = _position(around, steps[-1])
        around.insert(max(position + (after if is_there else 0), 0), loaded(new))
    return json_text(whole)


def _stripped(value: object, *, arrays: int) -> object:
    """jsonb_strip_nulls: the value without the members that are null, and with `arrays` without such elements."""
    if is_object(value):
        return {name: _stripped(item, arrays=arrays) for name, item in value.items() if item is not None}
    if is_array(value):
        return [_stripped(item, arrays=arrays) for item in value if item is not None or not arrays]
    return value


# --- Documents made of values ----------------------------------------------------------------------------------------
# PostgreSQL makes a number of a number and a text of nearly everything else. The other way, only a number is cast to
# a number and only a truth to a boolean; `->>` gives the text, which can be cast like any other.


def build_array(*values: StoredValue) -> str:
    """json_build_array and jsonb_build_array, of documents; NULL is null."""
    return f"[{', '.join('null' if value is None else str(value) for value in values)}]"


def _members(values: Sequence[StoredValue]) -> Iterator[tuple[str, str]]:
    for name, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(name, str):
            raise _wrong("a NULL as a key of an object.", "Filter such rows, or use coalesce().")
        yield name, "null" if value is None else str(value)


def build_object(*values: StoredValue) -> str:
    """jsonb_build_object, of texts and documents by turns; of a key given twice the last one stays."""
    return json_text({name: loaded(value) for name, value in _members(values)})


def json_object(*values: StoredValue) -> str:
    """json_build_object, of texts and documents by turns; a key given twice stays twice."""
    return f"{{{', '.join(f'{json_text(name)} : {value}' for name, value in _members(values))}}}"


def json_row(*values: StoredValue) -> str:
    """row_to_json, of names and documents by turns."""
    return f"{{{','.join(f'{json_text(name)}:{value}' for name, value in _members(values))}}}"


def _object_of(names: Sequence[StoredValue], values: Sequence[StoredValue]) -> str:
    """jsonb_object."""
    if len(names) != len(values):
        raise _wrong("jsonb_object() of keys and values in different numbers.", "Pass a value for each key.")
    if None in names:
        raise _wrong("a NULL as a key of an object.", "Use coalesce().")
    return json_text(dict(zip(cast("Sequence[str]", names), values, strict=True)))


def _object_of_pairs(array: str) -> str:
    items = array_items(_PATH, array)
    return _object_of(items[::2], items[1::2])


# --- Casts -----------------------------------------------------------------------------------------------------------


def _number(document: str, name: Name) -> Decimal:
    """Return a document that is a number."""
    value = loaded(document)
    if value is None:
        raise _null(name)
    if not is_number(value):
        raise _uncastable(value, name)
    return Decimal(value)


def to_integer(name: Name) -> Callable[[str], int]:
    """The cast to a whole number, half away from zero."""
    low, high = INTEGER_RANGE[name]

    def cast_document(document: str) -> int:
        number = int(decimals.rounded(_number(document, name), 0))
        if not low <= number <= high:
            raise out_of_range(PLAIN_TYPES[name])
        return number

    return cast_document


def to_numeric(document: str) -> str:
    """The cast to numeric."""
    return numeric_text(_number(document, "numeric"))


def to_bool(document: str) -> int:
    """The cast to boolean."""
    value = loaded(document)
    if value is None:
        raise _null("bool")
    if not isinstance(value, bool):
        raise _uncastable(value, "bool")
    return value


def _null(name: Name) -> Exception:
    return refuse(
        f"a cast of the jsonb null to {PLAIN_TYPES[name]}.",
        why="It is NULL for PostgreSQL 18 and an error for the versions before it.",
        fix="Cast the text: (document ->> 'key')::" + f"{PLAIN_TYPES[name]}.",
    )


def _uncastable(value: object, name: Name) -> InvalidValue:
    return InvalidValue(
        f"a jsonb {type_of(value)} where {PLAIN_TYPES[name]} is needed.", fix="Test jsonb_typeof() first."
    )


# --- Order -----------------------------------------------------------------------------------------------------------


def compare(left: str, right: str) -> int:
    """Return the order of two documents as PostgreSQL's index has it: the collation of jsonb."""
    if left == right:
        return 0
    # An empty array is less than everything: PostgreSQL compares a bare value as an array of one.
    if "[]" in {left, right}:
        return -1 if left == "[]" else 1
    return _compared(loaded(left), loaded(right))


def _compared(left: object, right: object) -> int:
    first, second = type_of(left), type_of(right)
    one: Any = left
    other: Any = right
    if first != second:
        one, other = _TYPES.index(first), _TYPES.index(second)
    elif first in {"array", "object"}:
        if len(one) == len(other):
            return next((found for found in map(_compared, _in_order(left), _in_order(right)) if found), 0)
        one, other = len(one), len(other)
    elif first in {"string", "null"}:
        one, other = str(left).encode(), str(right).encode()
    return int(one > other) - int(one < other)


def _in_order(value: object) -> Iterator[object]:
    """Return elements, or keys and values by turns: keys are kept by length and then by bytes."""
    if is_object(value):
        for member in sorted(value.items(), key=_order_of_member):
            yield from member
    else:
        yield from listed(value)


def _pretty(value: object, depth: int = 0) -> str:
    """jsonb_pretty."""
    indent = "    " * (depth + 1)
    if is_object(value):
        members = sorted(value.items(), key=_order_of_member)
        lines = [f"{indent}{json_text(name)}: {_pretty(item, depth + 1)}" for name, item in members]
    elif is_array(value):
        lines = [f"{indent}{_pretty(item, depth + 1)}" for item in value]
    else:
        return json_text(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(lines) + ("\n" if lines else "") + "    " * depth + closing


# --- Entries ---------------------------------------------------------------------------------------------------------

Write = Callable[[Any], str | None]
_KINDS: Final[dict[str, tuple[Callable[[str, str], Any], Write, Write]]] = {
    "jsonb": (_parts, json_text, _as_text),
    "json": (_json_parts, itemgetter(1), _text_of_part),
}
"""How to get the parts of a document, and how to write one as a document and as text."""


def _rows_of(kind: str) -> Iterator[Entry]:
    """Declare the functions that give a row for each part of a document."""
    parts, write, write_text = _KINDS[kind]

    def elements(write: Write) -> Callable[[str], str]:
        return lambda document: rows_text([write(part) for _, part in parts(document, "array")])

    def members(write: Write) -> Callable[[str], str]:
        return lambda document: rows_text([[_storable(name), write(part)] for name, part in parts(document, "object")])

    def keys(document: str) -> str:
        return rows_text([_storable(name) for name, _ in parts(document, "object")])

    for name, sqlite, body in (
        ("array_elements", "elements", elements(write)),
        ("array_elements_text", "elements_text", elements(write_text)),
        ("object_keys", "keys", keys),
        ("each", "members", members(write)),
        ("each_text", "members_text", members(write_text)),
    ):
        yield function(f"interlock {kind}_{name}", kind, "text", body, sqlite=f"rows_{kind}_{sqlite}")


def _inside_path(value: object, path: str) -> object:
    return _inside(value, array_items(_PATH, path))


_STEPS: Final[tuple[tuple[str, str, str, Callable[[Any, Any], object], JsonFind], ...]] = (
    ("->", "text", "member", _member, _json_member),
    ("->", "int4", "item", _item, _json_item),
    ("#>", "text[]", "inside", _inside_path, _json_inside),
)


def _extractions() -> Iterator[Entry]:
    for sign, step, name, find, find_json in _STEPS:
        for more, suffix, gives in (("", "", ""), (">", "_text", "text")):
            body = _found(find, _as_text if gives else _as_json)
            yield operator(sign + more, f"jsonb, {step}", gives or "jsonb", body, sqlite=f"jsonb_{name}{suffix}")
            body = _json_found(find_json, is_text=bool(gives))
            yield operator(sign + more, f"json, {step}", gives or "json", body, sqlite=f"json_{name}{suffix}")


ENTRIES: Final[tuple[Entry, ...]] = (
    *_extractions(),
    *_rows_of("jsonb"),
    *_rows_of("json"),
    function("interlock jsonb_to_record", "jsonb", "text", _record, sqlite="rows_jsonb_record", null=True),
    function("interlock jsonb_to_recordset", "jsonb", "text", _records, sqlite="rows_jsonb_records"),
    operator("@>", "jsonb, jsonb", "bool", contains, sqlite="jsonb_contains"),
    operator("<@", "jsonb, jsonb", "bool", swapped(contains), sqlite="jsonb_contained"),
    operator("?", "jsonb, text", "bool", _has_key, sqlite="jsonb_has_key"),
    operator("?|", "jsonb, text[]", "bool", _has_some(any), sqlite="jsonb_has_any"),
    operator("?&", "jsonb, text[]", "bool", _has_some(all), sqlite="jsonb_has_all"),
    operator("||", "jsonb, jsonb", "jsonb", _join, sqlite="jsonb_join"),
    operator("-", "jsonb, text", "jsonb", remove, sqlite="jsonb_remove"),
    operator("-", "jsonb, int4", "jsonb", remove_item, sqlite="jsonb_remove_item"),
    operator(
        "-",
        "jsonb, text[]",
        "jsonb",
        lambda document, names: remove(document, *array_items(_PATH, names)),
        sqlite="jsonb_remove_names",
    ),
    operator("#-", "jsonb, text[]", "jsonb", remove_path, sqlite="jsonb_remove_path"),
    function("jsonb_typeof", "jsonb", "text", _typeof),
    function("json_typeof", "json", "text", _typeof, sqlite="jsonb_typeof"),
    function("jsonb_array_length", "jsonb", "int4", array_length),
    function("json_array_length", "json", "int4", array_length, sqlite="jsonb_array_length"),
    *(
        function(
            "jsonb_strip_nulls",
            f"jsonb{rest}",
            "jsonb",
            lambda document, arrays=0: json_text(_stripped(loaded(document), arrays=arrays)),
        )
        for rest in ("", ", bool")
    ),
    *(function("jsonb_insert", f"jsonb, text[], jsonb{rest}", "jsonb", _insert) for rest in ("", ", bool")),
    *(function("jsonb_set", f"jsonb, text[], jsonb{rest}", "jsonb", place) for rest in ("", ", bool")),
    function("jsonb_object", "text[]", "jsonb", _object_of_pairs, sqlite="jsonb_object_of_pairs"),
    function(
        "jsonb_object",
        "text[], text[]",
        "jsonb",
        lambda names, values: _object_of(array_items(_PATH, names), array_items(_PATH, values)),
        sqlite="jsonb_object_of_arrays",
    ),
    function("jsonb_pretty", "jsonb", "text", lambda document: _pretty(loaded(document))),
    internal("jsonb_key", "jsonb", "text", key),
    internal("jsonb_extract_path", "any", "jsonb", _extract(_as_json)),
    internal("jsonb_extract_path_text", "any", "text", _extract(_as_text)),
    internal("jsonb_from_text", "text", "jsonb", json_text),
    internal("jsonb_from_float8", "float8", "jsonb", lambda value: numeric_text(Decimal(texts.from_float(value)))),
    internal(
        "jsonb_from_timestamptz",
        "timestamptz",
        "jsonb",
        lambda moment: json_text(times.moment_text(moment, "T", ":00")),
    ),
    internal("jsonb_from_timestamp", "timestamp", "jsonb", lambda moment: json_text(times.timestamp_text(moment, "T"))),
    internal("jsonb_from_array", "text[]", "jsonb", read),
    internal("jsonb_build_array", "any", "jsonb", build_array, null=True),
    internal("jsonb_build_object", "any", "jsonb", build_object, null=True),
    internal("json_build_array", "any", "json", build_array, null=True),
    internal("json_build_object", "any", "json", json_object, null=True),
    internal("json_row", "any", "json", json_row, null=True),
    internal(
        "json_items", "text[]", "json", lambda array: f"[{','.join(json_text(item) for item in listed(loaded(array)))}]"
    ),
    *(cast_entry("jsonb", name, to_integer(name)) for name in INTEGER_RANGE),
    cast_entry("jsonb", "numeric", to_numeric),
    cast_entry("jsonb", "float8", lambda document: decimals.to_float(numeric_text(_number(document, "float8")))),
    cast_entry("jsonb", "bool", to_bool),
    *(cast_entry("jsonb", target, read, sqlite="jsonb_to_text") for target in ("text", "varchar")),
    *(written("cast", "", "json", target, "{0}") for target in ("text", "varchar")),
    cast_entry("json", "jsonb", read, sqlite="jsonb_to_text"),
    # A column as it is would bring its collation along.
    cast_entry("jsonb", "json", read, sqlite="jsonb_to_text"),
)
