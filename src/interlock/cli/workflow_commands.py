"""Commands on workflows: `interlock start`, `send`, `show`, `history`, `find`, `stalled` and `allowed`.

With `--home` they work on the store itself, with `--server` they ask a server. On a store, with the machine, contexts
are decoded by its types, and the output includes what a workflow waits for. `show`, `history` and `find` also work
without the code, and then show the stored values. `start` and `send` decide and make durable, exactly as a program
does, and run no steps. Many ids are taken in groups; each has its own answer, and a failure does not stop the others.

Sections: output, stores, servers, reading commands, moving commands.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from interlock.cli.command_place import (
    Home,
    KeyFile,
    Server,
    actor_at,
    client_at,
    engine_at,
    missing_word,
    place_of,
    store_at,
)
from interlock.cli.console import (
    Exit,
    ListingFormat,
    escaped,
    moment_text,
    one_line,
    remark,
    say,
    show_ids,
    show_json,
    show_listing,
    show_table,
)
from interlock.cli.load_machines import AnyMachine, load_machine, load_machines
from interlock.cli.parse_arguments import (
    By,
    Failures,
    Limit,
    Machines,
    OneMachine,
    OrderOption,
    Output,
    SearchOptions,
    UpdatedAfter,
    UpdatedBefore,
    WhereOption,
    complete_event,
    complete_state,
    context_of,
    event_of,
    ids_of,
    late_before,
    object_of,
    refuse_invalid_payloads,
    search_all,
    search_options,
    seconds_of,
    state_of,
)
from interlock.client.client import Client
from interlock.client.workflow_requests import ClientWorkflows
from interlock.core.decide import allowed as allowed_here
from interlock.core.decide import suggestion
from interlock.core.describe import MachineDescription, description_from_json
from interlock.core.events import Event
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, decode_owed, state_text
from interlock.engine.check_definitions import PREFIX
from interlock.engine.path.caller_commands import Beginning, check_id, no_workflow
from interlock.engine.path.commit_pipeline import machine_of
from interlock.engine.pauses import Pauses
from interlock.engine.views import Moved, View, dead_text, history_row, moment, timers_of, view_of
from interlock.errors import BadUsage, CorruptionError, InvalidPayload, TargetNotFound, WorkflowNotFound
from interlock.store.protocol import Store
from interlock.store.records import HistoryRecord, Row, child_cursor, parse_child_cursor
from interlock.wire import (
    NULL,
    ShownAllowed,
    ShownMove,
    ShownRow,
    ShownWorkflow,
    shown_allowed,
    shown_move,
    shown_row,
    shown_view,
)

PAGE = 1_000
"""Items of one answer of a server."""

HistoryOf = tuple[str, ShownRow]
ChildrenOf = tuple[list[ShownWorkflow], str | None]
"""A page of children, and the cursor of the next."""

AllowedOf = tuple[str, list[ShownAllowed]]
"""Rows and events, each with the id of their workflow."""

# --- Output ----------------------------------------------------------------------------------------------------------
# JSON is the same with a machine and without one, and the same as over HTTP.


def show_workflows(
    workflows: Sequence[ShownWorkflow], output: ListingFormat, *, many: bool, with_machine: bool = False
) -> None:
    """Print workflows as a listing; one alone as an object, or with a line for each of its parts."""
    if many or output is ListingFormat.IDS:
        first = 0 if with_machine else 1
        # Without the machine `waiting` is unknown, and an empty column would mean: for nothing.
        last = 5 if any(each.waiting is msgspec.UNSET for each in workflows) else 6

        def cells(each: ShownWorkflow) -> Sequence[object]:
            row = (each.machine, each.id, each.state, each.version, moment_text(each.updated_at), each.waiting or "")
            return row[first:last]

        heading = ("machine", "id", "state", "version", "updated", "waiting")[first:last]
        show_listing(output, workflows, heading, cells, ids=(each.id for each in workflows))
    elif output is ListingFormat.JSON and workflows:
        show_json(workflows[0])
    elif workflows:
        _show_parts(workflows[0])


def _show_parts(workflow: ShownWorkflow) -> None:
    parts = {
        "id": workflow.id,
        "machine": workflow.machine,
        "state": workflow.state,
        "version": f"{workflow.version}",
        "created": moment_text(workflow.created_at),
        "updated": moment_text(workflow.updated_at),
    }
    if isinstance(workflow.parent, str):
        parts["parent"] = workflow.parent
    if isinstance(workflow.waiting, str):
        parts["waiting"] = workflow.waiting
    if workflow.paused:
        parts["paused"] = "nothing begins until it is resumed: interlock resume"
    if workflow.timers:
        parts["timers"] = ", ".join(f"{timer.event} at {moment_text(timer.due_at)}" for timer in workflow.timers)
    context = msgspec.json.format(bytes(workflow.context), indent=2).decode().replace("\n", "\n" + " " * 10)
    lines = {**{name: one_line(value) for name, value in parts.items()}, "context": escaped(context)}
    for name, line in lines.items():
        say(Text.assemble((f" {name:<9}", "dim"), line))


def _show_history(rows: Sequence[HistoryOf], output: ListingFormat, *, many: bool) -> None:
    if output is ListingFormat.JSON:
        show_json([{"workflow": workflow, **msgspec.structs.asdict(row)} for workflow, row in rows])
        return
    if output is ListingFormat.IDS:
        show_ids(dict.fromkeys(workflow for workflow, _ in rows))
        return
    cells = [
        (
            workflow,
            row.version,
            moment_text(row.created_at),
            row.event,
            row.from_state,
            row.to_state,
            row.key or "",
            row.by or "",
            "" if row.payload == NULL else bytes(row.payload).decode(),
        )
        for workflow, row in rows
    ]
    heading = ("id", "version", "time", "event", "from", "to", "key", "by", "payload")
    first = 0 if many else 1
    show_table(heading[first:], [cell[first:] for cell in cells])


def _show_allowed(found: Sequence[AllowedOf], output: ListingFormat, *, many: bool) -> None:
    if not found and not many:
        return
    flat = [(workflow, each) for workflow, answers in found for each in answers]
    if output is ListingFormat.IDS:
        # Of several workflows those that take any event; of one the names of the events.
        show_ids(dict.fromkeys(workflow if many else each.event for workflow, each in flat))
    elif output is ListingFormat.JSON and many:
        show_json([{"id": workflow, **msgspec.structs.asdict(each)} for workflow, each in flat])
    elif output is ListingFormat.JSON:
        show_json(found[0][1])
    else:
        first = 0 if many else 1
        rows = [
            (
                workflow,
                each.event,
                each.to,
                ", ".join(each.guards),
                ": ".join(filter(None, (each.blocked_by, each.reason))),
            )
            for workflow, each in flat
        ]
        show_table(("id", "event", "to", "guard", "blocked by")[first:], [row[first:] for row in rows])


def _show_moves(moves: list[ShownMove], output: ListingFormat, *, many: bool) -> None:
    if output is ListingFormat.IDS:
        show_ids([each.id for each in moves if not each.ignored])
    elif output is ListingFormat.JSON and many:
        show_json(moves)
    elif output is ListingFormat.JSON and moves:
        show_json(moves[0])
    elif output is ListingFormat.TABLE and (moves or many):
        rows = [
            (each.id, each.state, each.version, "duplicate" * each.duplicate or "ignored" * each.ignored)
            for each in moves
        ]
        show_table(("id", "state", "version", ""), rows)


# --- Stores ----------------------------------------------------------------------------------------------------------


async def _rows_of(store: Store, argument: str, failures: Failures) -> AsyncIterator[Row]:
    """Yield the rows of the ids. A failure of one id is reported, and the others continue."""
    for ids in ids_of(argument):
        problems = {each: problem for each in ids if (problem := _not_an_id(each)) is not None}
        found = await store.load([each for each in ids if each not in problems])
        for each in ids:
            if each in found:
                yield found[each]
            else:
                failures.add(problems.get(each) or no_workflow(each))


def _not_an_id(argument: str) -> InvalidPayload | None:
    try:
        check_id(argument, "the id of a workflow")
    except InvalidPayload as error:
        return error
    return None


def _bound_machines(target: str) -> dict[str, BoundMachine]:
    return {machine.name: BoundMachine(machine) for machine in load_machines(target)}


def read_row(row: Row, machines: dict[str, BoundMachine]) -> LoadedWorkflow:
    """Decode a row's workflow. Raises UnavailableError for another machine, CorruptionError for unreadable data."""
    bound = machine_of(row, machines)
    try:
        return bound.live(row)
    except CorruptionError as error:
        raise CorruptionError(
            error.what,
            why="This code is not the code that wrote it, and `interlock plan` did not compare the two.",
            fix="Leave the machine out, to see what is stored.",
        ) from error


async def _pauses_of(store: Store) -> Pauses:
    pauses = Pauses()
    await pauses.read(store)
    return pauses


def _stored_workflow(row: Row, machines: dict[str, BoundMachine] | None, pauses: Pauses) -> ShownWorkflow:
    """Return a workflow as its machine reads it, or without machines as it is stored."""
    if machines is not None:
        live = read_row(row, machines)
        live.bound.pauses = pauses
        return shown_view(live.bound, view_of(live))
    owed = decode_owed(row.owed)
    return ShownWorkflow(
        id=row.id,
        machine=row.machine,
        state=row.state,
        context=msgspec.Raw(row.context),
        version=row.version,
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        waiting=dead_text(owed) or msgspec.UNSET,
        timers=timers_of(owed),
        parent=msgspec.UNSET if owed.parent is None else owed.parent.id,
        paused=pauses.names(row.machine, row.state, row.id),
    )


async def _stored_history(store: Store, row: Row, machines: dict[str, BoundMachine] | None) -> list[HistoryOf]:
    bound = None if machines is None else read_row(row, machines).bound
    rows: list[ShownRow] = []
    while page := await store.history(row.id, after=rows[-1].version if rows else 0):
        rows += [_stored_row(each) if bound is None else shown_row(bound, history_row(bound, each)) for each in page]
    return [(row.id, each) for each in rows]


def _stored_row(row: HistoryRecord) -> ShownRow:
    return ShownRow(
        version=row.version,
        from_state=row.from_state,
        to_state=row.to_state,
        event=row.event,
        payload=msgspec.Raw(row.payload) if row.payload else NULL,
        context=msgspec.Raw(row.context),
        key=row.key,
        created_at=moment(row.created_us),
        by=row.by,
    )


async def _stalled_without_code(
    store: Store, machine: str | None, dwell_s: float | None, states: list[str] | None, *, limit: int
) -> list[ShownWorkflow]:
    """Return late workflows of one machine or of all, by the newest descriptions in the store."""
    if machine is not None:
        await refuse_unknown(store, machine)
    described: dict[str, MachineDescription] = {}
    for name, text in (await store.notes()).items():
        if name.startswith(PREFIX):
            found = description_from_json(text.encode())
            described[found.name] = max(found, described.get(found.name, found), key=lambda each: each.version)
    _refuse_unknown_states(states, described.values())
    now_us, rows = store.now_us(), list[Row]()
    for found in described.values() if machine is None else [described[machine]]:
        before_us = {
            state.name: now_us - round(longest_s * 1_000_000)
            for state in found.states
            if (longest_s := state.dwell_max_s if dwell_s is None else dwell_s) is not None
            and not (state.final or state.resting)
            and (states is None or state.name in states)
        }
        rows += await store.stalled(found.name, before_us, limit=limit)
    pauses = await _pauses_of(store)
    return [_stored_workflow(row, None, pauses) for row in sorted(rows, key=lambda row: row.updated_us)[:limit]]


def _refuse_unknown_states(states: list[str] | None, machines: Iterable[MachineDescription]) -> None:
    known = {state.name for machine in machines for state in machine.states}
    for state in states or ():
        if state not in known:
            raise BadUsage(
                f"no machine has a state {state!r:.100}; they have {', '.join(sorted(known)) or 'none'}."
                f"{suggestion(state, known)}",
                why="A state is named by its value.",
                fix="Write one of these names.",
            )


async def _stored_names(store: Store) -> set[str]:
    """Return the names of the machines that have written here."""
    return {name.removeprefix(PREFIX).rpartition("/")[0] for name in await store.notes() if name.startswith(PREFIX)}


async def _find_of_all(
    store: Store, state: str | None, *, cursor: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """Return a page of the workflows of all machines, machine by machine, and the cursor of the next page.

    The cursor is that of a machine after its name and a slash, which a cursor does not contain. Raises InvalidPayload
    for another text.
    """
    names = sorted(await _stored_names(store))
    first, _, after = (cursor or "").rpartition("/")
    if cursor is not None and first not in names:
        raise InvalidPayload(
            f"{cursor!r:.100} is not a cursor of this listing.",
            why="A cursor comes from the previous page of the same listing.",
            fix="Pass the cursor unchanged, with the same machine and state.",
        )
    rows = list[Row]()
    for name in names[names.index(first) if first else 0 :]:
        if len(rows) == limit:
            return rows, f"{name}/"
        start = after if name == first and after else None
        found = await store.find(name, state, after=start, limit=limit - len(rows))
        rows += found.rows
        if found.cursor is not None:
            return rows, f"{name}/{found.cursor}"
    return rows, None


async def refuse_unknown(store: Store, machine: str) -> None:
    """Raise TargetNotFound for the name of a machine that has never written here."""
    names = await _stored_names(store)
    if machine not in names:
        raise TargetNotFound(
            f"no machine {machine!r} has stored anything here; there are {', '.join(sorted(names)) or 'none'}."
            f"{suggestion(machine, names)}",
            why="Without a colon it is the name of a machine, as its workflows are stored with it.",
            fix="Write one of these names, or MODULE:ATTR.",
        )


# --- Servers ---------------------------------------------------------------------------------------------------------
# A machine is given by its name, which the server knows, or as MODULE:ATTR. Then the local code decodes events,
# contexts and states before anything is sent. Answers are shown as the server sends them.

NamedMachines = dict[str, AnyMachine | None]
"""The machines that a command is about, with their code if it is here; none of them: whichever a workflow has."""


def named_machines(target: str | None) -> NamedMachines:
    """Return the machines of MODULE:ATTR, or the one of that name."""
    if target is None:
        return {}
    return {target: None} if ":" not in target else {machine.name: machine for machine in load_machines(target)}


def _one_named(target: str) -> tuple[str, NamedMachines]:
    found = named_machines(target)
    if len(found) != 1:
        raise BadUsage(
            f"{target} holds {len(found)} machines ({', '.join(found)}), and exactly one is needed.",
            why="A workflow is started, and workflows are listed, machine by machine.",
            fix="Name the one machine: MODULE:ATTR, or its name alone.",
        )
    return next(iter(found)), found


class Served:
    """The workflows of a server."""

    def __init__(self, client: Client, machines: NamedMachines) -> None:
        self._client = client
        self._machines = machines

    async def get(self, workflow: str) -> ShownWorkflow:
        """Return one workflow."""
        return _shown_plain(await self._view(workflow))

    async def history(self, workflow: str) -> list[HistoryOf]:
        """Return the history of one workflow."""
        if self._machines:
            await self._view(workflow)
        return [(workflow, shown_row(None, row)) for row in await self._client.history(workflow)]

    async def children(self, workflow: str, *, limit: int, cursor: str | None) -> ChildrenOf:
        """Return up to `limit` children of a workflow, and the cursor of the next page."""
        await self._view(workflow)
        page = await self._client.children(workflow, limit=limit, cursor=cursor)
        return list(map(_shown_plain, page.items)), page.cursor

    async def find(
        self, name: str | None, state: str | None, options: SearchOptions, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownWorkflow], str | None]:
        """Return up to `limit` workflows of a machine, or of all, and the cursor of the next page."""
        wanted = state if state is None or name is None else self._state(name, state)
        found: list[ShownWorkflow] = []
        while len(found) < limit:
            most = min(PAGE, limit - len(found))
            page = await self._client.of(name).find(state=wanted, limit=most, cursor=cursor, **options.arguments)
            found += map(_shown_plain, page.items)
            cursor = page.cursor
            if cursor is None:
                break
        return found, cursor

    async def stalled(
        self, name: str | None, *, older_than_s: float | None, states: list[str] | None, limit: int
    ) -> list[ShownWorkflow]:
        """Return the workflows of a machine, or of all, that have been in their state for too long."""
        wanted = None if states is None else [state if name is None else self._state(name, state) for state in states]
        late = await self._client.of(name).stalled(older_than_s=older_than_s, states=wanted, limit=limit)
        return list(map(_shown_plain, late))

    async def allowed(self, workflow: str, event: str | None, payload: str) -> AllowedOf:
        """Return the events that have a transition from the workflow's state."""
        view = await self._view(workflow)
        sample, data = (None, None) if event is None else self._event(view.machine, event, payload)
        found = await self._client.allowed(workflow, sample, data=data)
        return workflow, [shown_allowed(each) for each in found]

    async def start(self, name: str, workflow: str, context: str, by: str | None) -> ShownWorkflow:
        """Start one workflow."""
        machine, bound = self._machines.get(name), self._bound(name)
        if machine is None or bound is None:
            begun = object_of(context, "the context")
            return _shown_plain(await self._client.of(name).start(workflow, begun, by=by))
        return shown_view(bound, await self._client.start(machine, workflow, context_of(bound, context), by=by))

    def sender(
        self,
        event: str,
        payload: str,
        *,
        key: str | None,
        if_allowed: bool,
        expect_version: int | None,
        start: str | None,
        by: str | None,
    ) -> Callable[[str], Awaitable[ShownMove]]:
        """Return a function that sends the event to a workflow. An invalid event raises before anything is sent."""
        only = next(iter(self._machines)) if len(self._machines) == 1 else None
        ready = None if only is None else self._event(only, event, payload)
        begin: object = None
        if start is not None:
            if only is None:
                raise _start_without_machine()
            bound = self._bound(only)
            begin = object_of(start, "the context")
            if bound is not None:
                context_of(bound, start)

        async def send(workflow: str) -> ShownMove:
            sample, data = ready or self._event((await self._view(workflow)).machine, event, payload)
            workflows: ClientWorkflows[Any, Any, Any] = self._client.of(only)
            moved: Moved[Any] = await workflows.send(
                workflow,
                sample,
                data=data,
                key=key,
                if_allowed=if_allowed,
                expect_version=expect_version,
                start=begin,
                by=by,
            )
            return shown_move(workflow, moved)

        return send

    def _bound(self, name: str) -> BoundMachine | None:
        machine = self._machines.get(name)
        return None if machine is None else BoundMachine(machine)

    def _state(self, machine: str, state: str) -> str:
        bound = self._bound(machine)
        return state if bound is None else state_text(state_of(bound, state))

    def _event(self, machine: str, name: str, payload: str) -> tuple[Event | str, dict[str, object] | None]:
        bound = self._bound(machine)
        if bound is None:
            return name, object_of(payload, f"the payload of {name}")
        return event_of(bound, name, payload), None

    async def _view(self, workflow: str) -> View[Enum, object]:
        view = await self._client.get(workflow)
        if self._machines and view.machine not in self._machines:
            wanted = " or ".join(self._machines)
            raise WorkflowNotFound(f"there is no workflow {workflow!r} of {wanted}: it is one of {view.machine!r}.")
        return view


def _shown_plain(view: View[Any, Any]) -> ShownWorkflow:
    return shown_view(None, view)


# --- Reading commands ------------------------------------------------------------------------------------------------
# They change nothing. `allowed` asks the guards: on a store the machine decides here, a server decides the same.

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MACHINE] ID",
        help="The id of a workflow, or - for ids on stdin; MODULE[:ATTR] before it, or with --server a machine's name. "
        "Without the machine it is shown as it is stored.",
    ),
]


def show(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Show a workflow: its state, its context, its version, and what it waits for. Changes nothing.

    Exits with 4 when there is no such workflow, and with 5 when the service owns the store, or is not there.
    """
    place = place_of(home, server, key_file)
    target, argument = split_words(words)
    failures = Failures()

    async def read() -> list[ShownWorkflow]:
        if place.server is not None:
            async with client_at(place) as client:
                return await failures.all(argument, Served(client, named_machines(target)).get)
        machines = None if target is None else _bound_machines(target)
        async with store_at(place.home) as store:
            pauses = await _pauses_of(store)
            return [_stored_workflow(row, machines, pauses) async for row in _rows_of(store, argument, failures)]

    show_workflows(asyncio.run(read()), output, many=argument == "-")
    raise typer.Exit(failures.code)


def history(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Show everything that happened to a workflow, in the order it happened. Changes nothing.

    Contexts are in the JSON. Exits with 4 when there is no such workflow, and with 5 when the service owns the store,
    or is not there.
    """
    place = place_of(home, server, key_file)
    target, argument = split_words(words)
    failures = Failures()

    async def read() -> list[list[HistoryOf]]:
        if place.server is not None:
            async with client_at(place) as client:
                return await failures.all(argument, Served(client, named_machines(target)).history)
        machines = None if target is None else _bound_machines(target)
        async with store_at(place.home) as store:
            return [await _stored_history(store, row, machines) async for row in _rows_of(store, argument, failures)]

    rows = [row for rows in asyncio.run(read()) for row in rows]
    if rows or output is not ListingFormat.TABLE or not failures.code:
        _show_history(rows, output, many=argument == "-")
    raise typer.Exit(failures.code)


def children(
    words: Annotated[
        list[str], typer.Argument(metavar="[MACHINE] ID", help="The id of a workflow; MODULE[:ATTR] before it.")
    ],
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after the previous page.")] = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the workflows that a workflow has started as its children, page by page. Changes nothing.

    When there are more, it prints the cursor of the next page. Exits with 4 when there is no such workflow.
    """
    place = place_of(home, server, key_file)
    target, workflow = split_words(words)

    async def read() -> ChildrenOf:
        if place.server is not None:
            async with client_at(place) as client:
                return await Served(client, named_machines(target)).children(workflow, limit=limit, cursor=cursor)
        machines = None if target is None else _bound_machines(target)
        async with store_at(place.home) as store:
            return await _stored_children(store, workflow, machines, limit=limit, cursor=cursor)

    with refuse_invalid_payloads():
        found, more = asyncio.run(read())
    if output is ListingFormat.JSON:
        show_json({"items": found, "cursor": more})
        return
    show_workflows(found, output, many=True)
    if more is not None:
        remark(f"There are more: --cursor {more}")


async def _stored_children(
    store: Store, workflow: str, machines: dict[str, BoundMachine] | None, *, limit: int, cursor: str | None
) -> ChildrenOf:
    after = parse_child_cursor(cursor, workflow)
    if workflow not in await store.load([workflow]):
        raise no_workflow(workflow)
    found = await store.children(workflow, after=after, limit=limit + 1)
    rows = await store.load([each.id for each in found[:limit]])
    pauses = await _pauses_of(store)
    # A machine of the command line reads its own children; the others are shown as they are stored.
    shown_rows = [
        _stored_workflow(row, machines if machines is not None and row.machine in machines else None, pauses)
        for each in found[:limit]
        if (row := rows.get(each.id)) is not None
    ]
    last = found[limit - 1] if len(found) > limit else None
    return shown_rows, None if last is None else child_cursor(last)


def split_words(words: list[str]) -> tuple[str | None, str]:
    """Return the machine, if there is one, and the id. Raises BadUsage for more words."""
    match words:
        case [argument]:
            return None, argument
        case [target, argument]:
            return target, argument
        case _:
            raise BadUsage(
                f"{len(words)} words are given; one or two are needed: [MACHINE] ID.",
                why="One workflow is shown, or with - those whose ids are on stdin.",
                fix="Give many ids on stdin: interlock find MACHINE -o ids | interlock show -",
            )


def find(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MACHINE", help="MODULE:ATTR; or a machine's name, to see what is stored. Without it, all machines."
        ),
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only those in this state.", autocompletion=complete_state)
    ] = None,
    where: WhereOption = None,
    updated_after: UpdatedAfter = None,
    updated_before: UpdatedBefore = None,
    order: OrderOption = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after the previous page.")] = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the workflows of a machine, or of all, page by page. Changes nothing.

    When there are more, it prints the cursor of the next page.
    """
    place, options = place_of(home, server, key_file), search_options(where, updated_after, updated_before, order)

    async def read() -> tuple[list[ShownWorkflow], str | None]:
        if place.server is not None:
            name, named = (None, {}) if target is None else _one_named(target)
            async with client_at(place) as client:
                return await Served(client, named).find(name, state, options, limit=limit, cursor=cursor)
        if target is None and not options.arguments:
            async with store_at(place.home) as store:
                rows, after = await _find_of_all(store, state, cursor=cursor, limit=limit)
                pauses = await _pauses_of(store)
                return [_stored_workflow(row, None, pauses) for row in rows], after
        options.check_machine(target)
        bound = BoundMachine(load_machine(str(target))) if ":" in str(target) else None
        machines = None if bound is None else {bound.name: bound}
        name = str(target) if bound is None else bound.name
        wanted = state if bound is None or state is None else state_text(state_of(bound, state))
        async with store_at(place.home) as store:
            if bound is None:
                await refuse_unknown(store, name)
            if options.arguments:
                found = await search_all(store, options, bound, name, wanted, limit=limit, cursor=cursor)
            else:
                found = await store.find(name, wanted, after=cursor, limit=limit)
            pauses = await _pauses_of(store)
            return [_stored_workflow(row, machines, pauses) for row in found.rows], found.cursor

    with refuse_invalid_payloads():
        found, more = asyncio.run(read())
    if output is ListingFormat.JSON:
        show_json({"items": found, "cursor": more})
        return
    show_workflows(found, output, many=True, with_machine=target is None)
    if more is not None:
        remark(f"There are more: --cursor {more}")


def stalled(
    target: Annotated[
        str | None,
        typer.Argument(metavar="MACHINE", help="Only of this machine: MODULE:ATTR, or its name. Without it, of all."),
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            "--older-than-s",
            metavar="TIME",
            help="Longer than this: seconds, or 90s, 15m, 2h, 7d. Without: than declared.",
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE", help="Only in this state. May be given several times.", autocompletion=complete_state
        ),
    ] = None,
    limit: Limit = 1_000,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the workflows that have been in their state for too long, the longest first. Changes nothing.

    Without --older-than: longer than the machine declares for the state (dwell). Final and resting states never stall.
    On a store, a name alone (and no name) means the machines as the store describes them. A server lists at most 1,000.
    """
    place = place_of(home, server, key_file)
    dwell_s = None if older_than is None else seconds_of(older_than)

    async def read() -> list[ShownWorkflow]:
        if place.server is not None:
            name, named = (None, {}) if target is None else _one_named(target)
            async with client_at(place) as client:
                with refuse_invalid_payloads():
                    return await Served(client, named).stalled(name, older_than_s=dwell_s, states=state, limit=limit)
        if target is None or ":" not in target:
            async with store_at(place.home) as store:
                return await _stalled_without_code(store, target, dwell_s, state, limit=limit)
        bound = BoundMachine(load_machine(target))
        states = None if state is None else [state_of(bound, each) for each in state]
        async with store_at(place.home) as store:
            rows = await store.stalled(bound.name, late_before(bound, store.now_us(), dwell_s, states), limit=limit)
            pauses = await _pauses_of(store)
            return [_stored_workflow(row, {bound.name: bound}, pauses) for row in rows]

    found = asyncio.run(read())
    show_workflows(found, output, many=True, with_machine=target is None)
    if place.server is not None and PAGE == len(found) < limit:
        remark(f"There may be more: a server lists at most {PAGE:,}.")


def allowed(
    target: Machines,
    workflow: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a workflow, or - for ids on stdin.")
    ] = None,
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT", help="Ask the guards about this event.", autocompletion=complete_event),
    ] = None,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload, as JSON.")] = "{}",
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the events that have a transition from a workflow's current state. Changes nothing.

    With EVENT only its own transitions, and its guards are asked; exits with 3 when it would be refused.
    """
    place = place_of(home, server, key_file)
    failures = Failures()
    machine: str | None = target
    if place.server is not None and (workflow is None or (event is not None and event.lstrip().startswith("{"))):
        machine, workflow, event, payload = None, target, workflow, event or "{}"  # The words are ID [EVENT JSON].
    elif workflow is None:
        raise missing_word("MACHINE ID [EVENT] [JSON]", target)
    argument = workflow

    async def read() -> list[AllowedOf]:
        if place.server is not None:
            async with client_at(place) as client:
                served = Served(client, named_machines(machine))
                return await failures.all(argument, lambda each: served.allowed(each, event, payload))
        machines = _bound_machines(target)
        found: list[AllowedOf] = []
        async with store_at(place.home) as store:
            async for row in _rows_of(store, argument, failures):
                live = read_row(row, machines)
                sample = None if event is None else event_of(live.bound, event, payload)
                answers = allowed_here(live.bound.table, live.snapshot, sample, at=moment(store.now_us()))
                found.append((row.id, [shown_allowed(each) for each in answers]))
        return found

    found = asyncio.run(read())
    _show_allowed(found, output, many=argument == "-")
    blocked = event is not None and any(all(each.blocked_by for each in answers) for _, answers in found)
    raise typer.Exit(failures.code or (Exit.REFUSED if blocked else Exit.OK))


def _begin_of(bound: dict[str, BoundMachine], context: str) -> Beginning:
    """Return the machine and the context of --start. Raises BadUsage if there are several machines."""
    if len(bound) != 1:
        raise _start_without_machine()
    only = next(iter(bound.values()))
    return only.machine, context_of(only, context)


def _start_without_machine() -> BadUsage:
    return BadUsage(
        "--start is given without the one machine that it starts.",
        why="A workflow that does not exist is started with a machine and a context.",
        fix="Name the machine before the id: interlock send shop:order o-1 SUBMIT --start '{}'.",
    )


# --- Moving commands -------------------------------------------------------------------------------------------------

Begin = Annotated[
    str | None,
    typer.Option(
        "--start", metavar="JSON", help="A workflow that does not exist is started with this context, and moved."
    ),
]

Ids = Annotated[str, typer.Argument(metavar="ID", help="The id of a workflow, or - for ids on stdin.")]


def start(
    target: OneMachine,
    workflow: Ids,
    context: Annotated[str, typer.Argument(metavar="JSON", help="The context to begin with, as JSON.")] = "{}",
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Start a workflow. Starting it again with the same id and context changes nothing.

    With --home it runs no step: what the start leaves to be done begins when the service opens the store.
    Exits with 3 when the id is taken, and with 5 when the service owns the store, or is not there.
    """
    place = place_of(home, server, key_file)
    failures = Failures()

    async def begin_all() -> list[ShownWorkflow]:
        if place.server is not None:
            name, named = _one_named(target)
            async with client_at(place) as client:
                served = Served(client, named)
                return await failures.all(workflow, lambda each: served.start(name, each, context, by))
        machine = load_machine(target)
        bound = BoundMachine(machine)
        begun, actor = context_of(bound, context), actor_at(place, by)
        async with engine_at(place.home, [machine], create=True) as engine:

            async def begin(each: str) -> ShownWorkflow:
                return shown_view(bound, await engine.start(machine, each, begun, by=actor))

            return await failures.all(workflow, begin)

    show_workflows(asyncio.run(begin_all()), output, many=workflow == "-")
    raise typer.Exit(failures.code)


def send(
    target: Machines,
    workflow: Ids,
    event: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENT", help="The name of the event, as it is stored: SUBMIT.", autocompletion=complete_event
        ),
    ] = None,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload, as JSON.")] = "{}",
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="A delivery key: sent again with it, the event applies once.")
    ] = None,
    if_allowed: Annotated[
        bool, typer.Option("--if-allowed", help="An event without a transition here is ignored, not refused.")
    ] = False,
    expect_version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only if the workflow has this version.")
    ] = None,
    start: Begin = None,
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Send an event to a workflow; it is durable when the command ends.

    With --home it runs no step: what the event leaves to be done begins when the service opens the store.
    Exits with 3 when it is refused, 4 when there is no such workflow, and 5 when the service owns the store, or is not
    there.
    """
    place = place_of(home, server, key_file)
    failures = Failures()
    machine: str | None = target
    if place.server is not None and (event is None or event.lstrip().startswith("{")):
        machine, workflow, event, payload = None, target, workflow, event or "{}"  # The words are ID EVENT [JSON].
    elif event is None:
        raise missing_word("MACHINE ID EVENT [JSON]", target)

    async def send_all() -> list[ShownMove]:
        if place.server is not None:
            async with client_at(place) as client:
                served = Served(client, named_machines(machine))
                send = served.sender(
                    event, payload, key=key, if_allowed=if_allowed, expect_version=expect_version, start=start, by=by
                )
                return await failures.all(workflow, send)
        machines = load_machines(target)
        bound = {each.name: BoundMachine(each) for each in machines}
        begin = None if start is None else _begin_of(bound, start)
        actor = actor_at(place, by)
        async with engine_at(place.home, machines, create=begin is not None) as engine:
            only = event_of(next(iter(bound.values())), event, payload) if len(bound) == 1 else None

            async def move(each: str) -> ShownMove:
                sample = only
                if sample is None:  # The workflow's own machine decodes the event.
                    sample = event_of(bound[(await engine.get(each)).machine], event, payload)
                moved = await engine.send(
                    each, sample, key=key, if_allowed=if_allowed, expect_version=expect_version, start=begin, by=actor
                )
                return shown_move(each, moved)

            return await failures.all(workflow, move)

    _show_moves(asyncio.run(send_all()), output, many=workflow == "-")
    raise typer.Exit(failures.code)
