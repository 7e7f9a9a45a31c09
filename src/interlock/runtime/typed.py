"""`engine.of(machine)`: the calls of an engine, typed by one machine.

An id alone does not say which machine its workflow has, so `engine.get(id)` cannot know the type of the context. Here
the caller names the machine, and the engine checks it: a workflow of another machine is not found.
"""

from collections.abc import Awaitable, Iterable
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, cast

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Allowed, ContextT, StateT
from interlock.errors import WorkflowNotFound
from interlock.runtime.views import HistoryRow, Moved, Page, View

EventT = TypeVar("EventT", bound=Event)


class Calls(Protocol):
    """The calls of the engine that are the same for all machines."""

    def get(self, workflow: str) -> Awaitable[View[Enum, object]]:
        """As `Engine.get`."""
        ...

    def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Awaitable[Moved[Enum]]:
        """As `Engine.send`."""
        ...

    def wait(self, workflow: str, *states: Enum, timeout_s: float | None = None) -> Awaitable[View[Enum, object]]:
        """As `Engine.wait`."""
        ...

    def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> Awaitable[list[HistoryRow[Enum, object]]]:
        """As `Engine.history`."""
        ...

    def allowed(self, workflow: str, event: Event | None = None) -> Awaitable[list[Allowed[Enum]]]:
        """As `Engine.allowed`."""
        ...

    def start(self, machine: Any, workflow: str, context: Any) -> Awaitable[View[Enum, object]]:  # noqa: ANN401 -- as above.
        """As `Engine.start`."""
        ...

    def find(
        self,
        machine: Any,  # noqa: ANN401 -- as above.
        *,
        state: Any = None,  # noqa: ANN401 -- as above.
        limit: int = 100,
        cursor: str | None = None,
    ) -> Awaitable[Page[Any, Any]]:
        """As `Engine.find`."""
        ...

    def stalled(
        self,
        machine: Any,  # noqa: ANN401 -- as above.
        *,
        older_than_s: float | None = None,
        states: Iterable[Any] | None = None,
        limit: int = 1_000,
    ) -> Awaitable[list[View[Any, Any]]]:
        """As `Engine.stalled`."""
        ...


class Workflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine. Made by `engine.of(machine)`."""

    def __init__(self, engine: Calls, machine: Machine[StateT, ContextT, EventT]) -> None:
        self._engine = engine
        self._machine = machine

    async def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow (B4)."""
        return self._checked(await self._engine.start(self._machine, workflow, context))

    async def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[StateT]:
        """Send an event of this machine."""
        await self.get(workflow)
        moved = await self._engine.send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow as it is durable."""
        return self._checked(await self._engine.get(workflow))

    async def wait(self, workflow: str, *states: StateT, timeout_s: float | None = None) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting."""
        await self.get(workflow)
        return self._checked(await self._engine.wait(workflow, *states, timeout_s=timeout_s))

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self.get(workflow)
        rows = await self._engine.history(workflow, after=after, limit=limit)
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def find(
        self, *, state: StateT | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[StateT, ContextT]:
        """Return the workflows, page by page."""
        return await self._engine.find(self._machine, state=state, limit=limit, cursor=cursor)

    async def stalled(
        self, *, older_than_s: float | None = None, states: Iterable[StateT] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return the active workflows that have been in their state for too long."""
        return await self._engine.stalled(self._machine, older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(self, workflow: str, event: EventT | None = None) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the workflow's state."""
        await self.get(workflow)
        return cast("list[Allowed[StateT]]", await self._engine.allowed(workflow, event))

    def _checked(self, view: View[Enum, object]) -> View[StateT, ContextT]:
        if view.machine != self._machine.name:
            raise WorkflowNotFound(
                f"there is no workflow {view.id!r} of machine {self._machine.name!r}: it is one of {view.machine!r}."
            )
        return cast("View[StateT, ContextT]", view)
