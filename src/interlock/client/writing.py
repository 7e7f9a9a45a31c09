"""What a client asks for, as the bytes and headers of a request; refused here where no server could take it.

A payload is written by the event's own types, with the bounds that the machine itself has; what a type checker would
have told is told before anything is sent.
"""

from collections.abc import Mapping

import msgspec

from interlock.core.codec import Codec
from interlock.core.events import Event, wire_name
from interlock.core.refusals import shown
from interlock.errors import InvalidPayload
from interlock.runtime.envelopes import check_id

encode = msgspec.json.Encoder().encode

EVENTS_MAX = 1_024
"""Kinds of events whose encoders are kept."""

_WRITERS: dict[type[Event], tuple[str, Codec[object, Event]]] = {}


class WireEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an event, and with its first and last member a line of a batch."""

    event: str
    data: msgspec.Raw
    id: str = ""
    key: str | None = None


def checked_id(workflow: str) -> str:
    """The id of a workflow, as a part of a path."""
    check_id(workflow, "the id of a workflow")
    return workflow


def checked_key(key: str | None) -> str | None:
    """A delivery key, as a header carries it."""
    if key is None:
        return None
    check_id(key, "a delivery key", slash=True)
    if key != key.strip():
        raise InvalidPayload(
            f"the delivery key {key!r} begins or ends with a space.",
            why="It travels as the header Idempotency-Key, and headers lose the spaces around them.",
            fix="Use a key without spaces around it.",
        )
    return key


def event_of(event: Event | str, data: Mapping[str, object] | None) -> tuple[str, msgspec.Raw]:
    """The wire name and the payload of an event: an instance, or a name with its data."""
    if isinstance(event, Event):
        if data is not None:
            raise InvalidPayload(
                f"{shown(event)} was given together with data.",
                why="An event carries its own data.",
                fix='Send the event alone, or its name: client.send(id, "SUBMIT", data={…}).',
            )
        name, codec = _writer(type(event))
        return name, msgspec.Raw(codec.encode_event(event))
    given: object = event  # Not every program has a type checker.
    if not isinstance(given, str):
        name = f"the class {given.__name__}" if isinstance(given, type) else f"{shown(given)} ({type(given).__name__})"
        raise InvalidPayload(
            f"{name} was sent as an event.",
            why="An event is an instance of a class of the machine's alphabet, or its wire name.",
            fix='Send Submit(cents=999), or its name: client.send(id, "SUBMIT", data={…}).',
        )
    return event, msgspec.Raw(plain_json({} if data is None else dict(data), f"the data of {event}"))


def _writer(kind: type[Event]) -> tuple[str, Codec[object, Event]]:
    found = _WRITERS.get(kind)
    if found is None:
        if len(_WRITERS) >= EVENTS_MAX:
            _WRITERS.clear()
        name = wire_name(kind)
        found = _WRITERS[kind] = (name, Codec("the client", dict, {name: kind}))
    return found


def plain_json(value: object, what: str) -> bytes:
    """A plain value as JSON: the same bounds, and the same refusals, as for a machine's own types."""
    codec: Codec[object, Event] = Codec(what, dict, {})
    return codec.encode_context(value)
