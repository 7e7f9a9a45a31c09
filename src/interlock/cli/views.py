"""The form of workflows in the output: a table, JSON, or ids alone, from a store or from a server.

JSON is the same with a machine and without one, and the same as over HTTP. Contexts and payloads are shown as they are
stored. All text of users is escaped: an id cannot move the cursor or look like another one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from rich.cells import cell_len
from rich.text import Text

from interlock.cli.arguments import context_of, event_of, object_of, state_of
from interlock.cli.homes import AnyMachine, several_machines
from interlock.cli.machines import Listing
from interlock.cli.output import escaped, show_raw, stdout
from interlock.client.client import Client
from interlock.core.events import Event
from interlock.core.values import Allowed
from interlock.engine.bound_machine import BoundMachine, state_text
from interlock.engine.views import HistoryRow, Moved, View, moment
from interlock.errors import BadUsage, InvalidPayload, WorkflowNotFound
from interlock.store.values import HistoryRecord, Row

# --- Output ----------------------------------------------------------------------------------------------------------

CELL_CHARACTERS_MAX = 80


class ShownWorkflow(msgspec.Struct, kw_only=True, frozen=True):
    """A workflow. Without its machine `waiting` is unknown and left out."""

    id: str
    machine: str
    state: str
    context: msgspec.Raw
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | msgspec.UnsetType | None = msgspec.UNSET


class ShownRow(msgspec.Struct, kw_only=True, frozen=True):
    """A row of history; `context` is the context after the move."""

    workflow: str
    version: int
    from_state: str
    to_state: str
    event: str
    payload: msgspec.Raw | None
    context: msgspec.Raw
    key: str | None
    created_at: datetime


class ShownMove(msgspec.Struct, kw_only=True, frozen=True):
    """The result of one event."""

    id: str
    state: str
    version: int
    duplicate: bool
    ignored: bool


def shown_move(workflow: str, moved: Moved[Any]) -> ShownMove:
    """The answer to an event."""
    return ShownMove(
        id=workflow,
        state=state_text(moved.state),
        version=moved.version,
        duplicate=moved.duplicate,
        ignored=moved.ignored,
    )


def shown_view(bound: BoundMachine, view: View[Any, Any]) -> ShownWorkflow:
    """A workflow that its machine has read."""
    return ShownWorkflow(
        id=view.id,
        machine=view.machine,
        state=state_text(view.state),
        context=msgspec.Raw(bound.codec.encode_context(view.context)),
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
        waiting=view.waiting,
    )


def shown_raw(row: Row) -> ShownWorkflow:
    """A workflow as it is stored."""
    return ShownWorkflow(
        id=row.id,
        machine=row.machine,
        state=row.state,
        context=msgspec.Raw(row.context),
        version=row.version,
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
    )


def shown_history(bound: BoundMachine, workflow: str, row: HistoryRow[Any, Any]) -> ShownRow:
    """A row of history that the machine has read."""
    payload = bound.payload(row.payload)
    return ShownRow(
        workflow=workflow,
        version=row.version,
        from_state=state_text(row.from_state),
        to_state=state_text(row.to_state),
        event=row.event,
        payload=msgspec.Raw(payload) if payload else None,
        context=msgspec.Raw(bound.context_text(row.context)),
        key=row.key,
        created_at=row.created_at,
    )


def shown_raw_history(row: HistoryRecord) -> ShownRow:
    """A row of history as it is stored."""
    return ShownRow(
        workflow=row.workflow,
        version=row.version,
        from_state=row.from_state,
        to_state=row.to_state,
        event=row.event,
        payload=msgspec.Raw(row.payload) if row.payload else None,
        context=msgspec.Raw(row.context),
        key=row.key,
        created_at=moment(row.created_us),
    )


def show_json(value: object) -> None:
    """Any value as JSON, indented."""
    show_raw(escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def show_workflow(workflow: ShownWorkflow) -> None:
    """One workflow, a line for each of its parts, and its context below."""
    rows = [
        ("id", workflow.id),
        ("machine", workflow.machine),
        ("state", workflow.state),
        ("version", f"{workflow.version}"),
        ("created", moment_text(workflow.created_at)),
        ("updated", moment_text(workflow.updated_at)),
    ]
    if isinstance(workflow.waiting, str):
        rows.append(("waiting", workflow.waiting))
    console = stdout()
    for name, value in rows:
        console.print(Text.assemble((f" {name:<9}", "dim"), _one_line(value)), soft_wrap=True)
    context = msgspec.json.format(bytes(workflow.context), indent=2).decode().replace("\n", "\n" + " " * 10)
    console.print(Text.assemble((f" {'context':<9}", "dim"), escaped(context)), soft_wrap=True)


def list_workflows(workflows: Sequence[ShownWorkflow], output: Listing) -> None:
    """Print workflows as a table, JSON or ids; an empty table is only its heading."""
    match output:
        case Listing.TABLE:
            # Without the machine `waiting` is unknown, and an empty column would mean: for nothing.
            last = 4 if any(each.waiting is msgspec.UNSET for each in workflows) else 5
            rows = [
                (each.id, each.state, each.version, moment_text(each.updated_at), each.waiting or "")[:last]
                for each in workflows
            ]
            show_table(("id", "state", "version", "updated", "waiting")[:last], rows)
        case Listing.JSON:
            show_json(workflows)
        case Listing.IDS:
            show_ids([each.id for each in workflows])


def list_history(rows: Sequence[ShownRow], *, with_ids: bool) -> None:
    """History as a table; with the ids of the workflows when there are several."""
    cells = [
        (
            row.workflow,
            row.version,
            moment_text(row.created_at),
            row.event,
            row.from_state,
            row.to_state,
            row.key or "",
            bytes(row.payload or b"").decode(),
        )
        for row in rows
    ]
    heading = ("id", "version", "time", "event", "from", "to", "key", "payload")
    first = 0 if with_ids else 1
    show_table(heading[first:], [cell[first:] for cell in cells])


def show_ids(ids: Sequence[str]) -> None:
    """Ids, one per line, for another command to read."""
    for each in ids:
        show_raw(each)


def show_table(
    heading: Sequence[str], rows: Sequence[Sequence[object]], *, cell_max: int = CELL_CHARACTERS_MAX
) -> None:
    """A table with columns as wide as they need to be. Nothing is wrapped; the last column is not filled up."""
    lines = [[_cell(value, cell_max) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heading, *lines, strict=True)]
    console = stdout()
    console.print(Text(_line(heading, widths), style="dim"), soft_wrap=True)
    for line in lines:
        console.print(Text(_line(line, widths)), soft_wrap=True)


def moment_text(time: datetime) -> str:
    """A time as commands show it."""
    return time.isoformat(timespec="milliseconds")


def _one_line(text: str) -> str:
    return escaped(text).replace("\n", "\\n")


def _cell(value: object, most: int) -> str:
    text = _one_line(str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    filled = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(filled).rstrip()


# --- Workflows of a server -------------------------------------------------------------------------------------------
# A machine is given by its name, which the server knows, or as MODULE:ATTR. Then the local code decodes events,
# contexts and states before anything is sent. Answers are shown as the server sends them.

PAGE = 1_000

AnyView = View[Any, Any]


class Named(NamedTuple):
    """The machines that a command is about."""

    names: tuple[str, ...] = ()
    """None of them: whichever a workflow has."""
    here: Mapping[str, AnyMachine] = {}
    """The machines whose code is here."""

    def bound(self, name: str) -> BoundMachine | None:
        """Return the machine of that name, if its code is here."""
        machine = self.here.get(name)
        return None if machine is None else BoundMachine(machine)


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
