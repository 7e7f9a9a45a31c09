"""Workflows of a server, in the same form as those of a store.

A machine is given by its name, which the server knows, or as MODULE:ATTR. Then the local code decodes events, contexts
and states before anything is sent. Answers are shown as the server sends them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from interlock.cli.given import context_of, event_of, object_of, state_of
from interlock.cli.homes import AnyMachine, several_machines
from interlock.cli.shown import ShownMove, ShownRow, ShownWorkflow, shown_move, shown_view
from interlock.client.client import Client
from interlock.core.events import Event
from interlock.core.values import Allowed
from interlock.errors import BadUsage, InvalidPayload, WorkflowNotFound
from interlock.runtime.bound import Bound, state_text
from interlock.runtime.views import HistoryRow, Moved, View

PAGE = 1_000

AnyView = View[Any, Any]


class Named(NamedTuple):
    """The machines that a command is about."""

    names: tuple[str, ...] = ()
    """None of them: whichever a workflow has."""
    here: Mapping[str, AnyMachine] = {}
    """The machines whose code is here."""

    def bound(self, name: str) -> Bound | None:
        """Return the machine of that name, if its code is here."""
        machine = self.here.get(name)
        return None if machine is None else Bound(machine)


def named(target: str | None) -> Named:
    """The machines of MODULE:ATTR, or the one of that name."""
    if target is None:
        return Named()
    if ":" not in target:
        return Named((target,))
    machines = several_machines(target)
    return Named(tuple(machine.name for machine in machines), {machine.name: machine for machine in machines})


def one_named(target: str) -> tuple[str, Named]:
    """The one machine of that name, or of MODULE:ATTR. Raises BadUsage for several."""
    found = named(target)
    if len(found.names) != 1:
        raise BadUsage(
            f"{target} holds {len(found.names)} machines ({', '.join(found.names)}), and exactly one is needed.",
            why="A workflow is started, and workflows are listed, machine by machine.",
            fix="Name the one machine: MODULE:ATTR, or its name alone.",
        )
    return found.names[0], found


class Served:
    """The workflows of a server."""

    def __init__(self, client: Client, machines: Named) -> None:
        self._client = client
        self._machines = machines

    async def get(self, workflow: str) -> ShownWorkflow:
        """Return one workflow."""
        return shown_plain(await self._view(workflow))

    async def history(self, workflow: str) -> list[ShownRow]:
        """Return the history of one workflow."""
        if self._machines.names:
            await self._view(workflow)
        return [_shown_row(workflow, row) for row in await self._client.history(workflow)]

    async def find(
        self, name: str, state: str | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownWorkflow], str | None]:
        """Return up to `limit` workflows of a machine, and the cursor of the next page."""
        bound = self._machines.bound(name)
        wanted = state if bound is None or state is None else state_text(state_of(bound, state))
        found: list[ShownWorkflow] = []
        while len(found) < limit:
            most = min(PAGE, limit - len(found))
            page = await self._client.of(name).find(state=wanted, limit=most, cursor=cursor)
            found += map(shown_plain, page.items)
            cursor = page.cursor
            if cursor is None or not page.items:
                break
        return found, cursor

    async def stalled(
        self, name: str, *, older_than_s: float | None, states: Iterable[str] | None, limit: int
    ) -> list[ShownWorkflow]:
        """Return the workflows of a machine that have been in their state for too long."""
        bound = self._machines.bound(name)
        wanted = states
        if bound is not None and states is not None:
            wanted = [state_text(state_of(bound, state)) for state in states]
        late = await self._client.of(name).stalled(older_than_s=older_than_s, states=wanted, limit=limit)
        return [shown_plain(view) for view in late]

    async def allowed(self, workflow: str, event: str | None, payload: str) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the workflow's state."""
        view = await self._view(workflow)
        if event is None:
            return await self._client.allowed(workflow)
        sample, data = self._event(view.machine, event, payload)
        return await self._client.allowed(workflow, sample, data=data)

    async def start(self, name: str, workflow: str, context: str) -> ShownWorkflow:
        """Start one workflow."""
        machine, bound = self._machines.here.get(name), self._machines.bound(name)
        if machine is None or bound is None:
            begun = object_of(context, "the context")
            return shown_plain(await self._client.of(name).start(workflow, begun))
        return shown_view(bound, await self._client.start(machine, workflow, context_of(bound, context)))

    def sender(
        self, event: str, payload: str, *, key: str | None, if_allowed: bool, expect_version: int | None
    ) -> Callable[[str], Awaitable[ShownMove]]:
        """Return a function that sends the event to a workflow. An invalid event raises before anything is sent."""
        names = self._machines.names
        only = self._event(names[0], event, payload) if len(names) == 1 else None

        async def send(workflow: str) -> ShownMove:
            sent, data = only or self._event((await self._view(workflow)).machine, event, payload)
            if len(names) == 1:
                workflows = self._client.of(names[0])
                moved: Moved[Any] = await workflows.send(
                    workflow, sent, data=data, key=key, if_allowed=if_allowed, expect_version=expect_version
                )
            else:
                moved = await self._client.send(
                    workflow, sent, data=data, key=key, if_allowed=if_allowed, expect_version=expect_version
                )
            return shown_move(workflow, moved)

        return send

    def _event(self, machine: str, name: str, payload: str) -> tuple[Event | str, dict[str, object] | None]:
        bound = self._machines.bound(machine)
        if bound is None:
            return name, object_of(payload, f"the payload of {name}")
        return event_of(bound, name, payload), None

    async def _view(self, workflow: str) -> AnyView:
        view = await self._client.get(workflow)
        if self._machines.names and view.machine not in self._machines.names:
            wanted = " or ".join(self._machines.names)
            raise WorkflowNotFound(f"there is no workflow {workflow!r} of {wanted}: it is one of {view.machine!r}.")
        return view


def shown_plain(view: AnyView) -> ShownWorkflow:
    """A workflow as a server shows it."""
    return ShownWorkflow(
        id=view.id,
        machine=view.machine,
        state=state_text(view.state),
        context=_raw(view.context),
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
        waiting=view.waiting,
    )


def _shown_row(workflow: str, row: HistoryRow[Any, Any]) -> ShownRow:
    return ShownRow(
        workflow=workflow,
        version=row.version,
        from_state=state_text(row.from_state),
        to_state=state_text(row.to_state),
        event=row.event,
        payload=None if row.payload is None else _raw(row.payload),
        context=_raw(row.context),
        key=row.key,
        created_at=row.created_at,
    )


def _raw(value: object) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidPayload(f"a value of the server cannot be shown: {error}.") from error
