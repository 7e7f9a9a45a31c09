"""The calls of a harness, typed by one machine: `h.of(checkout).start("c-1", Checkout())`.

A harness is typed by its first machine; this is for the others, as `engine.of` is for an engine.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.runtime.engine import Engine
from interlock.runtime.views import HistoryRow, Moved, View

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")


class Run(Protocol):
    """A function that awaits a coroutine in virtual time."""

    def __call__(self, coroutine: Coroutine[Any, Any, ResultT], /) -> ResultT:
        """Run it to its end."""
        ...


class Tested(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine, in a test."""

    def __init__(self, machine: Machine[StateT, ContextT, EventT], engine: Callable[[], Engine], run: Run) -> None:
        self._machine = machine
        self._engine = engine
        self._run = run

    def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow."""
        return self._run(self._engine().of(self._machine).start(workflow, context))

    def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[StateT]:
        """Send an event. The steps and effects that it starts run when time passes: see `Harness.drain`."""
        workflows = self._engine().of(self._machine)
        return self._run(workflows.send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version))

    def view(self, workflow: str) -> View[StateT, ContextT]:
        """Return the durable view of the workflow."""
        return self._run(self._engine().of(self._machine).get(workflow))

    def history(self, workflow: str) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history of the workflow."""
        return self._run(self._engine().of(self._machine).history(workflow))
