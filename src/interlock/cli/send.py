"""`interlock start` and `interlock send`: moving workflows by hand.

On a store they decide and make durable, exactly as a program does, and run no steps; a server does it itself. Many ids
are taken in groups; each has its own answer, and one that is refused does not keep the others from moving.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from interlock.cli.arguments import Failures, complete_event, context_of, event_of
from interlock.cli.homes import (
    AnyMachine,
    Home,
    KeyFile,
    Machines,
    OneMachine,
    Place,
    Server,
    client_at,
    engine_at,
    missing_word,
    one_machine,
    place_of,
    several_machines,
)
from interlock.cli.machines import Listing
from interlock.cli.show import Output
from interlock.cli.views import (
    Served,
    ShownMove,
    ShownWorkflow,
    list_workflows,
    named,
    one_named,
    show_ids,
    show_json,
    show_table,
    show_workflow,
    shown_move,
    shown_view,
)
from interlock.core.events import Event
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine

Ids = Annotated[str, typer.Argument(metavar="ID", help="The id of a workflow, or - for ids on stdin.")]


def start(
    target: OneMachine,
    workflow: Ids,
    context: Annotated[str, typer.Argument(metavar="JSON", help="The context to begin with, as JSON.")] = "{}",
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = Listing.TABLE,
) -> None:
    """Start a workflow. The same id with the same context again is the one that exists.

    With --home it runs no step: what the start leaves to be done begins when the service opens the store.
    Exits with 3 when the id is taken, and with 5 when the service owns the store, or is not there.
    """
    place = place_of(home, server, key_file)
    failures = Failures()
    if place.server is not None:
        started = asyncio.run(_start_there(place, target, workflow, context, failures))
    else:
        started = asyncio.run(_start_here(place, target, workflow, context, failures))
    if workflow == "-" or output is Listing.IDS:
        list_workflows(started, output)
    elif output is Listing.JSON and started:
        show_json(started[0])
    elif started:
        show_workflow(started[0])
    raise typer.Exit(failures.code)


async def _start_here(
    place: Place, target: str, workflow: str, context: str, failures: Failures
) -> list[ShownWorkflow]:
    machine = one_machine(target)
    bound = BoundMachine(machine)
    begun = context_of(bound, context)

    async def begin(engine: Engine, each: str) -> ShownWorkflow:
        return shown_view(bound, await engine.start(machine, each, begun))

    async with engine_at(place.home, [machine], create=True) as engine:
        return await failures.all(workflow, partial(begin, engine))


async def _start_there(
    place: Place, target: str, workflow: str, context: str, failures: Failures
) -> list[ShownWorkflow]:
    name, machines = one_named(target)
    async with client_at(place) as client:
        served = Served(client, machines)
        return await failures.all(workflow, lambda each: served.start(name, each, context))


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
    output: Output = Listing.TABLE,
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
        raise missing_word("MACHINE ID EVENT [JSON]")

    async def here() -> list[ShownMove]:
        machines = several_machines(target)
        async with engine_at(place.home, machines) as engine:
            event_for = _event_for(engine, machines, event, payload)

            async def move(each: str) -> ShownMove:
                sent = await event_for(each)
                moved = await engine.send(each, sent, key=key, if_allowed=if_allowed, expect_version=expect_version)
                return shown_move(each, moved)

            return await failures.all(workflow, move)

    async def there() -> list[ShownMove]:
        async with client_at(place) as client:
            move = Served(client, named(machine)).sender(
                event, payload, key=key, if_allowed=if_allowed, expect_version=expect_version
            )
            return await failures.all(workflow, move)

    _show_moves(asyncio.run(there() if place.server is not None else here()), output, many=workflow == "-")
    raise typer.Exit(failures.code)


def _show_moves(moved: list[ShownMove], output: Listing, *, many: bool) -> None:
    if output is Listing.IDS:
        show_ids([each.id for each in moved if not each.ignored])
    elif output is Listing.JSON and many:
        show_json(moved)
    elif output is Listing.JSON and moved:
        show_json(moved[0])
    elif output is Listing.TABLE and (moved or many):
        show_table(
            ("id", "state", "version", ""),
            [
                (each.id, each.state, each.version, "duplicate" * each.duplicate or "ignored" * each.ignored)
                for each in moved
            ],
        )


def _event_for(
    engine: Engine, machines: Sequence[AnyMachine], name: str, payload: str
) -> Callable[[str], Awaitable[Event]]:
    """Return a function that gives the event for a workflow: of the one machine, or of the workflow's own machine."""
    if len(machines) == 1:
        only = event_of(BoundMachine(machines[0]), name, payload)

        async def the_only_one(workflow: str) -> Event:
            del workflow
            return only

        return the_only_one
    by_name = {machine.name: BoundMachine(machine) for machine in machines}

    async def its_own(workflow: str) -> Event:
        return event_of(by_name[(await engine.get(workflow)).machine], name, payload)

    return its_own
