"""Values of a decision: snapshot, record, commands, undo log and findings.

A `Snapshot` is the only input of `decide` besides the event. A `Decision` is its only output: the next snapshot, the
history records, and the commands that the engine then owes. Stores write these values, the engine acts on them.

All are frozen structs, because four are made per transition and a struct costs a tenth of a frozen dataclass. Commands
do not carry their visit, which is the visit of the decision's snapshot, so that the commands of a transition are
computed once, when the machine is compiled. The three structs that are made per transition are not tracked by the
garbage collector (`gc=False`): they only refer to older values, never in a cycle.
"""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from interlock.core.events import Event
from interlock.errors import BadUsage, InvalidPayload

StateT = TypeVar("StateT", bound=Enum)
ContextT = TypeVar("ContextT")

TimerPolicy = Literal["deadline", "remaining", "restart"]


class Run(msgspec.Struct, frozen=True):
    """One entry of the undo log: a run of a step that has happened or may have happened.

    `done` is the event the step returned, or None when the outcome is unknown (timed out, crashed, interrupted).
    """

    step: str
    visit: int
    done: Event | None = None


class StoredJson(msgspec.Struct, frozen=True):
    """A stored context or payload that today's class cannot hold without losing or inventing a value."""

    text: str
    """The stored JSON."""
    why: str


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a step that gave up. `unknown` is True when an attempt may have had an effect."""

    step: str
    error: str
    """The code or class name of the last error."""
    message: str = ""
    attempts: int = 1
    unknown: bool = True


class Snapshot(msgspec.Struct, Generic[StateT, ContextT], frozen=True, gc=False):
    """A workflow at one version: everything a decision depends on."""

    state: StateT
    context: ContextT
    version: int = 1
    visit: int = 1
    """The version at which the current state was entered."""
    undo_log: tuple[Run, ...] = ()
    """The undo log: the runs that an unwinding would undo, oldest first."""
    attempted: bool = False
    """True once an attempt of this visit's step may have been started. Set by the engine, reset by a move."""


class Record(msgspec.Struct, Generic[StateT, ContextT], frozen=True, gc=False):
    """One row of history: the move, its cause, and the context after it. A4: `from_state` is the state before."""

    version: int
    from_state: StateT
    to_state: StateT
    event: str
    payload: Event | StepFailure | StoredJson | None
    context: ContextT


class RunStep(msgspec.Struct, frozen=True):
    """Command: run the step of the state that was entered."""

    step: str


class StopStep(msgspec.Struct, frozen=True):
    """Command: the state was left, so cancel a running attempt of its step and drop a waiting one."""

    step: str


class RunEffect(msgspec.Struct, frozen=True):
    """Command: run a durable effect (B12)."""

    effect: str


class StartTimer(msgspec.Struct, frozen=True):
    """Command: after `after_s` seconds in this visit, or at `due`, send `send` to the workflow."""

    send: Event
    after_s: float
    policy: TimerPolicy
    due: datetime | None = None
    """An aware time; `after_s` is 0 then."""


class StopTimers(msgspec.Struct, frozen=True):
    """Command: the state was left, so stop its timers."""


class Undo(msgspec.Struct, frozen=True):
    """One undo that is owed: step, handler, visit, and the outcome it undoes."""

    step: str
    undo: str
    visit: int
    done: Event | None


class RunUndos(msgspec.Struct, frozen=True):
    """Command: an unwinding state was entered, so run these undos one after the other, in this order."""

    undos: tuple[Undo, ...]


Command = RunStep | StopStep | RunEffect | StartTimer | StopTimers | RunUndos


class Decision(msgspec.Struct, Generic[StateT, ContextT], frozen=True, gc=False):
    """The result of deciding an event: the next snapshot, its history records, and the commands for the engine."""

    snapshot: Snapshot[StateT, ContextT]
    records: tuple[Record[StateT, ContextT], ...]
    commands: tuple[Command, ...] = ()


class Allowed(msgspec.Struct, Generic[StateT], frozen=True):
    """One transition that exists from the current state.

    `guards` names the guard that will be evaluated. `blocked_by` is set only for an event instance that this guard
    rejects; `reason` is then the first line of the guard's docstring.
    """

    event: str
    to: StateT
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """The second argument of a step, undo or effect, beside the workflow's context.

    `key` is the idempotency key: the same on every attempt and after a crash. Pass it to external services.
    In an undo, `undoes` is the key of the run that is undone.
    """

    key: str
    workflow: str = ""
    attempt: int = 1
    visit: int = 1
    undoes: str | None = None
    machine: str = ""
    """The name of the machine."""
    state: Enum | None = None
    """The state whose step, undo or effect it is; None for an effect of several states."""

    def heartbeat(self) -> None:
        """Report that the step is still running. Has no effect unless the step declares `heartbeat_s`.

        It only records the time, so it is cheap and may be called from any thread.
        """

    async def send(self, workflow: str, event: Event) -> None:
        """Send an event to another workflow. Every attempt of this run that repeats it delivers it once.

        The delivery key is derived from the run's key and the message: two equal messages of one run are one.
        Raises the refusal if the other workflow refuses it.
        """
        await _other_workflows("ctx.send").send(self, workflow, event)

    async def start(self, machine: "Startable[ContextT]", workflow: str, context: ContextT) -> None:
        """Start another workflow. An attempt that repeats it finds the workflow that exists."""
        await _other_workflows("ctx.start").start(self, machine, workflow, context)


class Startable(Protocol[ContextT]):
    """A machine, as `ctx.start` takes it."""

    def begin(self, context: ContextT) -> Snapshot[Any, ContextT]:
        """Return the snapshot of a new workflow."""
        ...


def _other_workflows(call: str) -> "OtherWorkflows":
    found = next((by() for by in _FINDERS), None)
    if found is None:
        raise BadUsage(
            f"{call} was called outside an attempt of an engine.",
            why="Only an engine has other workflows, and the key of the run.",
            fix="Run the step with an Engine or a Harness, or pass a context with a method of your own in a unit test.",
        )
    return found


class BeatingContext(StepContext, frozen=True, kw_only=True):
    """The context of a step with `heartbeat_s`, which forwards heartbeats to the watcher of the attempt.

    It is a class of its own, so that the other contexts have no field for it and can still be compared by value.
    """

    beat: Callable[[], None]

    def heartbeat(self) -> None:
        """Notify the watcher."""
        self.beat()


# --- Other workflows: children, their family, and messages ----------------------------------------------------------


class Child(msgspec.Struct, Generic[ContextT], frozen=True):
    """One workflow that a parent starts. Its id is `<parent>.<name>`."""

    name: str
    context: ContextT


class Send(msgspec.Struct, frozen=True):
    """One message to another workflow: its id, and the event."""

    id: str
    event: Event


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """A child that has ended: the state and the context that it ended with."""

    id: str
    name: str
    state: Enum
    context: object


ResultT = TypeVar("ResultT")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The children of one visit of a state, as a join sees them. A child ends in its first final or resting state."""

    total: int
    ended: int
    counts: dict[str, int] = {}
    """The ended children by the stored name of their state."""
    results: tuple[ChildResult, ...] = ()
    """In an action: the ended children in the order of `children`, at most 1,000. Empty in `when`."""
    states: type[Enum] | None = None
    """The states of the children's machine."""

    @property
    def living(self) -> int:
        """The number of children that have not ended."""
        return self.total - self.ended

    def count(self, *states: Enum) -> int:
        """Return the number of children that ended in one of the states."""
        for state in states:
            if self.states is not None and not isinstance(state, self.states):
                names = ", ".join(str(each.value) for each in self.states)
                raise InvalidPayload(
                    f"{state!r} is not a state of the children; their states are {names}.",
                    why="A count of a state that no child can have is always 0, and a join on it never holds.",
                    fix=f"Use a member of {self.states.__name__}.",
                )
        return sum(self.counts.get(str(state.value), 0) for state in states)

    def contexts(self, kind: type[ResultT]) -> tuple[ResultT, ...]:
        """Return the contexts of `results` that are of this class."""
        return tuple(each.context for each in self.results if isinstance(each.context, kind))


class OtherWorkflows(Protocol):
    """The calls of an attempt to other workflows; an engine provides them."""

    async def send(self, ctx: "StepContext", workflow: str, event: Event) -> None:
        """Send an event, at most once per run."""
        ...

    async def start(self, ctx: "StepContext", machine: object, workflow: str, context: object) -> None:
        """Start a workflow, unless it exists."""
        ...


_FINDERS: list[Callable[[], OtherWorkflows | None]] = []


def find_other_workflows(by: Callable[[], OtherWorkflows | None]) -> None:
    """Have the contexts of attempts find the engine that runs them by this function: the core has no state."""
    _FINDERS[:] = [by]


# --- Findings --------------------------------------------------------------------------------------------------------


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of a machine. A machine with an error cannot be used.

    `mutable-context` is the exception: a machine whose context can be changed in place runs on copies.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    what: str
    why: str
    fix: str
    location: str = ""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.severity} [{self.code}] {self.what}\n  why: {self.why}\n  fix: {self.fix}"


def finding(
    code: str, severity: Literal["error", "warning", "info"], location: str, what: str, why: str, fix: str = "nothing"
) -> Finding:
    """Return a finding; `location` is a line of code, a state, an event or a path, or empty."""
    return Finding(code=code, severity=severity, what=what, why=why, fix=fix, location=location)
