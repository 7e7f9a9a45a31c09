"""The seam for tracing: what a tracer is told, and what it may leave in the store.

A tracer follows workflows instead of counting signals, so it is told more: who asks, what is decided before it is
written, which attempt begins in which context, what became durable. It gives one text per workflow, a W3C
`traceparent`, that is written with what the workflow is owed (G3) and is there after a crash. Without a tracer nothing
here is called, and a text that another process has left is kept.

An observer that traces has its tracer in an attribute `tracing`, which each engine reads once: ids of workflows are
unique in one store only, so an observer of several engines gives each of them a tracer of its own. A tracer that fails
is counted, like every observer.
Arguments are plain and by position: most workflows are not sampled, and pay for these calls all the same.
"""

from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import NamedTuple, Protocol, TypeGuard

import msgspec

from interlock.errors import DefinitionError, InterlockError
from interlock.runtime.owed import NOTHING, Owed
from interlock.signals import Subscribers
from interlock.store.values import Happened, Row


class Traced(Protocol):
    """One attempt, as the tracer knows it."""

    def ended(self, outcome: str, error: str | None, text: str, /) -> None:
        """It has ended; `outcome` as in StepAttempted."""
        ...


class Begun(NamedTuple):
    """How an attempt is traced."""

    context: Context | None = None
    """In which it runs, so that whatever it calls can be traced to it."""
    traced: Traced | None = None
    """Who is told of its end."""


class Tracing(Protocol):
    """A tracer."""

    def called(self, workflow: str, /) -> None:
        """Somebody sends something to a workflow, in the context of this call."""
        ...

    def staged(self, machine: str, workflow: str, state: str, stored: str, /) -> str:
        """A workflow is about to be moved to a state; returns what to store. It may be asked again, or in vain."""
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
    ) -> Begun:
        """An attempt of a step, undo or effect is about to begin; `first` when nobody has tried it before."""
        ...

    def durable(
        self,
        workflow: str,
        state: str,
        moves: Sequence[Happened],
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
        """The context of whoever has sent something to the workflow, or of its pass: for what observers are told."""
        ...

    def unchanged(self, workflow: str, /) -> None:
        """Whoever called has an answer, and nothing has changed: a duplicate, an event that was ignored."""
        ...

    def left(self, workflow: str, /) -> None:
        """Another process has taken the workflow over."""
        ...

    def stopped(self) -> None:
        """The engine is closed: whatever was under way goes on later, or elsewhere."""
        ...


class Guarded:
    """A tracer that cannot harm a workflow: whatever it raises is counted, and the workflow goes on (A9)."""

    def __init__(self, tracing: Tracing, subscribers: Subscribers) -> None:
        self._tracing = tracing
        self._failed = subscribers.failed

    def called(self, workflow: str) -> None:
        """As the tracer."""
        try:
            self._tracing.called(workflow)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)

    def owing(self, owed: Owed, before: str, row: Row, state: str, *, final: bool) -> Owed:
        """What is owed, with what the tracer stores. What was there before stays when it fails, and goes at the end."""
        try:
            stored = self._tracing.staged(row.machine, row.id, state, before)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)
            stored = before
        return with_trace(owed, "" if final else stored)

    def began(self, row: Row, stored: str, step: str, kind: str, attempt: int, *, first: bool) -> Begun:
        """As the tracer."""
        try:
            return self._tracing.began(row.machine, row.id, row.state, stored, step, kind, attempt, first)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)
            return Begun()

    def ended(self, traced: Traced, outcome: str, error: str | None, text: str) -> None:
        """As the attempt that the tracer has made."""
        try:
            traced.ended(outcome, error, text)
        except Exception as wrong:  # noqa: BLE001 -- see the class.
            self._failed(wrong)

    def durable(self, row: Row, moves: Sequence[Happened], *, ended: bool, goes_on: bool) -> None:
        """As the tracer."""
        try:
            self._tracing.durable(row.id, row.state, moves, ended, goes_on)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)

    def refused(self, workflow: str, refusal: InterlockError) -> None:
        """As the tracer."""
        try:
            self._tracing.refused(workflow, refusal)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)

    def within(self, workflow: str) -> Context:
        """As the tracer."""
        try:
            return self._tracing.within(workflow)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)
            return copy_context()

    def unchanged(self, workflow: str) -> None:
        """As the tracer."""
        try:
            self._tracing.unchanged(workflow)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)

    def left(self, workflow: str) -> None:
        """As the tracer."""
        try:
            self._tracing.left(workflow)
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)

    def stopped(self) -> None:
        """As the tracer."""
        try:
            self._tracing.stopped()
        except Exception as error:  # noqa: BLE001 -- see the class.
            self._failed(error)


def tracer_of(subscribers: Subscribers) -> Guarded | None:
    """The tracer among the observers. Raises DefinitionError for a second one: a workflow has one trace."""
    found = [getattr(each, "tracing", None) for each in subscribers.observers]
    tracers = [each for each in found if _traces(each)]
    if len(tracers) > 1:
        raise DefinitionError(
            f"observers= has two tracers: {tracers[0]!r} and {tracers[1]!r}.",
            why="One trace is stored with a workflow, and a step runs in one context.",
            fix="Give one of them.",
            rule="two-tracers",
        )
    return Guarded(tracers[0], subscribers) if tracers else None


def with_trace(owed: Owed, trace: str) -> Owed:
    """What is owed, with that trace; nothing is nothing."""
    if trace == owed.trace:
        return owed
    changed = msgspec.structs.replace(owed, trace=trace)
    return changed if trace or changed != NOTHING else NOTHING


TOLD = ("called", "staged", "began", "durable", "refused", "within", "unchanged", "left", "stopped")
"""What a tracer has."""


def _traces(tracing: object) -> TypeGuard[Tracing]:
    return all(hasattr(tracing, name) for name in TOLD)
