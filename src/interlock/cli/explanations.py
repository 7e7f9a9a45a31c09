"""`interlock attempts`, `why` and `fork`: what was tried, why a workflow is where it is, a new one from its past.

The first two only read: at a server, or from the store of a home. A fork starts a workflow.
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
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.operators.attempts import Attempt, AttemptPage, read_attempts
from interlock.engine.operators.why import Why, read_why
from interlock.engine.path.caller_commands import check_id, no_workflow
from interlock.errors import BadUsage
from interlock.wire import ShownWorkflow, shown_view


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
