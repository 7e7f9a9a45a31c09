"""Conversion of a server's JSON to the values that an engine returns.

With the machine, states are its Enum members, and contexts and events have its types. Without it, a state is a
`PlainState` and everything else is plain JSON. Unknown members are ignored, so that an older client understands a
newer server.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Generic, TypeVar, cast

import msgspec

from interlock.core.events import Event
from interlock.core.values import Allowed, StepFailure, StoredJson
from interlock.errors import CorruptionError, InvalidPayload
from interlock.lanes.contention import HotRow
from interlock.runtime.bound import AnyMachine, Bound
from interlock.runtime.views import HistoryRow, Moved, View, plain_state

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
        self._bound = None if machine is None else Bound(machine)

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
