"""Breaker events of an engine: signals to observers, alerts, and notes in the store for the next process.

A breaker that was open when the process ended begins half-open in the next: a probe runs immediately, and calls wait
while the dependency is still down. One that a person holds stays held. A note that cannot be written does not stop the
engine.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime

from interlock.errors import InterlockError
from interlock.runtime.alerts.alarms import Alarms
from interlock.runtime.alerts.alert import breaker_alert
from interlock.runtime.resilience.lines import Line
from interlock.runtime.resilience.outlets import Change
from interlock.runtime.resilience.views import AUTO, HELD, NOTE, note_of, read_held, read_note, read_since
from interlock.seams import Clock
from interlock.signals import BreakerChanged, Subscribers
from interlock.store.protocol import Store


class Minding:
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

    def changed(self, change: Change) -> None:
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
