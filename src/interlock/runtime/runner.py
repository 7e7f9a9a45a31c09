"""Acts on what has become durable: begins attempts of steps, undos and effects, and reports how they ended.

An attempt runs only after the commit that counts it (G5), with the key that commit stored. It is cancelled when its
time is over or its workflow moves on; what it then still says is late. Attempts hold slots, so that a burst of
workflows is a queue of names and not a pile of tasks (G6).
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import cast

from interlock.core.events import Event
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.errors import NonRetryable
from interlock.runtime.attempts import Attempt, Judge
from interlock.runtime.bound import Bound, Live
from interlock.runtime.deadlines import Deadlines
from interlock.runtime.effects import EffectBegun, EffectDone, EffectFailed
from interlock.runtime.owed import Owed, StepRun, UndoRun
from interlock.runtime.pipeline import Envelope, Pipeline
from interlock.runtime.reports import Failed, Failure, Interrupted, Look, Returned, UndoFailed, Undone
from interlock.runtime.settings import EngineSettings
from interlock.runtime.staging import Staged
from interlock.runtime.telling import Teller
from interlock.runtime.wakes import Wakes
from interlock.store.values import OwedEffect

log = logging.getLogger("interlock.steps")

CANCEL_S = 5.0
"""How long a closing engine waits for attempts that it has cancelled."""

STOPPING = Failure("cancelled", "the engine stops", retryable=True)


class Runner:
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
        self._pipeline = pipeline
        self._wakes = wakes
        self._judge = judge
        self._teller = teller
        self._settings = settings
        self._undo_retry = Retry(attempts=settings.undo_attempts)
        self._working = working
        self._deadlines = Deadlines()
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[str, Attempt] = {}
        """Everything that runs, by its idempotency key."""
        self._running: dict[str, Attempt] = {}
        """The step or undo that runs for a workflow."""
        self._leaving: dict[str, list[Attempt]] = {}
        """What still runs for a workflow that has moved on: cancelled, and not yet at its end."""
        self._effects: dict[str, OwedEffect] = {}
        """Effects that wait for their time or for a slot."""
        self.slots, self.effect_slots = pipeline.means.slots, pipeline.means.effect_slots
        self.slots.called = self.look
        self.effect_slots.called = self._called_effect

    @property
    def under_way(self) -> int:
        """How many attempts run."""
        return len(self._attempts)

    @property
    def working(self) -> bool:
        """Whether it begins attempts."""
        return self._working

    # --- what is owed ------------------------------------------------------------------------------------------------

    def act(self, staged: Staged) -> None:
        """The workflow stands here, durably: stop what belongs to the past, begin what is owed."""
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
        # Behind the timers: a retry may be due at the very moment of a timer that was dropped.
        if staged.reserved:
            self._begin(live)
        elif current is not None and current is not before.current:
            self.wait_for(workflow, current)
        for effect in staged.begins:
            self._begin_effect(live.bound, effect)
        if staged.effects or staged.effects_again:
            for effect in (*staged.effects, *(effect for effect, _ in staged.effects_again)):
                if effect not in staged.begins:
                    self.owe_effect(effect)

    def resume(self, workflow: str, owed: Owed) -> None:
        """Wait for whatever the workflow is owed, as it was found in the store."""
        if owed.current is not None:
            self.wait_for(workflow, owed.current)
        self.arm(workflow, owed)

    def wait_for(self, workflow: str, current: StepRun | UndoRun) -> None:
        """Begin the attempt when its time has come and there is a slot."""
        if current.retry_us is not None:
            self._wakes.at(current.retry_us, self.look, workflow)
        elif not current.started:
            self.slots.wait(workflow)

    def open(self) -> None:
        """Everything that was owed is known: begin."""
        self.slots.open()
        self.effect_slots.open()
        self._wakes.open()

    def look(self, workflow: str) -> None:
        """See what is due for the workflow."""
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
            self.effect_slots.decline(key)
        else:
            self._pipeline.add(EffectBegun(effect, self._queue_effect))

    def _queue_effect(self, effect: OwedEffect) -> None:
        self._effects[effect.id] = effect
        self.effect_slots.wait(effect.id)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _begin(self, live: Live) -> None:
        owed, workflow, begun_s = live.owed, live.row.id, self._teller.begun_s()
        if owed.run is not None:
            step = live.bound.table.nodes[live.snapshot.state._name_].step
            assert step is not None
            attempt = Attempt(workflow, owed.run.key, step.timeout_s, "runs")
            attempt.overdue = lambda: self._overdue_step(live, attempt.lease, begun_s)
            coroutine = self._step(live, attempt, begun_s)
        else:
            attempt = Attempt(workflow, owed.undos[0].key, self._settings.undo_timeout_s, "runs")
            attempt.overdue = lambda: self._overdue_undo(live, attempt.lease, begun_s)
            coroutine = self._undo(live, attempt)
        attempt.lease = live.row.lease
        self._running[workflow] = attempt
        if owed.run is None:
            self._go_behind(attempt, coroutine)
        else:
            self._go(attempt, coroutine)

    def _go_behind(self, attempt: Attempt, coroutine: Coroutine[object, object, None]) -> None:
        """An undo waits for the end of the attempts that it may have to undo: a refund must not overtake the charge."""
        leaving = self._leaving.get(attempt.workflow)
        if leaving:
            self._attempts[attempt.key] = attempt
            leaving[0].ended.append(lambda: self._go_behind(attempt, coroutine))
        else:
            self._go(attempt, coroutine)

    def _begin_effect(self, bound: Bound, effect: OwedEffect) -> None:
        if effect.name not in bound.effects:
            gone = Failure("no-effect", "the machine has no such effect any more", retryable=False)
            self.effect_slots.release()
            self._pipeline.add(EffectFailed(effect, gone, attempts_max=effect.attempts))
            return
        attempt = Attempt(effect.workflow, effect.id, bound.effects[effect.name].timeout_s, "effects")
        begun_s = self._teller.begun_s()
        attempt.overdue = lambda: self._overdue_effect(bound, effect, begun_s)
        self._go(attempt, self._effect(bound, effect, attempt, begun_s))

    def _go(self, attempt: Attempt, coroutine: Coroutine[object, object, None]) -> None:
        self._attempts[attempt.key] = attempt
        attempt.task = asyncio.Task(coroutine, loop=self._loop)
        attempt.stuck = self._stuck
        attempt.born_s = self._loop.time()
        self._deadlines.add(attempt)

    def _end(self, attempt: Attempt, report: Envelope | None) -> None:
        """The attempt has ended: tell it, give its place back, and let those go on who waited for its end."""
        if not attempt.over:
            self._settle(attempt, report)
        else:
            self._teller.late(attempt.workflow, attempt.key)
        leaving = self._leaving.get(attempt.workflow)
        if leaving and attempt in leaving:
            leaving.remove(attempt)
            if not leaving:
                del self._leaving[attempt.workflow]
        for call in attempt.ended:
            call()

    def _settle(self, attempt: Attempt, report: Envelope | None) -> None:
        attempt.over = True
        self._deadlines.remove(attempt)
        if self._attempts.get(attempt.key) is attempt:
            del self._attempts[attempt.key]
        if self._running.get(attempt.workflow) is attempt:
            del self._running[attempt.workflow]
        if report is not None:
            self._pipeline.add(report)
        (self.slots if attempt.slots_of == "runs" else self.effect_slots).release()

    async def _step(self, live: Live, attempt: Attempt, begun_s: float) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.run
        step = live.bound.table.nodes[live.snapshot.state._name_].step
        assert run is not None
        assert step is not None
        report: Envelope | None = None
        try:
            attempt.begin()
            ctx = StepContext(key=run.key, workflow=workflow, attempt=run.attempts, visit=visit)
            value = await live.bound.steps[step.name](live.snapshot.context, ctx)
            event = value if step.result is None else step.result(value)
            report = Returned(workflow, visit, run, attempt.lease, cast("Event", event))
            if not attempt.over:
                self._teller.attempted(live.row, step.name, "step", run.attempts, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- whatever a step raises is its failure.
            if attempt.cut == "stopping":
                report = Interrupted(workflow, visit, run, attempt.lease)
            else:
                failure = (
                    self._judge.timeout(step.timeout_s, step.retry, run.attempts)
                    if attempt.cut == "expired"
                    else self._judge.failure(error, step.retry, run.attempts, step.classify)
                )
                report = None if attempt.cut == "moved_on" else Failed(workflow, visit, run, attempt.lease, failure)
                if not attempt.over:
                    self._teller.attempted(live.row, step.name, "step", run.attempts, begun_s, failure, attempt.cut)
                _note(f"step {step.name!r}", workflow, run.attempts, step.retry, failure, error)
            _end_of_the_program(error)
        finally:
            self._end(attempt, report)

    async def _undo(self, live: Live, attempt: Attempt) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.undos[0]
        begun_s = self._teller.begun_s()
        report: Envelope | None = None
        try:
            attempt.begin()
            codec = live.bound.codec
            done = None if run.event is None else codec.decode_event(run.event, run.payload, strict=False)
            ctx = StepContext(key=run.key, workflow=workflow, attempt=run.attempts, visit=visit, undoes=run.undoes)
            await live.bound.undos[run.step, run.undo](live.snapshot.context, done, ctx)
            report = Undone(workflow, visit, run, attempt.lease)
            if not attempt.over:
                self._teller.attempted(live.row, run.step, "undo", run.attempts, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- as above.
            if attempt.cut == "stopping":
                report = Interrupted(workflow, visit, run, attempt.lease)
            else:
                failure = (
                    self._judge.timeout(attempt.timeout_s, self._undo_retry, run.attempts)
                    if attempt.cut == "expired"
                    else self._judge.failure(error, self._undo_retry, run.attempts)
                )
                report = None
                if attempt.cut != "moved_on":
                    report = UndoFailed(workflow, visit, run, attempt.lease, failure, self._settings.undo_attempts)
                if not attempt.over:
                    self._teller.attempted(live.row, run.step, "undo", run.attempts, begun_s, failure, attempt.cut)
                _note(f"the undo of {run.step!r}", workflow, run.attempts, self._undo_retry, failure, error)
            _end_of_the_program(error)
        finally:
            self._end(attempt, report)

    async def _effect(self, bound: Bound, effect: OwedEffect, attempt: Attempt, begun_s: float) -> None:
        declared = bound.effects[effect.name]
        report: Envelope | None = None
        try:
            attempt.begin()
            context = bound.codec.decode_context(effect.context)
            ctx = StepContext(key=effect.id, workflow=effect.workflow, attempt=effect.attempts, visit=effect.version)
            await declared.function(context, ctx)
            report = EffectDone(effect)
            if not attempt.over:
                self._teller.effect(bound.name, effect, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- as above.
            if attempt.cut == "stopping":
                report = EffectFailed(effect, STOPPING, attempts_max=effect.attempts, counted=False)
            else:
                failure = (
                    self._judge.timeout(attempt.timeout_s, declared.retry, effect.attempts)
                    if attempt.cut == "expired"
                    else self._judge.failure(error, declared.retry, effect.attempts)
                )
                report = EffectFailed(effect, failure, attempts_max=declared.retry.attempts)
                if not attempt.over:
                    self._teller.effect(bound.name, effect, begun_s, failure)
                _note(f"effect {effect.name!r}", effect.workflow, effect.attempts, declared.retry, failure, error)
            _end_of_the_program(error)
        finally:
            self._end(attempt, report)

    def _overdue_step(self, live: Live, lease: int, begun_s: float) -> Envelope:
        run, step = live.owed.run, live.bound.table.nodes[live.snapshot.state._name_].step
        assert run is not None
        assert step is not None
        failure = self._judge.timeout(step.timeout_s, step.retry, run.attempts)
        self._teller.attempted(live.row, step.name, "step", run.attempts, begun_s, failure)
        return Failed(live.row.id, live.snapshot.visit, run, lease, failure)

    def _overdue_undo(self, live: Live, lease: int, begun_s: float) -> Envelope:
        run, attempts_max = live.owed.undos[0], self._settings.undo_attempts
        failure = self._judge.timeout(self._settings.undo_timeout_s, self._undo_retry, run.attempts)
        self._teller.attempted(live.row, run.step, "undo", run.attempts, begun_s, failure)
        return UndoFailed(live.row.id, live.snapshot.visit, run, lease, failure, attempts_max)

    def _overdue_effect(self, bound: Bound, effect: OwedEffect, begun_s: float) -> Envelope:
        declared = bound.effects[effect.name]
        failure = self._judge.timeout(declared.timeout_s, declared.retry, effect.attempts)
        self._teller.effect(bound.name, effect, begun_s, failure)
        return EffectFailed(effect, failure, attempts_max=declared.retry.attempts)

    async def drain(self, limit_s: float) -> None:
        """Begin nothing more, wait for what runs, then cancel it; an attempt that is cancelled here is not counted."""
        self.slots.close()
        self.effect_slots.close()
        await self._pipeline.idle()  # An attempt that is counted in a group on its way begins, and is waited for.
        self._working = False
        self._effects.clear()
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        while tasks := self.abort():
            _, stuck = await asyncio.wait(tasks, timeout=CANCEL_S)
            if stuck:
                log.error("%d attempts do not end although they were cancelled; they are left behind.", len(stuck))
                break
        self._deadlines.close()

    def abort(self) -> list[asyncio.Task[None]]:
        """Cancel whatever runs; returns the tasks that have to end."""
        left = list(self._attempts.values())
        for attempt in left:
            attempt.cancel("stopping")
        return [attempt.task for attempt in left if attempt.task is not None]

    def _stuck(self, attempt: Attempt) -> None:
        """An attempt ignores that its time is over: go on without it. Whatever it still says is late (C2)."""
        if self._attempts.get(attempt.key) is attempt and attempt.overdue is not None:
            log.error(
                "an attempt of workflow %r (key %s) does not end although its time is over and it was cancelled; "
                "it goes on beside its successor, and what undoes it waits. Do not catch CancelledError.",
                attempt.workflow,
                attempt.key,
            )
            if attempt.slots_of == "runs" and attempt not in self._leaving.get(attempt.workflow, ()):
                self._leaving.setdefault(attempt.workflow, []).append(attempt)
            self._settle(attempt, attempt.overdue())


def _end_of_the_program(error: BaseException) -> None:
    """What ends the program is not only a failure of the step: it goes on its way."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _note(what: str, workflow: str, attempts: int, retry: Retry, failure: Failure, error: BaseException) -> None:
    """Write a failed attempt down, with its traceback. What gives up is worth a warning, a retry is not."""
    last = not failure.retryable or retry.exhausted(attempts)
    level = logging.WARNING if last and not isinstance(error, NonRetryable) else logging.DEBUG
    log.log(level, "%s of workflow %r failed in attempt %d: %s", what, workflow, attempts, failure.text, exc_info=error)
