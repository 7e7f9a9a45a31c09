"""The values a decision is made of: snapshot in, decision out, and nothing else.

A `Snapshot` is all that `decide` may look at; a `Decision` is all that it may say: the next snapshot, the history
records, and the commands that the runtime then owes. Stores write these values, the runtime acts on them.

Everything here is a frozen struct because four of them are made per transition and a struct costs a tenth of a
frozen dataclass. Commands do not carry the visit they belong to: it is the visit of the decision's snapshot, so
that the commands of a transition can be computed once, when the machine is compiled. The three that are made per
transition are not tracked by the garbage collector (`gc=False`): they only point at older values, never in a circle.
"""

from collections.abc import Callable
from enum import Enum
from typing import Generic, Literal, TypeVar

import msgspec

from interlock.core.events import Event

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
    """What is stored."""
    why: str


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step gave up. `unknown` is True when an attempt may have had an effect all the same."""

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
    """What an unwinding would have to undo, oldest first."""
    attempted: bool = False
    """True once an attempt of this visit's step may have been started. Set by the runtime, reset by a move."""


class Record(msgspec.Struct, Generic[StateT, ContextT], frozen=True, gc=False):
    """One row of history: the move, its cause, and the context after it. A4: `from_state` is the state before."""

    version: int
    from_state: StateT
    to_state: StateT
    event: str
    payload: Event | StepFailure | None
    context: ContextT


class RunStep(msgspec.Struct, frozen=True):
    """The step of the state that was entered is owed."""

    step: str


class StopStep(msgspec.Struct, frozen=True):
    """The state was left: a running attempt of its step is cancelled, a waiting one is dropped."""

    step: str


class RunEffect(msgspec.Struct, frozen=True):
    """A durable side message is owed (B12)."""

    effect: str


class StartTimer(msgspec.Struct, frozen=True):
    """After `after_s` seconds in this visit, `send` is sent to the workflow."""

    send: Event
    after_s: float
    policy: TimerPolicy


class StopTimers(msgspec.Struct, frozen=True):
    """The state was left: its timers no longer count."""


class Undo(msgspec.Struct, frozen=True):
    """One undo that is owed: which handler of which step, for which visit, and the outcome it undoes."""

    step: str
    undo: str
    visit: int
    done: Event | None


class RunUndos(msgspec.Struct, frozen=True):
    """An unwinding state was entered: these undos are owed, in this order, one after the other."""

    undos: tuple[Undo, ...]


Command = RunStep | StopStep | RunEffect | StartTimer | StopTimers | RunUndos


class Decision(msgspec.Struct, Generic[StateT, ContextT], frozen=True, gc=False):
    """What follows from an event: the snapshot after it, its history, and what the runtime now owes."""

    snapshot: Snapshot[StateT, ContextT]
    records: tuple[Record[StateT, ContextT], ...]
    commands: tuple[Command, ...] = ()


class Allowed(msgspec.Struct, Generic[StateT], frozen=True):
    """One transition that exists from the current state.

    `guards` names the guard that will be asked. `blocked_by` is filled only when an event instance was given and
    that guard said no; `reason` is then the first line of the guard's docstring.
    """

    event: str
    to: StateT
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a step, undo or effect is told besides the workflow's context.

    `key` is the idempotency key: the same on every attempt and after a crash. Give it to the world outside.
    In an undo, `undoes` is the key of the run that is undone.
    """

    key: str
    workflow: str = ""
    attempt: int = 1
    visit: int = 1
    undoes: str | None = None

    def heartbeat(self) -> None:
        """Say that the step is still at work. Nobody listens unless the step declares `heartbeat_s`.

        It only notes the time, so it costs next to nothing and may be called from any thread.
        """


class BeatingContext(StepContext, frozen=True, kw_only=True):
    """What a step with `heartbeat_s` is told: the same, and whoever watches it hears its heartbeats.

    A class of its own, so that all the others do not carry a field for it and can still be compared by value.
    """

    beat: Callable[[], None]

    def heartbeat(self) -> None:
        """Tell the watcher."""
        self.beat()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a check has to say about a machine. A machine with an error cannot be used.

    One error is the exception: a machine whose context can be changed in place (`mutable-context`) runs on copies.
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
