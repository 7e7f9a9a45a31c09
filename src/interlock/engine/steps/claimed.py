"""Claimed and parked work of a shared store: the reports on claimed workflows, and the names of parked ones.

A claim is a lease with a token of its own. If the row has another token by the time a report is decided, another worker
has the workflow, and there is nothing to do here (G4). A claim that begins nothing is released by the same commit, with
the time of the next work. So it never keeps a workflow from others.
"""

from collections.abc import Iterator

from interlock.engine.dependencies.wait_queue import Line
from interlock.engine.path.pipeline import Group
from interlock.engine.path.reports import (
    CRASHED,
    EffectBegun,
    EffectFailed,
    Report,
    crashed,
    due,
    fire_timers,
    give_up_missing_step,
)
from interlock.engine.path.staging import Staged, effect_line, later_us, place_of, replace

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


class FireTimers(Report):
    """A due timer during an attempt that runs here: no other worker can claim the workflow."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Fire due timers. The worker that claims the workflow begins its attempts."""
        staged = group.stage(self.workflow)
        return None if staged is None else fire_timers(staged, group)
