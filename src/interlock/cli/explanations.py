"""`interlock attempts`, `why`, `fork` and `rewind`: what was tried, why a workflow is where it is, and its past again.

The first two only read: at a server, or from the store of a home. A fork starts a workflow, a rewind sets one back.
"""

import asyncio
from typing import Annotated

import msgspec
import typer

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
    ListingFormat,
    ResultFormat,
    escaped,
    moment_text,
    remark,
    say,
    show_json,
    show_listing,
)
from interlock.cli.load_machines import load_machines
from interlock.cli.parse_arguments import By, Failures, Limit, Output, OutputOfOne, refuse_invalid_payloads
from interlock.cli.workflow_commands import Words, read_row, show_workflows, split_words
from interlock.engine.bound_machine import BoundMachine, state_text
from interlock.engine.operators.attempts import Attempt, AttemptPage, read_attempts
from interlock.engine.operators.why import Why, read_why
from interlock.engine.path.caller_commands import check_id, no_workflow
from interlock.engine.views import Rewind
from interlock.errors import BadUsage
from interlock.wire import ShownWorkflow, shown_rewind, shown_view


def attempts(
    workflow: Annotated[str, typer.Argument(metavar="ID", help="The id of a workflow.")],
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    after: Annotated[
        int, typer.Option(min=0, metavar="VERSION", help="Only those that have ended after the move to this version.")
    ] = 0,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after the previous page.")] = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the attempts of a workflow's steps, undos and effects, the oldest first. Changes nothing.

    Those under way are the last. Tracebacks are in the JSON. When there are more, it prints the cursor of the next
    page. Exits with 4 when there is no such workflow.
    """
    place = place_of(home, server, key_file)

    async def read() -> AttemptPage:
        if place.server is not None:
            async with client_at(place) as client:
                return await client.attempts(workflow, after=after, limit=limit, cursor=cursor)
        check_id(workflow, "the id of a workflow")
        async with store_at(place.home) as store:
            row = (await store.load([workflow])).get(workflow)
            if row is None:
                raise no_workflow(workflow)
            return await read_attempts(store, row, after=after, limit=limit, cursor=cursor)

    with refuse_invalid_payloads():
        page = asyncio.run(read())
    if output is ListingFormat.JSON:
        show_json({"items": [msgspec.structs.asdict(each) for each in page.items], "cursor": page.cursor})
        return
    heading = ("kind", "name", "number", "begun", "took", "outcome", "worker", "error")
    show_listing(output, page.items, heading, _cells, ids=dict.fromkeys(each.key for each in page.items))
    if page.cursor is not None:
        remark(f"There are more: --cursor {page.cursor}")


def _cells(each: Attempt) -> tuple[object, ...]:
    took = "" if each.ended_at is None else f"{(each.ended_at - each.begun_at).total_seconds():.3f} s"
    begun = moment_text(each.begun_at)
    return each.kind, each.name, each.number, begun, took, each.outcome, each.worker, each.error


def why(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Say in plain words why a workflow is where it is, and what would move it. Changes nothing.

    How it came there, what it waits for and since when, what can move it, and what would happen next. On a store it
    needs the machine, MODULE:ATTR. Exits with 4 when there is no such workflow.
    """
    place = place_of(home, server, key_file)
    target, argument = split_words(words)
    failures = Failures()

    async def read() -> list[Why]:
        if place.server is not None:
            async with client_at(place) as client:
                return await failures.all(argument, client.why)
        if target is None:
            raise BadUsage(
                "the machine of the workflow is not given.",
                why="Only the machine knows what can move it.",
                fix=f"Name it before the id: interlock why shop.orders:order {argument}. A server knows it: --server.",
            )
        machines = {machine.name: BoundMachine(machine) for machine in load_machines(target)}
        async with store_at(place.home) as store:

            async def explain(workflow: str) -> Why:
                check_id(workflow, "the id of a workflow")
                row = (await store.load([workflow])).get(workflow)
                if row is None:
                    raise no_workflow(workflow)
                return await read_why(store, read_row(row, machines))

            return await failures.all(argument, explain)

    found = asyncio.run(read())
    if output is ResultFormat.TABLE:
        for each in found:
            say(escaped(each.text))
    elif argument == "-":
        show_json(found)
    elif found:
        show_json(found[0])
    raise typer.Exit(failures.code)


def fork(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MACHINE] ID NEW",
            help="The id of a workflow, and the id of the new one; MODULE[:ATTR] before them on a store.",
        ),
    ],
    *,
    at: Annotated[
        int, typer.Option("--at", min=1, metavar="VERSION", help="The version that the new one begins with.")
    ],
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Start a new workflow in the state and with the context that another one had at a version.

    It runs its own step and timers, owes no effects, and undoes nothing of the other. Exits with 2 when that state is
    final or unwinding, with 3 when the id is taken, and with 4 when there is no such workflow or version.
    """
    place = place_of(home, server, key_file)
    target, ids = (words[0], words[1:]) if len(words) == len(("machine", "id", "new")) else (None, words)
    if len(ids) != len(("id", "new")):
        raise missing_word("[MACHINE] ID NEW")

    async def act() -> ShownWorkflow:
        actor = actor_at(place, by)
        if place.server is not None:
            async with client_at(place) as client:
                return shown_view(None, await client.fork(ids[0], at, ids[1], by=actor))
        if target is None:
            raise missing_word("MACHINE ID NEW")
        machines = load_machines(target)
        async with engine_at(place.home, machines) as engine:
            view = await engine.fork(ids[0], at, ids[1], by=actor)
            bound = next(BoundMachine(machine) for machine in machines if machine.name == view.machine)
            return shown_view(bound, view)

    with refuse_invalid_payloads():
        show_workflows([asyncio.run(act())], output, many=False)


def rewind(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[MACHINE] ID", help="The id of a workflow; MODULE[:ATTR] before it on a store."),
    ],
    *,
    to: Annotated[int, typer.Option("--to", min=1, metavar="VERSION", help="The version that it is set back to.")],
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; its history keeps it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be undone first.")] = False,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Repeated with the same key, it happens once.")] = None,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Set a workflow back to the state and context of an earlier version.

    What it has done since then and can undo is undone first, newest first. On a store this begins it; an engine with
    the machine's steps runs the undos. Exits with 2 when it cannot be set back to that version, with 3 when another
    event came between, and with 4 when there is no such workflow or version.
    """
    place = place_of(home, server, key_file)
    target, ids = (words[0], words[1:]) if len(words) == len(("machine", "id")) else (None, words)
    if len(ids) != 1:
        raise missing_word("[MACHINE] ID")

    async def act() -> Rewind:
        actor = actor_at(place, by)
        if place.server is not None:
            async with client_at(place) as client:
                return await client.rewind(ids[0], to, by=actor, note=note or "", dry_run=dry_run, key=key)
        if target is None:
            raise missing_word("MACHINE ID")
        async with engine_at(place.home, load_machines(target)) as engine:
            return await engine.rewind(ids[0], to, by=actor, note=note or "", dry_run=dry_run, key=key)

    with refuse_invalid_payloads():
        found = asyncio.run(act())
    if output is not ResultFormat.TABLE:
        show_json(shown_rewind(found))
        return
    show_listing(
        ListingFormat.TABLE,
        found.undo,
        ("step", "undo", "outcome", "key"),
        lambda each: (each.step, each.undo, "known" if each.known else "unknown", each.key),
        ids=dict.fromkeys(each.key for each in found.undo),
    )
    say(escaped(_rewind_text(found, dry_run=dry_run)))


def _rewind_text(found: Rewind, *, dry_run: bool) -> str:
    undos = "1 undo" if len(found.undo) == 1 else f"{len(found.undo)} undos"
    first = f"after {undos}" if found.undo else "with nothing to undo"
    back = f"set back to version {found.to_version}, in state {state_text(found.state)!r}"
    if found.duplicate:
        return f"{found.workflow!r} is {back} since version {found.version}; {undos} still owed."
    return f"{found.workflow!r} {'would be' if dry_run else 'is'} {back}, {first}."
