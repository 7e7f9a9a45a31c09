"""What a server says, as the values that an engine answers with.

With the machine, states are its Enum members, contexts and events its own types. Without it, a state is a `PlainState`
and everything else is plain JSON. A member that nobody here knows is left alone, so that an older client understands
a newer server.
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
    """A transition that exists from where a workflow stands."""

    event: str
    to: str
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class WireHot(HotRow, frozen=True, kw_only=True):
    """A row that writers wait for each other on, with the database that it is in; a workflow has none."""

    database: str | None = None


class Listing(msgspec.Struct, Generic[ValueT], frozen=True):
    """Some items, and where to go on."""

    items: tuple[ValueT, ...]
    cursor: str | None = None


class Reader:
    """Makes values out of what was said; with a machine, of that machine's types."""

    def __init__(self, machine: AnyMachine | None = None) -> None:
        self._bound = None if machine is None else Bound(machine)

    def view(self, told: WireView) -> View[Enum, object]:
        """A workflow."""
        return View(
            id=told.id,
            machine=told.machine,
            state=self.state(told.state),
            context=self._context(told.context, told.id),
            version=told.version,
            created_at=told.created_at,
            updated_at=told.updated_at,
            waiting=told.waiting,
        )

    def views(self, told: Iterable[WireView]) -> list[View[Enum, object]]:
        """Workflows."""
        return [self.view(each) for each in told]

    def moved(self, told: WireMoved) -> Moved[Enum]:
        """The answer to an event."""
        return Moved(state=self.state(told.state), version=told.version, duplicate=told.duplicate, ignored=told.ignored)

    def row(self, told: WireRow) -> HistoryRow[Enum, object]:
        """A row of history."""
        return HistoryRow(
            version=told.version,
            from_state=self._past_state(told.from_state),
            to_state=self._past_state(told.to_state),
            event=told.event,
            payload=self._payload(told),
            context=self._past_context(told.context),
            key=told.key,
            created_at=told.created_at,
        )

    def allowed(self, told: WireAllowed) -> Allowed[Enum]:
        """A transition that exists."""
        return Allowed(told.event, self.state(told.to), told.guards, told.blocked_by, told.reason)

    def knows(self, state: str) -> bool:
        """Whether the machine has such a state; without one everything is a state."""
        return self._bound is None or state in self._bound.stored

    def takes(self, event: Event | str) -> bool:
        """Whether the machine has such an event in its alphabet."""
        if self._bound is None:
            return False
        events = self._bound.table.events
        return event in events if isinstance(event, str) else type(event) in events.values()

    def state(self, name: str) -> Enum:
        """A state."""
        if self._bound is None:
            return plain_state(name)
        try:
            return self._bound.node_of(name).state
        except CorruptionError:
            raise InvalidPayload(
                f"the server has a workflow of {self._bound.name!r} in state {name!r}, which the machine here lacks.",
                why="The two sides run different versions of the machine.",
                fix=f"Bring the machine here up to date, or ask without it: `client.of({self._bound.name!r}).get(…)`.",
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
                f"the context at the server ({where}) is not one of the machine here: {error.what}",
                why="The two sides run different versions of the machine.",
                fix=f"Bring the machine here up to date, or ask without it: `client.of({self._bound.name!r}).get(…)`.",
            ) from error

    def _past_context(self, data: msgspec.Raw) -> object:
        if self._bound is None:
            return cast("object", msgspec.json.decode(data))
        return cast("object", self._bound.codec.read_context(bytes(data)))

    def _payload(self, told: WireRow) -> Event | StepFailure | StoredJson | None:
        data = bytes(told.payload)
        if data == b"null":
            return None
        if told.event == STEP_FAILED:
            return msgspec.json.decode(data, type=StepFailure)
        if self._bound is None:
            # Plain JSON where the type says an event: without the machine nobody can make one.
            return cast("Event", msgspec.json.decode(data))
        return self._bound.read_payload(told.event, data)
