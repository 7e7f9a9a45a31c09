"""Signals: everything observable, as frozen records, and the one-method protocol to observe them (A9).

The engine emits these records and knows nothing of the observers; `observe` turns them into OpenTelemetry,
Prometheus and logs; users subscribe a function. Records hold names, not user objects, so that an observer can
keep them, send them to another process or write them down.

The invariant: a failing observer never harms a workflow. Its error is counted and kept for the operator.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard, get_args

from interlock.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class TransitionApplied:
    """A workflow moved (or stayed, for an internal transition) and the move is durable."""

    machine: str
    workflow: str
    from_state: str
    to_state: str
    event: str
    version: int
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TransitionRejected:
    """An event was refused; nothing changed. `code` is the error's code, `guard` the guard that said no."""

    machine: str
    workflow: str
    state: str
    event: str
    code: str
    guard: str | None = None


@dataclass(frozen=True, slots=True)
class StepAttempted:
    """One attempt of a step, effect or undo ended."""

    machine: str
    workflow: str
    state: str
    step: str
    kind: Literal["step", "effect", "undo"]
    attempt: int
    outcome: Literal["done", "retryable", "non_retryable", "timeout", "cancelled"]
    duration_s: float
    error: str | None = None
    message: str = ""
    """The text of the error, as the step raised it: it may hold data of the workflow."""


@dataclass(frozen=True, slots=True)
class ResultLate:
    """A step or undo reported after its workflow had moved on; nothing changed. `key` is that of its run."""

    workflow: str
    key: str


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """The circuit breaker of a dependency changed its state."""

    dependency: str
    before: Literal["closed", "open", "half_open"]
    after: Literal["closed", "open", "half_open"]
    reason: str


@dataclass(frozen=True, slots=True)
class RedisChanged:
    """Redis answers, or it does not: then leases come from the store, and limits and breakers are the process's own."""

    address: str
    up: bool
    reason: str


@dataclass(frozen=True, slots=True)
class LoopBlocked:
    """The event loop did not turn for `duration_s`. The three names are empty unless a step blocked it."""

    machine: str
    workflow: str
    step: str
    duration_s: float
    stack: str
    """Of the event loop's thread, the innermost frame last."""


@dataclass(frozen=True, slots=True)
class AlertRaised:
    """Something needs a person: a stalled workflow, an open breaker, a dead letter, compensation debt, a Redis gone.

    It comes once more, with `resolved`, when it is over.
    """

    kind: Literal[
        "stalled", "breaker_open", "dead_letter", "compensation_debt", "redis_gone", "loop_blocked", "hot_row"
    ]
    subject: str
    summary: str
    machine: str | None = None
    state: str | None = None
    resolved: bool = False


Signal = (
    TransitionApplied
    | TransitionRejected
    | StepAttempted
    | ResultLate
    | BreakerChanged
    | RedisChanged
    | LoopBlocked
    | AlertRaised
)

KINDS: tuple[type[Signal], ...] = get_args(Signal)


class Observer(Protocol):
    """Anything that can be called with a signal: a function, a bound method, an object with `__call__`."""

    def __call__(self, signal: Signal, /) -> None:
        """Receive one signal. Runs in the engine's thread: be quick, or hand it on."""
        ...


class Counting(Protocol):
    """An observer of sums: it counts frequent signals, and no record is built for them."""

    def grouped(self, moves: Mapping[tuple[str, str, str], int], duration_s: float, /) -> None:
        """Count a durable group: how many workflows moved, by machine, from and to; all `duration_s` after it began."""
        ...

    def attempted(self, machine: str, step: str, kind: str, outcome: str, duration_s: float, /) -> None:
        """One attempt of a step, effect or undo ended."""
        ...


class Subscribers:
    """The observers of one engine, in the order they subscribed. Emitting never raises.

    An observer with an attribute `only_signals` receives only those kinds; one with an attribute `counting` has sums
    counted there.
    """

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()
        """The observers, in the order in which they subscribed. Without any a hot path skips building signals."""
        self._of: dict[type[Signal], tuple[Observer, ...]] = {}
        self.counting: tuple[Counting, ...] = ()
        """The observers of sums."""
        self.moves = self.attempts = False
        """Whether an observer wants each move, each attempt, as a record."""
        self.failures = 0
        self.last_failure: Exception | None = None

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with every signal from now on."""
        candidate: object = observer
        call = inspect.getattr_static(type(candidate), "__call__", None)
        is_async = inspect.iscoroutinefunction(candidate) or inspect.iscoroutinefunction(call)
        if is_async or not callable(candidate):
            problem = "is async, and would never be awaited" if is_async else "cannot be called"
            raise DefinitionError(
                f"observer {observer!r} {problem}.",
                why="Observers are called in the engine's own thread, as plain functions.",
                fix="Make it a plain function that hands the signal on, for example to an asyncio.Queue.",
                rule="wrong-signature",
            )
        self._set((*self.observers, observer))

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling `observer`; not subscribed is not an error."""
        self._set(tuple(known for known in self.observers if known != observer))

    def _set(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        self._of = {kind: tuple(each for each in observers if _wants(each, kind)) for kind in KINDS}
        self.counting = tuple(each.counting for each in observers if _counts(each))
        self.moves, self.attempts = bool(self._of[TransitionApplied]), bool(self._of[StepAttempted])

    def __bool__(self) -> bool:
        return bool(self.observers)

    def emit(self, signal: Signal) -> None:
        """Hand the signal to every observer; one that raises is counted and does not stop the others."""
        for observer in self._of.get(type(signal), ()):
            try:
                observer(signal)
            except Exception as error:  # noqa: BLE001 -- whatever an observer raises, the workflow goes on (A9).
                self.failed(error)

    def failed(self, error: Exception) -> None:
        """Count an exception of an observer."""
        self.failures += 1
        self.last_failure = error


def _wants(observer: Observer, kind: type[Signal]) -> bool:
    return kind in getattr(observer, "only_signals", KINDS)


class _Counts(Protocol):
    counting: Counting


def _counts(observer: object) -> TypeGuard[_Counts]:
    counting = getattr(observer, "counting", None)
    return hasattr(counting, "grouped") and hasattr(counting, "attempted")
