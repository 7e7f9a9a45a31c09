"""`client.of(machine)`: the calls of a client, typed by one machine, or by its name alone with plain values.

The machine is checked: a workflow of another machine is not found. The client requests a workflow's machine at most
once.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar, cast

from interlock.client.reading import Reader
from interlock.client.remote import Remote
from interlock.client.writing import plain_json
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Allowed, ContextT, StateT
from interlock.runtime.views import HistoryRow, Moved, Page, View

EventT = TypeVar("EventT", bound=Event)


class ClientWorkflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine at a server. Made by `client.of(machine)`."""

    def __init__(self, remote: Remote, machine: Machine[StateT, ContextT, EventT] | str, reader: Reader) -> None:
        self._remote = remote
        self._machine = machine
        self._name = machine if isinstance(machine, str) else machine.name
        self._reader = reader

    async def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4)."""
        machine = self._machine
        data = plain_json(context, machine) if isinstance(machine, str) else machine.codec.checked_context(context)
        return self._view(await self._remote.start(self._reader, self._name, workflow, data))

    async def send(
        self,
        workflow: str,
        event: EventT | str,
        *,
        data: Mapping[str, object] | None = None,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[StateT]:
        """Send an event of this machine, or its wire name with `data`. See `Client.send`."""
        await self._remote.check_machine(workflow, self._name)
        moved = await self._remote.send(
            self._reader,
            workflow,
            event,
            data=data,
            key=key,
            if_allowed=if_allowed,
            expect_version=expect_version,
        )
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow's durable state."""
        return self._view(await self._remote.get(self._reader, workflow, machine=self._name))

    async def wait(
        self, workflow: str, *states: StateT | str, timeout_s: float | None = None
    ) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting."""
        found = await self._remote.wait(self._reader, workflow, states, timeout_s=timeout_s, machine=self._name)
        return self._view(found)

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self._remote.check_machine(workflow, self._name)
        rows = await self._remote.history(self._reader, workflow, after=after, limit=limit)
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def find(
        self, *, state: StateT | str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[StateT, ContextT]:
        """Return one page of workflows; pass the `cursor` of the previous page, None after the last."""
        page = await self._remote.find(self._reader, self._name, state=state, limit=limit, cursor=cursor)
        return cast("Page[StateT, ContextT]", page)

    async def stalled(
        self, *, older_than_s: float | None = None, states: Iterable[StateT | str] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that have been in their state for too long; without a time, longer than declared."""
        wanted: list[Enum | str] | None = None if states is None else [*states]
        found = await self._remote.stalled(
            self._reader, self._name, older_than_s=older_than_s, states=wanted, limit=limit
        )
        return cast("list[View[StateT, ContextT]]", found)

    async def allowed(
        self, workflow: str, event: EventT | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the current state; with an event, also its guard's verdict.

        The event is one of this machine, or its wire name with `data`.
        """
        await self._remote.check_machine(workflow, self._name)
        return cast("list[Allowed[StateT]]", await self._remote.allowed(self._reader, workflow, event, data))

    def _view(self, view: View[Enum, object]) -> View[StateT, ContextT]:
        return cast("View[StateT, ContextT]", view)
