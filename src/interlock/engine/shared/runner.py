"""The runner on a shared store: attempts that cannot begin immediately are left to the worker that claims them.

An attempt that begins with its commit is leased by the same commit. Everything that has to wait, for its time or for a
slot, is only a time in the store. No process keeps it in memory, so a million of it costs nothing, and any worker
claims it at that time. The exception are timers beside an attempt that runs here: its lease keeps others from claiming
the workflow, so this process watches them.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import cast

from interlock.engine.bound_machine import BoundMachine, Owed, decode_owed
from interlock.engine.dependencies.wait_queue import Line
from interlock.engine.path.pipeline import Envelope, Group
from interlock.engine.path.reports import (
    CRASHED,
    EffectBegun,
    EffectFailed,
    Report,
    Result,
    crashed,
    due,
    fire_timers,
    give_up_missing_step,
)
from interlock.engine.path.staging import Staged, effect_line, later_us, place_in, place_of, replace
from interlock.engine.steps.attempt import Attempt
from interlock.engine.steps.runner import Runner
from interlock.store.values import OwedEffect, Row

# --- Workflows that this worker parked in the store until their dependency can be called -----------------------------
# A parked workflow is a time in its row, at which any worker claims it. That alone would be late, or often in vain.
# So each worker remembers the names that it has parked. As soon as the breaker is closed, it claims them by name, a
# full queue at a time. If the worker dies, others claim them at their time.

PARKED_MAX = 20_000
"""Names remembered for each dependency; the others come back by their time."""

TAKEN_MAX = 500
"""Names taken up together: as many as a store claims. More would be forgotten."""


class Parking:
    """The names of workflows that were parked here."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        """Queues with parked workflows. Each queue has its own, the oldest first."""
        self._names: set[tuple[Line, str]] = set()

    def add(self, line: Line, workflow: str, machine: str, born_us: int = 0) -> None:
        """Remember a parked workflow."""
        if line not in self._lines:
            self._lines.append(line)
        if len(line.parked) < PARKED_MAX and (line, workflow) not in self._names:
            self._names.add((line, workflow))
            line.parked.put((workflow, machine), born_us)

    def __len__(self) -> int:
        """Return the number of parked workflows."""
        return len(self._names)

    @property
    def ready(self) -> bool:
        """Whether a parked workflow can be taken up."""
        return any(line.parked and _room(line) > 0 for line in self._lines)

    def taken(self) -> Iterator[tuple[str, list[str]]]:
        """Yield names that can be taken up now, by machine, and forget them: the others come by their time."""
        for line in list(self._lines):  # A workflow may be parked while others are claimed.
            parked = line.parked
            machines: dict[str, list[str]] = {}
            for _ in range(min(TAKEN_MAX, _room(line), len(parked))):
                (name, machine), _ = parked.take()
                self._names.discard((line, name))
                machines.setdefault(machine, []).append(name)
            yield from machines.items()


def _room(line: Line) -> int:
    """Return the free room of a queue; 0 unless half of it is empty, to fill many at a time."""
    if line.outlet.phase != "closed" or 2 * len(line) > line.held_max:
        return 0
    return line.held_max - len(line)


# --- Reports on claimed workflows: fire their timers, begin their attempts, or take them over from dead workers ------
# A claim is a lease with a token of its own. If the row has another token by the time this is decided, another
# worker has the workflow, and there is nothing to do here (G4). A claim that begins nothing is released by the same
# commit, with the time of the next work. So it never keeps a workflow from others.


class TakeUp(Report):
    """A claim of a workflow, under this lease."""

    __slots__ = ("attempts_max", "claimed", "lease", "timers")

    def __init__(
        self, workflow: str, lease: int, attempts_max: int, claimed: dict[str, int], *, timers: bool = False
    ) -> None:
        super().__init__(workflow)
        self.lease = lease
        self.attempts_max = attempts_max
        self.timers = timers
        """Whether it was claimed for its timers alone, by a worker without room."""
        self.claimed = claimed
        """Leases of workflows that wait for a slot."""

    def decide(self, group: Group) -> object:
        """Fire due timers, and begin or take over the attempt."""
        places = group.means.places
        self.claimed.pop(self.workflow, None)
        try:
            staged = group.stage(self.workflow)
        except Exception:
            places.decline(self.workflow)  # An unreadable workflow must not keep a slot for ever.
            raise
        if staged is None or staged.live.row.lease != self.lease:
            places.decline(self.workflow)
            return None
        visit = staged.live.snapshot.visit
        refused = fire_timers(staged, group)
        if staged.live.snapshot.visit == visit:
            crashed(staged, group, self.attempts_max)  # The previous holder of the lease counts as dead.
        if staged.live.snapshot.visit == visit:
            self._begin(staged, group)
        else:
            places.decline(self.workflow)
        return refused

    def _begin(self, staged: Staged, group: Group) -> None:
        places = group.means.places
        current = None if give_up_missing_step(staged, group) else staged.live.owed.current
        if self.timers or current is None or not due(current, group.now_us):
            places.decline(self.workflow)
            staged.owe(staged.live.owed, group.now_us)
        elif not staged.begin(group.means):
            slots, line, kind = place_of(staged.live, group.means)
            parks_s = (
                None
                if line is None or line.knows(self.workflow, kind)
                else line.parks_s(kind, staged.live.row.created_us)
            )
            if parks_s is not None:
                staged.park(later_us(group.means, parks_s), group.now_us)
            else:
                self.claimed[self.workflow] = self.lease
                places.wait(self.workflow, slots, line, kind, staged.live.row.created_us)


class TakeUpEffect(EffectBegun):
    """A claim of an effect with a slot."""

    __slots__ = ()

    def apply(self, staged: Staged, group: Group) -> None:
        """Begin the next attempt, unless the last one was made."""
        effect = self.effect
        declared = staged.live.bound.effects.get(effect.name)
        if declared is not None and effect.attempts >= declared.retry.attempts:
            # The worker that made its last attempt died during it.
            group.means.places.decline(effect.id)
            EffectFailed(effect, CRASHED, attempts_max=declared.retry.attempts).apply(staged, group)
            return
        line = effect_line(staged.live.bound, effect, group.means)
        parks_s = (
            None
            if line is None or line.knows(effect.id, "first")
            else line.parks_s("first", staged.live.row.created_us)
        )
        if parks_s is None:
            super().apply(staged, group)
        else:
            # A worker takes it up when its dependency can be called again.
            group.means.places.decline(effect.id)
            staged.effects_again += ((replace(effect, wake_us=later_us(group.means, parks_s)), effect.attempts),)
            staged.touch()


class Look(Report):
    """A due timer during an attempt that runs here: no other worker can claim the workflow."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Fire due timers. The worker that claims the workflow begins its attempts."""
        staged = group.stage(self.workflow)
        return None if staged is None else fire_timers(staged, group)


# --- The module itself -----------------------------------------------------------------------------------------------


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

    def wait_for(self, bound: BoundMachine, row: Row, owed: Owed) -> None:
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
