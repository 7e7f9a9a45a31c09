"""The wire format of a client: a server's JSON as the values that an engine returns, and requests as JSON.

With the machine, states are its Enum members, and contexts and events have its types. Without it, a state is a
`PlainState` and everything else is plain JSON. Unknown members are ignored, so that an older client understands a
newer server.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Generic, TypeVar, cast

import msgspec

from interlock.core.codec import Codec
from interlock.core.decide import bounded_repr
from interlock.core.events import Event, wire_name
from interlock.core.values import Allowed, StepFailure, StoredJson
from interlock.engine.bound_machine import AnyMachine, BoundMachine
from interlock.engine.path.commands import check_id
from interlock.engine.views import HistoryRow, Moved, View, plain_state
from interlock.errors import CorruptionError, InvalidPayload
from interlock.lanes.contention import HotRow

# --- Answers ---------------------------------------------------------------------------------------------------------

ValueT = TypeVar("ValueT")

STEP_FAILED = "STEP_FAILED"


class WireView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow."""

    id: str
    machine: str
    state: str
    context: msgspec.Raw
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | None = None


class WireMoved(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an event."""

    state: str
    version: int
    duplicate: bool = False
    ignored: bool = False


class WireRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of history."""

    version: int
    from_state: str
    to_state: str
    event: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    context: msgspec.Raw
    key: str | None = None
    created_at: datetime


class WireAllowed(msgspec.Struct, frozen=True, kw_only=True):
    """A transition from the current state of a workflow."""

    event: str
    to: str
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class WireHot(HotRow, frozen=True, kw_only=True):
    """A row or workflow that writers contend for; `database` is None for a workflow."""

    database: str | None = None


class Listing(msgspec.Struct, Generic[ValueT], frozen=True):
    """One page of items, and the cursor of the next page."""

    items: tuple[ValueT, ...]
    cursor: str | None = None


class Reader:
    """Converts JSON to values; with a machine, to that machine's types."""

    def __init__(self, machine: AnyMachine | None = None) -> None:
        self._bound = None if machine is None else BoundMachine(machine)

    def view(self, wire: WireView) -> View[Enum, object]:
        """Convert a workflow."""
        return View(
            id=wire.id,
            machine=wire.machine,
            state=self.state(wire.state),
            context=self._context(wire.context, wire.id),
            version=wire.version,
            created_at=wire.created_at,
            updated_at=wire.updated_at,
            waiting=wire.waiting,
        )

    def views(self, wire: Iterable[WireView]) -> list[View[Enum, object]]:
        """Convert workflows."""
        return [self.view(each) for each in wire]

    def moved(self, wire: WireMoved) -> Moved[Enum]:
        """Convert the answer to an event."""
        return Moved(state=self.state(wire.state), version=wire.version, duplicate=wire.duplicate, ignored=wire.ignored)

    def row(self, wire: WireRow) -> HistoryRow[Enum, object]:
        """Convert a row of history."""
        return HistoryRow(
            version=wire.version,
            from_state=self._past_state(wire.from_state),
            to_state=self._past_state(wire.to_state),
            event=wire.event,
            payload=self._payload(wire),
            context=self._past_context(wire.context),
            key=wire.key,
            created_at=wire.created_at,
        )

    def allowed(self, wire: WireAllowed) -> Allowed[Enum]:
        """Convert an allowed transition."""
        return Allowed(wire.event, self.state(wire.to), wire.guards, wire.blocked_by, wire.reason)

    def knows(self, state: str) -> bool:
        """Return whether the machine has this state; without a machine every name is one."""
        return self._bound is None or state in self._bound.stored

    def takes(self, event: Event | str) -> bool:
        """Return whether the machine has this event in its alphabet."""
        if self._bound is None:
            return False
        events = self._bound.table.events
        return event in events if isinstance(event, str) else type(event) in events.values()

    def state(self, name: str) -> Enum:
        """Return the state of this name."""
        if self._bound is None:
            return plain_state(name)
        try:
            return self._bound.node_of(name).state
        except CorruptionError:
            raise InvalidPayload(
                f"the server has a {self._bound.name!r} workflow in state {name!r}, which the client's machine lacks.",
                why="The two sides run different versions of the machine.",
                fix=f"Update the machine of this client, or call without it: `client.of({self._bound.name!r}).get(…)`.",
            ) from None

    def _past_state(self, name: str) -> Enum:
        return self.state(name) if self.knows(name) else plain_state(name)

    def _context(self, data: msgspec.Raw, where: str) -> object:
        if self._bound is None:
            return cast("object", msgspec.json.decode(data))
        try:
            return cast("object", self._bound.codec.decode_context(bytes(data)))
        except InvalidPayload as error:
            raise InvalidPayload(
                f"the context at the server ({where}) does not fit this client's machine: {error.what}",
                why="The two sides run different versions of the machine.",
                fix=f"Update the machine of this client, or call without it: `client.of({self._bound.name!r}).get(…)`.",
            ) from error

    def _past_context(self, data: msgspec.Raw) -> object:
        if self._bound is None:
            return cast("object", msgspec.json.decode(data))
        return cast("object", self._bound.codec.read_context(bytes(data)))

    def _payload(self, wire: WireRow) -> Event | StepFailure | StoredJson | None:
        data = bytes(wire.payload)
        if data == b"null":
            return None
        if wire.event == STEP_FAILED:
            return msgspec.json.decode(data, type=StepFailure)
        if self._bound is None:
            # Plain JSON where the type says an event: without the machine there is no event class.
            return cast("Event", msgspec.json.decode(data))
        return self._bound.read_payload(wire.event, data)


READERS_MAX = 1_000
"""Machines whose readers are kept."""


class Readers:
    """The machines that one client knows: those passed to its constructor, or to any call that takes one."""

    def __init__(self, machines: Iterable[AnyMachine] = ()) -> None:
        self.plain = Reader()
        self._of: dict[AnyMachine, Reader] = {}
        self._named: dict[str, Reader] = {}
        for machine in machines:
            self.of(machine)

    def __bool__(self) -> bool:
        """Whether any machine is known."""
        return bool(self._of)

    def of(self, machine: AnyMachine) -> Reader:
        """Return the reader of a machine, which is known from now on."""
        reader = self._of.get(machine)
        if reader is None:
            if len(self._of) >= READERS_MAX:
                self._of.clear()
                self._named.clear()
            reader = self._of[machine] = self._named[machine.name] = Reader(machine)
        return reader

    def named(self, machine: str) -> Reader:
        """Return the reader of the machine of that name; a plain one when it is not known."""
        return self._named.get(machine, self.plain)

    def taking(self, event: Event | str) -> Reader:
        """Return the reader of the known machine that takes this event; a plain one unless there is exactly one."""
        found = [reader for reader in self._named.values() if reader.takes(event)] if self._of else []
        return found[0] if len(found) == 1 else self.plain


# --- Requests --------------------------------------------------------------------------------------------------------
# Invalid arguments are refused here, before anything is sent.

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
                f"{bounded_repr(event)} was sent together with data.",
                why="An event carries its own data.",
                fix='Send the event alone, or its name: client.send(id, "SUBMIT", data={…}).',
            )
        name, codec = _writer(type(event))
        return name, msgspec.Raw(codec.encode_event(event))
    value: object = event  # Programs without a type checker may pass anything.
    if not isinstance(value, str):
        name = (
            f"the class {value.__name__}"
            if isinstance(value, type)
            else f"{bounded_repr(value)} ({type(value).__name__})"
        )
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
