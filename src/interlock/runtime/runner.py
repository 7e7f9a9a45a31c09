"""The runner: begins attempts of steps, undos and effects after the commit, and reports their results.

An attempt runs only after the commit that counts it (G5), with the key that commit stored. It is cancelled when it
times out or its workflow moves on; its result is then late. Attempts hold slots, so that a burst of workflows is a
queue of names and not a pile of tasks (G6).
"""

import asyncio

from interlock.redaction import logger_of
from interlock.runtime.attempting import Attempting
from interlock.runtime.attempts import Attempt, Judge
from interlock.runtime.bound import Bound, Live
from interlock.runtime.effects import EffectBegun, EffectFailed
from interlock.runtime.means import place_in
from interlock.runtime.owed import Owed
from interlock.runtime.pipeline import Pipeline
from interlock.runtime.reports import Failure, Interrupted, Look
from interlock.runtime.resilience.lines import Pass
from interlock.runtime.settings import EngineSettings
from interlock.runtime.staging import Staged
from interlock.runtime.step_threads import StepThreads
from interlock.runtime.telling import Teller
from interlock.runtime.wakes import Wakes
from interlock.store.values import OwedEffect, Row

log = logger_of("interlock.steps")

CANCEL_S = 5.0
"""Seconds a closing engine waits for attempts that it has cancelled."""


KNOWN_MAX = 500
"""Workflows of a wait queue that stay in memory; later ones are read again when they are called."""


class Runner(Attempting):
    """Runs the steps, undos and effects of one engine."""

    def __init__(
        self,
        pipeline: Pipeline,
        wakes: Wakes,
        *,
        judge: Judge,
        teller: Teller,
        settings: EngineSettings,
        working: bool,
    ) -> None:
        super().__init__(pipeline, judge=judge, teller=teller, settings=settings)
        self._wakes = wakes
        self._working = working
        self._opening: asyncio.TimerHandle | None = None
        self._effects: dict[str, OwedEffect] = {}
        """Effects that wait for their time or for a slot."""
        self.unbegun: dict[str, OwedEffect] = {}
        """Effects that waited for a slot when the engine stopped."""
        self._tracing = pipeline.means.tracing
        self.threads = StepThreads(self._attempts, settings.threads_max)
        self.places = pipeline.means.places
        self.slots, self.effect_slots = self.places.steps, self.places.effects
        self.slots.called = self.places.undos.called = self.look
        self.effect_slots.called = self._called_effect

    @property
    def working(self) -> bool:
        """Whether it begins attempts."""
        return self._working

    # --- what is owed ------------------------------------------------------------------------------------------------

    def act(self, staged: Staged) -> None:
        """Act on a durable change: cancel the attempt that no longer applies, begin what is owed."""
        live = staged.live
        owed, workflow = live.owed, live.row.id
        current = owed.current
        running = self._running.get(workflow)
        if running is not None and (current is None or current.key != running.key):
            del self._running[workflow]
            self._leaving.setdefault(workflow, []).append(running)
            running.cancel("moved_on")
        if not self._working:
            return
        before = staged.before
        if owed.timers is not before.timers:
            for timer in before.timers:
                if timer not in owed.timers:
                    self._wakes.drop(timer.at_us, workflow)
            self.arm(workflow, owed)
        # After the timers: a retry may be due at the very moment of a timer that was dropped.
        if staged.attempt_pass is not None:
            self._begin(live, staged.attempt_pass)
        elif current is not None and current is not before.current:
            self.wait_for(live.bound, live.row, owed)
        for effect, pass_ in staged.begins:
            self._begin_effect(live, effect, pass_)
        if staged.effects or staged.effects_again:
            begun = [effect for effect, _ in staged.begins]
            for effect in (*staged.effects, *(effect for effect, _ in staged.effects_again)):
                if effect not in begun:
                    self.owe_effect(effect)

    def resume(self, bound: Bound, row: Row, owed: Owed) -> None:
        """Wait for what the workflow is owed, as it was found in the store."""
        if owed.current is not None:
            self.wait_for(bound, row, owed)
        self.arm(row.id, owed)

    def wait_for(self, bound: Bound, row: Row, owed: Owed) -> None:
        """Begin the attempt when its time has come and there is a slot."""
        workflow, current = row.id, owed.current
        assert current is not None
        if current.retry_us is not None and not current.parked:
            self._wakes.at(current.retry_us, self.look, workflow)
        elif not current.started:
            slots, line, kind = place_in(bound, row.state, owed, self._pipeline.means)
            self.places.wait(workflow, slots, line, kind, row.created_us)
            if line is not None and len(line) > KNOWN_MAX:
                self._pipeline.let_go(workflow)  # G6: a long queue holds names, not workflows.

    def open(self, held_s: float = 0.0) -> None:
        """Begin attempts, now or after `held_s` seconds; everything that was owed is known."""
        if held_s > 0:
            self._opening = asyncio.get_running_loop().call_later(held_s, self.open)
            return
        self.places.open()
        self._wakes.open()

    def look(self, workflow: str) -> None:
        """Queue a look at what is due for the workflow."""
        self._pipeline.add(Look(workflow))

    def arm(self, workflow: str, owed: Owed) -> None:
        """Look at the workflow when the time of one of its timers has come."""
        for timer in owed.timers:
            self._wakes.at(timer.at_us, self.look, workflow)

    def owe_effect(self, effect: OwedEffect) -> None:
        """Run the effect when its time has come and there is a slot."""
        self._effects[effect.id] = effect
        self._wakes.at(effect.wake_us, self.effect_slots.wait, effect.id)

    def _called_effect(self, key: str) -> None:
        effect = self._effects.pop(key, None)
        if effect is None:
            self.places.decline(key)
        else:
            self._pipeline.add(EffectBegun(effect, self._keep_effect))

    def _keep_effect(self, effect: OwedEffect) -> None:
        """Keep the effect until there is a slot."""
        self._effects[effect.id] = effect

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _begin(self, live: Live, pass_: Pass) -> None:
        owed, workflow, begun_s = live.owed, live.row.id, self._teller.begun_s()
        if owed.run is not None:
            step = live.bound.table.nodes[live.snapshot.state._name_].step
            assert step is not None
            attempt = Attempt(workflow, owed.run.key, step.timeout_s, pass_)
            attempt.heartbeat_s = step.heartbeat_s
            attempt.overdue = lambda: self._overdue_step(live, attempt, begun_s)
            coroutine = self._step(live, attempt, begun_s)
            name, kind, number, first = step.name, "step", owed.run.attempts, owed.run.token == 1
        else:
            attempt = Attempt(workflow, owed.undos[0].key, self._settings.undo_timeout_s, pass_)
            attempt.overdue = lambda: self._overdue_undo(live, attempt, begun_s)
            attempt.again = lambda: Interrupted(workflow, live.snapshot.visit, owed.undos[0], attempt.lease)
            coroutine = self._undo(live, attempt)
            undo = owed.undos[0]
            name, kind, number, first = undo.step, "undo", undo.attempts, undo.token == 1
        attempt.lease = live.row.lease
        if self._tracing is not None:
            attempt.follow(self._tracing, live.row, owed.trace, name, kind, number, first=first)
        self._running[workflow] = attempt
        if owed.run is None:
            self._go_behind(attempt, coroutine)
        else:
            self._go(attempt, coroutine)

    def _begin_effect(self, live: Live, effect: OwedEffect, pass_: Pass) -> None:
        bound = live.bound
        if effect.name not in bound.effects:
            failure = Failure("no-effect", "the machine has no such effect any more", retryable=False)
            pass_.leave("abandoned")
            self._pipeline.add(EffectFailed(effect, failure, attempts_max=effect.attempts))
            return
        attempt = Attempt(effect.workflow, effect.id, bound.effects[effect.name].timeout_s, pass_, is_effect=True)
        if self._tracing is not None:
            number = effect.attempts
            attempt.follow(self._tracing, live.row, live.owed.trace, effect.name, "effect", number, first=number == 1)
        begun_s = self._teller.begun_s()
        attempt.overdue = lambda: self._overdue_effect(bound, effect, attempt, begun_s)
        self._go(attempt, self._effect(bound, effect, attempt, begun_s))

    async def drain(self, limit_s: float) -> None:
        """Begin nothing more, wait for what runs, then cancel it. A cancelled attempt is not counted."""
        if self._opening is not None:
            self._opening.cancel()
        self.places.close()
        await self._pipeline.idle()  # Wait for attempts counted in a group on its way: they still begin.
        self._working = False
        self.unbegun.update(self._effects)
        self._effects.clear()
        await self._give_back()
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        while tasks := self.abort():
            _, stuck = await asyncio.wait(tasks, timeout=CANCEL_S)
            if stuck:
                await self.threads.give_up(CANCEL_S)
                stuck = {task for task in stuck if not task.done()}
            if stuck:
                log.error("%d attempts do not end although they were cancelled; they go on running.", len(stuck))
                break
        await self.threads.give_up(CANCEL_S)
        self._deadlines.close()

    async def _give_back(self) -> None:
        """Give work that has not begun to other processes, where they share the store."""
