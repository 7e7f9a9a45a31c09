"""The breakers of an engine: their views for people, and the publication of their changes.

A change goes to observers, to alerts and, as a note, to the store for the next process. A breaker that was open when
the process ended begins half-open in the next: a probe runs immediately, and calls wait while the dependency is still
down. One that a person holds stays held. A note that cannot be written does not stop the engine; one that cannot be
read is ignored.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import EllipsisType
from typing import Final, Literal, overload

import msgspec

from interlock.clock import Clock
from interlock.core.policies import Dependency
from interlock.engine.alerts.alert import breaker_alert
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.dependencies.outlet import BreakerTransition, Forced
from interlock.engine.dependencies.wait_queue import Line
from interlock.errors import BadUsage, InterlockError
from interlock.signals import BreakerChanged, Subscribers
from interlock.store.protocol import Store

NOTE = "breaker:"
"""Prefix of a breaker's note; the dependency's name follows."""


HELD = "breaker-held:"
"""Prefix of the note of a person's hold. It is separate: workers of one store overwrite each other's breaker notes, and
must not release a person's hold."""

AUTO = "auto"
"""No person holds the breaker."""


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker of a dependency, with its limits, as this process has them."""

    name: str
    """The dependency."""
    state: Literal["closed", "open", "half_open"]
    forced: Literal["open", "closed"] | None = None
    """How a person holds it, if one does."""
    reason: str = ""
    since: datetime
    failures: int = 0
    """Failures in a row."""
    probes_in_s: float | None = None
    """When probes are admitted, while it is open."""
    under_way: int = 0
    """Calls under way, of all engines of this process."""
    waiting: int = 0
    """Workflows and effects that wait for it in this engine."""
    concurrency_max: int = 0
    rate_per_s: float | None = None
    scope: Literal["process", "cluster"] = "process"
    """The sharing processes: this one, or through Redis the cluster. It is "process" as well while Redis is down."""


class Breakers(Sequence[BreakerView]):
    """The breakers of an engine in the order of their names; `breakers["gateway"]` is one of them."""

    def __init__(self, views: Iterable[BreakerView]) -> None:
        self._views = tuple(views)

    @overload
    def __getitem__(self, which: int | str) -> BreakerView: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[BreakerView]: ...
    def __getitem__(self, which: int | str | slice) -> BreakerView | Sequence[BreakerView]:
        """Return the view at a position, or of a dependency's name."""
        if not isinstance(which, str):
            return self._views[which]
        for view in self._views:
            if view.name == which:
                return view
        raise KeyError(which)

    def __contains__(self, which: object) -> bool:
        """Whether there is a breaker of that name."""
        return any(which in (view, view.name) for view in self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"Breakers({', '.join(f'{view.name}={view.state}' for view in self._views)})"


class BreakerNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of a breaker's last change."""

    state: str
    since: str = ""
    reason: str = ""
    forced: Forced | None = None


def view_of_line(line: Line) -> BreakerView:
    """Return the view of a queue's breaker."""
    outlet = line.outlet
    phase = outlet.phase
    return BreakerView(
        name=outlet.declared.name,
        state=phase,
        forced=outlet.forced,
        reason=outlet.reason,
        since=datetime.fromtimestamp(outlet.since_s, UTC),
        failures=outlet.circuit.failures,
        probes_in_s=outlet.retry_in_s("first") if phase == "open" and outlet.forced is None else None,
        under_way=outlet.under_way + outlet.undos_under_way,
        waiting=len(line),
        concurrency_max=outlet.concurrency_max,
        rate_per_s=None if outlet.rate is None else outlet.rate.rate_per_s,
        scope="cluster" if outlet.others is not None and outlet.others.up else "process",
    )


def note_of(change: BreakerTransition, since: datetime) -> str:
    """Return the note of a change as JSON."""
    note = BreakerNote(change.after, since.isoformat(), change.reason, change.forced)
    return msgspec.json.encode(note).decode()


def read_since(note: BreakerNote) -> float | None:
    """Return when the phase began, in seconds since the epoch; None if unreadable."""
    try:
        return datetime.fromisoformat(note.since).timestamp()
    except ValueError:
        return None


def read_held(text: str) -> Forced | None:
    """Decode how a person holds it; None if no one does."""
    return "open" if text == "open" else "closed" if text == "closed" else None


def read_note(text: str) -> BreakerNote | None:
    """Decode a note; None for an unreadable one, which is ignored."""
    try:
        return msgspec.json.decode(text, type=BreakerNote)
    except msgspec.DecodeError:
        return None


class BreakerPublisher:
    """Publishes and stores the changes of one engine's breakers."""

    def __init__(self, store: Store, subscribers: Subscribers, alarms: Alarms, clock: Clock, *, worker: bool) -> None:
        self._store = store
        self._subscribers = subscribers
        self._alarms = alarms
        self._clock = clock
        self._worker = worker
        self._notes: dict[str, str] = {}
        """Notes to write: only the last change of each breaker."""
        self._noting: asyncio.Task[None] | None = None
        self._alerted: set[str] = set()

    def remember(self, lines: Mapping[str, Line], notes: Mapping[str, str]) -> None:
        """Restore the breakers from the notes of the last process."""
        for name, line in lines.items():
            note = read_note(notes.get(NOTE + name, ""))
            if note is None:
                continue
            hold = notes.get(HELD + name)
            forced = note.forced if hold is None else read_held(hold)
            reason = note.reason or "it was so when the last process ended"
            # A process that runs no steps would never probe, and never learn that the outage is over.
            state = note.state if self._worker else "closed"
            remembered = line.outlet.remember(state, forced, reason, read_since(note))
            if state != "closed" and (remembered or line.outlet.phase != "closed"):
                self._alerted.add(name)  # The last process has sent the alert; this one resolves it.

    def changed(self, change: BreakerTransition) -> None:
        """Publish a change of a breaker."""
        signal = BreakerChanged(change.dependency, change.before, change.after, change.reason)
        if change.before != change.after:
            self._subscribers.emit(signal)
        self._alert(signal)
        if change.by_hand:
            self._notes[HELD + change.dependency] = change.forced or AUTO
        if self._worker or change.by_hand:
            self._notes[NOTE + change.dependency] = note_of(change, datetime.fromtimestamp(self._clock.wall_s(), UTC))
            if self._noting is None or self._noting.done():
                self._noting = asyncio.get_running_loop().create_task(self._note())

    async def close(self) -> None:
        """Write the last notes."""
        if self._noting is not None:
            await asyncio.wait([self._noting])

    def _alert(self, signal: BreakerChanged) -> None:
        """Send one alert when it opens and one when it is resolved: not for every probe in between."""
        alert = breaker_alert(signal, int(self._clock.wall_s() * 1_000_000))
        if alert is not None and alert.resolved == (signal.dependency in self._alerted):
            self._alerted ^= {signal.dependency}
            self._alarms.tell(alert)

    async def _note(self) -> None:
        while self._notes:
            name, text = self._notes.popitem()
            with contextlib.suppress(InterlockError):
                await self._store.note(name, text)


FORCES: Final[dict[str, Literal["open", "closed"] | None]] = {"open": "open", "closed": "closed", "auto": None}


def forced_state(name: str) -> Literal["open", "closed"] | None:
    """Return the state that a breaker is forced to; None for "auto". Raises BadUsage for another name."""
    if name not in FORCES:
        raise BadUsage(
            f"a breaker cannot be forced to be {name!r}.",
            why="It is forced open, forced closed, or decides by itself.",
            fix='Use "open", "closed" or "auto".',
        )
    return FORCES[name]


def change_limits(
    line: Line, dependency: str, concurrency_max: int | None, rate_per_s: float | EllipsisType | None
) -> str:
    """Change the limits that are given, and return both in words. Raises DefinitionError for invalid ones."""
    outlet = line.outlet
    now = outlet.rate.rate_per_s if outlet.rate is not None else None
    rate = now if isinstance(rate_per_s, EllipsisType) else rate_per_s
    most = outlet.concurrency_max if concurrency_max is None else concurrency_max
    wanted = Dependency(dependency, most, rate_per_s=rate)
    outlet.limit(concurrency_max=wanted.concurrency_max, rate_per_s=wanted.rate_per_s)
    return f"{wanted.concurrency_max} at a time, {wanted.rate_per_s or 'any number'} per second"
