"""Commands that the engine sends itself: results of attempts, due timers, free slots, crashes, counts.

A result belongs to one visit, one key and one lease token. It is late if the workflow has moved on meanwhile, or
another attempt has taken over. A late result changes nothing, and observers get a signal (G5: a result is applied at
most once). Reports never pass admission. Those of effects never move the machine (B12).

Sections: answers and failures; steps, undos and timers; effects; children; claimed workflows; rows.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.policies import Retry
from interlock.core.values import ChildResult, Decision, Family, StepFailure
from interlock.engine.bound_machine import (
    ATTEMPT_CHARACTERS_MAX,
    AttemptOutcome,
    FamilyRun,
    LoadedWorkflow,
    Owed,
    PastAttempt,
    StepRun,
    TimerRun,
    UndoRun,
    named_in,
    with_attempt,
)
from interlock.engine.dependencies.classify_errors import Kind as ErrorKind
from interlock.engine.dependencies.fair_queue import NO_TURN, Turn
from interlock.engine.dependencies.outlet import Kind
from interlock.engine.dependencies.wait_queue import Line
from interlock.engine.path.staged_group import (
    CRASH_TEXT,
    Group,
    Staged,
    effect_kind,
    effect_line,
    later_us,
    place_of,
    replace,
)
from interlock.errors import CorruptionError, InterlockError, InvalidPayload, Refusal, RequestError, UserCodeError
from interlock.redaction import bounded_text, bounded_traceback, storable_text
from interlock.store.records import COUNTED, ChildRecord, Letter, OwedEffect, letter_error

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
    kind: ErrorKind = ErrorKind.INFRASTRUCTURE
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
    def attempt_outcome(self) -> AttemptOutcome:
        """The outcome as the attempts of the workflow have it (B17)."""
        if self.error == "timeout":
            return "timed_out"
        return "crashed" if self.error == "crashed" else "failed"

    @property
    def text(self) -> str:
        """The error and its message in one line."""
        return f"{self.error}: {self.message}" if self.message else self.error


CRASHED = Failure("crashed", CRASH_TEXT, retryable=True)

STOPPED = "the engine stopped"

UNDO_RETRY = Retry()
"""The backoff of undos without a `retry`; their number of attempts is a setting of the engine."""


# --- Steps, undos and timers -----------------------------------------------------------------------------------------


def _tried_and_failed(
    staged: Staged, run: StepRun | UndoRun, group: Group, failure: Failure
) -> tuple[PastAttempt, ...]:
    """Return the attempts of the workflow with the one that has failed."""
    return staged.tried(run, failure.attempt_outcome, group.means, failure.text, failure.traceback)


@dataclass(slots=True, eq=False, repr=False)
class Report(ABC):
    """An envelope whose answer no caller waits for."""

    admitted = False
    begins = False
    since_s = math.inf

    workflow: str
    key: str | None = field(default=None, kw_only=True)
    future: "asyncio.Future[object] | None" = field(default=None, kw_only=True)
    conflicts: int = field(default=0, kw_only=True)
    look: bool = field(default=False, kw_only=True)

    def decide(self, group: Group) -> object:
        """Apply the report, if its workflow is there."""
        staged = group.stage(self.workflow)
        return None if staged is None else self.apply(staged, group)

    @abstractmethod
    def apply(self, staged: Staged, group: Group) -> object:
        """Change the staged workflow; return the answer."""


def _stage_called(group: Group, workflow: str, name: str) -> Staged | None:
    """Stage a workflow. If that fails, release the slot that was reserved for `name`, if there is one."""
    try:
        staged = group.stage(workflow)
    except Exception:
        group.means.places.decline(name)  # An unreadable workflow must not keep a slot for ever.
        raise
    if staged is None:
        group.means.places.decline(name)
    return staged


@dataclass(slots=True, eq=False, repr=False)
class Look(Report):
    """Fire due timers and begin a due attempt, when a time has come or a slot is free."""

    def decide(self, group: Group) -> object:
        """Do what is due, if the workflow is there."""
        staged = _stage_called(group, self.workflow, self.workflow)
        return None if staged is None else self.apply(staged, group)

    def apply(self, staged: Staged, group: Group) -> object:
        """Do what is due. What is not due yet is looked at again when it is."""
        places, visit = group.means.places, staged.live.snapshot.visit
        if group.means.is_paused(staged.live.row):
            places.decline(self.workflow)  # It is looked at again when it is resumed.
            return None
        refused = fire_timers(staged, group)
        if staged.live.snapshot.visit != visit:
            places.decline(self.workflow)
            return refused
        current = None if give_up_missing_step(staged, group) else staged.live.owed.current
        if current is not None and not current.started and due(current, group.now_us):
            if not staged.begin(group.means):
                live = staged.live
                places.wait(self.workflow, *place_of(live, group.means), live.row.created_us, live.owed.turn)
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
        staged.move(decide.decide(live.bound.table, staged.snapshot, event, at=group.at(live.bound)), group.means)
    except (RequestError, UserCodeError) as error:
        return error
    return None


def _due(timers: tuple[TimerRun, ...], now_us: int) -> TimerRun | None:
    due = [timer for timer in timers if timer.at_us <= now_us]
    return min(due, key=lambda timer: timer.at_us, default=None)


@dataclass(slots=True, eq=False, repr=False)
class Result(Report):
    """The result of one attempt."""

    visit: int
    run: StepRun | UndoRun
    lease: int
    """Lease token of the attempt, where other processes may take it over (G4)."""

    def decide(self, group: Group) -> object:
        """Apply the result, unless it is late: the workflow's visit, run or attempt has changed since."""
        staged, run = group.stage(self.workflow), self.run
        if staged is not None and staged.live.snapshot.visit == self.visit and staged.live.row.lease == self.lease:
            current = staged.live.owed.current
            if current is not None and current.key == run.key and current.token == run.token and current.started:
                return self.apply(staged, group)
        return Late(self.workflow, run.key)


@dataclass(slots=True, eq=False, repr=False)
class Returned(Result):
    """A step has returned its event."""

    event: Event

    def apply(self, staged: Staged, group: Group) -> object:
        """Apply the event on the current context."""
        live = staged.live
        try:
            decision = decide.decide(live.bound.table, live.snapshot, self.event, result=True, at=group.at(live.bound))
            staged.move(decision, group.means, result=True)
        except (RequestError, UserCodeError) as error:
            # A result that the machine refuses counts as a failure for good, without effect. Other errors (a full undo
            # log, an action that raises, a context that is too large) leave the effect outside unknown, so it is
            # undone.
            unknown = not isinstance(error, Refusal)
            failure = _failure_of(error, unknown=unknown)
            return _failed(staged, group, failure) or (Bug(error, self.run.key) if _is_bug(error) else None)
        return None


@dataclass(slots=True, eq=False, repr=False)
class Failed(Result):
    """An attempt of a step has failed."""

    failure: Failure

    def apply(self, staged: Staged, group: Group) -> object:
        """Retry later, or give up."""
        return _failed(staged, group, self.failure)


@dataclass(slots=True, eq=False, repr=False)
class Interrupted(Result):
    """An attempt was cancelled because the engine stops. It is not counted, and tried again by the next life."""

    def apply(self, staged: Staged, group: Group) -> object:
        """Take the attempt off the count; the effect of a step is unknown."""
        owed = staged.live.owed
        assert owed.current is not None
        effect = {} if owed.run is None else {"unknown": True}
        tried = staged.tried(owed.current, "cancelled", group.means, STOPPED)
        left = owed.with_current(attempts=owed.current.attempts - 1, started=False, **effect)
        staged.owe(replace(left, tried=tried), group.now_us)
        return None


@dataclass(slots=True, eq=False, repr=False)
class Crashed(Report):
    """The process died during an attempt. It may have had an effect, it counts, and it is tried again."""

    attempts_max: int
    fraction: float
    """The jitter of the wait before the next attempt."""

    def apply(self, staged: Staged, group: Group) -> object:
        """Like a failure of that attempt. A first attempt is repeated immediately, a later one after a backoff."""
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

    The first attempt is retried without a wait: nearly always the process was killed or redeployed. Later ones wait,
    or a step that kills its process would do so at each restart until its attempts are used up. On a shared store
    there is no `fraction`: the end of the lease was the wait.
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
    tried = _tried_and_failed(staged, run, group, CRASHED)
    _give_up(staged, group, replace(live.owed, run=left, tried=tried), "step", named_in(run.key), left, failure)
    return True


def _failed(staged: Staged, group: Group, failure: Failure) -> object:
    live = staged.live
    owed = live.owed
    step = live.bound.table.nodes[live.snapshot.state._name_].step
    assert owed.run is not None
    assert step is not None
    owed = replace(owed, tried=_tried_and_failed(staged, owed.run, group, failure))
    assert owed.run is not None
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
            staged.move(decision, group.means, tried=owed.tried)
            return None
    except (RequestError, UserCodeError) as error:
        failure = _failure_of(error, unknown=run.unknown)
        bug = Bug(error, run.key) if _is_bug(error) else None
    _give_up(staged, group, replace(owed, run=run), "step", step.name, run, failure)
    return bug


def _failure_of(error: InterlockError, *, unknown: bool) -> Failure:
    text, traceback = storable_text(bounded_text(error.what, ERROR_CHARACTERS_MAX)), bounded_traceback(error)
    kind = ErrorKind.MISTAKE if _is_bug(error) else ErrorKind.INFRASTRUCTURE
    return Failure(error.code, text, retryable=False, unknown=unknown, kind=kind, traceback=traceback)


def _is_bug(error: InterlockError) -> bool:
    """Whether user code is wrong: an action raised, or a step returned an object that is not an event."""
    return isinstance(error, UserCodeError | InvalidPayload)


@dataclass(slots=True, eq=False, repr=False)
class Undone(Result):
    """The success of an undo."""

    def apply(self, staged: Staged, group: Group) -> object:
        """Begin the next undo, or leave the unwinding state."""
        return undone(staged, group)


def undone(staged: Staged, group: Group, *, by: str | None = None) -> object:
    """Remove the newest undo, then begin the next one or leave the unwinding state; `by` has resolved its letter."""
    live = staged.live
    newest, rest = live.owed.undos[0], live.owed.undos[1:]
    tried = staged.tried(newest, "completed", group.means)
    left = replace(live.owed, undos=rest, dead=None, letter="", tried=tried)
    if rest:
        staged.owe(left, group.now_us)
        staged.begin(group.means, called=False)
        return None
    try:
        decision = _ended_unwinding(live)
    except (UserCodeError, InvalidPayload, CorruptionError) as error:
        # A timer of the next state cannot be computed, or a changed machine cannot be set back to what it was. A person
        # decides; a retry repeats the undo with the same key.
        kept = replace(live.owed, undos=(replace(newest, started=False),), tried=tried)
        _give_up(staged, group, kept, "undo", newest.step, newest, _failure_of(error, unknown=False))
        return Bug(error, newest.key)
    staged.owe(left, group.now_us)
    rewind = live.owed.rewind
    staged.move(decision, group.means, by=by if rewind is None else by or rewind.by)
    if rewind is not None:
        open_pipeline(staged, group)
    return None


def open_pipeline(staged: Staged, group: Group) -> None:
    """Begin a pipeline that is where it starts, in the same commit: a crash cannot leave it unbegun."""
    bound, initial = staged.live.bound, staged.live.bound.table.initial
    if bound.opening is not None and initial is not None and staged.live.snapshot.state is initial.state:
        opened = decide.decide(bound.table, staged.live.snapshot, bound.opening, at=group.at(bound))
        staged.move(opened, group.means)


def _ended_unwinding(live: LoadedWorkflow) -> Decision[Any, Any]:
    """Decide the end of an unwinding: where the machine leads, or what the workflow is set back to."""
    bound, rewind = live.bound, live.owed.rewind
    if rewind is None:
        return decide.unwound(bound.table, live.snapshot)
    state, context = bound.node_of(rewind.state).state, bound.codec.decode_context(rewind.context)
    return decide.rewound(bound.table, live.snapshot, rewind.keep, state, context, rewind.payload)


@dataclass(slots=True, eq=False, repr=False)
class UndoFailed(Result):
    """An attempt of an undo has failed."""

    failure: Failure
    attempts_max: int

    def apply(self, staged: Staged, group: Group) -> object:
        """Retry later, or leave it to a person: older undos wait."""
        undo_failed(staged, group, self.failure, self.attempts_max)
        return None


def undo_failed(staged: Staged, group: Group, failure: Failure, attempts_max: int) -> None:
    """Try the newest undo again later, or leave it to a person; `attempts_max` is for undos without a `retry`."""
    owed = staged.live.owed
    owed = replace(owed, tried=_tried_and_failed(staged, owed.undos[0], group, failure))
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


@dataclass(slots=True, eq=False, repr=False)
class _EffectReport(Report):
    workflow: str = field(init=False)
    effect: OwedEffect

    def __post_init__(self) -> None:
        self.workflow = self.effect.workflow


@dataclass(slots=True, eq=False, repr=False)
class EffectBegun(_EffectReport):
    """Begins the next attempt in a free slot; if the slot is taken by then, the effect waits again."""

    wait: Callable[[OwedEffect], None]
    claimed: bool
    """Whether it was claimed from a shared store, with a slot."""

    def decide(self, group: Group) -> object:
        """Apply the report, if the workflow is there."""
        staged = _stage_called(group, self.workflow, self.effect.id)
        if staged is not None:
            self.apply(staged, group)
        return None

    def apply(self, staged: Staged, group: Group) -> None:
        """Count the attempt, which begins when the count is durable."""
        if any(each.key == self.effect.id and each.outcome == "completed" for each in staged.live.owed.tried):
            # It was queued here before the result of its last attempt came, from the engine that the workflows left.
            group.means.places.decline(self.effect.id)
            return
        if self.claimed and not self._take_up(staged, group):
            return
        if group.means.is_paused(staged.live.row):
            group.means.places.decline(self.effect.id)
            self.wait(self.effect)  # It is queued again when it is resumed.
        elif staged.begin_effect(self.effect, group.means, again=True):
            staged.touch()
        else:
            self.wait(self.effect)
            effect, places = self.effect, group.means.places
            line = effect_line(staged.live.bound, effect, group.means)
            kind = effect_kind(effect, group.means)
            places.wait(effect.id, places.effects, line, kind, staged.live.row.created_us)

    def _take_up(self, staged: Staged, group: Group) -> bool:
        """Return whether a claimed effect can begin here; otherwise give the claim back, or end the effect."""
        effect = self.effect
        declared = staged.live.bound.effects.get(effect.name)
        if declared is not None and effect.attempts >= declared.retry.attempts:
            # The worker that made its last attempt died during it.
            group.means.places.decline(effect.id)
            EffectFailed(effect, CRASHED, attempts_max=declared.retry.attempts).apply(staged, group)
            return False
        line = effect_line(staged.live.bound, effect, group.means)
        parks_s = _parks_s(line, effect.id, "first", staged.live.row.created_us)
        if group.means.is_paused(staged.live.row):
            parks_s = 0.0  # The claim is given back; others are made after it is resumed.
        if parks_s is None:
            return True
        # A worker takes it up when its dependency can be called again.
        group.means.places.decline(effect.id)
        staged.effects_again += ((replace(effect, wake_us=later_us(group.means, parks_s)), effect.attempts),)
        staged.touch()
        return False


@dataclass(slots=True, eq=False, repr=False)
class EffectDone(_EffectReport):
    """Ends an effect that succeeded."""

    def apply(self, staged: Staged, group: Group) -> None:
        """Remove the effect from what is owed."""
        staged.effects_done += (self.effect.id,)
        _end_effect(staged, group, self.effect, "completed")


@dataclass(slots=True, eq=False, repr=False)
class EffectFailed(_EffectReport):
    """Retries or ends an effect whose attempt failed."""

    failure: Failure
    attempts_max: int
    counted: bool = field(default=True, kw_only=True)
    """False for an attempt that was cancelled because the engine stops, or whose probe of a dependency failed."""

    def apply(self, staged: Staged, group: Group) -> None:
        """Schedule a retry, or write a dead letter."""
        effect, failure = self.effect, self.failure
        if failure.error == "cancelled":
            _end_effect(staged, group, effect, "cancelled", STOPPED)
        else:
            _end_effect(staged, group, effect, failure.attempt_outcome, failure.text, failure.traceback)
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


def _end_effect(
    staged: Staged, group: Group, effect: OwedEffect, outcome: AttemptOutcome, error: str = "", traceback: str = ""
) -> None:
    """End the attempt of an effect that was recorded when it began, and mark the row as changed."""
    staged.touch()
    tried = staged.live.owed.tried
    for begun in tried:
        if begun.key == effect.id and begun.outcome == "running":
            text = error[:ATTEMPT_CHARACTERS_MAX]
            ended = replace(begun, outcome=outcome, ended_us=group.now_us, error=text, traceback=traceback)
            staged.record(with_attempt(tried, ended, group.means.attempts_max))


# --- Children --------------------------------------------------------------------------------------------------------
# The end of a child is a record that its own commit writes (`Staged.move`): a message to the parent, with the id of the
# child as its key. The parent counts many of them with one change, which also marks them: each counts once (G5).
# `counted` is the number of ends that the parent had counted before the records were read. It only grows, so if the
# parent is in the same visit and has the same number now, none of these records was counted meanwhile.

Counting = Literal["done", "stale", "results"]
"""The answer to `EndsCounted`: it is applied; the records must be read again; a join holds and needs the results."""


@dataclass(slots=True, eq=False, repr=False)
class FamilyStarted(Result):
    """All children of the visit were started."""

    total: int

    def apply(self, staged: Staged, group: Group) -> object:
        """Wait for their ends. Without any children a join may hold already."""
        owed = staged.live.owed
        assert owed.run is not None
        run = replace(owed.run, started=False, retry_us=None, family=FamilyRun(self.total))
        staged.owe(replace(owed, run=run, tried=staged.tried(owed.run, "completed", group.means)), group.now_us)
        if self.total:
            return None
        return _joined(staged, group, family_of(staged.live, FamilyRun(0), ()))


@dataclass(slots=True, eq=False, repr=False)
class EndsCounted(Report):
    """Ends of children that the parent counts."""

    visit: int
    """The parent's visit when these were read. Ends of a later visit may be counted by its own family only."""
    ends: tuple[ChildRecord, ...]
    counted: int
    """The number of ends that were counted before these were read."""
    results: tuple[ChildResult, ...] | None = None
    """None: they were not loaded, because no join seemed to hold."""
    letter: str = ""
    """The dead letter of a join that is retried by this; empty without one."""

    def apply(self, staged: Staged, group: Group) -> Counting | object:
        """Count the ends of this visit and mark all of them; then move, if a join holds."""
        live = staged.live
        run, visit = live.owed.run, live.snapshot.visit
        if visit != self.visit or (self.letter and live.owed.letter != self.letter):
            return "stale"
        owed = replace(live.owed, dead=None, letter="") if self.letter else live.owed
        known = None if run is None else run.family
        mine = [each for each in self.ends if known is not None and each.visit == visit]
        joined: Family | None = None
        if known is not None and run is not None:
            if known.ended != self.counted:
                return "stale"
            family = count_ends(known, mine)
            joined = family_of(live, family, self.results or ())
            holds = owed.dead is None and holding(live, joined) is not False
            if holds and self.results is None:
                return "results"
            staged.owe(replace(owed, run=replace(run, family=family)), group.now_us)
            staged.letters_gone += (self.letter,) if self.letter else ()
        staged.children += tuple([replace(each, stage=COUNTED) for each in self.ends])
        staged.touch()
        if joined is None or owed.dead is not None:
            return "done"
        return _joined(staged, group, joined) or "done"


def count_ends(family: FamilyRun, ends: Iterable[ChildRecord]) -> FamilyRun:
    """Return the family after these ends."""
    counts, ended = dict(family.counts), family.ended
    for each in ends:
        counts[each.state] = counts.get(each.state, 0) + 1
        ended += 1
    return FamilyRun(family.total, ended, counts)


def family_of(live: LoadedWorkflow, family: FamilyRun, results: tuple[ChildResult, ...]) -> Family:
    """Return the family as a join sees it."""
    step = live.bound.table.nodes[live.snapshot.state._name_].step
    states = None if step is None or step.children is None else step.children.of.declarations.states
    return Family(total=family.total, ended=family.ended, counts=family.counts, results=results, states=states)


def holding(live: LoadedWorkflow, family: Family) -> bool | None:
    """Return whether a join of the state holds; None if its condition fails."""
    try:
        return decide.join_of(live.bound.table, live.snapshot.state, family) is not None
    except UserCodeError:
        return None


def _joined(staged: Staged, group: Group, family: Family) -> object:
    """Take the first join that holds. Leave a condition or an action that fails to a person."""
    live = staged.live
    try:
        join = decide.join_of(live.bound.table, live.snapshot.state, replace(family, results=()))
        if join is not None:
            staged.move(decide.join(live.bound.table, live.snapshot, join, family), group.means)
    except (RequestError, UserCodeError) as error:
        run = live.owed.run
        assert run is not None
        failure = _failure_of(error, unknown=True)
        _give_up(staged, group, live.owed, "step", named_in(run.key), run, failure)
        return Bug(error, run.key)
    return None


# --- Claimed workflows of a shared store: fire their timers, begin their attempts, or take them over from dead workers
# A claim is a lease with a token of its own. If the row has another token by the time a report is decided, another
# worker has the workflow, and there is nothing to do here (G4). A claim that begins nothing is released by the same
# commit, with the time of the next work. So it never keeps a workflow from others.


@dataclass(slots=True, eq=False, repr=False)
class TakeUp(Report):
    """A claim of a workflow, under this lease."""

    lease: int
    attempts_max: int
    claimed: dict[str, int]
    """Leases of workflows that wait for a slot."""
    timers: bool = field(default=False, kw_only=True)
    """Whether it was claimed for its timers alone, by a worker without room."""

    def decide(self, group: Group) -> object:
        """Take the workflow up, if it is there."""
        self.claimed.pop(self.workflow, None)
        staged = _stage_called(group, self.workflow, self.workflow)
        return None if staged is None else self.apply(staged, group)

    def apply(self, staged: Staged, group: Group) -> object:
        """Fire due timers, and begin or take over the attempt."""
        places, visit = group.means.places, staged.live.snapshot.visit
        if staged.live.row.lease != self.lease:
            places.decline(self.workflow)
            return None
        if group.means.is_paused(staged.live.row):
            self._leave_paused(staged, group)
            return None
        refused = fire_timers(staged, group)
        if staged.live.snapshot.visit == visit:
            crashed(staged, group, self.attempts_max)  # The previous holder of the lease counts as dead.
        if staged.live.snapshot.visit == visit:
            self._begin(staged, group)
        else:
            places.decline(self.workflow)
        return refused

    def _leave_paused(self, staged: Staged, group: Group) -> None:
        """Give the claim back: a pause was found after it. The previous holder of the lease counts as dead."""
        group.means.places.decline(self.workflow)
        crashed(staged, group, self.attempts_max)
        staged.owe(staged.live.owed, group.now_us)

    def _begin(self, staged: Staged, group: Group) -> None:
        places = group.means.places
        current = None if give_up_missing_step(staged, group) else staged.live.owed.current
        if self.timers or current is None or not due(current, group.now_us):
            places.decline(self.workflow)
            staged.owe(staged.live.owed, group.now_us)
        elif not staged.begin(group.means):
            slots, line, kind = place_of(staged.live, group.means)
            turn = staged.live.owed.turn
            parks_s = _parks_s(line, self.workflow, kind, staged.live.row.created_us, turn)
            if parks_s is not None:
                staged.park(later_us(group.means, parks_s), group.now_us)
            else:
                self.claimed[self.workflow] = self.lease
                places.wait(self.workflow, slots, line, kind, staged.live.row.created_us, turn)


def _parks_s(line: Line | None, name: str, kind: Kind, born_us: int, turn: Turn = NO_TURN) -> float | None:
    """Return the seconds to park a claimed workflow or effect in the store; None: it waits here, in memory."""
    return None if line is None or line.knows(name, kind) else line.parks_s(kind, born_us, turn)


@dataclass(slots=True, eq=False, repr=False)
class FireTimers(Report):
    """A due timer during an attempt that runs here: no other worker can claim the workflow."""

    def apply(self, staged: Staged, group: Group) -> object:
        """Fire due timers. The worker that claims the workflow begins its attempts."""
        return None if group.means.is_paused(staged.live.row) else fire_timers(staged, group)


# --- Rows ------------------------------------------------------------------------------------------------------------

COUNTS_SAVED_S = 1.0
"""How long counts of duplicate, ignored and refused events may be in memory only (B5)."""


@dataclass(slots=True, eq=False, repr=False)
class WriteRow(Report):
    """Writes the row of a workflow that has not changed otherwise: with its counts, or the new name of its state."""

    def apply(self, staged: Staged, group: Group) -> object:
        """Write the row as it is in memory."""
        del group
        staged.touch()
        return None
