"""Reports on claimed workflows: fire their timers, begin their attempts, or take them over from dead workers.

A claim is a lease with a token of its own. If the row has another token by the time this is decided, another worker has
the workflow, and there is nothing to do here (G4). A claim that begins nothing is released by the same commit, with the
time of the next work. So it never keeps a workflow from others.
"""

from interlock.runtime.effects import EffectBegun, EffectFailed
from interlock.runtime.means import effect_line, later_us, place_of
from interlock.runtime.pipeline import Group
from interlock.runtime.reports import CRASHED, Report, crashed, due, fire_timers, give_up_missing_step
from interlock.runtime.staging import Staged, replace


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
