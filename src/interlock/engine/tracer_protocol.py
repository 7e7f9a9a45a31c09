"""The protocol of tracers: their calls, and the text that they store with a workflow.

A tracer follows workflows instead of counting signals, so it gets more: the caller, each decision before it is written,
each attempt with its context, each durable change. It returns one text per workflow, a W3C `traceparent`. That is
written with what the workflow is owed (G3) and survives a crash. Without a tracer nothing here is called, and a text
that another process has stored is kept.

An observer that traces has its tracer in an attribute `tracing`, which each engine reads once. Ids of workflows are
unique in one store only, so an observer of several engines has a tracer for each of them. A tracer that fails is
counted, like every observer. Arguments are plain and by position: workflows that are not sampled pay for these calls
too.
"""

from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import NamedTuple, ParamSpec, Protocol, TypeVar, runtime_checkable

import msgspec

from interlock.engine.bound_machine import NOTHING, Owed
from interlock.errors import DefinitionError, InterlockError
from interlock.signals import Subscribers
from interlock.store.records import HistoryRecord, Row

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class Traced(Protocol):
    """A traced attempt."""

    def ended(self, outcome: str, error: str | None, text: str, /) -> None:
        """End the attempt; `outcome` as in StepAttempted."""
        ...


class AttemptTrace(NamedTuple):
    """The tracing of an attempt."""

    context: Context | None = None
    """The context in which it runs, so that its calls can be traced to it."""
    traced: Traced | None = None
    """Receives the end of the attempt."""


@runtime_checkable
class Tracing(Protocol):
    """A tracer."""

    def called(self, workflow: str, /) -> None:
        """A caller sends something to a workflow, in the context of this call."""
        ...

    def staged(self, machine: str, workflow: str, state: str, stored: str, /) -> str:
        """Return the text to store with a workflow that is about to move. May be called again, or in vain."""
        ...

    def began(
        self,
        machine: str,
        workflow: str,
        state: str,
        stored: str,
        step: str,
        kind: str,
        attempt: int,
        first: bool,  # noqa: FBT001 -- by position, see above.
        /,
    ) -> AttemptTrace:
        """An attempt of a step, undo or effect is about to begin; `first` if there was none before."""
        ...

    def durable(
        self,
        workflow: str,
        state: str,
        moves: Sequence[HistoryRecord],
        ended: bool,  # noqa: FBT001 -- by position, see above.
        goes_on: bool,  # noqa: FBT001 -- the same.
        /,
    ) -> None:
        """A workflow has changed durably. It goes on when something of it runs in this process, or is about to."""
        ...

    def refused(self, workflow: str, error: InterlockError, /) -> None:
        """An event was refused."""
        ...

    def within(self, workflow: str, /) -> Context:
        """Return the context of the workflow's sender or of its pass, for signals to observers."""
        ...

    def unchanged(self, workflow: str, /) -> None:
        """The caller has an answer, and nothing has changed: a duplicate, an event that was ignored."""
        ...

    def left(self, workflow: str, /) -> None:
        """Another process has taken the workflow over."""
        ...

    def stopped(self) -> None:
        """The engine is closed: work under way goes on later, or elsewhere."""
        ...


class Guarded:
    """A wrapper that counts a tracer's errors, so that the workflow goes on (A9). Methods as those of the tracer."""

    def __init__(self, tracing: Tracing, subscribers: Subscribers) -> None:
        self._tracing = tracing
        self._failed = subscribers.failed

    def _call(self, method: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT | None:
        """Call a method of the tracer; return None and count the error if it raises."""
        try:
            return method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)
            return None

    def called(self, workflow: str) -> None:
        """Report a caller."""
        self._call(self._tracing.called, workflow)

    def owing(self, owed: Owed, before: str, row: Row, state: str, *, final: bool) -> Owed:
        """Return what is owed with the tracer's text. The previous text stays if it fails, and goes at the end."""
        stored = self._call(self._tracing.staged, row.machine, row.id, state, before)
        return with_trace(owed, "" if final else before if stored is None else stored)

    def began(self, row: Row, stored: str, step: str, kind: str, attempt: int, *, first: bool) -> AttemptTrace:
        """Report the beginning of an attempt."""
        begun = self._call(self._tracing.began, row.machine, row.id, row.state, stored, step, kind, attempt, first)
        return begun or AttemptTrace()

    def ended(self, traced: Traced, outcome: str, error: str | None, text: str) -> None:
        """Report the end of an attempt."""
        self._call(traced.ended, outcome, error, text)

    def durable(self, row: Row, moves: Sequence[HistoryRecord], *, ended: bool, goes_on: bool) -> None:
        """Report a durable change."""
        self._call(self._tracing.durable, row.id, row.state, moves, ended, goes_on)

    def refused(self, workflow: str, refusal: InterlockError) -> None:
        """Report a refusal."""
        self._call(self._tracing.refused, workflow, refusal)

    def within(self, workflow: str) -> Context:
        """Return the context for signals to observers; this one if the tracer fails."""
        context = self._call(self._tracing.within, workflow)
        return copy_context() if context is None else context

    def unchanged(self, workflow: str) -> None:
        """Report an answer that changed nothing."""
        self._call(self._tracing.unchanged, workflow)

    def left(self, workflow: str) -> None:
        """Report that another process has the workflow."""
        self._call(self._tracing.left, workflow)

    def stopped(self) -> None:
        """Report the end of the engine."""
        self._call(self._tracing.stopped)


def tracer_of(subscribers: Subscribers) -> Guarded | None:
    """Return the tracer among the observers. Raises DefinitionError for a second one: a workflow has one trace."""
    found = [getattr(each, "tracing", None) for each in subscribers.observers]
    tracers = [each for each in found if isinstance(each, Tracing)]
    if len(tracers) > 1:
        raise DefinitionError(
            f"observers= has two tracers: {tracers[0]!r} and {tracers[1]!r}.",
            why="One trace is stored with a workflow, and a step runs in one context.",
            fix="Give one of them.",
            rule="two-tracers",
        )
    return Guarded(tracers[0], subscribers) if tracers else None


def with_trace(owed: Owed, trace: str) -> Owed:
    """Return what is owed with that trace; an empty result is NOTHING."""
    if trace == owed.trace:
        return owed
    changed = msgspec.structs.replace(owed, trace=trace)
    return changed if trace or changed != NOTHING else NOTHING


# --- Running attempt -------------------------------------------------------------------------------------------------


class Current(msgspec.Struct, frozen=True, gc=False):
    """The running attempt of a context."""

    workflow: str
    machine: str
    state: str
    step: str


CURRENT: ContextVar[Current | None] = ContextVar("interlock_current", default=None)


def outside() -> Context:
    """Return a copy of the current context without an attempt, for a group, which decides for many workflows."""
    found = copy_context()
    found.run(CURRENT.set, None)
    return found
