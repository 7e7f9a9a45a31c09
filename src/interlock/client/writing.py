"""Encoding of a client's requests; invalid arguments are refused here, before anything is sent.

A payload is encoded by the event's own types, with the bounds of the machine.
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
    """The body of an event; with `id` and `key`, a line of a batch."""

    event: str
    data: msgspec.Raw
    id: str = ""
    key: str | None = None


def checked_id(workflow: str) -> str:
    """Validate the id of a workflow, for a path."""
    check_id(workflow, "the id of a workflow")
    return workflow


def checked_key(key: str | None) -> str | None:
    """Validate a delivery key, for a header."""
    if key is None:
        return None
    check_id(key, "a delivery key", slash=True)
    if key != key.strip():
        raise InvalidPayload(
            f"the delivery key {key!r} begins or ends with a space.",
            why="It is sent as the header Idempotency-Key, and headers lose surrounding spaces.",
            fix="Use a key without surrounding spaces.",
        )
    return key


def event_of(event: Event | str, data: Mapping[str, object] | None) -> tuple[str, msgspec.Raw]:
    """Return the wire name and the payload of an event: an instance, or a name with its data."""
    if isinstance(event, Event):
        if data is not None:
            raise InvalidPayload(
                f"{shown(event)} was sent together with data.",
                why="An event carries its own data.",
                fix='Send the event alone, or its name: client.send(id, "SUBMIT", data={…}).',
            )
        name, codec = _writer(type(event))
        return name, msgspec.Raw(codec.encode_event(event))
    value: object = event  # Programs without a type checker may pass anything.
    if not isinstance(value, str):
        name = f"the class {value.__name__}" if isinstance(value, type) else f"{shown(value)} ({type(value).__name__})"
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
    """Encode a plain value as JSON, with the bounds and errors of a machine's own types."""
    codec: Codec[object, Event] = Codec(what, dict, {})
    return codec.encode_context(value)
