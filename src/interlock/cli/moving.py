"""`interlock start` and `interlock send`: moving workflows by hand.

They decide and make durable, exactly as a program does, and run no steps. Many ids are taken in groups; each has its
own answer, and one that is refused does not keep the others from moving.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.check import Listing
from interlock.cli.given import context_of, event_of, ids_of
from interlock.cli.homes import AnyMachine, Home, Machines, OneMachine, engine_at, one_machine, several_machines
from interlock.cli.looking import Output
from interlock.cli.many import Failures
from interlock.cli.shown import list_workflows, show_ids, show_json, show_table, show_workflow, shown_view
from interlock.core.events import Event
from interlock.runtime.bound import Bound, state_text
from interlock.runtime.engine import Engine
from interlock.runtime.views import Moved, View

Ids = Annotated[str, typer.Argument(metavar="ID", help="The id of a workflow, or - for ids on stdin.")]


class ShownMove(msgspec.Struct, kw_only=True, frozen=True):
    """What became of one event."""

    id: str
    state: str
    version: int
    duplicate: bool
    ignored: bool


def start(
    target: OneMachine,
    workflow: Ids,
    context: Annotated[str, typer.Argument(metavar="JSON", help="The context to begin with, as JSON.")] = "{}",
    *,
    home: Home,
    output: Output = Listing.TABLE,
) -> None:
    """Start a workflow. The same id with the same context again is the one that exists.

    It runs no step: what the start leaves to be done begins when the service opens the store.
    Exits with 3 when the id is taken, and with 5 when the service owns the store.
    """
    machine = one_machine(target)
    bound = Bound(machine)
    begun = context_of(bound, context)
    failures = Failures()

    async def run() -> list[View[Any, Any]]:
        found: list[View[Any, Any]] = []
        async with engine_at(home, [machine], create=True) as engine:
            for ids in ids_of(workflow):
                found += await failures.each(ids, lambda each: engine.start(machine, each, begun))
        return found

    started = [shown_view(bound, view) for view in asyncio.run(run())]
    if workflow == "-" or output is Listing.IDS:
        list_workflows(started, output)
    elif output is Listing.JSON and started:
        show_json(started[0])
    elif started:
        show_workflow(started[0])
    raise typer.Exit(failures.code)


def send(
    target: Machines,
    workflow: Ids,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The name of the event, as it is stored: SUBMIT.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload, as JSON.")] = "{}",
    *,
    home: Home,
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

    It runs no step: what the event leaves to be done begins when the service opens the store.
    Exits with 3 when it is refused, 4 when there is no such workflow, and 5 when the service owns the store.
    """
    machines = several_machines(target)
    failures = Failures()

    async def run() -> list[ShownMove]:
        found: list[ShownMove] = []
        async with engine_at(home, machines) as engine:
            event_for = _event_for(engine, machines, event, payload)

            async def move(each: str) -> ShownMove:
                asked = await event_for(each)
                return _shown(
                    each,
                    await engine.send(each, asked, key=key, if_allowed=if_allowed, expect_version=expect_version),
                )

            for ids in ids_of(workflow):
                found += await failures.each(ids, move)
        return found

    moved = asyncio.run(run())
    if output is Listing.IDS:
        show_ids([each.id for each in moved if not each.ignored])
    elif output is Listing.JSON and workflow == "-":
        show_json(moved)
    elif output is Listing.JSON and moved:
        show_json(moved[0])
    elif output is Listing.TABLE and (moved or workflow == "-"):
        show_table(
            ("id", "state", "version", ""),
            [
                (each.id, each.state, each.version, "duplicate" * each.duplicate or "ignored" * each.ignored)
                for each in moved
            ],
        )
    raise typer.Exit(failures.code)


def _event_for(
    engine: Engine, machines: Sequence[AnyMachine], name: str, payload: str
) -> Callable[[str], Awaitable[Event]]:
    """The event for a workflow: of the one machine, or of the machine that the workflow has."""
    if len(machines) == 1:
        only = event_of(Bound(machines[0]), name, payload)

        async def the_only_one(workflow: str) -> Event:
            del workflow
            return only

        return the_only_one
    by_name = {machine.name: Bound(machine) for machine in machines}

    async def its_own(workflow: str) -> Event:
        return event_of(by_name[(await engine.get(workflow)).machine], name, payload)

    return its_own


def _shown(workflow: str, moved: Moved[Any]) -> ShownMove:
    return ShownMove(
        id=workflow,
        state=state_text(moved.state),
        version=moved.version,
        duplicate=moved.duplicate,
        ignored=moved.ignored,
    )
