"""Pauses: nothing begins for a workflow, a state or a machine until it is resumed (E7).

A pause is itself a workflow, of the machine `interlock.pause`, so every store keeps it and its history says who paused
and resumed, when and why. While it is active no step, undo or effect of its scope is begun, and no timer fires. Events
still apply, and an attempt that runs goes on to its end.

Each engine keeps the active pauses in memory. On a store with one owner that is exact. On a shared store an engine
reads them every `READ_S`. One that has not read them for `STALE_S` (it was frozen, or the store is away) begins
nothing.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.errors import BadUsage
from interlock.store.protocol import Store, Stored
from interlock.store.records import Row

READ_S: Final = 1.0
"""How often an engine on a shared store reads the pauses."""

STALE_S: Final = 5.0
"""An engine on a shared store that has not read the pauses for this time begins nothing until it has."""

PAUSES_MAX: Final = 1_000
"""Pauses of a home that may be active: every engine has them in memory."""

MACHINE: Final = "interlock.pause"


class PauseScope(NamedTuple):
    """What is paused: one workflow, or a machine, or one state of it."""

    machine: str = ""
    state: str = ""
    workflow: str = ""

    def __str__(self) -> str:
        if self.workflow:
            return f"workflow {self.workflow!r}"
        return f"state {self.state!r} of machine {self.machine!r}" if self.state else f"machine {self.machine!r}"

    @property
    def id(self) -> str:
        """The id of the workflow that keeps this pause."""
        return f"pause:{hashlib.blake2b(chr(0).join(self).encode(), digest_size=16).hexdigest()}"


class PauseView(msgspec.Struct, frozen=True, kw_only=True):
    """An active pause: of `workflow`, or of `machine`, or of its `state`."""

    machine: str | None
    state: str | None
    workflow: str | None
    by: str
    note: str
    since: datetime


# --- The machine -----------------------------------------------------------------------------------------------------


class PauseState(Enum):
    """The states of a pause."""

    LIFTED = "lifted"
    ACTIVE = "active"


class PauseEvent(Event):
    """The events of a pause."""


@dataclass(frozen=True)
class Paused(PauseEvent):
    """An operator paused it."""

    by: str = ""
    note: str = ""


@dataclass(frozen=True)
class Resumed(PauseEvent):
    """An operator resumed it."""

    by: str = ""
    note: str = ""


@dataclass(frozen=True)
class Pausing:
    """The context of a pause."""

    machine: str = ""
    state: str = ""
    workflow: str = ""
    by: str = ""
    note: str = ""
    since: datetime | None = None

    @property
    def scope(self) -> PauseScope:
        """What it pauses."""
        return PauseScope(self.machine, self.state, self.workflow)


pause_machine = Machine(
    MACHINE,
    states=PauseState,
    context=Pausing,
    events=PauseEvent,
    initial=PauseState.LIFTED,
    resting={PauseState.LIFTED, PauseState.ACTIVE},
)


@pause_machine.on(Paused, PauseState.LIFTED, PauseState.ACTIVE, to=PauseState.ACTIVE)
def _pause(pause: Pausing, event: Paused, at: datetime) -> Pausing:
    return replace(pause, by=event.by, note=event.note, since=at)


pause_machine.on(Resumed, PauseState.ACTIVE, to=PauseState.LIFTED)


def view_of_pause(pause: Pausing) -> PauseView:
    """Return the view of an active pause."""
    assert pause.since is not None
    return PauseView(
        machine=pause.machine or None,
        state=pause.state or None,
        workflow=pause.workflow or None,
        by=pause.by,
        note=pause.note,
        since=pause.since,
    )


def no_scope() -> BadUsage:
    """Return the error for a pause that does not say what it is about."""
    return BadUsage(
        "a pause names neither a workflow nor a machine, or both, or a state without its machine.",
        why="It concerns one workflow, one machine, or one state of a machine.",
        fix='Pass id="o-1", or machine=order, or machine=order and state=State.CHARGING.',
    )


def too_many_pauses() -> BadUsage:
    """Return the error for a pause beyond `PAUSES_MAX`."""
    return BadUsage(
        f"{PAUSES_MAX:,} pauses are active.",
        why="Every engine has all of them in memory.",
        fix="Resume some, or pause a state or a machine instead of its workflows.",
    )


# --- The pauses of an engine -----------------------------------------------------------------------------------------


class Pauses:
    """The active pauses, as one engine knows them."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        """`now_s` is the event loop's clock on a shared store, where another engine may have paused something."""
        self._now_s = now_s
        self._read_s = -math.inf
        self._active: dict[PauseScope, Pausing] = {}
        self._reading = False
        self._changed: dict[PauseScope, Pausing | None] = {}
        """Changes during a read, whose answer may be older; None for a resumption."""
        self.any = now_s is not None
        """Whether `holds` may be true."""

    def holds(self, machine: str, state: str, workflow: str) -> bool:
        """Whether nothing may begin for a workflow in this state."""
        return self._is_stale or self.names(machine, state, workflow)

    @property
    def _is_stale(self) -> bool:
        return self._now_s is not None and self._now_s() - self._read_s > STALE_S

    def names(self, machine: str, state: str, workflow: str) -> bool:
        """Whether a pause that this engine knows concerns a workflow in this state."""
        active = self._active
        return bool(active) and (
            PauseScope(machine) in active
            or PauseScope(machine, state) in active
            or PauseScope(workflow=workflow) in active
        )

    @property
    def is_old(self) -> bool:
        """Whether it is time to read them again."""
        return self._now_s is not None and not self._reading and self._now_s() - self._read_s >= READ_S

    def pauses_machine(self, machine: str) -> bool:
        """Whether the whole machine is paused."""
        return PauseScope(machine) in self._active

    def refused(self) -> list[Stored]:
        """Return the scopes, as claims of a shared store leave them out."""
        return [Stored(scope.machine, None, scope.state, scope.workflow) for scope in self._active]

    def change(self, pause: Pausing, *, active: bool) -> bool:
        """Note a change of one pause. Return whether something was resumed."""
        if self._reading:
            self._changed[pause.scope] = pause if active else None
        if active:
            self._active[pause.scope] = pause
        elif self._active.pop(pause.scope, None) is not None:
            self.any = bool(self._active) or self._now_s is not None
            return True
        self.any = bool(self._active) or self._now_s is not None
        return False

    async def read(self, store: Store) -> bool:
        """Read the active pauses from the store. Return whether something may begin that was held before."""
        begun_s = 0.0 if self._now_s is None else self._now_s()
        # What was due meanwhile was held, and nothing else takes it up again.
        was_stale = self._is_stale
        self._reading = True
        try:
            found = {pause.scope: pause for pause in await read_pauses(store)}
            for scope, pause in self._changed.items():
                if pause is None:
                    found.pop(scope, None)
                else:
                    found[scope] = pause
        finally:
            self._reading = False
            self._changed.clear()
        resumed = bool(self._active.keys() - found.keys())
        self._active, self._read_s = found, begun_s
        self.any = bool(found) or self._now_s is not None
        return resumed or was_stale


async def read_pauses(store: Store) -> list[Pausing]:
    """Return the active pauses of a store."""
    found = await store.find(MACHINE, PauseState.ACTIVE.value, after=None, limit=PAUSES_MAX)
    return decode_pauses(found.rows)


def decode_pauses(rows: Iterable[Row]) -> list[Pausing]:
    """Return the pauses in these rows."""
    codec = pause_machine.codec
    return [codec.decode_context(row.context) for row in rows]
