"""The runner on a shared store: attempts that cannot begin immediately are left to the worker that claims them.

An attempt that begins with its commit is leased by the same commit. Everything that has to wait, for its time or for a
slot, is only a time in the store. No process keeps it in memory, so a million of it costs nothing, and any worker
claims it at that time. The exception are timers beside an attempt that runs here: its lease keeps others from claiming
the workflow, so this process watches them.
"""

from collections.abc import Awaitable, Callable
from typing import cast

from interlock.runtime.attempts import Attempt
from interlock.runtime.bound import Bound
from interlock.runtime.means import place_in, place_of
from interlock.runtime.owed import Owed, decode_owed
from interlock.runtime.pipeline import Envelope
from interlock.runtime.reports import Result
from interlock.runtime.runner import Runner
from interlock.runtime.sharing.parking import Parking
from interlock.runtime.sharing.taking import Look, TakeUp, TakeUpEffect
from interlock.runtime.staging import Staged
from interlock.store.values import OwedEffect, Row


class SharedRunner(Runner):
    """Runs the steps, undos and effects that this process has begun or claimed."""

    due: Callable[[int], None]
    """Callback: something is due that a worker has to claim."""
    freed: Callable[[], None]
    """Callback: an attempt has ended, and there is room for another."""
    claimed: dict[str, int]
    """Leases of claimed workflows that wait for a slot."""
    reporting: dict[str, Result]
    """Results on their way to the store, by workflow: until they are there, no other worker may try again."""

    parking: Parking
    """Workflows parked in the store until their dependency can be called."""

    give_up: Callable[[str, int], None]
    """Callback: an attempt has ended whose workflow unwinds, so that any worker may undo it now."""
    left: Callable[[], None]
    """Callback: a workflow unwinds whose attempt is under way elsewhere."""
    give_back: Callable[[], Awaitable[None]]
    """Gives back claims that have not begun."""

    def attach(
        self,
        *,
        due: Callable[[int], None],
        freed: Callable[[], None],
        give_up: Callable[[str, int], None],
        left: Callable[[], None],
        give_back: Callable[[], Awaitable[None]],
    ) -> None:
        """Connect the runner with the claims."""
        self.due, self.freed, self.give_up, self.left, self.give_back = due, freed, give_up, left, give_back
        self._kept: dict[str, int] = {}
        self.claimed = {}
        self.reporting = {}
        self.parking = Parking()
        self.slots.called = self.places.undos.called = self._called
        self.effect_slots.called = self._called_effect

    def wait_for(self, bound: Bound, row: Row, owed: Owed) -> None:
        """Leave the attempt to a claim at its time, or let it wait here for its dependency, under a lease."""
        current, means = owed.current, self._pipeline.means
        assert current is not None
        if row.holder == means.owner and not current.started and not current.parked and current.retry_us is None:
            self.claimed[row.id] = row.lease
            self.places.wait(row.id, *place_in(bound, row.state, owed, means), row.created_us)
            return
        self.due(current.retry_us or 0)

    def arm(self, workflow: str, owed: Owed) -> None:
        """Watch the timers of a workflow that others cannot claim; the others are claimed when they are due."""
        if owed.current is not None and owed.current.started:
            for timer in owed.timers:
                self._wakes.at(timer.at_us, self.look, workflow)
        elif owed.timers:
            self.due(min(timer.at_us for timer in owed.timers))

    def look(self, workflow: str) -> None:
        """Queue a look at the workflow's timers."""
        self._pipeline.add(Look(workflow))

    def owe_effect(self, effect: OwedEffect) -> None:
        """Leave the effect to a claim at its time."""
        self.due(effect.wake_us)

    def take_up(self, row: Row, *, timers: bool = False) -> bool:
        """Take up a claimed workflow; return False if its attempt runs here and now."""
        if not self.keep(row):
            return False
        self._pipeline.add(TakeUp(row.id, row.lease, self._settings.undo_attempts, self.claimed, timers=timers))
        return True

    def keep(self, row: Row) -> bool:
        """Note the lease of a workflow that was claimed. Return False if its attempt runs here and now."""
        running = self._running.get(row.id)
        current = decode_owed(row.owed).current
        if running is not None and current is not None and current.started and current.key == running.key:
            running.lease = row.lease  # Its lease had run out for a moment, unnoticed.
            return False
        report = self.reporting.get(row.id)
        if report is not None and current is not None and (report.run, report.token) == (current.key, current.token):
            report.lease = row.lease
            return False
        self.claimed[row.id] = row.lease
        return True

    async def _give_back(self) -> None:
        await self.give_back()

    def take_up_effect(self, effect: OwedEffect) -> None:
        """Queue a claimed effect for a slot."""
        if effect.id not in self._attempts:
            self._keep_effect(effect)
            self.effect_slots.wait(effect.id)

    def leases_to_renew(self, since_s: float) -> dict[str, int]:
        """Return the leases to renew: of attempts that began before that time, and of waiting workflows."""
        runs = {each.workflow: each.lease for each in self._running.values() if each.born_s <= since_s}
        return {**self.claimed, **{each.workflow: each.lease for each in self.reporting.values()}, **runs}

    def effects_to_renew(self, since_s: float) -> list[str]:
        """Return the effects whose leases are to be renewed."""
        running = [key for key, each in self._attempts.items() if each.is_effect and each.born_s <= since_s]
        return [*running, *self._effects]

    def lose(self, workflow: str, lease: int) -> None:
        """Cancel the attempt of a workflow that another worker has taken over: its result is late."""
        if self.claimed.get(workflow) == lease:
            del self.claimed[workflow]
        running = self._running.get(workflow)
        if running is not None and running.lease == lease:
            del self._running[workflow]
            self._leaving.setdefault(workflow, []).append(running)
            running.cancel("moved_on")
        self.leave_trace(workflow)

    def leave_trace(self, workflow: str) -> None:
        """End the trace here, unless something of the workflow runs or waits here all the same."""
        here = workflow in self._running or workflow in self.claimed or workflow in self.reporting
        if self._tracing is not None and not here:
            self._tracing.left(workflow)

    def _called_effect(self, key: str) -> None:
        effect = self._effects.pop(key, None)
        if effect is None:
            self.places.decline(key)
        else:
            self._pipeline.add(TakeUpEffect(effect, self._keep_effect))

    def _called(self, workflow: str) -> None:
        lease = self.claimed.get(workflow)
        if lease is None:
            self.places.decline(workflow)
        else:
            self._pipeline.add(TakeUp(workflow, lease, self._settings.undo_attempts, self.claimed))

    def act(self, staged: Staged) -> None:
        """Act on a durable change; its report is in the store."""
        workflow = staged.live.row.id
        self.reporting.pop(workflow, None)
        super().act(staged)
        current = staged.live.owed.current
        if current is not None and current.parked:
            _, line, _ = place_of(staged.live, self._pipeline.means)
            if line is not None:
                self._pipeline.let_go(workflow)  # The worker that claims it reads it.
                self.parking.add(line, workflow, staged.live.row.machine, staged.live.row.created_us)
        if staged.reserved:
            self.arm(workflow, staged.live.owed)  # It was claimed: this process watches its timers from now on.
        if staged.kept:
            if staged.live.row.holder == self._pipeline.means.owner:
                self.unwinds(workflow, staged.live.row.lease)
            else:
                self.left()

    def unwinds(self, workflow: str, lease: int) -> None:
        """Release the lease of an unwinding workflow, after its attempts here have ended."""
        if workflow in self._leaving:
            self._kept[workflow] = lease
        else:
            self.give_up(workflow, lease)

    def holds(self, workflow: str, lease: int) -> bool:
        """Whether something is under way here under this lease."""
        running, report = self._running.get(workflow), self.reporting.get(workflow)
        return lease in (
            self.claimed.get(workflow),
            None if running is None else running.lease,
            None if report is None else report.lease,
        )

    def _end(self, attempt: Attempt, report: Envelope | None) -> None:
        super()._end(attempt, report)
        if attempt.workflow in self._kept and attempt.workflow not in self._leaving:
            self.give_up(attempt.workflow, self._kept.pop(attempt.workflow))

    def _settle(self, attempt: Attempt, report: Envelope | None) -> None:
        if report is not None and not attempt.is_effect:
            self.reporting[report.workflow] = cast("Result", report)
        super()._settle(attempt, report)
        self.freed()
