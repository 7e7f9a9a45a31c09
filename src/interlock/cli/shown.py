"""The output of workflows and their history: a table, JSON, or ids alone.

JSON is the same with a machine and without one, and the same as over HTTP. Contexts and payloads are shown as they are
stored. All text of users is escaped: an id cannot move the cursor or look like another one.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from interlock.cli.check import Listing
from interlock.cli.output import escaped, show_raw, stdout
from interlock.runtime.bound import Bound, state_text
from interlock.runtime.views import HistoryRow, Moved, View, moment
from interlock.store.values import Happened, Row

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


def shown_view(bound: Bound, view: View[Any, Any]) -> ShownWorkflow:
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


def shown_history(bound: Bound, workflow: str, row: HistoryRow[Any, Any]) -> ShownRow:
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


def shown_raw_history(row: Happened) -> ShownRow:
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
