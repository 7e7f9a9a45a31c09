"""An engine and its breakers: a change is told to observers and on-call, and noted in the store for the next life.

A breaker that was open when the process ended begins half-open in the next: it is probed at once, and nobody runs into
a dependency that is still down. One that a person holds stays held. Notes are written beside everything else: a store
that cannot take one is no reason to stop.
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
    """What one engine does about its breakers."""

    def __init__(self, store: Store, subscribers: Subscribers, alarms: Alarms, clock: Clock, *, worker: bool) -> None:
        self._store = store
        self._subscribers = subscribers
        self._alarms = alarms
        self._clock = clock
        self._worker = worker
        self._notes: dict[str, str] = {}
        """What is to be noted; of several changes of one breaker only the last."""
        self._noting: asyncio.Task[None] | None = None
        self._alerted: set[str] = set()

    def remember(self, lines: Mapping[str, Line], noted: Mapping[str, str]) -> None:
        """Take over what the last life has noted."""
        for name, line in lines.items():
            note = read_note(noted.get(NOTE + name, ""))
            if note is None:
                continue
            held = noted.get(HELD + name)
            forced = note.forced if held is None else read_held(held)
            reason = note.reason or "it was so when the last process ended"
            # A process that runs no steps would never probe, and never learn that it is over.
            state = note.state if self._worker else "closed"
            remembered = line.outlet.remember(state, forced, reason, read_since(note))
            if state != "closed" and (remembered or line.outlet.phase != "closed"):
                self._alerted.add(name)  # The last life has told on-call that it is open; this one says when not.

    def changed(self, change: Change) -> None:
        """A breaker has changed."""
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
        """Once when it opens, and once when that is over: not for every probe in between."""
        alert = breaker_alert(signal, int(self._clock.wall_s() * 1_000_000))
        if alert is not None and alert.resolved == (signal.dependency in self._alerted):
            self._alerted ^= {signal.dependency}
            self._alarms.tell(alert)

    async def _note(self) -> None:
        while self._notes:
            name, text = self._notes.popitem()
            with contextlib.suppress(InterlockError):
                await self._store.note(name, text)
