"""What an engine answers with: values that hold Enum members, typed contexts and aware times."""

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic

import msgspec

from interlock.core.events import Event
from interlock.core.values import ContextT, StateT, StepFailure
from interlock.errors import InterlockError
from interlock.runtime.bound import Bound, Live
from interlock.store.values import Happened


class View(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """A workflow as it is durable."""

    id: str
    machine: str
    state: StateT
    context: ContextT
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | None = None
    """Why it does not move on by itself, or None."""


Workflow = View
"""What `start` returns."""


class Moved(msgspec.Struct, Generic[StateT], frozen=True, kw_only=True):
    """The answer to an event: where the workflow stands because of it."""

    state: StateT
    version: int
    duplicate: bool = False
    ignored: bool = False


class Refused(msgspec.Struct, frozen=True):
    """One item of `send_many` that was refused, and why."""

    error: InterlockError


class HistoryRow(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """One row of history; `context` is the context after the move."""

    version: int
    from_state: StateT
    to_state: StateT
    event: str
    payload: Event | StepFailure | None
    context: ContextT
    key: str | None
    created_at: datetime


class Page(msgspec.Struct, Generic[StateT, ContextT], frozen=True):
    """Some workflows, and where to go on."""

    items: tuple[View[StateT, ContextT], ...]
    cursor: str | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events sent to one workflow (B5)."""

    applied: int
    duplicate: int
    ignored: int
    refused: int


def view_of(live: Live) -> View[Any, Any]:
    """The workflow for people."""
    row = live.row
    return View(
        id=row.id,
        machine=row.machine,
        state=live.snapshot.state,
        context=live.snapshot.context,
        version=row.version,
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        waiting=None if live.owed.dead is None else f"a {live.owed.dead} gave up: see the dead letters",
    )


def history_row(bound: Bound, happened: Happened) -> HistoryRow[Enum, Any]:
    """One row of history for people."""
    return HistoryRow(
        version=happened.version,
        from_state=bound.node_of(happened.from_state).state,
        to_state=bound.node_of(happened.to_state).state,
        event=happened.event,
        payload=bound.read_payload(happened.event, happened.payload),
        context=bound.codec.decode_context(happened.context),
        key=happened.key,
        created_at=moment(happened.created_us),
    )


def moment(time_us: int) -> datetime:
    """Microseconds since the epoch as an aware time."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)
