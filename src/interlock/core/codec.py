"""Codec of one machine: contexts and events to JSON and back, typed and bounded, without silent loss.

Any type msgspec can encode is a context: dataclass, Struct, TypedDict; a pydantic model too, without importing
pydantic. NaN and NUL are refused on every store: JSON has no NaN (encoders write null), and PostgreSQL stores no NUL.

The odd choice: the encoded bytes are searched for `null` and the escaped NUL first, because a substring search costs a
hundredth of walking the value. The value is walked only after a match.

Sections: defaults, storable types, JSON schemas, codec, copies.
"""

import collections.abc
import dataclasses
import datetime
import decimal
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, cast

import msgspec
from msgspec import inspect

from interlock.core.decide import bounded_repr, suggestion
from interlock.core.events import Event, wire_name
from interlock.core.table import Table, class_of, is_exact, name_of
from interlock.core.values import ContextT, StoredJson
from interlock.errors import DefinitionError, InvalidPayload, PayloadTooLarge

# --- Defaults that data from outside left out ------------------------------------------------------------------------
# The decoder does not set such a field on the instance: reading it finds the default of the class, and encoding the
# value again leaves it out. Without this, two equal requests, one with the default and one without, would differ in
# their bytes. The second would be refused as another input (B4) or another payload (B5).

ValueT = TypeVar("ValueT")

TYPES_MAX = 4_096

_FIELD_NAMES: dict[type, tuple[str, ...]] = {}
"""The field names of each dataclass; empty for other classes."""


def fill_defaults(value: ValueT, *, flat: bool = False) -> ValueT:
    """Set every field on the value and return it. `flat` says that it contains no decoded values to complete."""
    if flat and _is_whole(value, _FIELD_NAMES.get(type(value))):
        return value
    waiting: list[object] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += cast("dict[object, object]", each).values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += cast("list[object]", each)
        else:
            names = _FIELD_NAMES.get(type(each))
            if names is None:
                names = _field_names(each)
            if names:
                waiting += _fill_fields(each, names)
    return value


def _is_whole(value: object, names: tuple[str, ...] | None) -> bool:
    """Return whether the instance itself has all these fields; False for an unknown class (None)."""
    return names is not None and (not names or all(map(value.__dict__.__contains__, names)))


def _field_names(value: object) -> tuple[str, ...]:
    if len(_FIELD_NAMES) >= TYPES_MAX:
        _FIELD_NAMES.clear()
    names: tuple[str, ...] = ()
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        names = tuple(field.name for field in dataclasses.fields(value))
    _FIELD_NAMES[type(value)] = names
    return names


def _fill_fields(value: object, names: tuple[str, ...]) -> list[object]:
    attributes = cast("dict[str, object]", value.__dict__)
    if not _is_whole(value, names):
        # Field order first, because that is the order of encoding; then attributes that __post_init__ has set.
        whole = {name: getattr(value, name) for name in names} | {
            name: each for name, each in attributes.items() if name not in names
        }
        attributes.clear()
        attributes.update(whole)
    return [each for each in attributes.values() if not isinstance(each, str | int | float | None)]


# --- Storable types --------------------------------------------------------------------------------------------------
# All types of msgspec can be stored, and pydantic models. One combination is refused although msgspec accepts it: a
# union of a fixed-length tuple and a constrained type crashes the interpreter in msgspec 0.22 instead of raising.
# Inspecting such a type with msgspec crashes too, so it is searched for first, with `typing` only.

_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


def not_storable(context: object) -> str:
    """Return why the type cannot be stored, or an empty text. Annotations that cannot be resolved yet are skipped."""
    try:
        if _crashes(context, set()):
            problem = "a union of a fixed-length tuple and a constrained type cannot be decoded"
            return f"{problem}; wrap one of them in a class"
        information = inspect.type_info(context)
    except (NameError, TypeError) as error:
        return str(error) if isinstance(error, TypeError) else ""
    return _problem_in(information, set())


def _problem_in(information: object, visited: set[int]) -> str:
    if id(information) in visited:
        return ""
    visited.add(id(information))
    if isinstance(information, inspect.CustomType):
        cls = information.cls
        return "" if hasattr(cls, "model_validate") else f"{name_of(cls)} is not a type that JSON can carry"
    children: list[object] = []
    if isinstance(information, msgspec.Struct):
        children = [getattr(information, name) for name in information.__struct_fields__]
    elif isinstance(information, tuple | list):
        children = list(cast("tuple[object, ...]", information))
    return next((problem for child in children if (problem := _problem_in(child, visited))), "")


def _crashes(kind: object, visited: set[int]) -> bool:
    if id(kind) in visited:
        return False
    visited.add(id(kind))
    members = typing.get_args(kind)
    is_union = typing.get_origin(kind) in (Union, types.UnionType)
    if is_union and any(map(_is_fixed_tuple, members)) and any(map(_is_constrained, members)):
        return True
    if isinstance(kind, type) and not members:
        members = tuple(typing.get_type_hints(kind, include_extras=True).values())
    return any(_crashes(member, visited) for member in members)


def _is_fixed_tuple(kind: object) -> bool:
    plain = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    return typing.get_origin(plain) is tuple and Ellipsis not in typing.get_args(plain)


def _is_constrained(kind: object) -> bool:
    notes = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    metas = [note for note in notes if isinstance(note, msgspec.Meta)]
    return any(getattr(meta, name) is not None for meta in metas for name in _CONSTRAINTS)


# --- JSON schemas ----------------------------------------------------------------------------------------------------
# With annotations for `plan` that `msgspec.json.schema` leaves out. In a plain schema a `datetime` or `time` without a
# declared timezone looks like any text, mapping keys look like text, and a struct that omits defaults looks like one
# that writes them. Each has a keyword of its own here. A schema of an earlier release lacks the keyword `ANNOTATED` at
# the root; then the absence of the others means nothing.
#
# The schema and the type are walked side by side. In a union msgspec allows one type for each kind of JSON value,
# except for structs, which have a tag each; so every type has exactly one place in the schema.

ANNOTATED = "x-interlock"
"""At the root: the schema has the keywords below."""

TEXT = "x-interlock-text"
"""Of a string: which of `DATETIME` … it contains."""

KEYS = "x-interlock-keys"
"""Of a mapping: the type of its keys, unless they are text."""

OMITS = "x-interlock-omits"
"""Of an object: fields that equal their default are not written."""

DATETIME, NAIVE_DATETIME, TIME = "any datetime", "naive datetime", "any time"

KEYWORDS = frozenset({ANNOTATED, TEXT, KEYS, OMITS})

Json = dict[str, object]
_WithFields = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType


def schema_of(cls: type[object]) -> Json:
    """Return the annotated JSON schema of a context or a payload."""
    # Defaults are Python values (a tuple, a set). A round trip through JSON makes new and saved schemas comparable.
    made = msgspec.json.schema(cls, schema_hook=_model_schema)
    schema = cast("Json", msgspec.json.decode(msgspec.json.encode(made)))
    _Annotation(schema).annotate(inspect.type_info(cls), schema)
    schema[ANNOTATED] = 1
    return schema


def without_annotations(schema: Mapping[str, object]) -> Json:
    """Return the schema as `msgspec.json.schema` writes it."""

    def strip(node: object) -> object:
        if isinstance(node, dict):
            return {key: strip(value) for key, value in cast("Json", node).items() if key not in KEYWORDS}
        return [strip(each) for each in cast("list[object]", node)] if isinstance(node, list) else node

    return cast("Json", strip(schema))


class _Annotation:
    """One walk over a type and its schema."""

    def __init__(self, root: Json) -> None:
        self._definitions = cast("dict[str, Json]", root.get("$defs", {}))
        self._annotated: set[tuple[object, int]] = set()

    def annotate(self, kind: inspect.Type, schema: object) -> None:
        for place in self._places(schema):
            for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
                self._annotate(each, place)

    def _places(self, schema: object) -> list[Json]:
        """Return the members of a union, with references followed."""
        if not isinstance(schema, dict):
            return []
        found = cast("Json", schema)
        if "$ref" in found:
            return self._places(self._definitions.get(str(found["$ref"]).removeprefix("#/$defs/")))
        if "anyOf" in found:
            return [place for each in cast("list[object]", found["anyOf"]) for place in self._places(each)]
        return [found]

    def _annotate(self, kind: inspect.Type, place: Json) -> None:
        if isinstance(kind, inspect.DateTimeType | inspect.TimeType):
            # With a declared timezone it has a format; an enum or another format belongs to another member of a union.
            if place.get("type") == "string" and kind.tz is not True and place.keys() <= {"type", "default", "title"}:
                datetimes = DATETIME if kind.tz is None else NAIVE_DATETIME
                # A time without a timezone has a format of its own.
                place[TEXT] = datetimes if isinstance(kind, inspect.DateTimeType) else TIME
        elif isinstance(kind, inspect.DictType) and "additionalProperties" in place and "properties" not in place:
            keys = _key_name(kind.key_type)
            if keys:
                place[KEYS] = keys
            self.annotate(kind.value_type, place["additionalProperties"])
        elif isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType):
            self.annotate(kind.item_type, place.get("items"))
        elif isinstance(kind, inspect.TupleType) and place.get("items") is False:
            self._annotate_each(kind.item_types, cast("list[object]", place.get("prefixItems", [])))
        elif isinstance(kind, _WithFields):
            self._annotate_object(kind, place)

    def _annotate_object(self, kind: _WithFields, place: Json) -> None:
        if place.get("title") != kind.cls.__name__ or (kind.cls, id(place)) in self._annotated:
            return
        self._annotated.add((kind.cls, id(place)))
        fields = {field.encode_name: field.type for field in kind.fields}
        if "properties" in place:
            if isinstance(kind, inspect.StructType) and kind.cls.__struct_config__.omit_defaults:
                place[OMITS] = True
            properties = cast("Json", place["properties"])
            for name in fields.keys() & properties.keys():
                self.annotate(fields[name], properties[name])
        else:
            positions = cast("list[object]", place.get("prefixItems", []))
            self._annotate_each(tuple(fields.values()), positions[max(0, len(positions) - len(fields)) :])

    def _annotate_each(self, kinds: Sequence[inspect.Type], places: Sequence[object]) -> None:
        for kind, place in zip(kinds, places, strict=False):
            self.annotate(kind, place)


def _key_name(kind: inspect.Type) -> str:
    """Return the name of the key type; empty for text. The values of an enumeration are in `propertyNames`."""
    if isinstance(kind, inspect.StrType | inspect.AnyType):
        return ""
    name = type(kind).__name__.removesuffix("Type").lower()
    return name if name not in {"datetime", "time"} else f"{name} {getattr(kind, 'tz', None)}"


def _model_schema(cls: type[object]) -> Json:
    return cast("Json", getattr(cls, "model_json_schema")())  # noqa: B009 -- only pydantic comes here.


# --- Codec -----------------------------------------------------------------------------------------------------------

EventT = TypeVar("EventT", bound=Event)

CONTEXT_BYTES_MAX = 1_048_576
"""G6: the default of `context_bytes_max`; payloads of events have the same bound."""

DEPTH_MAX = 100
"""G6: the most levels of nesting in a context or payload that comes from outside."""

_ENCODED_NAMES: dict[type[object], frozenset[str]] = {}
"""The results of `_encoded_names`, by class."""


class Codec(Generic[ContextT, EventT]):
    """Encode and decode the contexts and events of one machine."""

    def __init__(
        self,
        machine: str,
        context: type[ContextT],
        events: Mapping[str, type[EventT]],
        *,
        bytes_max: int = CONTEXT_BYTES_MAX,
        location: str = "",
    ) -> None:
        self.machine = machine
        self.bytes_max = bytes_max
        self._context = context
        self._events = dict(events)
        self._names = {event: name for name, event in self._events.items()}
        self._payloads = {event: f"{machine}: the payload of {name}" for name, event in self._events.items()}
        self._empty = frozenset(filter(_is_empty, self._events.values()))
        """Events without fields: each has the same payload every time."""
        self._encoder = msgspec.json.Encoder(enc_hook=_to_plain)
        for name, kind in [("the context", context), *self._events.items()]:
            problem = not_storable(kind)
            if problem:
                raise DefinitionError(
                    f"machine {machine!r}: {name} cannot be stored: {problem}.",
                    why="Events and contexts are written with every transition and read back after a crash.",
                    fix="Use fields of ordinary types, and at most one dataclass in a union.",
                    rule="event-not-storable",
                    location=location,
                )
        try:
            self._context_decoder = msgspec.json.Decoder(context, dec_hook=_from_plain)
            self._event_decoders = {
                name: msgspec.json.Decoder(event, dec_hook=_from_plain) for name, event in self._events.items()
            }
        except NameError as error:
            raise DefinitionError(
                f"machine {machine!r}: an annotation cannot be resolved: {error}.",
                why="Fields are decoded by their annotations, and a class inside a function is not visible to them.",
                fix="Move the class to module level, or drop `from __future__ import annotations` in that module.",
                rule="unresolvable-annotation",
                location=location,
            ) from error

    def encode_context(self, context: ContextT) -> bytes:
        """Return the context as JSON. Raises PayloadTooLarge or InvalidPayload; does not check the fields' types."""
        return self._encode(context, f"{self.machine}: the context")

    def checked_context(self, context: ContextT) -> bytes:
        """Return a context from outside as JSON. Raises InvalidPayload if it decodes to another value."""
        expected = class_of(self._context)
        if type(context) is not expected and (is_exact(self._context) or not isinstance(context, expected)):
            raise InvalidPayload(
                f"{self.machine}: the context is {bounded_repr(context)}, of type {type(context).__name__}; "
                f"the machine declares {name_of(self._context)}.",
                fix=f"Pass an instance: {name_of(self._context)}(...).",
            )
        data = self.encode_context(context)
        read = self.decode_context(data)
        # An exact class writes no surplus fields, except in nested values; a TypedDict may have any.
        if not is_exact(self._context) or data.count(b"{") + data.count(b"[") > 1:
            read = self.decode_context(data, strict=True)
        if type(context).__eq__ is not object.__eq__ and read != context:
            raise InvalidPayload(
                f"{self.machine}: the context {bounded_repr(context)} comes back as {bounded_repr(read)}.",
                why="The stored context must equal the decided one; a field typed Any comes back as plain JSON, and a "
                "__post_init__ runs again.",
                fix="Give the field its real type; make __post_init__ leave a good value alone.",
            )
        return data

    def stored_context(self, context: ContextT) -> tuple[bytes, ContextT]:
        """Return the context as JSON and as it decodes, which may differ: an action may set a list for a tuple."""
        data = self.encode_context(context)
        try:
            return data, self._context_decoder.decode(data)
        except Exception:  # noqa: BLE001 -- decode_context raises it again, with the field's name.
            return data, self.decode_context(data)

    def stored_event(self, event: EventT) -> bytes:
        """Return the event's payload as JSON, after decoding it again."""
        if type(event) in self._empty:
            return b"{}"
        data = self.encode_event(event)
        try:
            self._event_decoders[self._names[type(event)]].decode(data)
        except Exception:  # noqa: BLE001 -- decode_event raises it again, with the field's name.
            self.decode_event(wire_name(type(event)), data, strict=False)
        return data

    def decode_context(self, data: bytes, *, strict: bool = False) -> ContextT:
        """Return the decoded context. `strict`, for data from outside, refuses unknown fields too."""
        return self._decode(self._context_decoder, data, f"{self.machine}: the context", strict=strict)

    def copy_context(self, context: ContextT) -> ContextT:
        """Return a deep copy of the context, through JSON."""
        return self.decode_context(self.encode_context(context))

    def copy_event(self, event: EventT) -> EventT:
        """Return a deep copy of the event, through JSON."""
        return self.decode_event(self._names[type(event)], self.encode_event(event), strict=False)

    def encode_event(self, event: EventT) -> bytes:
        """Return the event's payload as JSON. Its name is `wire_name(type(event))`."""
        what = self._payloads.get(type(event)) or f"{self.machine}: the payload of {wire_name(type(event))}"
        return self._encode(event, what)

    def decode_event(self, name: str, data: bytes, *, strict: bool = True) -> EventT:
        """Return the event of that wire name. Raises InvalidPayload for an unknown name, field or type."""
        decoder = self._event_decoders.get(name)
        if decoder is None:
            raise InvalidPayload(
                f"{self.machine} has no event {bounded_repr(name)}; its events are {', '.join(self._events)}."
                f"{suggestion(name, self._events)}",
                why="A machine takes only the events of its own alphabet.",
                fix="Send one of its events.",
            )
        return self._decode(decoder, data or b"{}", self._payloads[decoder.type], strict=strict)

    def read_context(self, data: bytes) -> ContextT | StoredJson:
        """Return a context that an earlier version may have written, or its JSON where the class cannot hold it."""
        return self._read(lambda: self.decode_context(data), data, f"{self.machine}: the context")

    def read_event(self, name: str, data: bytes) -> EventT | StoredJson:
        """Return an event that an earlier version may have written, or its JSON where the class cannot hold it."""
        return self._read(
            lambda: self.decode_event(name, data, strict=False), data, f"{self.machine}: the payload of {name}"
        )

    def _read(self, decode: Callable[[], ValueT], data: bytes, what: str) -> ValueT | StoredJson:
        try:
            value = decode()
        except (InvalidPayload, PayloadTooLarge) as error:
            return StoredJson(data.decode(), error.what)
        again = self._encoder.encode(value)
        if again == data:
            return value
        raw = cast("object", msgspec.json.decode(data))
        lost = _surplus(raw, value, "", 0, what) or _altered(raw, msgspec.json.decode(again), "")
        if not lost:
            return value
        return StoredJson(
            data.decode(), f"{what} has {lost.removesuffix('.')!r}, which {name_of(type(value))} cannot hold."
        )

    def context_schema(self) -> dict[str, object]:
        """Return the JSON schema of the context."""
        return schema_of(self._context)

    def event_schema(self, name: str) -> dict[str, object]:
        """Return the JSON schema of an event's payload."""
        return schema_of(self._events[name])

    def _encode(self, value: object, what: str) -> bytes:
        try:
            data = self._encoder.encode(value)
        except RecursionError:
            raise _too_deep(what) from None
        except UnicodeEncodeError as error:
            raise InvalidPayload(
                f"{what} has text that is not valid Unicode (a lone surrogate): {error.reason}.",
                fix="Decode the bytes with the right encoding before they get here.",
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidPayload(
                f"{what} cannot be encoded: {error}.", fix="Use values of the declared types."
            ) from error
        if len(data) > self.bytes_max:
            raise PayloadTooLarge(what, size_bytes=len(data), limit_bytes=self.bytes_max)
        if b"null" in data or b"\\u0000" in data:
            _refuse_unstorable(value, what)
        return data

    def _decode(self, decoder: msgspec.json.Decoder[ValueT], data: bytes, what: str, *, strict: bool) -> ValueT:
        if len(data) > self.bytes_max:
            raise PayloadTooLarge(what, size_bytes=len(data), limit_bytes=self.bytes_max)
        try:
            value = decoder.decode(data)
            raw: object = msgspec.json.decode(data) if strict else None
        except RecursionError:
            raise _too_deep(what) from None
        except Exception as error:  # A user's __post_init__ may raise anything.
            reason = str(error) or type(error).__name__
            raise InvalidPayload(f"{what} does not fit: {reason}.", fix="Correct the field that is named.") from error
        if b"\\" in data and b"\\u0000" in data:
            _refuse_unstorable(value, what)
        if not strict:
            return value
        # Most values are flat: then only the names at the top need a check, and the type lists them.
        flat = data.count(b"{") + data.count(b"[") == 1
        cls = cast("type[object]", type(value))
        names = _ENCODED_NAMES.get(cls) if flat else None
        members: object = raw
        if names is not None and isinstance(members, dict) and cast("dict[str, object]", members).keys() == names:
            return value  # All of its fields and nothing else, so no default has to be filled in.
        surplus = "" if flat and _all_known(raw, cls) else _surplus(raw, value, "", 0, what)
        if surplus:
            known = ", ".join(_members(value) or ()) or "none"
            raise InvalidPayload(
                f"{what} has the unknown field {surplus!r}; its fields are {known}.",
                why="A field that the type does not have is a spelling mistake, or comes from an old client.",
                fix="Remove or correct the field.",
            )
        return fill_defaults(value, flat=flat)


def _to_plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not a type that JSON can carry")
    # By alias, because that is how `model_validate` reads it back.
    return cast("object", dump(mode="json", by_alias=True))


def _from_plain(cls: type[object], plain: object) -> object:
    return cast("object", getattr(cls, "model_validate")(plain))  # noqa: B009 -- only pydantic comes here.


def _refuse_unstorable(unchecked: object, what: str) -> None:
    waiting: list[object] = [msgspec.to_builtins(unchecked, enc_hook=_to_plain)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidPayload(
                f"{what} contains {value}.",
                why="JSON has no NaN and no infinity: it would come back as null.",
                fix="Use None, or a finite number.",
            )
        if isinstance(value, str) and "\x00" in value:
            raise InvalidPayload(
                f"{what} contains a NUL character in {bounded_repr(value)}.",
                why="PostgreSQL cannot store it, and every store takes the same values.",
                fix="Remove the NUL, or encode the bytes as base64.",
            )
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value


def _surplus(raw: object, value: object, path: str, depth: int, what: str) -> str:
    """Return the path of the first field of the raw JSON that the typed value lacks, or an empty text."""
    if depth > DEPTH_MAX:
        raise _too_deep(what)
    pairs: list[tuple[object, object, str]] = []
    if isinstance(raw, dict):
        members = _members(value)
        for name, item in cast("dict[str, object]", raw).items():
            if members is not None and name not in members:
                return f"{path}{name}"
            pairs.append((item, (members or {}).get(name), f"{path}{name}."))
    elif isinstance(raw, list) and isinstance(value, list | tuple):
        both = zip(cast("list[object]", raw), cast("list[object]", value), strict=False)
        pairs = [(item, member, f"{path}{index}.") for index, (item, member) in enumerate(both)]
    return next((found for pair in pairs if (found := _surplus(*pair, depth + 1, what))), "")


def _altered(raw: object, again: object, path: str) -> str:
    """Return the path of the first stored value that would be encoded differently, or an empty text."""
    if isinstance(raw, dict) and isinstance(again, dict):
        stored, written = cast("dict[str, object]", raw), cast("dict[str, object]", again)
        both = [(stored[name], written[name], f"{path}{name}.") for name in stored if name in written]
        return next((found for pair in both if (found := _altered(*pair))), "")
    if isinstance(raw, list) and isinstance(again, list):
        items, others = cast("list[object]", raw), cast("list[object]", again)
        if len(items) != len(others):
            return path or "."
        if not any(_altered(*pair, path) for pair in zip(items, others, strict=True)):
            return ""
        # A set is written in any order.
        return "" if all(any(not _altered(item, other, path) for other in others) for item in items) else path or "."
    if isinstance(raw, int | float) and isinstance(again, str):
        return "" if again == str(raw) else path or "."  # A decimal.
    return "" if raw == again and isinstance(raw, bool) == isinstance(again, bool) else path or "."


def _is_empty(cls: type[object]) -> bool:
    """Return whether it is a dataclass without fields, which nothing checks either."""
    return dataclasses.is_dataclass(cls) and not dataclasses.fields(cls) and not hasattr(cls, "__post_init__")


def _all_known(raw: object, cls: type[object]) -> bool:
    """Return whether every name of the object is one of the fields."""
    names = _ENCODED_NAMES.get(cls)
    if names is None:
        if len(_ENCODED_NAMES) >= TYPES_MAX:
            _ENCODED_NAMES.clear()
        names = _ENCODED_NAMES[cls] = _encoded_names(cls)
    return isinstance(raw, dict) and cast("dict[str, object]", raw).keys() <= names


def _encoded_names(cls: type[object]) -> frozenset[str]:
    """Return the encoded field names of a dataclass or struct; empty for other types, which are walked instead."""
    if issubclass(cls, msgspec.Struct):
        tag_field = cls.__struct_config__.tag_field
        return frozenset([*cls.__struct_encode_fields__, *([] if tag_field is None else [tag_field])])
    return frozenset(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else frozenset()


def _members(value: object) -> dict[str, object] | None:
    """Return the value's members by their encoded field names, or None when any name is accepted."""
    if isinstance(value, msgspec.Struct):
        members = {
            encoded: getattr(value, name)
            for encoded, name in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        }
        tag_field = value.__struct_config__.tag_field
        return members if tag_field is None else {**members, tag_field: None}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        # A TypedDict drops unknown keys; a dict keeps every key, though perhaps as another type than text.
        known = cast("dict[object, object]", value)
        return cast("dict[str, object]", known) if all(isinstance(key, str) for key in known) else None
    return _model_members(value)


def _model_members(value: object) -> dict[str, object] | None:
    """Return the members of a pydantic model; None when it takes any field or has aliases that only pydantic reads."""
    fields: dict[str, object] | None = getattr(type(value), "model_fields", None)
    config = _config(type(value))
    if fields is None or config.get("extra") == "allow":
        return None
    members: dict[str, object] = {}
    for name, field in fields.items():
        alias = getattr(field, "validation_alias", None)
        if alias is not None and not isinstance(alias, str):
            return None
        if alias is None or config.get("populate_by_name") or config.get("validate_by_name"):
            members[name] = getattr(value, name)
        if alias is not None:
            members[alias] = getattr(value, name)
    return members


def _too_deep(what: str) -> InvalidPayload:
    return InvalidPayload(
        f"{what} is nested too deeply.",
        why="A value nested without end could not be read back.",
        fix=f"Flatten it; {DEPTH_MAX} levels are allowed.",
    )


# --- Copies of mutable contexts and events for user code (A10) -------------------------------------------------------
# A change in place is visible wherever the value is referenced: in the snapshot that a refusal must leave unchanged,
# in an engine's cache, in a caller's history. So user code receives a copy of every value whose class is mutable.
# Classes are examined once, when the machine is compiled: immutable values are passed as they are, without a check
# per call.
#
# Two judgements differ where an annotation is vague. Every value that may be mutable is *copied*, also a field of
# type `Any` or `Sequence`, which decodes as a list. Only what is certainly mutable is *reported*
# (`mutable-context`).

_VALUES: tuple[type[object], ...] = (
    bool, int, float, str, bytes, types.NoneType, Enum, decimal.Decimal,
    datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
"""Classes whose instances never change. A datetime is a date."""

_CONTAINERS: tuple[type[object], ...] = (
    list, dict, set, bytearray,
    collections.abc.MutableSequence, collections.abc.MutableMapping, collections.abc.MutableSet,
)  # fmt: skip

_TRANSPARENT = (Union, types.UnionType, Annotated, typing.Final, typing.Required, typing.NotRequired)


class MutablePart(NamedTuple):
    """One place in a type that can be changed in place. `certain` is False where the annotation is vague."""

    what: str
    certain: bool = True


def changeable_parts(kind: object) -> list[MutablePart]:
    """Return every place in the type that can be changed in place, the outermost first."""
    return list(_parts(kind, name_of(kind) if isinstance(kind, type) else str(kind), set()))


def lend_copies(table: Table, codec: Callable[[], Codec[Any, Any]]) -> None:
    """Make guards and actions receive copies, where the context or the event can be changed in place.

    Raises DefinitionError when a value cannot be copied; such a value cannot be stored either.
    """
    context = bool(changeable_parts(table.declared.context))
    events = {event for event in table.events.values() if changeable_parts(event)}
    if not context and not events:
        return
    copies = codec()
    copy_context = copies.copy_context if context else None
    table.copy_context = copy_context
    for node in table.nodes.values():
        for event, moves in node.moves.items():
            copy_event = copies.copy_event if event in events else None
            for move in moves if copy_context or copy_event else ():
                move.guard = _with_copies(move.guard, copy_context, copy_event)
                move.action = _with_copies(move.action, copy_context, copy_event)


def _with_copies(
    function: Callable[..., Any] | None,
    copy_context: Callable[[Any], object] | None,
    copy_event: Callable[[Any], Event] | None,
) -> Callable[..., Any] | None:
    if function is None:
        return None

    def call(context: object, event: Event, *at: datetime.datetime) -> object:
        own_context = copy_context(context) if copy_context else context
        return function(own_context, copy_event(event) if copy_event else event, *at)

    return call


def _parts(kind: object, path: str, visited: set[object]) -> Iterator[MutablePart]:
    while (aliased := getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)) is not None:
        kind = aliased  # A NewType, or a `type` statement.
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in _TRANSPARENT or origin in (tuple, frozenset):
        inner = members[:1] if origin is Annotated else members
        for member in inner:
            if member is not Ellipsis:
                yield from _parts(member, path, visited)
    elif origin not in (Literal, typing.ClassVar):
        cls = kind if origin is None else origin
        yield from _parts_of_class(cls, path, visited) if isinstance(cls, type) else [_vague_part(path, kind)]
        for member in members:
            yield from _parts(member, path, visited)


def _parts_of_class(cls: type[object], path: str, visited: set[object]) -> Iterator[MutablePart]:
    if cls in visited or _is_value(cls):
        return
    if _is_typed_dict(cls) or _is_a(cls, _CONTAINERS):
        yield MutablePart(f"{path} is a {class_of(cls).__name__}")
    fields = _field_types(cls)
    if fields is None:
        if not _is_a(cls, _CONTAINERS):
            yield _vague_part(path, cls)
        return
    visited.add(cls)
    if not _is_typed_dict(cls) and not _is_frozen(cls):
        yield MutablePart(
            f"{path} is not frozen"
            if path == name_of(cls)
            else f"{path} is of class {name_of(cls)}, which is not frozen"
        )
    for name, kind in fields.items():
        yield from _parts(kind, f"{name_of(cls)}.{name}", visited)


def _is_a(cls: type[object], kinds: tuple[type[object], ...]) -> bool:
    """Return `issubclass`, without narrowing the class to one with unknown parameters for a type checker."""
    return issubclass(cls, kinds)


def _is_value(cls: type[object]) -> bool:
    # UUID is compared by name: the core must not import a module that draws random numbers.
    return _is_a(cls, _VALUES) or (cls.__module__, cls.__qualname__) == ("uuid", "UUID")


def _vague_part(path: str, kind: object) -> MutablePart:
    return MutablePart(f"{path} may be anything that {kind} allows", certain=False)


def _field_types(cls: type[object]) -> dict[str, object] | None:
    """Return the types of the fields by name, or None for a class without declared fields."""
    model: dict[str, object] | None = getattr(cls, "model_fields", None)
    if model is not None:
        found: dict[str, object] = {name: getattr(field, "annotation", Any) for name, field in model.items()}
        return found | {"model_extra": Any} if _config(cls).get("extra") == "allow" else found
    named = _is_a(cls, (tuple,)) and hasattr(cls, "_fields")
    if not (named or dataclasses.is_dataclass(cls) or _is_a(cls, (msgspec.Struct,)) or _is_typed_dict(cls)):
        return None
    try:
        return dict(typing.get_type_hints(cls, include_extras=True))
    except (NameError, TypeError):
        return {"": Any}  # The annotations cannot be resolved here, so the value is copied.


def _config(model: type[object]) -> dict[str, object]:
    return getattr(model, "model_config", {})


def _is_typed_dict(cls: type[object]) -> bool:
    return hasattr(cls, "__required_keys__")


def _is_frozen(cls: type[object]) -> bool:
    if _is_a(cls, (tuple,)):
        return True
    if hasattr(cls, "model_fields"):
        return _config(cls).get("frozen") is True
    parameters = getattr(cls, "__dataclass_params__", None) or getattr(cls, "__struct_config__", None)
    return parameters is not None and bool(parameters.frozen)
