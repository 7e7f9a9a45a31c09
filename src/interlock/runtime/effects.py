"""What became of an effect: done, to be tried again, or a dead letter (B12). The machine never moves by it."""

import asyncio

from interlock.runtime.pipeline import Group
from interlock.runtime.reports import Failure
from interlock.runtime.staging import replace
from interlock.store.values import Letter, OwedEffect


class _EffectReport:
    __slots__ = ("conflicts", "effect", "future", "key", "workflow")

    def __init__(self, effect: OwedEffect) -> None:
        self.effect = effect
        self.workflow = effect.workflow
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0


class EffectDone(_EffectReport):
    """The side message is out."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """It is owed no more."""
        staged = group.stage(self.workflow)
        if staged is None:
            return "late"
        staged.effects_done.append(self.effect.id)
        staged.touched = True
        return None


class EffectFailed(_EffectReport):
    """An attempt has failed."""

    __slots__ = ("attempts_max", "failure")

    def __init__(self, effect: OwedEffect, failure: Failure, *, attempts_max: int) -> None:
        super().__init__(effect)
        self.failure = failure
        self.attempts_max = attempts_max

    def decide(self, group: Group) -> object:
        """Try again later, or leave it to a person."""
        staged = group.stage(self.workflow)
        if staged is None:
            return "late"
        staged.touched = True
        effect, failure = self.effect, self.failure
        attempts = effect.attempts + 1
        if failure.retryable and attempts < self.attempts_max:
            wake_us = group.now_us + int(failure.delay_s * 1_000_000)
            staged.effects.append(replace(effect, attempts=attempts, wake_us=wake_us))
            return None
        told = f"{failure.error}: {failure.message}" if failure.message else failure.error
        staged.effects_done.append(effect.id)
        staged.letters.append(
            Letter(
                group.ids.new().hex,
                "effect",
                self.workflow,
                effect.name,
                attempts,
                told,
                group.now_us,
                effect.version,
                effect.id,
            )
        )
        return None
