"""Reports of the engine on its workflows: results of attempts, due timers, free slots, crashes, counts.

A result belongs to one visit, one key and one lease token. It is late if the workflow has moved on meanwhile, or
another attempt has taken over. A late result changes nothing, and observers get a signal (G5: a result is applied at
most once). Reports never pass admission. Those of effects never move the machine (B12).
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import msgspec

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.policies import Retry
from interlock.core.values import StepFailure
from interlock.engine.bound_machine import Owed, StepRun, TimerRun, UndoRun, named_in
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.path.pipeline import Group
from interlock.engine.path.staging import Staged, effect_kind, effect_line, place_of, replace
from interlock.errors import InterlockError, InvalidPayload, Refusal, RequestError, UserCodeError
from interlock.redaction import bounded_text, bounded_traceback
from interlock.store.values import Letter, OwedEffect, letter_error

ERROR_CHARACTERS_MAX = 2_000
"""Characters kept of an error's text."""


class Late(msgspec.Struct, frozen=True):
    """The answer to a late report."""

    workflow: str
    run: str


class Bug(msgspec.Struct, frozen=True):
    """The answer to an applied report in which user code failed."""

    error: InterlockError
    run: str
    """The idempotency key of the run that was reported on."""


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt did not succeed."""

    error: str
    message: str
    retryable: bool
    delay_s: float = 0.0
    """Seconds to wait before the next attempt, if there is one."""
    unknown: bool = True
    """Whether the attempt may have had an effect."""
    kind: Kind = Kind.INFRASTRUCTURE
    counted: bool = True
    """False for a probe of a dependency that was down: what it found out is not this workflow's fault (C4)."""
    traceback: str = ""
    """Traceback of the last attempt; empty for one that is retried, whose traceback no letter keeps."""

    @property
    def outcome(self) -> str:
        """The outcome as StepAttempted names it."""
        if self.error == "timeout":
            return "timeout"
        return "retryable" if self.retryable else "non_retryable"

    @property
    def text(self) -> str:
        """The error and its message in one line."""
        return f"{self.error}: {self.message}" if self.message else self.error


CRASHED = Failure("crashed", "the process ended during the attempt", retryable=True)

UNDO_RETRY = Retry()
"""The backoff of undos without a `retry`; their number of attempts is a setting of the engine."""


class Report(ABC):
    """The fields that all reports have; no caller waits for their answer."""

    __slots__ = ("conflicts", "future", "key", "look", "workflow")

    admitted = False
    begins = False
    since_s = math.inf

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0
        self.look = False

    @abstractmethod
    def decide(self, group: Group) -> object:
        """Decide the report, as every envelope."""


class Look(Report):
    """Fire due timers and begin a due attempt, when a time has come or a slot is free."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Do what is due. What is not due yet is looked at again when it is."""
        try:
            staged = group.stage(self.workflow)
        except Exception:
            group.means.places.decline(self.workflow)  # An unreadable workflow must not keep a slot for ever.
            raise
        places = group.means.places
        if staged is None:
            places.decline(self.workflow)
            return None
        visit = staged.live.snapshot.visit
        refused = fire_timers(staged, group)
        if staged.live.snapshot.visit != visit:
            places.decline(self.workflow)
            return refused
        current = None if give_up_missing_step(staged, group) else staged.live.owed.current
        if current is not None and not current.started and due(current, group.now_us):
            if not staged.begin(group.means):
                places.wait(self.workflow, *place_of(staged.live, group.means), staged.live.row.created_us)
        else:
            # It may have been called to a slot that it no longer needs.
            places.decline(self.workflow)
        return refused


def due(current: StepRun | UndoRun, now_us: int) -> bool:
    """Whether the next attempt may begin now. A parked one begins as soon as there is a slot and a permit."""
    return current.parked or (current.retry_us or 0) <= now_us


def fire_timers(staged: Staged, group: Group) -> Exception | None:
    """Fire the timers that are due, until one of them leaves the state; returns the last refusal."""
    visit, refused = staged.live.snapshot.visit, None
    while staged.live.snapshot.visit == visit and (timer := _due(staged.live.owed.timers, group.now_us)) is not None:
        refused = _fire(staged, group, timer)
    return refused


def _fire(staged: Staged, group: Group, timer: TimerRun) -> Exception | None:
    """Send a timer's event and remove the timer. Returns the refusal if the machine refuses it."""
    owed = staged.live.owed
    staged.owe(replace(owed, timers=tuple(each for each in owed.timers if each is not timer)), group.now_us)
    live = staged.live
    try:
        event = live.bound.codec.decode_event(timer.event, timer.payload, strict=False)
        staged.move(decide.decide(live.bound.table, staged.snapshot, event), group.means)
    except (RequestError, UserCodeError) as error:
        return error
    return None


def _due(timers: tuple[TimerRun, ...], now_us: int) -> TimerRun | None:
    due = [timer for timer in timers if timer.at_us <= now_us]
    return min(due, key=lambda timer: timer.at_us, default=None)


class Result(Report):
    """The result of one attempt."""

    __slots__ = ("lease", "run", "token", "visit")

    def __init__(self, workflow: str, visit: int, run: StepRun | UndoRun, lease: int) -> None:
        super().__init__(workflow)
        self.visit = visit
        self.lease = lease
        """Lease token of the attempt, where other processes may take it over (G4)."""
        self.run = run.key
        """The idempotency key of the run."""
        self.token = run.token

    def _staged(self, group: Group) -> Staged | None:
        """Stage the workflow; None if its visit, run or attempt has changed since."""
        staged = group.stage(self.workflow)
        if staged is None or staged.live.snapshot.visit != self.visit:
            return None
        current = staged.live.owed.current
        if current is None or current.key != self.run or current.token != self.token or not current.started:
            return None
        return staged if staged.live.row.lease == self.lease else None

    def decide(self, group: Group) -> object:
        """Apply the result, unless it is late."""
        staged = self._staged(group)
        if staged is None:
            return Late(self.workflow, self.run)
        return self._apply(staged, group)

    @abstractmethod
    def _apply(self, staged: Staged, group: Group) -> object:
        """Change the staged workflow."""


class Returned(Result):
    """A step has returned its event."""

    __slots__ = ("event",)

    def __init__(self, workflow: str, visit: int, run: StepRun, lease: int, event: Event) -> None:
        # Sets the fields of both base classes directly, at a third of the cost: there is one per transition.
        self.workflow = workflow
        self.visit = visit
        self.lease = lease
        self.run = run.key
        self.token = run.token
        self.event = event
        self.key: str | None = None
        self.future: asyncio.Future[object] | None = None
        self.conflicts = 0
        self.look = False

    def _apply(self, staged: Staged, group: Group) -> object:
        """Apply the event on the current context."""
        live = staged.live
        try:
            decision = decide.decide(live.bound.table, live.snapshot, self.event, result=True)
            staged.move(decision, group.means, result=True)
        except (RequestError, UserCodeError) as error:
            # A result that the machine refuses counts as a failure for good, without effect. Other errors (a full undo
            # log, an action that raises, a context that is too large) leave the effect outside unknown, so it is
            # undone.
            unknown = not isinstance(error, Refusal)
            failure = _failure_of(error, unknown=unknown)
            return _failed(staged, group, failure) or (Bug(error, self.run) if _is_bug(error) else None)
        return None


class Failed(Result):
    """An attempt of a step has failed."""

    __slots__ = ("failure",)

    def __init__(self, workflow: str, visit: int, run: StepRun, lease: int, failure: Failure) -> None:
        super().__init__(workflow, visit, run, lease)
        self.failure = failure

    def _apply(self, staged: Staged, group: Group) -> object:
        """Retry later, or give up."""
        return _failed(staged, group, self.failure)


class Interrupted(Result):
    """An attempt was cancelled because the engine stops. It is not counted, and tried again by the next life."""

    __slots__ = ()

    def _apply(self, staged: Staged, group: Group) -> object:
        """Take the attempt off the count; its effect is unknown."""
        owed = staged.live.owed
        if owed.run is not None:
            run = replace(owed.run, attempts=owed.run.attempts - 1, started=False, unknown=True)
            staged.owe(replace(owed, run=run), group.now_us)
        else:
            undo = replace(owed.undos[0], attempts=owed.undos[0].attempts - 1, started=False)
            staged.owe(replace(owed, undos=(undo, *owed.undos[1:])), group.now_us)
        return None


class Crashed(Report):
    """The process died during an attempt. It may have had an effect, it counts, and it is tried again."""

    __slots__ = ("attempts_max", "fraction")

    def __init__(self, workflow: str, attempts_max: int, fraction: float) -> None:
        super().__init__(workflow)
        self.attempts_max = attempts_max
        self.fraction = fraction
        """The jitter of the wait before the next attempt."""

    def decide(self, group: Group) -> object:
        """Like a failure of that attempt. A first attempt is repeated immediately, a later one after a backoff."""
        staged = group.stage(self.workflow)
        if staged is not None:
            crashed(staged, group, self.attempts_max, self.fraction)
        return None


def crashed(staged: Staged, group: Group, attempts_max: int, fraction: float | None = None) -> None:
    """End the attempt that was under way, if there is one. Without a `fraction` the next one begins immediately."""
    live = staged.live
    current = live.owed.current
    if current is None or not current.started or give_up_missing_step(staged, group):
        return
    if isinstance(current, StepRun):
        step = live.bound.table.nodes[live.snapshot.state._name_].step
        assert step is not None
        _failed(staged, group, crash_of(current.attempts, step.retry, fraction))
    else:
        retry = live.bound.undo_retries.get((current.step, current.undo), UNDO_RETRY)
        undo_failed(staged, group, crash_of(current.attempts, retry, fraction), attempts_max)


def crash_of(attempts: int, retry: Retry, fraction: float | None) -> Failure:
    """Return the failure of an attempt that ended with its process.

    The first is repeated without a wait: nearly always the process was killed or deployed. A step that kills its
    process would otherwise kill it as often as there are attempts, as fast as it restarts. On a shared store there is
    no `fraction`: the end of the lease was the wait.
    """
    if fraction is None or attempts <= 1:
        return CRASHED
    return replace(CRASHED, delay_s=retry.delay_s(attempts - 1, fraction))


def give_up_missing_step(staged: Staged, group: Group) -> bool:
    """Give up a step that the changed machine no longer has, and leave it to a person. Returns whether it did."""
    live = staged.live
    run = live.owed.run
    if run is None or live.owed.dead is not None or live.bound.table.nodes[live.snapshot.state._name_].step is not None:
        return False
    failure = Failure("no-step", "the machine has no such step any more", retryable=False)
    left = replace(run, started=False, unknown=run.attempted, retry_us=None)
    _give_up(staged, group, replace(live.owed, run=left), "step", named_in(run.key), left, failure)
    return True


def _failed(staged: Staged, group: Group, failure: Failure) -> object:
    live = staged.live
    owed = live.owed
    step = live.bound.table.nodes[live.snapshot.state._name_].step
    assert owed.run is not None
    assert step is not None
    attempts = owed.run.attempts if failure.counted else owed.run.attempts - 1
    run = replace(owed.run, attempts=attempts, started=False, unknown=owed.run.unknown or failure.unknown)
    if failure.retryable and not step.retry.exhausted(run.attempts):
        retry_us = None if failure is CRASHED else group.now_us + int(failure.delay_s * 1_000_000)
        run = replace(run, retry_us=retry_us, crashed=replace(failure, delay_s=0.0) == CRASHED)
        staged.owe(replace(owed, run=run), group.now_us)
        return None
    if failure.kind.is_operators:
        _give_up(staged, group, replace(owed, run=run), "step", step.name, run, failure)
        return None
    step_failure = StepFailure(
        step=step.name, error=failure.error, message=failure.message, attempts=run.attempts, unknown=run.unknown
    )
    bug: Bug | None = None
    try:
        decision = decide.fail(live.bound.table, live.snapshot, step_failure)
        if decision is not None:
            staged.move(decision, group.means)
            return None
    except (RequestError, UserCodeError) as error:
        failure = _failure_of(error, unknown=run.unknown)
        bug = Bug(error, run.key) if _is_bug(error) else None
    _give_up(staged, group, replace(owed, run=run), "step", step.name, run, failure)
    return bug


def _failure_of(error: InterlockError, *, unknown: bool) -> Failure:
    text, traceback = bounded_text(error.what, ERROR_CHARACTERS_MAX), bounded_traceback(error)
    kind = Kind.MISTAKE if _is_bug(error) else Kind.INFRASTRUCTURE
    return Failure(error.code, text, retryable=False, unknown=unknown, kind=kind, traceback=traceback)


def _is_bug(error: InterlockError) -> bool:
    """Whether user code is wrong: an action raised, or a step returned an object that is not an event."""
    return isinstance(error, UserCodeError | InvalidPayload)


class Undone(Result):
    """The success of an undo."""

    __slots__ = ()

    def _apply(self, staged: Staged, group: Group) -> object:
        """Begin the next undo, or leave the unwinding state."""
        return undone(staged, group)


def undone(staged: Staged, group: Group) -> object:
    """Remove the newest undo, then begin the next one or leave the unwinding state."""
    live = staged.live
    rest = live.owed.undos[1:]
    staged.owe(replace(live.owed, undos=rest, dead=None, letter=""), group.now_us)
    if rest:
        staged.begin(group.means, called=False)
        return None
    staged.move(decide.unwound(live.bound.table, staged.live.snapshot), group.means)
    return None


class UndoFailed(Result):
    """An attempt of an undo has failed."""

    __slots__ = ("attempts_max", "failure")

    def __init__(
        self, workflow: str, visit: int, run: UndoRun, lease: int, failure: Failure, attempts_max: int
    ) -> None:
        super().__init__(workflow, visit, run, lease)
        self.failure = failure
        self.attempts_max = attempts_max

    def _apply(self, staged: Staged, group: Group) -> object:
        """Retry later, or leave it to a person: older undos wait."""
        undo_failed(staged, group, self.failure, self.attempts_max)
        return None


def undo_failed(staged: Staged, group: Group, failure: Failure, attempts_max: int) -> None:
    """Try the newest undo again later, or leave it to a person; `attempts_max` is for undos without a `retry`."""
    owed = staged.live.owed
    attempts = owed.undos[0].attempts if failure.counted else owed.undos[0].attempts - 1
    first = replace(owed.undos[0], attempts=attempts, started=False)
    rest = owed.undos[1:]
    retry = staged.live.bound.undo_retries.get((first.step, first.undo))
    if failure.retryable and first.attempts < (attempts_max if retry is None else retry.attempts):
        first = replace(first, retry_us=group.now_us + int(failure.delay_s * 1_000_000))
        staged.owe(replace(owed, undos=(first, *rest)), group.now_us)
        return
    _give_up(staged, group, replace(owed, undos=(first, *rest)), "undo", first.step, first, failure)


def _give_up(
    staged: Staged,
    group: Group,
    owed: Owed,
    kind: Literal["step", "undo"],
    name: str,
    run: StepRun | UndoRun,
    failure: Failure,
) -> None:
    row = staged.live.row
    letter = group.means.ids.text()
    staged.letters += (
        Letter(
            letter,
            kind,
            row.id,
            name,
            run.attempts,
            letter_error(failure.text, failure.traceback),
            group.now_us,
            row.version,
            run.key,
        ),
    )
    staged.owe(replace(owed, dead=kind, letter=letter), group.now_us)


# --- Effects ---------------------------------------------------------------------------------------------------------
# Attempts are counted before they begin, like those of steps: an effect that kills the process is not retried for
# ever.


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


COUNTS_SAVED_S = 1.0
"""How long counts of duplicate, ignored and refused events may be in memory only (B5)."""


class SaveCounts(Report):
    """Saves the counts of a workflow that has not changed otherwise."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Write the row with its counts."""
        staged = group.stage(self.workflow)
        if staged is not None:
            staged.touch()
        return None
