"""Reports of effects: begun, done, to be retried, or a dead letter (B12). They never move the machine.

Attempts are counted before they begin, like those of steps: an effect that kills the process is not retried for ever.
"""

from abc import abstractmethod
from collections.abc import Callable

from interlock.runtime.means import effect_kind, effect_line
from interlock.runtime.pipeline import Group
from interlock.runtime.reports import Failure, Report
from interlock.runtime.staging import Staged, replace
from interlock.store.values import Letter, OwedEffect, letter_error


class _EffectReport(Report):
    __slots__ = ("effect",)

    def __init__(self, effect: OwedEffect) -> None:
        super().__init__(effect.workflow)
        self.effect = effect

    def decide(self, group: Group) -> object:
        """Apply the report on the row of its workflow."""
        staged = group.stage(self.workflow)
        if staged is not None:
            self.apply(staged, group)
        return None

    @abstractmethod
    def apply(self, staged: Staged, group: Group) -> None:
        """Stage the change of the effect."""


class EffectBegun(_EffectReport):
    """Begins the next attempt in a free slot; if the slot is taken by then, the effect waits again."""

    __slots__ = ("wait",)

    def __init__(self, effect: OwedEffect, wait: Callable[[OwedEffect], None]) -> None:
        super().__init__(effect)
        self.wait = wait

    def decide(self, group: Group) -> object:
        """Apply the report; a workflow that cannot be read must not keep a slot for ever."""
        try:
            staged = group.stage(self.workflow)
        except Exception:
            group.means.places.decline(self.effect.id)
            raise
        if staged is None:
            group.means.places.decline(self.effect.id)
        else:
            self.apply(staged, group)
        return None

    def apply(self, staged: Staged, group: Group) -> None:
        """Count the attempt, which begins when the count is durable."""
        if staged.begin_effect(self.effect, group.means, again=True):
            staged.touch()
        else:
            self.wait(self.effect)
            effect, places = self.effect, group.means.places
            line = effect_line(staged.live.bound, effect, group.means)
            kind = effect_kind(effect, group.means)
            places.wait(effect.id, places.effects, line, kind, staged.live.row.created_us)


class EffectDone(_EffectReport):
    """Ends an effect that succeeded."""

    __slots__ = ()

    def apply(self, staged: Staged, group: Group) -> None:
        """Remove the effect from what is owed."""
        del group
        staged.effects_done += (self.effect.id,)
        staged.touch()


class EffectFailed(_EffectReport):
    """Retries or ends an effect whose attempt failed."""

    __slots__ = ("attempts_max", "counted", "failure")

    def __init__(self, effect: OwedEffect, failure: Failure, *, attempts_max: int, counted: bool = True) -> None:
        super().__init__(effect)
        self.failure = failure
        self.attempts_max = attempts_max
        self.counted = counted
        """False for an attempt that was cancelled because the engine stops, or whose probe of a dependency failed."""

    def apply(self, staged: Staged, group: Group) -> None:
        """Schedule a retry, or write a dead letter."""
        effect, failure = self.effect, self.failure
        staged.touch()
        if not self.counted:
            wake_us = group.now_us + int(failure.delay_s * 1_000_000)
            staged.effects_again += ((replace(effect, attempts=effect.attempts - 1, wake_us=wake_us), effect.attempts),)
        elif failure.retryable and effect.attempts < self.attempts_max:
            wake_us = group.now_us + int(failure.delay_s * 1_000_000)
            staged.effects_again += ((replace(effect, wake_us=wake_us), effect.attempts),)
        else:
            staged.effects_dead += (effect,)
            staged.letters += (
                Letter(
                    id=group.means.ids.text(),
                    kind="effect",
                    workflow=effect.workflow,
                    name=effect.name,
                    attempts=effect.attempts,
                    error=letter_error(failure.text, failure.traceback),
                    since_us=group.now_us,
                    version=effect.version,
                    key=effect.id,
                    context=effect.context,
                ),
            )
