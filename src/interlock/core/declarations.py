"""Declarations of a machine: transitions, steps, undos, effects, timers, dwell limits and tasks, each with its line.

`Machine` records them; `table` compiles them for `decide`. They are the only mutable values of the core, and only until
the machine is first used: a decorator adds the action to a transition, the undo to a step.
"""

import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from types import FrameType
from typing import Any, Literal, Protocol, cast

from interlock.core.events import Event, wire_name
from interlock.core.policies import Classification, Retry
from interlock.core.values import Child, Family, Send, StepFailure, TimerPolicy

# User functions take types that only the user's code knows. The public methods of Machine are generic and exact; below
# them a context is passed as an object and returned unchecked. `decide` checks the class of what an action returns.
Guard = Callable[..., bool]
"""`(context, event)`, or `(context, event, at)` where the declaration says so."""
Action = Callable[..., Any]
# After these arguments follow the resources that the function needs, by name.
StepFunction = Callable[..., Awaitable[object]]
UndoFunction = Callable[..., Awaitable[None]]
EffectFunction = Callable[..., Awaitable[None]]
Needs = Mapping[str, type[object]]
"""The resources that a step, undo or effect takes besides its context: the type of each by the parameter's name."""
FailedAction = Callable[[object, StepFailure], Any]
TimerFunction = Callable[[Any], object]
ChildrenFunction = Callable[[Any], Iterable[Child[Any]]]
JoinGuard = Callable[[Family], bool]
JoinAction = Callable[[Any, Family], Any]
SendsFunction = Callable[[Any], Iterable[Send]]
Leave = Literal["cancel", "abandon"]
Classify = Callable[[BaseException], Classification | None]


class AnyState:
    """The source of a catch-all transition: every state that is neither final nor unwinding."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "any"


@dataclass(slots=True)
class TransitionDeclaration:
    """`machine.on(event, *sources, to=..., when=..., settle=...)`; `sources` is empty for the catch-all.

    `settle` is True when completed runs become final, False when they explicitly stay undoable, None when unset.
    """

    event: type[Event]
    sources: tuple[Enum, ...]
    to: Enum | None
    guard: Guard | None
    location: str
    action: Action | None = None
    settle: bool | None = None
    guard_at: bool = False
    """True when the guard takes the time of the move as its third argument; `action_at` for the action."""
    action_at: bool = False

    @property
    def catch_all(self) -> bool:
        """True for a transition from any state."""
        return not self.sources


@dataclass(slots=True)
class UndoDeclaration:
    """`@step.undo(event)`: how to undo that outcome, or an unknown one."""

    event: type[Event]
    function: UndoFunction
    location: str
    retry: Retry | None = None
    """How often it is tried; None: the setting `undo_attempts`."""
    blocking: bool = False
    """A plain function, which runs in a thread."""
    needs: Needs = field(default_factory=dict[str, type[object]])

    @property
    def name(self) -> str:
        """The handler's name, unique within its step."""
        return wire_name(self.event)


class ChildMachine(Protocol):
    """The machine of children."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def declarations(self) -> "Declarations":
        """Its declarations, which may be unfinished."""
        ...


@dataclass(slots=True)
class ChildrenDeclaration:
    """`@machine.children(state, of=..., cancel=..., leave=...)`: the workflows that a state starts."""

    function: ChildrenFunction
    of: ChildMachine
    cancel: Event | None
    leave: Leave


@dataclass(slots=True)
class JoinDeclaration:
    """`machine.join(state, to=..., when=...)`: the move when the children of the state have ended as `when` says."""

    state: Enum
    to: Enum
    when: JoinGuard | None
    """None: when all have ended."""
    location: str
    action: JoinAction | None = None

    def holds(self, family: Family) -> bool:
        """Return whether the parent moves now."""
        return family.ended >= family.total if self.when is None else self.when(family)


@dataclass(slots=True)
class StepDeclaration:
    """`@machine.step(state, timeout_s=...)`.

    `returns` is empty when the function does not say which events it returns. `result` is the event that a
    pipeline wraps around the context its function returns; None when the function returns the event itself.
    With `heartbeat_s` an attempt that is silent for longer is ended as a timeout. `undone_in` are the states whose own
    steps take back what this one did. A `blocking` function is a plain function that runs in a thread. With `children`
    the engine itself runs the step: it starts them, and the step goes on until the state is left.
    """

    name: str
    state: Enum
    function: StepFunction
    timeout_s: float
    retry: Retry
    dependency: str | None
    failed: Enum | None
    classify: Classify | None
    read_only: bool
    returns: tuple[type[Event], ...]
    location: str
    heartbeat_s: float | None = None
    irreversible: bool = False
    undone_in: frozenset[Enum] = frozenset()
    blocking: bool = False
    per: Callable[[Any], str] | None = None
    priority: Callable[[Any], int] | None = None
    result: Callable[[Any], Event] | None = None
    failed_action: FailedAction | None = None
    children: ChildrenDeclaration | None = None
    undos: list[UndoDeclaration] = field(default_factory=list)
    needs: Needs = field(default_factory=dict[str, type[object]])

    @property
    def outcomes(self) -> frozenset[type[Event]]:
        """Return the events that the step declares to return or has an undo for."""
        return frozenset([*self.returns, *(undo.event for undo in self.undos)])

    @property
    def undo_flags(self) -> list[str]:
        """Return which of `read_only`, `irreversible` and `undone_in` were declared; each excludes the others."""
        flags = {"read_only": self.read_only, "irreversible": self.irreversible, "undone_in": bool(self.undone_in)}
        return [flag for flag, declared in flags.items() if declared]


@dataclass(slots=True)
class EffectDeclaration:
    """`@machine.effect(state, ...)`: a durable side message on entering one of the states."""

    name: str
    states: tuple[Enum, ...]
    function: EffectFunction
    timeout_s: float
    retry: Retry
    dependency: str | None
    location: str
    blocking: bool = False
    needs: Needs = field(default_factory=dict[str, type[object]])
    sends: SendsFunction | None = None
    """Returns messages to other workflows, which the engine itself delivers."""


@dataclass(slots=True)
class TimerDeclaration:
    """`machine.after(state, after_s=..., send=...)` or `machine.until(state, at, send=...)`.

    A timer of each workflow has a function of the context, which is called on entering the state (B16). With `after` it
    returns the time to wait, with `until` the aware time when the timer fires; None sets no timer.
    """

    state: Enum
    after_s: float
    """0 for a timer with a function."""
    send: Event
    policy: TimerPolicy
    location: str
    after: TimerFunction | None = None
    until: TimerFunction | None = None

    @property
    def function(self) -> TimerFunction | None:
        """Return the function that computes the timer; None for a fixed time."""
        return self.after or self.until


@dataclass(slots=True)
class DwellDeclaration:
    """`machine.dwell(state, max_s=...)`: a workflow that stays longer is stalled."""

    state: Enum
    max_s: float
    location: str


TITLE_CHARACTERS_MAX = 500
"""Characters of the title of a task; the rest is cut off."""


@dataclass(slots=True)
class TaskDeclaration:
    """`machine.task(state, role=..., title=..., events=..., due=...)`: the state waits for a person (F2)."""

    state: Enum
    role: str
    parts: tuple[tuple[str, str | None], ...]
    """The pieces of the title: a text, and the name of the field of the context that follows it, if one does."""
    events: tuple[type[Event], ...]
    location: str
    due_s: float | None = None
    """Seconds after which it is due; None without a fixed time."""
    due: TimerFunction | None = None
    """Returns the time of one workflow from its context."""

    def title_of(self, context: object) -> str:
        """Return the title for a context. Only whole fields are inserted: no attribute, index or call is evaluated."""
        return "".join(text + (_field_text(context, name) if name else "") for text, name in self.parts)[
            :TITLE_CHARACTERS_MAX
        ]

    def length_s(self, context: object) -> float | None:
        """Return the seconds after which it is due for a context; None without a due time.

        Raises what the function raises, and TypeError for another result than a time.
        """
        if self.due is None:
            return self.due_s
        length = self.due(context)
        seconds: object = length.total_seconds() if isinstance(length, timedelta) else length
        if seconds is None:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise TypeError(f"due= returned {type(length).__name__}; it returns a timedelta, seconds or None")
        return float(seconds)


def _field_text(context: object, name: str) -> str:
    value: object = (
        cast("dict[str, object]", context).get(name) if isinstance(context, dict) else getattr(context, name)
    )
    if isinstance(value, Enum):
        value = value.value
    return "" if value is None else str(value)


@dataclass(slots=True)
class Declarations:
    """Everything declared about one machine."""

    name: str
    version: int
    states: type[Enum]
    context: type[object]
    alphabet: type[Event]
    initial: Enum | None
    final: frozenset[Enum]
    resting: frozenset[Enum]
    unwind: dict[Enum, Enum]
    renamed: dict[str, Enum]
    location: str
    straight: bool = False
    """True when an unwinding state is skipped, also in history, if nothing has to be undone (pipelines)."""
    frozen: bool = False
    """True after the machine's first use: further declarations raise."""
    transitions: list[TransitionDeclaration] = field(default_factory=list)
    steps: dict[Enum, StepDeclaration] = field(default_factory=dict)
    effects: list[EffectDeclaration] = field(default_factory=list)
    joins: list[JoinDeclaration] = field(default_factory=list)
    timers: list[TimerDeclaration] = field(default_factory=list)
    dwells: dict[Enum, DwellDeclaration] = field(default_factory=dict)
    tasks: dict[Enum, TaskDeclaration] = field(default_factory=dict)


# --- Source lines, with which every definition error starts ----------------------------------------------------------

_OURS = __name__.rpartition(".")[0]


def declaring_frame() -> FrameType:
    """Return the innermost frame outside the core: the user's declaration."""
    frame = sys._getframe(1)  # noqa: SLF001 -- there is no public API for the caller's frame, and inspect reads files.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType) -> str:
    """Return `file:line`, as compilers write it and editors open it."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def declared_at() -> str:
    """Return `file:line` of the user's declaration that is being executed."""
    return line_of(declaring_frame())
