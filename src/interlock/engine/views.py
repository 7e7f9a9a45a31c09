"""The values that an engine returns, and the callers that wait for a workflow to reach a state.

Values have Enum members, typed contexts and aware times. They are frozen, and hold durable facts only: no crash can
take them back (G7).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Generic, Literal

import msgspec

from interlock.core.events import Event
from interlock.core.values import ContextT, StateT, StepFailure, StoredJson
from interlock.engine.bound_machine import NOTHING, BoundMachine, FamilyRun, LoadedWorkflow, Owed, StepRun, UndoRun
from interlock.errors import InterlockError, WaitFailed, WaitTimeout
from interlock.store.records import HistoryRecord, Letter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LAST_US = 253_402_214_400_000_000
"""The last day that a datetime can express; a timer may be declared for later."""


class Timer(msgspec.Struct, frozen=True):
    """A timer of a workflow that has not fired."""

    event: str
    """The name of the event that it sends."""
    due_at: datetime


class View(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """A workflow as it is durable."""

    id: str
    machine: str
    state: StateT
    context: ContextT
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | None = None
    """The reason why it does not move by itself, or None."""
    timers: tuple[Timer, ...] = ()
    """Its timers, the next one first."""
    parent: str | None = None
    """The id of the workflow that started it as a child."""
    paused: bool = False
    """Whether nothing begins for it until it, its state or its machine is resumed (E7)."""


Workflow = View
"""The result of `start`."""


class Moved(msgspec.Struct, Generic[StateT], frozen=True, kw_only=True):
    """The answer to an event: the workflow's state after it."""

    state: StateT
    version: int
    duplicate: bool = False
    ignored: bool = False


class Refused(msgspec.Struct, frozen=True):
    """One item of `send_many` that was refused, and why."""

    error: InterlockError


class HistoryRow(msgspec.Struct, Generic[StateT, ContextT], frozen=True, kw_only=True):
    """One row of history; `context` is the context after the move.

    What an earlier version of the machine has stored and today's classes cannot hold is a `StoredJson`.
    """

    version: int
    from_state: StateT
    to_state: StateT
    event: str
    payload: Event | StepFailure | StoredJson | None
    context: ContextT
    """At run time a `StoredJson`, as above, where the class cannot hold it; the type leaves the rare case out."""
    key: str | None
    created_at: datetime
    by: str | None = None
    """The actor who caused it, where a caller named one; None for the machine's own moves (F1)."""


class Page(msgspec.Struct, Generic[StateT, ContextT], frozen=True):
    """A page of workflows, and the cursor of the next."""

    items: tuple[View[StateT, ContextT], ...]
    cursor: str | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the events sent to one workflow (B5)."""

    applied: int
    duplicate: int
    ignored: int
    refused: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A step, effect or undo that gave up and waits for a person."""

    id: str
    kind: str
    """"step", "effect" or "undo"."""
    workflow: str
    name: str
    attempts: int
    error: str
    since: datetime
    key: str
    """The idempotency key of the run or effect that gave up: the same when it is tried again."""
    version: int
    """The workflow's version then."""
    traceback: str = ""
    """Traceback of the last error: bounded, with secrets masked; empty without one."""
    group: str = ""
    """The error without what differs from workflow to workflow, to group dead letters by."""


class Compensation(msgspec.Struct, frozen=True, kw_only=True):
    """An undo that is owed: running, waiting for its turn or its time, or given up."""

    workflow: str
    machine: str
    step: str
    """The step whose run is undone."""
    key: str
    undoes: str
    """The key of the run that is undone."""
    attempts: int
    state: str
    """"waiting", "running", "retrying" or "dead"."""


class RunToUndo(msgspec.Struct, frozen=True):
    """A run of a step that a rewind undoes."""

    step: str
    undo: str
    """The event that the undo is declared for."""
    key: str
    """The idempotency key of the run that is undone."""
    known: bool
    """Whether its outcome is known. An unknown one is undone by every undo of its step, with `done=None`."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that is set back to an earlier version (F6)."""

    workflow: str
    to_version: int
    state: Enum
    """The state of that version; of a repetition after its end, the state in which the workflow is now."""
    version: int
    """The version with which it has begun; of a dry run, the version of the workflow now."""
    undo: tuple[RunToUndo, ...] = ()
    """What is undone first, in this order; of a repetition, what is still owed of it."""
    duplicate: bool = False
    """Whether it has begun before."""


def view_of(live: LoadedWorkflow) -> View[Enum, object]:
    """Return the view of a workflow."""
    row = live.row
    return View(
        id=row.id,
        machine=row.machine,
        state=live.snapshot.state,
        context=live.lend_context(),
        version=row.version,
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        waiting=None if live.owed is NOTHING else _waiting(live),
        timers=timers_of(live.owed) if live.owed.timers else (),
        parent=None if live.owed.parent is None else live.owed.parent.id,
        paused=live.paused,
    )


def timers_of(owed: Owed) -> tuple[Timer, ...]:
    """Return the timers that are set, the next one first."""
    found = sorted(owed.timers, key=lambda timer: timer.at_us)
    return tuple(Timer(timer.event, moment(min(timer.at_us, _LAST_US))) for timer in found)


def _waiting(live: LoadedWorkflow) -> str | None:
    owed = live.owed
    run = owed.run or (owed.undos[0] if owed.undos else None)
    if run is None:
        return None
    if owed.dead is None and isinstance(run, StepRun) and run.family is not None:
        return _family_text(run.family)
    if owed.rewind is not None:
        return f"is set back to version {owed.rewind.version}: {_reason(live, run) or f'{_name_of(run)} is under way'}"
    return _reason(live, run)


def _reason(live: LoadedWorkflow, run: StepRun | UndoRun) -> str | None:
    """Return why the step or the newest undo is not under way; None if it is."""
    owed = live.owed
    if owed.dead is not None:
        return dead_text(owed)
    if run.started:
        return None
    return f"{_name_of(run)} is paused" if live.paused else f"{_name_of(run)} {_not_begun(live, run)}"


def dead_text(owed: Owed) -> str | None:
    """Return what a workflow waits for whose step or undo gave up; None for any other."""
    run = owed.run or (owed.undos[0] if owed.undos else None)
    if run is None or owed.dead is None:
        return None
    if owed.dead == "settled":
        return f"{_name_of(run)} gave up and was settled by a person; an event moves it on"
    return f"{_name_of(run)} gave up after {_attempts(run.attempts)}: see dead letter {owed.letter}"


def _name_of(run: StepRun | UndoRun) -> str:
    return "its step" if isinstance(run, StepRun) else f"the undo of {run.step!r}"


def _family_text(family: FamilyRun) -> str:
    living = family.total - family.ended
    if not living:
        return f"its {family.total} children have ended, and no join holds"
    return f"waits for {living} of {family.total} children"


def _not_begun(live: LoadedWorkflow, run: StepRun | UndoRun) -> str:
    why = dependency_reason(live, run)
    if why is not None:
        return f"waits: {why}"
    if run.parked:
        return f"waits for what it calls; it is looked at again at {moment(run.retry_us or 0):%H:%M:%S} UTC"
    if run.retry_us is not None:
        return f"has failed in {_attempts(run.attempts)} and is tried again at {moment(run.retry_us):%H:%M:%S} UTC"
    return "waits for a free slot, or for an engine that runs steps"


def dependency_reason(live: LoadedWorkflow, run: StepRun | UndoRun) -> str | None:
    """Return why its dependency delays the next attempt; None if it does not."""
    bound = live.bound
    node = bound.stored.get(live.row.state) if isinstance(run, StepRun) else bound.table.steps.get(run.step)
    if node is None or node.step is None or node.step.dependency is None:
        return None
    return bound.why(node.step.dependency, _kind(run))


def _kind(run: StepRun | UndoRun) -> Literal["first", "retry", "undo"]:
    if not isinstance(run, StepRun):
        return "undo"
    return "retry" if run.is_retry else "first"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def letter_of(letter: Letter) -> DeadLetter:
    """Return the view of a dead letter."""
    return DeadLetter(
        id=letter.id,
        kind=letter.kind,
        workflow=letter.workflow,
        name=letter.name,
        attempts=letter.attempts,
        error=letter.message,
        since=moment(letter.since_us),
        key=letter.key,
        version=letter.version,
        traceback=letter.traceback,
        group=error_group(letter.message),
    )


GROUP_CHARACTERS_MAX = 200

_DIFFERS = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\d+(?:[.,:]\d+)*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def error_group(error: str) -> str:
    """Return the first line of an error with quoted texts, ids and numbers as "…"."""
    line = error.strip().partition("\n")[0]
    return _DIFFERS.sub("…", _QUOTED.sub("…", line))[:GROUP_CHARACTERS_MAX]


def compensations_of(live: LoadedWorkflow) -> list[Compensation]:
    """Return the undos that a workflow is owed, the one that runs first."""
    found: list[Compensation] = []
    for at, undo in enumerate(live.owed.undos):
        state = "waiting"
        if at == 0:
            state = "dead" if live.owed.dead else "running" if undo.started else "retrying" if undo.attempts else state
        found.append(
            Compensation(
                workflow=live.row.id,
                machine=live.row.machine,
                step=undo.step,
                key=undo.key,
                undoes=undo.undoes,
                attempts=undo.attempts,
                state=state,
            )
        )
    return found


def history_row(bound: BoundMachine, happened: HistoryRecord) -> HistoryRow[Enum, object]:
    """Return the view of a row of history."""
    return HistoryRow(
        version=happened.version,
        from_state=_past_state(bound, happened.from_state),
        to_state=_past_state(bound, happened.to_state),
        event=happened.event,
        payload=bound.read_payload(happened.event, happened.payload),
        context=bound.codec.read_context(happened.context),
        key=happened.key,
        created_at=moment(happened.created_us),
        by=happened.by,
    )


class PlainState(StrEnum):
    """A state by its stored name, where no machine has it: `view.state == "done"`, `view.state.value == "done"`."""

    def __reduce_ex__(self, proto: object) -> tuple[object, ...]:
        # By name an Enum would look for a declared member, which does not exist.
        del proto
        return plain_state, (str(self),)


def plain_state(name: str) -> PlainState:
    """Return a state of that name. Members are created on demand, and equal members have equal texts."""
    state = str.__new__(PlainState, name)
    state._name_ = name  # As Enum itself does it for a member.
    state._value_ = name
    return state


def _past_state(bound: BoundMachine, name: str) -> Enum:
    """Return a state in history, which the machine may have lost since."""
    node = bound.stored.get(name)
    return plain_state(name) if node is None else node.state


@lru_cache(maxsize=256)
def moment(since_us: int) -> datetime:
    """Convert microseconds since the epoch to an aware time. All workflows of a group have the same."""
    return datetime.fromtimestamp(since_us / 1_000_000, UTC)


def time_us(at: datetime) -> int:
    """Convert an aware time to microseconds since the epoch."""
    return (at - _EPOCH) // timedelta(microseconds=1)


# --- Callers that wait -----------------------------------------------------------------------------------------------
# A waiter wakes when the workflow is there, not at every transition on the way: that would be most of the work.


class Waiter:
    """One call of `wait`."""

    __slots__ = ("future", "states")

    def __init__(self, states: Sequence[Enum]) -> None:
        self.states = states
        self.future: asyncio.Future[LoadedWorkflow] = asyncio.get_running_loop().create_future()

    def arrived(self, live: LoadedWorkflow) -> bool:
        """Whether the workflow has arrived. Raises WaitFailed if it never will."""
        node = live.bound.table.nodes[live.snapshot.state._name_]
        if not self.states:
            return not node.active
        if live.snapshot.state in self.states:
            return True
        if node.final:
            wanted = " or ".join(repr(str(state.value)) for state in self.states)
            raise WaitFailed(f"workflow {live.row.id!r} ended in state {node.name!r}, not in {wanted}.")
        return False


class Waiters:
    """All waits of one engine, by workflow."""

    def __init__(self) -> None:
        self.by_workflow: dict[str, list[Waiter]] = {}
        self.added: Callable[[str], None] | None = None
        """Callback with the workflow of a new waiter, where other processes may move it."""

    def __len__(self) -> int:
        return sum(map(len, self.by_workflow.values()))

    def add(self, workflow: str, waiter: Waiter) -> None:
        """Register a waiter."""
        self.by_workflow.setdefault(workflow, []).append(waiter)
        if self.added is not None:
            self.added(workflow)

    def remove(self, workflow: str, waiter: Waiter) -> None:
        """Remove a waiter."""
        waiting = self.by_workflow.get(workflow, [])
        if waiter in waiting:
            waiting.remove(waiter)
        if not waiting:
            self.by_workflow.pop(workflow, None)

    def moved(self, live: LoadedWorkflow) -> None:
        """Wake the waiters of a durable move."""
        waiting = self.by_workflow.get(live.row.id)
        if not waiting:
            return
        for waiter in waiting:
            if waiter.future.done():
                continue
            try:
                if waiter.arrived(live):
                    waiter.future.set_result(live)
            except WaitFailed as error:
                waiter.future.set_exception(error)

    def close(self, error: Exception) -> None:
        """Fail all waiters with the error."""
        for waiting in self.by_workflow.values():
            for waiter in waiting:
                if not waiter.future.done():
                    waiter.future.set_exception(error)


def too_long(workflow: str, live: LoadedWorkflow | None, timeout_s: float) -> WaitTimeout:
    """Return the error of a wait that timed out."""
    stands, fix = "", ""
    if live is not None:
        waiting = view_of(live).waiting
        reason = "" if waiting is None else f": {waiting}"
        if live.owed.dead in {"step", "undo"}:
            fix = "Read the error: engine.dead_letters(), or `interlock dead-letters`. Correct the cause, and retry it."
        stands = f"; it is in state {live.row.state!r} at version {live.row.version}{reason}"
    return WaitTimeout(f"workflow {workflow!r} did not get there within {timeout_s:g} s{stands}.", fix=fix)
