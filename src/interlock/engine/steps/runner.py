"""The runner: begins attempts of steps, undos and effects after the commit, and reports their results.

An attempt runs only after the commit that counts it (G5), with the key that commit stored. It is cancelled when it
times out or its workflow moves on; its result is then late. Attempts hold slots, so that a burst of workflows is a
queue of names and not a pile of tasks (G6).

On a store with one owner this process keeps the times of all due work. On a shared store an attempt that begins with
its commit is leased by the same commit. Work that has to wait is only a time in the store, at which any worker claims
it. The exception are timers beside an attempt that runs here: its lease keeps others from claiming the workflow.

Sections: timeouts of attempts; the timer heap; the runner, with what is owed, leases, attempts and failures.
"""

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from functools import partial
from types import FrameType
from typing import Protocol, cast

from interlock.core.policies import Retry
from interlock.core.values import BeatingContext, OtherWorkflows, StepContext, find_other_workflows
from interlock.engine.bound_machine import NOTHING, BoundMachine, LoadedWorkflow, Owed, StepRun, UndoRun, decode_owed
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.dependencies.step_threads import StepThreads
from interlock.engine.dependencies.wait_queue import Parking, Pass
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import (
    EffectBegun,
    EffectDone,
    EffectFailed,
    Failed,
    Failure,
    FamilyStarted,
    FireTimers,
    Interrupted,
    Look,
    Result,
    Returned,
    TakeUp,
    UndoFailed,
    Undone,
)
from interlock.engine.path.staged_group import Envelope, Staged, place_in, place_of
from interlock.engine.signal_emitter import SignalEmitter
from interlock.engine.steps.attempt import Judge, RunningAttempt
from interlock.engine.tracer_protocol import CURRENT, Current
from interlock.errors import NonRetryable
from interlock.redaction import logger_of
from interlock.store.records import OwedEffect, Row

# --- Timeouts of attempts: one timer of the event loop per length of timeout, for any number of attempts -------------
# `asyncio.timeout` costs a timer in the event loop's heap per attempt. Attempts with the same timeout end in the
# order in which they began. So a dictionary in that order and one timer for its first entry do the same at lower
# cost.


class Limited(Protocol):
    """An object with a timeout."""

    timeout_s: float

    def expire(self) -> None:
        """Handle the timeout."""
        ...


class Deadlines:
    """Calls `expire` on each object that was not removed before its timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_timeout: dict[float, dict[Limited, float]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, limited: Limited) -> None:
        """Start the timeout of an object."""
        timeout_s = limited.timeout_s
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = {}
        deadline_s = self._loop.time() + timeout_s
        waiting[limited] = deadline_s
        if timeout_s not in self._timers:
            self._timers[timeout_s] = self._loop.call_at(deadline_s, self._look, timeout_s)

    def remove(self, limited: Limited) -> None:
        """Stop the timeout of an object, if it runs."""
        waiting = self._by_timeout.get(limited.timeout_s)
        if waiting is not None:
            waiting.pop(limited, None)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look(self, timeout_s: float) -> None:
        del self._timers[timeout_s]
        waiting = self._by_timeout[timeout_s]
        now_s = self._loop.time()
        while waiting:
            first = next(iter(waiting))
            if waiting[first] > now_s:
                self._timers[timeout_s] = self._loop.call_at(waiting[first], self._look, timeout_s)
                return
            del waiting[first]
            first.expire()


# --- The timer heap: retries and timers of workflows, in memory, by the store's clock --------------------------------
# A lane has one owner, so its timers need no index and no polling: they are kept in a heap, and rebuilt when the
# store is opened. An entry is a time and a name. The row says what is due, so a wrong entry does no harm. One call of
# the event loop's clock waits for the soonest.

STALE_MAX = 1_000
"""Stale entries that may stay, beside as many valid ones."""

LOOK_AT_LEAST_EVERY_S = 1.0
"""The longest single wait: wall clocks may be set, so a long wait is made of short ones."""


class TimerHeap:
    """A heap of callbacks by time."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._heap: list[tuple[int, int, Callable[[str], None], str]] = []
        self._wanted: set[tuple[int, str]] = set()
        """Entries that still matter. A workflow that moves often asks for the same time repeatedly."""
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._open = False
        self._closed = False
        self.look_at_least_every_s = LOOK_AT_LEAST_EVERY_S
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._wanted)

    def at(self, time_us: int, call: Callable[[str], None], name: str) -> None:
        """Call `call(name)` at that time, or soon after."""
        if self._closed or (time_us, name) in self._wanted:
            return
        self._wanted.add((time_us, name))
        heapq.heappush(self._heap, (time_us, next(self._numbers), call, name))
        if self._open and self._heap[0][0] == time_us:
            self._wait()

    def drop(self, time_us: int, name: str) -> None:
        """Drop an entry. Stale entries are removed when they are the majority (G6)."""
        self._wanted.discard((time_us, name))
        if len(self._heap) > 2 * len(self._wanted) + STALE_MAX:
            self._heap = [entry for entry in self._heap if (entry[0], entry[3]) in self._wanted]
            heapq.heapify(self._heap)

    def open(self) -> None:
        """Begin to call back."""
        self._open = True
        if self._heap:
            self._wait()

    def soonest_us(self) -> int | None:
        """Return the time of the next callback."""
        return self._heap[0][0] if self._heap else None

    def close(self) -> None:
        """Drop all entries: everything is in the store."""
        self._closed = True
        self._heap.clear()
        self._wanted.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _wait(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        left_s = max(0.0, (self._heap[0][0] - self._now_us()) / 1_000_000)
        self._handle = self._loop.call_later(min(left_s, self.look_at_least_every_s), self._look)

    def _look(self) -> None:
        self._handle = None
        now_us = self._now_us()
        while self._heap and self._heap[0][0] <= now_us:
            time_us, _, call, name = heapq.heappop(self._heap)
            if (time_us, name) in self._wanted:
                self._wanted.discard((time_us, name))
                call(name)
        if self._heap and self._handle is None:
            self._wait()


# --- Execution of attempts: each a task with a time limit, from its first line to its report -------------------------
# At the end of an attempt four things happen, once each. Its report goes to the pipeline, and its permit is returned
# with the outcome for the breaker. Observers receive it, and the undos that wait for its end start. A result that
# arrives after the attempt was given up is late.

log = logger_of("interlock.steps")

LOGGED_MAX = 1_000
"""Runs with a bug that are remembered, so that a bug is logged once and not with every attempt."""

CANCEL_S = 5.0
"""Seconds a closing engine waits for attempts that it has cancelled."""


KNOWN_MAX = 500
"""Workflows of a wait queue that stay in memory; later ones are read again when they are called."""

STOPPING = Failure("cancelled", "the engine stops", retryable=True)


Ready = tuple[RunningAttempt, Coroutine[object, object, None], BoundMachine, str]
"""An attempt of a step that has not begun, its coroutine, its machine and the name of the step."""


class Claims(Protocol):
    """The worker's side of a shared store: due work is a time in the store, and the worker that claims it begins it."""

    def due(self, time_us: int) -> None:
        """Look for due work at that time: the store holds work for then, and this process has no timer for it."""
        ...

    def freed(self) -> None:
        """Claim soon: there is room for another attempt."""
        ...

    def give_up(self, workflow: str, lease: int) -> None:
        """Release the lease of a workflow that unwinds, after its attempt has ended: any worker may undo it now."""
        ...

    def left(self) -> None:
        """Send other workers a hint: this workflow unwinds, and one of them may run its attempt."""
        ...

    async def give_back(self) -> None:
        """Release claims that have not begun."""
        ...


OTHER_WORKFLOWS: ContextVar[OtherWorkflows | None] = ContextVar("interlock_other_workflows", default=None)
"""The calls to other workflows of the engine whose attempt runs."""

find_other_workflows(OTHER_WORKFLOWS.get)


class Runner:
    """Runs the steps, undos and effects of one engine."""

    def __init__(
        self,
        pipeline: CommitPipeline,
        *,
        claims: Claims | None,
        judge: Judge,
        signals: SignalEmitter,
        settings: EngineSettings,
        working: bool,
    ) -> None:
        self._pipeline = pipeline
        self.timers = TimerHeap(pipeline.store.now_us)
        self._claims = claims
        self._judge = judge
        self._signals = signals
        self._settings = settings
        self._working = working
        self._undo_retry = Retry(attempts=settings.undo_attempts)
        self._deadlines = Deadlines()
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[str, RunningAttempt] = {}
        """All running attempts by idempotency key."""
        self._ready: deque[Ready] = deque()
        """Attempts of steps that run in one task, one after the other, until one of them suspends."""
        self._at_work: Ready | None = None
        """The one that runs, or has suspended just now."""
        self._worker: asyncio.Task[None] | None = None
        """The task in which they begin."""
        self._running: dict[str, RunningAttempt] = {}
        """The running step or undo of each workflow."""
        self._leaving: dict[str, list[RunningAttempt]] = {}
        """Cancelled attempts that have not ended yet, of workflows that have moved on."""
        self._logged: dict[str, str] = {}
        """Where each logged bug was raised, by idempotency key."""
        self._opening: asyncio.TimerHandle | None = None
        self._effects: dict[str, OwedEffect] = {}
        """Effects that wait for their time or for a slot."""
        self.unbegun: dict[str, OwedEffect] = {}
        """Effects that waited for a slot when the engine stopped."""
        self.claimed: dict[str, int] = {}
        """Leases of claimed workflows that wait for a slot."""
        self.reporting: dict[str, Result] = {}
        """Results on their way to a shared store, by workflow: until they are there, no other worker may try again."""
        self._kept: dict[str, int] = {}
        """Leases of unwinding workflows, to be released when their attempts here have ended."""
        self.parking = Parking()
        """Workflows parked in a shared store until their dependency can be called."""
        self._tracing = pipeline.means.tracing
        self.others: OtherWorkflows
        """Calls of attempts to other workflows: see `families`."""
        self.threads = StepThreads(self._attempts, settings.threads_max)
        self.places = pipeline.means.places
        self.slots, self.effect_slots = self.places.steps, self.places.effects
        self.slots.called = self.places.undos.called = self.look if claims is None else self._take_up_called
        self.effect_slots.called = self._called_effect

    @property
    def working(self) -> bool:
        """Whether it begins attempts."""
        return self._working

    @property
    def under_way(self) -> int:
        """The number of running attempts."""
        return len(self._attempts)

    # --- what is owed ------------------------------------------------------------------------------------------------

    def act(self, staged: Staged) -> None:
        """Act on a durable change: cancel the attempt that no longer applies, begin what is owed."""
        live = staged.live
        owed, workflow = live.owed, live.row.id
        current = None if owed is NOTHING else owed.current
        if self.reporting:
            self.reporting.pop(workflow, None)  # It is in the store.
        running = self._running.get(workflow)
        if running is not None and (current is None or current.key != running.key):
            del self._running[workflow]
            self._leaving.setdefault(workflow, []).append(running)
            running.cancel("moved_on")
        if self._working:
            before = staged.before
            if owed.timers is not before.timers:
                for timer in before.timers:
                    if timer not in owed.timers:
                        self.timers.drop(timer.at_us, workflow)
                self.arm(workflow, owed)
            # After the timers: a retry may be due at the very moment of a timer that was dropped.
            if staged.attempt_pass is not None:
                self._begin(live, staged.attempt_pass)
            elif current is not None and current is not before.current:
                self.wait_for(live.bound, live.row, owed)
            if staged.begins or staged.effects or staged.effects_again:
                self._begin_effects(staged)
        if self._claims is not None:
            self._act_on_lease(staged, self._claims)

    def _begin_effects(self, staged: Staged) -> None:
        """Begin the effects that have a slot, and let the others wait."""
        for effect, pass_ in staged.begins:
            self._begin_effect(staged.live, effect, pass_)
        begun = [effect for effect, _ in staged.begins]
        for effect in (*staged.effects, *(effect for effect, _ in staged.effects_again)):
            if effect not in begun:
                self.owe_effect(effect)

    def _act_on_lease(self, staged: Staged, claims: Claims) -> None:
        """Remember a parked workflow, watch the timers of a leased one, and release one that unwinds."""
        live, workflow, means = staged.live, staged.live.row.id, self._pipeline.means
        current = live.owed.current
        if current is not None and current.parked:
            _, line, _ = place_of(live, means)
            if line is not None:
                self._pipeline.let_go(workflow)  # The worker that claims it reads it.
                self.parking.add(line, workflow, live.row.machine, live.row.created_us)
        if staged.reserved:
            self.arm(workflow, live.owed)  # It was claimed: this process watches its timers from now on.
        if staged.kept:
            if live.row.holder == means.owner:
                self.unwinds(workflow, live.row.lease)
            else:
                claims.left()

    def resume(self, bound: BoundMachine, row: Row, owed: Owed) -> None:
        """Wait for what the workflow is owed, as it was found in the store."""
        if owed.current is not None:
            self.wait_for(bound, row, owed)
        self.arm(row.id, owed)

    def wait_for(self, bound: BoundMachine, row: Row, owed: Owed) -> None:
        """Begin the attempt when its time has come and there is a slot; on a shared store only under a lease."""
        workflow, current, means = row.id, owed.current, self._pipeline.means
        assert current is not None
        if means.is_paused(row) and self._claims is None:
            return  # It is looked at again when it is resumed.
        if self._claims is not None:
            if row.holder == means.owner and not current.started and not current.parked and current.retry_us is None:
                self.claimed[workflow] = row.lease
                self.places.wait(workflow, *place_in(bound, row.state, owed, means), row.created_us, owed.turn)
            else:
                self._claims.due(current.retry_us or 0)
        elif current.retry_us is not None and not current.parked:
            self.timers.at(current.retry_us, self.look, workflow)
        elif not current.started:
            slots, line, kind = place_in(bound, row.state, owed, means)
            self.places.wait(workflow, slots, line, kind, row.created_us, owed.turn)
            if line is not None and len(line) > KNOWN_MAX:
                self._pipeline.let_go(workflow)  # G6: a long queue holds names, not workflows.

    def open(self, held_s: float = 0.0) -> None:
        """Begin attempts, now or after `held_s` seconds; everything that was owed is known."""
        if held_s > 0:
            self._opening = asyncio.get_running_loop().call_later(held_s, self.open)
            return
        self.places.open()
        self.timers.open()

    def look(self, workflow: str) -> None:
        """Queue a look at what is due for the workflow; on a shared store at its timers, the rest is claimed."""
        self._pipeline.add(Look(workflow) if self._claims is None else FireTimers(workflow))

    def arm(self, workflow: str, owed: Owed) -> None:
        """Look at the workflow when a timer is due. On a shared store only while others cannot claim it."""
        if self._claims is None or (owed.current is not None and owed.current.started):
            for timer in owed.timers:
                self.timers.at(timer.at_us, self.look, workflow)
        elif owed.timers:
            self._claims.due(min(timer.at_us for timer in owed.timers))

    def owe_effect(self, effect: OwedEffect) -> None:
        """Run the effect when its time has come and there is a slot; on a shared store leave it to a claim."""
        if self._claims is not None:
            self._claims.due(effect.wake_us)
            return
        self._effects[effect.id] = effect
        self.timers.at(effect.wake_us, self.effect_slots.wait, effect.id)

    def requeue(self) -> None:
        """Queue effects again, and look at the timers of running attempts: something was resumed."""
        if self._claims is None:
            for effect in list(self._effects.values()):
                self.timers.at(effect.wake_us, self.effect_slots.wait, effect.id)
            return
        for workflow in list(self._running):
            self.look(workflow)

    def _called_effect(self, key: str) -> None:
        effect = self._effects.pop(key, None)
        if effect is None:
            self.places.decline(key)
        else:
            self._pipeline.add(EffectBegun(effect, self._keep_effect, claimed=self._claims is not None))

    def _keep_effect(self, effect: OwedEffect) -> None:
        """Keep the effect until there is a slot."""
        self._effects[effect.id] = effect

    # --- leases of a shared store ------------------------------------------------------------------------------------

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
        run = None if current is None else (current.key, current.token)
        if report is not None and (report.run.key, report.run.token) == run:
            report.lease = row.lease
            return False
        self.claimed[row.id] = row.lease
        return True

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

    def _take_up_called(self, workflow: str) -> None:
        """Begin a claimed workflow whose slot is free."""
        lease = self.claimed.get(workflow)
        if lease is None:
            self.places.decline(workflow)
        else:
            self._pipeline.add(TakeUp(workflow, lease, self._settings.undo_attempts, self.claimed))

    def unwinds(self, workflow: str, lease: int) -> None:
        """Release the lease of an unwinding workflow, after its attempts here have ended."""
        if workflow in self._leaving:
            self._kept[workflow] = lease
        elif self._claims is not None:
            self._claims.give_up(workflow, lease)

    def holds(self, workflow: str, lease: int) -> bool:
        """Whether something is under way here under this lease."""
        running, report = self._running.get(workflow), self.reporting.get(workflow)
        return lease in (
            self.claimed.get(workflow),
            None if running is None else running.lease,
            None if report is None else report.lease,
        )

    # --- the beginning of attempts -----------------------------------------------------------------------------------

    def _begin(self, live: LoadedWorkflow, pass_: Pass) -> None:
        owed, workflow, begun_s = live.owed, live.row.id, self._signals.begun_s()
        if owed.run is not None:
            step = live.bound.table.nodes[live.snapshot.state._name_].step
            assert step is not None
            attempt = RunningAttempt(workflow, owed.run.key, step.timeout_s, pass_)
            attempt.heartbeat_s = step.heartbeat_s
            attempt.overdue = lambda: self._overdue_step(live, attempt, begun_s)
            coroutine = self._step(live, attempt, begun_s)
            name, kind, number, first = step.name, "step", owed.run.attempts, owed.run.token == 1
        else:
            attempt = RunningAttempt(workflow, owed.undos[0].key, self._settings.undo_timeout_s, pass_)
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
        elif attempt.context is None and attempt.heartbeat_s is None and name not in live.bound.apart:
            self._attempts[attempt.key] = attempt
            self._ready.append((attempt, coroutine, live.bound, name))
            if self._worker is None:
                self._worker = self._loop.create_task(self._work())
                self._loop.call_soon(self._disperse)
        else:
            self._go(attempt, coroutine)

    def _begin_effect(self, live: LoadedWorkflow, effect: OwedEffect, pass_: Pass) -> None:
        bound = live.bound
        if effect.name not in bound.effects:
            failure = Failure("no-effect", "the machine has no such effect any more", retryable=False)
            pass_.leave("abandoned")
            self._pipeline.add(EffectFailed(effect, failure, attempts_max=effect.attempts))
            return
        attempt = RunningAttempt(
            effect.workflow, effect.id, bound.effects[effect.name].timeout_s, pass_, is_effect=True
        )
        if self._tracing is not None:
            number = effect.attempts
            attempt.follow(self._tracing, live.row, live.owed.trace, effect.name, "effect", number, first=number == 1)
        begun_s = self._signals.begun_s()
        attempt.overdue = lambda: self._overdue_effect(bound, effect, attempt, begun_s)
        self._go(attempt, self._effect(bound, effect, attempt, begun_s))

    # --- from their first line to their report -----------------------------------------------------------------------

    def _go_behind(self, attempt: RunningAttempt, coroutine: Coroutine[object, object, None]) -> None:
        """Start an undo after the attempts that it may undo have ended: a refund must not overtake the charge."""
        if attempt.task is not None:
            return  # The engine stops, and has started it already.
        leaving = self._leaving.get(attempt.workflow)
        if leaving:
            self._attempts[attempt.key] = attempt
            attempt.waiting = coroutine
            leaving[0].ended = (*leaving[0].ended, lambda: self._go_behind(attempt, coroutine))
            if leaving[0].over:
                attempt.step_aside()
        elif attempt.is_aside and attempt.again is not None:
            # It has released its slot and must queue for one again; this attempt was not made.
            coroutine.close()
            self._settle(attempt, attempt.again())
        else:
            self._go(attempt, coroutine)

    async def _work(self) -> None:
        """Run the attempts that are ready, while none suspends or sets a context variable: the next would see it."""
        ready, task = self._ready, asyncio.current_task()
        assert task is not None
        CURRENT.set(None)
        OTHER_WORKFLOWS.set(self.others)
        clean, begun_s = copy_context(), self._loop.time()
        while ready:
            working = self._at_work = ready.popleft()
            attempt, coroutine, bound, step = working
            attempt.task, attempt.stuck = task, self._stuck
            # Only a call of a dependency reports its duration; the others began with this turn of the event loop.
            attempt.born_s = begun_s if attempt.permit.line is None else self._loop.time()
            await coroutine
            if self._at_work is not working:
                return  # It has suspended, and this is its own task since.
            self._at_work = None
            CURRENT.set(None)
            if task.cancelling() or copy_context() != clean:
                bound.apart.add(step)
                return

    def _disperse(self) -> None:
        """Give a task to each attempt that is left after the first turn of a worker."""
        working, self._at_work, self._worker = self._at_work, None, None
        if working is not None:
            attempt, _, bound, step = working
            bound.apart.add(step)
            self._deadlines.add(attempt)
        while self._ready:
            attempt, coroutine, _, _ = self._ready.popleft()
            self._go(attempt, coroutine)

    def _go(self, attempt: RunningAttempt, coroutine: Coroutine[object, object, None]) -> None:
        self._attempts[attempt.key] = attempt
        attempt.task = asyncio.Task(coroutine, loop=self._loop, context=attempt.context)
        attempt.stuck = self._stuck
        attempt.born_s = self._loop.time()
        self._deadlines.add(attempt)
        if attempt.heartbeat_s is not None:
            attempt.listen()

    def _end(self, attempt: RunningAttempt, report: Envelope | None) -> None:
        """Report the end of an attempt, return its permit, and start the undos that waited for it."""
        if not attempt.over:
            self._settle(attempt, report)
        else:
            self._signals.late(attempt.workflow, attempt.key)
        if self._leaving:
            leaving = self._leaving.get(attempt.workflow)
            if leaving and attempt in leaving:
                leaving.remove(attempt)
                if not leaving:
                    del self._leaving[attempt.workflow]
        for call in attempt.ended:
            call()
        if self._kept and attempt.workflow in self._kept and attempt.workflow not in self._leaving:
            self.unwinds(attempt.workflow, self._kept.pop(attempt.workflow))

    def _settle(self, attempt: RunningAttempt, report: Envelope | None) -> None:
        claims = self._claims
        if claims is not None and report is not None and not attempt.is_effect:
            self.reporting[report.workflow] = cast("Result", report)
        attempt.over = True
        working = self._at_work
        if working is None or working[0] is not attempt:
            self._deadlines.remove(attempt)  # One that has not suspended yet has no deadline.
        if self._attempts.get(attempt.key) is attempt:
            del self._attempts[attempt.key]
        if self._running.get(attempt.workflow) is attempt:
            del self._running[attempt.workflow]
        if report is not None:
            self._pipeline.add(report)
        attempt.leave(self._loop.time)
        # Break the reference cycle with the attempt: the garbage collector would have one per step to collect.
        attempt.overdue = attempt.again = attempt.stuck = None
        if claims is not None:
            claims.freed()

    def _stuck(self, attempt: RunningAttempt) -> None:
        """Give up an attempt that has ignored its timeout. A result that it still returns is late (C2)."""
        if self._attempts.get(attempt.key) is attempt and attempt.overdue is not None:
            if attempt.in_thread:
                why = "runs in a thread, which cannot be cancelled"
            else:
                why = "was cancelled and does not end. Do not catch CancelledError"
            log.error(
                "an attempt of workflow %r (key %s) exceeded its timeout and %s; "
                "it runs on beside its successor, and its undo waits",
                attempt.workflow,
                attempt.key,
                why,
            )
            if not attempt.is_effect and attempt not in self._leaving.get(attempt.workflow, ()):
                self._leaving.setdefault(attempt.workflow, []).append(attempt)
            self._settle(attempt, attempt.overdue())
            successor = self._running.get(attempt.workflow)
            if successor is not None and successor.task is None:
                successor.step_aside()

    # --- steps, undos and effects ------------------------------------------------------------------------------------

    async def _step(self, live: LoadedWorkflow, attempt: RunningAttempt, begun_s: float) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.run
        step = live.bound.table.nodes[live.snapshot.state._name_].step
        assert run is not None
        assert step is not None
        current = Current(workflow, live.bound.name, live.row.state, step.name)
        report: Envelope | None = None
        try:
            attempt.begin()
            CURRENT.set(current)
            if self._at_work is None or self._at_work[0] is not attempt:
                OTHER_WORKFLOWS.set(self.others)  # The worker has set it for the attempts that share its task.
            ctx = _context(attempt, run, live)
            value = await live.bound.steps[step.name](live.lend_context(), ctx)
            if step.children is not None:
                report = FamilyStarted(workflow, visit, run, attempt.lease, cast("int", value))
            else:
                event = value if step.result is None else step.result(value)
                # The decision refuses another value than an event.
                report = Returned(workflow, visit, run, attempt.lease, event)  # type: ignore[arg-type]
            attempt.outcome = "done"
            if not attempt.over:
                self._signals.attempted(current, "step", run.attempts, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- any exception of a step is its failure.
            if attempt.cut == "stopping":
                report = Interrupted(workflow, visit, run, attempt.lease)
            else:
                failure = self._failure(attempt, error, step.retry, run.attempts, live)
                report = None if attempt.cut == "moved_on" else Failed(workflow, visit, run, attempt.lease, failure)
                if not attempt.over:
                    self._signals.attempted(current, "step", run.attempts, begun_s, failure, attempt.cut)
                self._log_failure(step.name, "step", run.attempts, step.retry, attempt, failure, error)
            _raise_exit(error)
        finally:
            self._end(attempt, report)

    async def _undo(self, live: LoadedWorkflow, attempt: RunningAttempt) -> None:
        workflow, visit, run = live.row.id, live.snapshot.visit, live.owed.undos[0]
        begun_s, current = self._signals.begun_s(), Current(workflow, live.bound.name, live.row.state, run.step)
        report: Envelope | None = None
        try:
            attempt.begin()
            CURRENT.set(current)
            OTHER_WORKFLOWS.set(self.others)
            codec = live.bound.codec
            done = None if run.event is None else codec.decode_event(run.event, run.payload, strict=False)
            ctx = StepContext(
                key=run.key,
                workflow=workflow,
                attempt=run.attempts,
                visit=visit,
                undoes=run.undoes,
                machine=live.bound.name,
                state=live.snapshot.state,
            )
            await live.bound.undos[run.step, run.undo](live.lend_context(), done, ctx)
            report = Undone(workflow, visit, run, attempt.lease)
            attempt.outcome = "done"
            if not attempt.over:
                self._signals.attempted(current, "undo", run.attempts, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- as above.
            if attempt.cut == "stopping":
                report = Interrupted(workflow, visit, run, attempt.lease)
            else:
                retry = self._retry_of(live, run)
                failure = self._failure(attempt, error, retry, run.attempts)
                report = None
                if attempt.cut != "moved_on":
                    report = UndoFailed(workflow, visit, run, attempt.lease, failure, self._settings.undo_attempts)
                if not attempt.over:
                    self._signals.attempted(current, "undo", run.attempts, begun_s, failure, attempt.cut)
                self._log_failure(run.step, "undo", run.attempts, retry, attempt, failure, error)
            _raise_exit(error)
        finally:
            self._end(attempt, report)

    async def _effect(self, bound: BoundMachine, effect: OwedEffect, attempt: RunningAttempt, begun_s: float) -> None:
        declared, current = bound.effects[effect.name], Current(effect.workflow, bound.name, "", effect.name)
        report: Envelope | None = None
        try:
            attempt.begin()
            CURRENT.set(current)
            OTHER_WORKFLOWS.set(self.others)
            context = bound.codec.decode_context(effect.context)
            ctx = StepContext(
                key=effect.id,
                workflow=effect.workflow,
                attempt=effect.attempts,
                visit=effect.version,
                machine=bound.name,
                state=declared.state,
            )
            await declared.function(context, ctx)
            report = EffectDone(effect)
            attempt.outcome = "done"
            if not attempt.over:
                self._signals.attempted(current, "effect", effect.attempts, begun_s, None)
        except BaseException as error:  # noqa: BLE001 -- as above.
            if attempt.cut == "stopping":
                report = EffectFailed(effect, STOPPING, attempts_max=effect.attempts, counted=False)
            else:
                failure = self._failure(attempt, error, declared.retry, effect.attempts)
                report = _effect_failed(effect, failure, declared.retry)
                if not attempt.over:
                    self._signals.attempted(current, "effect", effect.attempts, begun_s, failure)
                self._log_failure(effect.name, "effect", effect.attempts, declared.retry, attempt, failure, error)
            _raise_exit(error)
        finally:
            self._end(attempt, report)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failure(
        self,
        attempt: RunningAttempt,
        error: BaseException,
        retry: Retry,
        attempts: int,
        live: LoadedWorkflow | None = None,
    ) -> Failure:
        """Return the failure of an attempt: its kind, whether to retry, and the delay."""
        if attempt.cut == "expired":
            failure = self._judge.timeout(attempt.timeout_reason, retry, attempts, error)
        else:
            step = None if live is None else live.bound.table.nodes[live.snapshot.state._name_].step
            failure = self._judge.failure(error, retry, attempts, None if step is None else step.classify)
        return attempt.judged(failure)

    def _retry_of(self, live: LoadedWorkflow, run: UndoRun) -> Retry:
        """Return the undo's own retry, or that of the engine."""
        return live.bound.undo_retries.get((run.step, run.undo), self._undo_retry)

    def _log_failure(
        self,
        name: str,
        kind: str,
        attempts: int,
        retry: Retry,
        attempt: RunningAttempt,
        failure: Failure,
        error: BaseException,
    ) -> None:
        """Log a failed attempt with its traceback: a bug once per run, a dependency's failure when it is the last."""
        bug = failure.kind in {Kind.UNEXPECTED, Kind.MISTAKE} and attempt.cut is None
        level = logging.DEBUG
        if bug and self._logged.get(attempt.key) != (place := _place_of(error)):
            level = logging.ERROR
            self._logged[attempt.key] = place
            if len(self._logged) > LOGGED_MAX:
                del self._logged[next(iter(self._logged))]
        elif (
            not bug
            and not isinstance(error, NonRetryable)
            and (not failure.retryable or (failure.counted and retry.exhausted(attempts)))
        ):
            level = logging.WARNING
        current = CURRENT.get()
        machine = None if current is None else current.machine
        log.log(
            level,
            "%s %r of workflow %r failed in attempt %d: %s (machine %r, correlation id %s)",
            kind,
            name,
            attempt.workflow,
            attempts,
            failure.text,
            machine,
            attempt.key,
            exc_info=error,
            extra={"order_id": attempt.workflow, "machine": machine, "step": name, "correlation_id": attempt.key},
        )

    def _overdue_step(self, live: LoadedWorkflow, attempt: RunningAttempt, begun_s: float) -> Envelope:
        run, step = live.owed.run, live.bound.table.nodes[live.snapshot.state._name_].step
        assert run is not None
        assert step is not None
        failure = attempt.judged(self._judge.timeout(attempt.timeout_reason, step.retry, run.attempts))
        current = Current(live.row.id, live.bound.name, live.row.state, step.name)
        self._signals.attempted(current, "step", run.attempts, begun_s, failure)
        return Failed(live.row.id, live.snapshot.visit, run, attempt.lease, failure)

    def _overdue_undo(self, live: LoadedWorkflow, attempt: RunningAttempt, begun_s: float) -> Envelope:
        run, attempts_max = live.owed.undos[0], self._settings.undo_attempts
        failure = attempt.judged(self._judge.timeout(attempt.timeout_reason, self._retry_of(live, run), run.attempts))
        current = Current(live.row.id, live.bound.name, live.row.state, run.step)
        self._signals.attempted(current, "undo", run.attempts, begun_s, failure)
        return UndoFailed(live.row.id, live.snapshot.visit, run, attempt.lease, failure, attempts_max)

    def _overdue_effect(
        self, bound: BoundMachine, effect: OwedEffect, attempt: RunningAttempt, begun_s: float
    ) -> Envelope:
        declared = bound.effects[effect.name]
        failure = attempt.judged(self._judge.timeout(attempt.timeout_reason, declared.retry, effect.attempts))
        current = Current(effect.workflow, bound.name, "", effect.name)
        self._signals.attempted(current, "effect", effect.attempts, begun_s, failure)
        return _effect_failed(effect, failure, declared.retry)

    # --- the end of the engine ---------------------------------------------------------------------------------------

    async def drain(self, limit_s: float) -> None:
        """Begin nothing more, wait for what runs, then cancel it. A cancelled attempt is not counted."""
        if self._opening is not None:
            self._opening.cancel()
        self.places.close()
        await self._pipeline.idle()  # Wait for attempts counted in a group on its way: they still begin.
        self._working = False
        self.unbegun.update(self._effects)
        self._effects.clear()
        if self._claims is not None:
            await self._claims.give_back()
        self._disperse()
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

    def abort(self) -> list[asyncio.Task[None]]:
        """Cancel all attempts and return the tasks that have to end. Waiting ones start, to report that they end."""
        self._disperse()
        left = list(self._attempts.values())
        for attempt in left:
            attempt.cancel("stopping")
            if attempt.task is None and attempt.waiting is not None:
                self._go(attempt, attempt.waiting)
        return [attempt.task for attempt in left if attempt.task is not None]


def _context(attempt: RunningAttempt, run: StepRun, live: LoadedWorkflow) -> StepContext:
    kind = StepContext if attempt.heartbeat_s is None else partial(BeatingContext, beat=attempt.beat)
    return kind(
        key=run.key,
        workflow=live.row.id,
        attempt=run.attempts,
        visit=live.snapshot.visit,
        machine=live.bound.name,
        state=live.snapshot.state,
    )


def _effect_failed(effect: OwedEffect, failure: Failure, retry: Retry) -> EffectFailed:
    return EffectFailed(effect, failure, attempts_max=retry.attempts, counted=failure.counted)


def _place_of(error: BaseException) -> str:
    """Return the class of an exception and the line that raised it."""
    link = error.__traceback__
    while link is not None and link.tb_next is not None:
        link = link.tb_next
    line = "" if link is None else f"{link.tb_frame.f_code.co_filename}:{link.tb_lineno}"
    return f"{type(error).__qualname__} {line}"


def _raise_exit(error: BaseException) -> None:
    """Raise an exception that ends the program, besides counting it as a failure of the step."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


_ATTEMPTS = {Runner._step.__code__, Runner._undo.__code__, Runner._effect.__code__}  # noqa: SLF001 -- of this module.


def running_attempt(frame: FrameType | None) -> Current | None:
    """Return the attempt whose code runs in a stack, given its innermost frame; None for other code. Any thread."""
    while frame is not None:
        if frame.f_code in _ATTEMPTS:
            return cast("Current", frame.f_locals["current"])
        frame = frame.f_back
    return None
