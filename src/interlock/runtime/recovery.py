"""Taking up what the last life of a store has left owed (B6), and the three policies of timers (B9).

An attempt that was under way when the process died may have happened: it is tried again with the same key, and counts.
What was waiting for its time waits on, by the policy of its timer: "deadline" keeps the moment, "restart" begins anew,
"remaining" goes on with what was left. For the last, one mark in the store says when the engine was last alive; what
has passed since then does not count. The mark is written at a clean stop and every few seconds, so that after a crash
the last saved value counts, and it is one small write however many timers run.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from interlock.errors import UnavailableError
from interlock.runtime.bound import Bound
from interlock.runtime.effects import EffectFailed
from interlock.runtime.owed import TimerRun, decode_owed
from interlock.runtime.pipeline import AGAIN_S, Group, Pipeline
from interlock.runtime.reports import Crashed, Failure, Look, Report
from interlock.runtime.runner import Runner
from interlock.runtime.staging import Staged
from interlock.store.protocol import Store
from interlock.store.values import OwedEffect, Row

ALIVE = "alive_us"
"""The note that says when an engine last looked after this store."""

PAGE = 1_000

CRASHED = Failure("crashed", "the process ended during the attempt", retryable=True)


class Rearm(Report):
    """Timers whose policy says that the time while nobody was there does not count."""

    __slots__ = ("alive_us",)

    def __init__(self, workflow: str, alive_us: int) -> None:
        super().__init__(workflow)
        self.alive_us = alive_us

    def decide(self, group: Group) -> object:
        """Reckon their time anew."""
        staged = group.stage(self.workflow)
        if staged is not None:
            owed = staged.live.owed
            timers = tuple(_rearmed(timer, self.alive_us, group.now_us) for timer in owed.timers)
            staged.owe(msgspec.structs.replace(owed, timers=timers), group.now_us)
        return None


def _rearmed(timer: TimerRun, alive_us: int, now_us: int) -> TimerRun:
    if timer.policy == "deadline":
        return timer
    gone_us = now_us - max(alive_us, timer.set_us)
    at_us = now_us + timer.after_us if timer.policy == "restart" else timer.at_us + max(0, gone_us)
    return msgspec.structs.replace(timer, at_us=at_us, set_us=now_us)


class Recovery:
    """Brings everything that is owed back to life, page by page."""

    def __init__(
        self, store: Store, machines: dict[str, Bound], pipeline: Pipeline, runner: Runner, *, undo_attempts: int
    ) -> None:
        self._store = store
        self._machines = machines
        self._pipeline = pipeline
        self._runner = runner
        self._undo_attempts = undo_attempts

    async def run(self, alive_us: int) -> int:
        """Take up everything; returns how many workflows and effects were owed something."""
        # Effects first: those that the rows set going from now on belong to this life, and run already.
        effects = await self._effects()
        taken: set[str] = set()
        after = None
        while rows := await self._store.due(after=after, limit=PAGE):
            await self._rearm([row for row in rows if row.id not in taken], alive_us)
            for row in rows:
                # One that this life has set going has a later time, and comes again: it has not crashed.
                if row.id not in taken:
                    self._take_up(row)
                    taken.add(row.id)
            after = rows[-1]
            await self._pipeline.idle()
        return len(taken) + effects

    async def _rearm(self, rows: Sequence[Row], alive_us: int) -> None:
        """Reckon timers anew before anything can fire them, and before the mark of the last life is written over."""
        left = [row.id for row in rows if self._counts_time(row)]
        while left:
            asked = {workflow: self._pipeline.admit(Rearm(workflow, alive_us)) for workflow in left}
            await asyncio.wait(asked.values())
            left = [workflow for workflow, told in asked.items() if isinstance(told.exception(), UnavailableError)]
            if left and self._pipeline.dead is not None:
                raise self._pipeline.dead
            if left:
                await asyncio.sleep(AGAIN_S)

    def _counts_time(self, row: Row) -> bool:
        return row.machine in self._machines and any(
            timer.policy != "deadline" for timer in decode_owed(row.owed).timers
        )

    def _take_up(self, row: Row) -> None:
        bound = self._machines.get(row.machine)
        if bound is None:
            return
        live = bound.live(row)
        current = live.owed.current
        if current is not None and current.started:
            self._pipeline.add(Crashed(row.id, self._undo_attempts))
        elif current is not None and current.retry_us is None:
            self._pipeline.add(Look(row.id))
        else:
            self._runner.act(Staged(live, row.revision))

    async def _effects(self) -> int:
        taken: set[str] = set()
        after = None
        while effects := await self._store.effects(after=after, limit=PAGE):
            rows = await self._store.load(list({effect.workflow: None for effect in effects}))
            for effect in effects:
                # One that has failed since the page before has a later time, and comes again.
                if effect.workflow in rows and effect.id not in taken:
                    self._owe(rows[effect.workflow].machine, effect)
                    taken.add(effect.id)
            after = effects[-1]
        return len(taken)

    def _owe(self, machine: str, effect: OwedEffect) -> None:
        bound = self._machines.get(machine)
        declared = None if bound is None else bound.effects.get(effect.name)
        if declared is not None and effect.attempts >= declared.retry.attempts:
            # The last attempt was under way when the process died.
            self._pipeline.add(EffectFailed(effect, CRASHED, attempts_max=declared.retry.attempts))
        elif bound is not None:
            self._runner.owe_effect(effect)
