"""`interlock route`: move a database or workflows to another engine while they run.

It shows what the move would take before it makes it, and how to take it back afterwards. A name is that of a machine
whose workflows live at the home, or else of a database.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, NamedTuple

import typer

from interlock.catalog.catalog import ALL, Catalog, workflows_at
from interlock.cli.console import Exit, ResultFormat, counted, remark, say, show_json, show_table, watching
from interlock.cli.parse_arguments import OutputOfOne, absolute_url
from interlock.clock import SystemClock
from interlock.database.inventory import DatabasePart, address_of, is_absent
from interlock.errors import MovedElsewhere, TargetNotFound
from interlock.relocate.mover import is_same, shown_url
from interlock.relocate.route_by_name import (
    Route,
    WorkflowsRoute,
    abandon_route,
    abandon_workflows_route,
    find_route,
    find_workflows,
    move_along,
    move_workflows_along,
    plan_for_workflows,
    plan_route,
)
from interlock.relocate.stages import Moved, Plan
from interlock.urls import is_postgres_url, redact_secrets, stream_name

KIB = 1_024
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def route(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            callback=absolute_url,
            help="A database: its name at the home, or its address. Or a machine of the home, for its workflows.",
        ),
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            callback=absolute_url,
            help="Where it goes: lanes:///folder/name, postgresql://host/db, or s3://bucket/name.",
        ),
    ],
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="KEY", help="One write stream of the database, alone.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Move all machines of the home, where the name is that of one of several.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would take, and change nothing.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="End a move that was begun: it stays where it is.")
    ] = False,
    unchecked_credentials: Annotated[
        bool,
        typer.Option(
            "--unchecked-credentials", help="Do not try whether programs on this machine can follow to the target."
        ),
    ] = False,
    home: Annotated[
        str | None,
        typer.Option(
            "--home",
            metavar="URL",
            callback=absolute_url,
            envvar="INTERLOCK_HOME",
            help="Where the name is written down.",
        ),
    ] = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Move a database, or workflows, to another place while they are in use.

    Writers wait only for the last moment, and follow by themselves. Until then nothing has moved; the same command
    goes on with a move that was interrupted, and does nothing when it is over. Exits with 2 when there is something at
    the target already, with 4 when there is no such database, and with 5 when it cannot be done now.
    """
    move = asyncio.run(_find_move(name, to, home, stream=stream, everything=everything, finish=not dry_run))
    if abandon:
        result = "The move was ended" if asyncio.run(move.abandon()) else "No move was begun"
        remark(f"{result}: {move.place}.")
        return
    plan = plan_of(move)
    if plan is not None and (dry_run or output is ResultFormat.TABLE):
        _show_plan(plan, output)
    if dry_run:
        if plan is None:
            remark(f"There is no move to plan: everything lives at {shown_url(move.route.target)}.")
        raise typer.Exit(Exit.OK)
    _show_moved(run_move(move, checked=not unchecked_credentials), move.route.undo, output)


class PlannedMove(NamedTuple):
    """A move of a database or of workflows, and what can be done with it."""

    route: Route | WorkflowsRoute
    place: str
    """A text that says what it is and where it is."""
    estimate: Callable[[], Coroutine[object, object, Plan]]
    run: Callable[..., Coroutine[object, object, Moved]]
    abandon: Callable[[], Coroutine[object, object, bool]]


def move_database(route: Route) -> PlannedMove:
    """Return the move of a database."""
    place, clock = f"{route.name} stays at {shown_url(route.source)}", SystemClock()
    return PlannedMove(
        route,
        place,
        partial(plan_route, route, clock=clock),
        partial(move_along, route, clock=clock),
        partial(abandon_route, route, clock=clock),
    )


async def _find_move(
    name: str, to: str, home: str | None, *, stream: str | None, everything: bool, finish: bool
) -> PlannedMove:
    clock = SystemClock()
    if stream is not None:
        whole = await find_route(name, to, home=home, clock=clock, finish=finish)
        address = address_of(whole.source, DatabasePart("streams", stream_name(stream)))
        if await is_absent(address):
            raise TargetNotFound(
                f"{shown_url(whole.source)} has no stream {stream!r}.",
                why="A stream is made by db.stream(key), of a database that was opened with db_per_write_stream=True.",
                fix="Check the key; or leave --stream out, to move the whole database.",
            )
        return move_database(await find_route(address, to, home=None, clock=clock, finish=finish))
    if home is not None and "://" not in name and await _may_be_workflows(name, to, home):
        route = await find_workflows(name, to, home=home, clock=clock, everything=everything)
        if route is not None:
            place = f"the workflows stay at {redact_secrets(route.source)}"
            return PlannedMove(
                route,
                place,
                partial(plan_for_workflows, route, clock=clock),
                partial(move_workflows_along, route, clock=clock),
                partial(abandon_workflows_route, route, clock=clock),
            )
    return move_database(await find_route(name, to, home=home, clock=clock, finish=finish))


async def _may_be_workflows(name: str, to: str, home: str) -> bool:
    """Return whether workflows may be meant. The catalog knows databases; reading the machines of a bucket is slow."""
    if name == ALL or is_postgres_url(to) or name not in await Catalog(home).names():
        return True
    return is_postgres_url(await workflows_at(home, [name]))


def run_move(move: PlannedMove, *, checked: bool = True) -> Moved:
    """Make the move, and show the progress."""
    with watching("watch") as watch:
        return asyncio.run(move.run(watch=watch, checked=checked))


def plan_of(move: PlannedMove) -> Plan | None:
    """Return the estimate; None when the source is already sealed or the move is complete."""
    if move.route.is_there:
        return None
    try:
        return asyncio.run(move.estimate())
    except MovedElsewhere as error:
        if not is_same(error.url, move.route.target):
            raise
        return None


def _show_plan(plan: Plan, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json(plan)
        return
    show_table(
        ("table", "rows", "size"),
        [(each.table, f"{each.rows:,}", _size(each.bytes)) for each in plan.amounts],
    )
    say(f"From {plan.source}\n  to {plan.target}, as move {plan.epoch}.")
    say(
        f"{counted(plan.rows, 'row')}, {_size(plan.bytes)}: about {_seconds(plan.copy_s)} to copy and compare while it "
        f"serves, then about {plan.seal_ms:,.0f} ms in which writers wait."
    )
    for note in plan.notes:
        say(f"Note: {note}")


def _show_moved(moved: Moved, undo: str, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json(moved)
        return
    result = f"{counted(moved.rows, 'row')}, checksum {moved.checksum}" if moved.checksum else "It had arrived already"
    waited = f"; writers waited {moved.seal_ms:,.0f} ms" if moved.seal_ms else ""
    say(f"Moved {moved.name} to {moved.target}: {result}{waited}.")
    if undo:
        say(f"To undo it: {undo}")


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < KIB:
            return f"{count:,.0f} {unit}" if unit == UNITS[0] else f"{count:,.1f} {unit}"
        count /= KIB
    return f"{count:,.1f} {UNITS[-1]}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"  # noqa: PLR2004
