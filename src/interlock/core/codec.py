"""Codec of one machine: contexts and events to JSON and back, typed and bounded, without silent loss.

Any type msgspec can encode is a context: dataclass, Struct, TypedDict; a pydantic model too, without importing
pydantic. NaN and NUL are refused on every store: JSON has no NaN (encoders write null), and PostgreSQL stores no NUL.

The odd choice: the encoded bytes are searched for `null` and the escaped NUL first, because a substring search costs a
hundredth of walking the value. The value is walked only after a match.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import msgspec

from interlock.core.completing import TYPES_MAX, completed
from interlock.core.events import Event, wire_name
from interlock.core.refusals import shown, suggestion
from interlock.core.schemas import schema_of
from interlock.core.storable import not_storable
from interlock.core.table import class_of, is_exact, name_of
from interlock.core.values import ContextT, StoredJson
from interlock.errors import DefinitionError, InvalidPayload, PayloadTooLarge

EventT = TypeVar("EventT", bound=Event)
ValueT = TypeVar("ValueT")

CONTEXT_BYTES_MAX = 1_048_576
"""G6: the default of `context_bytes_max`; payloads of events have the same bound."""

DEPTH_MAX = 100
"""G6: the most levels of nesting in a context or payload that comes from outside."""

_NAMES: dict[type[object], frozenset[str]] = {}
"""The results of `_names_of`, by class."""


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
                f"{self.machine}: the context is {shown(context)} ({type(context).__name__}), "
                f"not a {name_of(self._context)}.",
                fix=f"Pass a {name_of(self._context)}.",
            )
        data = self.encode_context(context)
        read = self.decode_context(data)
        # An exact class writes no surplus fields, except in nested values; a TypedDict may have any.
        if not is_exact(self._context) or data.count(b"{") + data.count(b"[") > 1:
            read = self.decode_context(data, strict=True)
        if type(context).__eq__ is not object.__eq__ and read != context:
            raise InvalidPayload(
                f"{self.machine}: the context {shown(context)} comes back as {shown(read)}.",
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
                f"{self.machine} has no event {shown(name)}; its events are {', '.join(self._events)}."
                f"{suggestion(name, self._events)}",
                why="A machine takes only the events of its own alphabet.",
                fix="Send one of its events.",
            )
        return self._decode(decoder, data or b"{}", self._payloads[decoder.type], strict=strict)

    def read_context(self, data: bytes) -> ContextT | StoredJson:
        """Return a context that an earlier version may have written, or its JSON where the class cannot hold it."""
        try:
            value = self.decode_context(data)
        except (InvalidPayload, PayloadTooLarge) as error:
            return StoredJson(data.decode(), error.what)
        return self._faithful(value, data, f"{self.machine}: the context")

    def read_event(self, name: str, data: bytes) -> EventT | StoredJson:
        """Return an event that an earlier version may have written, or its JSON where the class cannot hold it."""
        try:
            value = self.decode_event(name, data, strict=False)
        except (InvalidPayload, PayloadTooLarge) as error:
            return StoredJson(data.decode(), error.what)
        return self._faithful(value, data, self._payloads[type(value)])

    def _faithful(self, value: ValueT, data: bytes, what: str) -> ValueT | StoredJson:
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
        names = _NAMES.get(cls) if flat else None
        if names is not None and _has_exactly(raw, names):
            return value  # All of its fields and nothing else, so no default has to be filled in.
        if not flat or not _all_known(raw, cls):
            _refuse_surplus(raw, value, what)
        return completed(value, flat=flat)


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
                f"{what} contains a NUL character in {shown(value)}.",
                why="PostgreSQL cannot store it, and every store takes the same values.",
                fix="Remove the NUL, or encode the bytes as base64.",
            )
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value


def _refuse_surplus(raw: object, value: object, what: str) -> None:
    surplus = _surplus(raw, value, "", 0, what)
    if surplus:
        known = ", ".join(_members(value) or ()) or "none"
        raise InvalidPayload(
            f"{what} has the unknown field {surplus!r}; its fields are {known}.",
            why="A field that the type does not have is a spelling mistake, or comes from an old client.",
            fix="Remove or correct the field.",
        )


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


def _has_exactly(raw: object, names: frozenset[str]) -> bool:
    return isinstance(raw, dict) and cast("dict[str, object]", raw).keys() == names


def _all_known(raw: object, cls: type[object]) -> bool:
    """Return whether every name of the object is one of the fields."""
    names = _NAMES.get(cls)
    if names is None:
        if len(_NAMES) >= TYPES_MAX:
            _NAMES.clear()
        names = _NAMES[cls] = _names_of(cls)
    return isinstance(raw, dict) and cast("dict[str, object]", raw).keys() <= names


def _names_of(cls: type[object]) -> frozenset[str]:
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
    config: dict[str, object] = getattr(type(value), "model_config", {})
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
