"""Acts on what has become durable: begins attempts of steps, undos and effects, and reports how they ended.

An attempt runs only after the commit that counts it (G5), with the key that commit stored. It is cancelled when its
time is over or its workflow moves on; what it then still says is late. Attempts hold slots, so that a burst of
workflows is a queue and not a pile of tasks (G6).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from interlock.core.events import Event
from interlock.core.policies import Classification, Retry
from interlock.core.values import StepContext
from interlock.errors import InterlockError, NonRetryable, RetryAfter
from interlock.runtime.bound import Live
from interlock.runtime.effects import EffectDone, EffectFailed
from interlock.runtime.pipeline import Envelope, Pipeline
from interlock.runtime.reports import Begun, Failed, Failure, Fired, Returned, UndoFailed, Undone
from interlock.runtime.staging import Staged
from interlock.runtime.wakes import Wakes
from interlock.seams import Chance, Clock
from interlock.signals import StepAttempted, Subscribers
from interlock.store.values import OwedEffect

UNDO_RETRY = Retry(attempts=3)
UNDO_TIMEOUT_S = 30.0


class Runner:
    """Runs the steps of one engine."""

    def __init__(
        self, pipeline: Pipeline, wakes: Wakes, *, clock: Clock, chance: Chance, subscribers: Subscribers, working: bool
    ) -> None:
        self._pipeline = pipeline
        self._wakes = wakes
        self._clock = clock
        self._chance = chance
        self._subscribers = subscribers
        self._working = working
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the key of what runs."""
        self._running: dict[str, str] = {}
        """The key of what runs for a workflow."""
        self._waiting: deque[Envelope] = deque()
        """What waits for a slot."""

    def __len__(self) -> int:
        """How many attempts are under way or wait for a slot."""
        return len(self._tasks) + len(self._waiting)

    def act(self, staged: Staged) -> None:
        """The workflow stands here, durably: stop what belongs to the past, begin what is owed."""
        live = staged.live
        owed = live.owed
        workflow = live.row.id
        owes = owed.run.key if owed.run is not None else owed.undos[0].key if owed.undos else None
        running = self._running.get(workflow)
        if running is not None and running != owes:
            self._stop(workflow, running)
        if not self._working:
            return
        if owes is not None and running != owes:
            self._owe(live, owes)
        for timer in owed.timers:
            self._wakes.at(timer.at_us, _adding(self._pipeline, Fired(workflow, live.snapshot.visit, timer.at_us)))
        for effect in staged.effects:
            self.begin_effect(live, effect)

    def _owe(self, live: Live, key: str) -> None:
        owed, visit, workflow = live.owed, live.snapshot.visit, live.row.id
        run = owed.run or owed.undos[0]
        if owed.dead is not None:
            return
        if run.started:
            self._begin(workflow, key, self._undo(live) if owed.run is None else self._step(live))
        elif run.retry_us is not None:
            self._wakes.at(run.retry_us, lambda: self._want(Begun(workflow, visit, key)))
        else:
            self._want(Begun(workflow, visit, key))

    def begin_effect(self, live: Live, effect: OwedEffect) -> None:
        """Run an effect at its time. Effects are counted when they end: they never move the machine."""
        self._wakes.at(effect.wake_us, lambda: self._begin(None, effect.id, self._effect(live, effect)))

    def _want(self, envelope: Envelope) -> None:
        if self._pipeline.slots.free > 0:
            self._pipeline.add(envelope)
        else:
            self._waiting.append(envelope)

    def _begin(self, workflow: str | None, key: str, attempt: Awaitable[None]) -> None:
        task = asyncio.ensure_future(attempt)
        self._tasks[key] = task
        if workflow is not None:
            self._running[workflow] = key
        task.add_done_callback(lambda _task: self._ended(workflow, key))

    def _ended(self, workflow: str | None, key: str) -> None:
        self._tasks.pop(key, None)
        if workflow is not None:
            if self._running.get(workflow) == key:
                del self._running[workflow]
            self._pipeline.slots.release()
        if self._waiting and self._pipeline.slots.free > 0:
            self._pipeline.add(self._waiting.popleft())

    def _stop(self, workflow: str, key: str) -> None:
        del self._running[workflow]
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()

    async def _step(self, live: Live) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.run
        node = live.bound.table.nodes[live.snapshot.state._name_]
        assert run is not None
        assert node.step is not None
        step = node.step
        ctx = StepContext(key=run.key, workflow=workflow, attempt=run.attempts, visit=visit)
        begun_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(step.timeout_s):
                value = await live.bound.steps[step.name](live.snapshot.context, ctx)
        except Exception as error:  # noqa: BLE001 -- whatever a step raises is its failure.
            failure = self._failure(error, step.retry, run.attempts, step.classify)
            self._tell(live, step.name, "step", run.attempts, begun_s, failure)
            self._pipeline.add(Failed(workflow, visit, run.key, failure))
            return
        event = cast("Event", value if step.result is None else step.result(value))
        self._tell(live, step.name, "step", run.attempts, begun_s, None)
        self._pipeline.add(Returned(workflow, visit, run.key, event))

    async def _undo(self, live: Live) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.undos[0]
        ctx = StepContext(key=run.key, workflow=workflow, attempt=run.attempts, visit=visit, undoes=run.undoes)
        codec = live.bound.codec
        done = None if run.event is None else codec.decode_event(run.event, run.payload)
        begun_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(UNDO_TIMEOUT_S):
                await live.bound.undo(run.step, run.undo)(live.snapshot.context, done, ctx)
        except Exception as error:  # noqa: BLE001 -- as above.
            failure = self._failure(error, UNDO_RETRY, run.attempts, None)
            self._tell(live, run.step, "undo", run.attempts, begun_s, failure)
            self._pipeline.add(UndoFailed(workflow, visit, run.key, failure, attempts_max=UNDO_RETRY.attempts))
            return
        self._tell(live, run.step, "undo", run.attempts, begun_s, None)
        self._pipeline.add(Undone(workflow, visit, run.key))

    async def _effect(self, live: Live, effect: OwedEffect) -> None:
        declared = live.bound.effects[effect.name]
        attempt = effect.attempts + 1
        ctx = StepContext(key=effect.id, workflow=live.row.id, attempt=attempt, visit=effect.version)
        begun_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(declared.timeout_s):
                await declared.function(live.snapshot.context, ctx)
        except Exception as error:  # noqa: BLE001 -- as above.
            failure = self._failure(error, declared.retry, attempt, None)
            self._tell(live, effect.name, "effect", attempt, begun_s, failure)
            self._pipeline.add(EffectFailed(effect, failure, attempts_max=declared.retry.attempts))
            return
        self._tell(live, effect.name, "effect", attempt, begun_s, None)
        self._pipeline.add(EffectDone(effect))

    def _failure(
        self,
        error: Exception,
        retry: Retry,
        attempt: int,
        classify: Callable[[BaseException], Classification | None] | None,
    ) -> Failure:
        verdict = classify(error) if classify is not None else None
        retryable = verdict is not Classification.NON_RETRYABLE
        if verdict is None:
            retryable = not isinstance(error, NonRetryable)
        delay_s = retry.delay_s(attempt, self._chance.fraction())
        if isinstance(error, RetryAfter):
            delay_s = max(delay_s, error.seconds)
        what = error.what if isinstance(error, InterlockError) else str(error)
        name = "timeout" if isinstance(error, TimeoutError) else getattr(error, "code", type(error).__name__)
        return Failure(str(name), what, retryable, delay_s)

    def _tell(self, live: Live, name: str, kind: str, attempt: int, begun_s: float, failure: Failure | None) -> None:
        if not self._subscribers:
            return
        outcome = "done"
        if failure is not None:
            outcome = "retryable" if failure.retryable else "non_retryable"
            outcome = "timeout" if failure.error == "timeout" else outcome
        self._subscribers.emit(
            StepAttempted(
                machine=live.row.machine,
                workflow=live.row.id,
                state=live.row.state,
                step=name,
                kind=kind,  # type: ignore[arg-type]
                attempt=attempt,
                outcome=outcome,  # type: ignore[arg-type]
                duration_s=self._clock.monotonic_s() - begun_s,
                error=None if failure is None else failure.error,
            )
        )

    async def drain(self, limit_s: float) -> None:
        """Wait for what runs, then cancel it; an attempt that is cancelled here is not counted."""
        self._waiting.clear()
        tasks = list(self._tasks.values())
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=limit_s)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)


def _adding(pipeline: Pipeline, envelope: Envelope) -> Callable[[], None]:
    return lambda: pipeline.add(envelope)
