"""`interlock schedules`: list, put, pause, resume, trigger, backfill and delete schedules.

On a store the commands only write: what is due starts when the service runs, or immediately where PostgreSQL is shared
with workers. A server continues immediately, and records the operator in its audit log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from interlock.cli.command_place import CommandPlace, Home, KeyFile, Server, actor_at, client_at, engine_at, place_of
from interlock.cli.console import (
    ListingFormat,
    ResultFormat,
    counted,
    moment_text,
    remark,
    say,
    show_json,
    show_listing,
)
from interlock.cli.load_machines import AnyMachine, load_machine
from interlock.cli.parse_arguments import By, ListingGroup, Output, OutputOfOne, context_of, seconds_of
from interlock.client.client import ClientSchedules
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.schedules import CatchUp, Overlap, Schedule, Schedules, ScheduleView, schedule_machine
from interlock.errors import BadUsage

ResultT = TypeVar("ResultT")

schedules = typer.Typer(
    cls=ListingGroup,
    help="List schedules (cron or interval), or put, pause, resume, trigger and delete them.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a schedule.")]
Since = Annotated[str, typer.Option(metavar="TIME", help="The first time; without a zone, UTC.")]
Until = Annotated[str, typer.Option(metavar="TIME", help="The time after the last one.")]


@schedules.command(name="list", epilog="Example: interlock schedules list --home lanes:///var/shop")
def list_schedules(
    *, home: Home = None, server: Server = None, key_file: KeyFile = None, output: Output = ListingFormat.TABLE
) -> None:
    """List the schedules of a home, oldest first."""
    found = _call(place_of(home, server, key_file), lambda each: each.list())
    show_listing(
        output,
        found,
        ("name", "machine", "when", "next due", "last", "waiting", "started", "skipped"),
        _cells,
        ids=(each.name for each in found),
    )


@schedules.command(
    epilog="Example: interlock schedules put nightly shop:report --cron '0 3 * * *' --timezone Europe/Berlin"
)
def put(
    name: Name,
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="The machine whose workflows start: MODULE:ATTR.")],
    *,
    cron: Annotated[str | None, typer.Option(help="Minute, hour, day of the month, month, day of the week.")] = None,
    every: Annotated[str | None, typer.Option(help="An interval instead: 30s, 5m, 2h, 1d.")] = None,
    timezone: Annotated[str, typer.Option(help="The IANA zone of --cron.")] = "UTC",
    context: Annotated[str, typer.Option(metavar="JSON", help="The context of the workflows.")] = "{}",
    overlap: Annotated[
        Overlap, typer.Option(help="While the workflow before is active: skip, queue or allow.")
    ] = "skip",
    catch_up: Annotated[
        CatchUp, typer.Option(help="Missed times that start after a downtime: all, last, none.")
    ] = "last",
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Store a schedule, or change it. One that was paused stays paused."""
    loaded = load_machine(machine)
    wanted = Schedule(
        name,
        loaded,
        cron=cron,
        every=None if every is None else seconds_of(every),
        timezone=timezone,
        context=context_of(BoundMachine(loaded), context),
        overlap=overlap,
        catch_up=catch_up,
    )
    place = place_of(home, server, key_file)
    _show(output, _call(place, lambda each: each.put(wanted, by=actor_at(place, by)), [loaded]))


@schedules.command(epilog="Example: interlock schedules pause nightly --server http://127.0.0.1:8080")
def pause(
    name: Name,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Start nothing at due times until the schedule is resumed."""
    place = place_of(home, server, key_file)
    _show(output, _call(place, lambda each: each.pause(name, by=actor_at(place, by))))


@schedules.command(epilog="Example: interlock schedules resume nightly --server http://127.0.0.1:8080")
def resume(
    name: Name,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Start at due times again. Those that passed meanwhile are not caught up with."""
    place = place_of(home, server, key_file)
    _show(output, _call(place, lambda each: each.resume(name, by=actor_at(place, by))))


@schedules.command(epilog="Example: interlock schedules trigger nightly --server http://127.0.0.1:8080")
def trigger(name: Name, *, home: Home = None, server: Server = None, key_file: KeyFile = None, by: By = None) -> None:
    """Start one workflow now, and print its id."""
    place = place_of(home, server, key_file)
    say(_call(place, lambda each: each.trigger(name, by=actor_at(place, by))))
    if place.server is None:
        remark("It starts when a worker runs.")


@schedules.command(
    epilog="Example: interlock schedules backfill nightly --since 2026-11-01T00:00:00 --until 2026-11-08T00:00:00"
)
def backfill(
    name: Name,
    *,
    since: Since,
    until: Until,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
) -> None:
    """Start the workflows of the due times from --since up to and without --until."""
    first, last = _time_of(since), _time_of(until)
    place = place_of(home, server, key_file)
    count = _call(place, lambda each: each.backfill(name, first, last, by=actor_at(place, by)))
    say(f"{counted(count, 'workflow')} of {name}")


@schedules.command(epilog="Example: interlock schedules delete nightly --server http://127.0.0.1:8080")
def delete(name: Name, *, home: Home = None, server: Server = None, key_file: KeyFile = None, by: By = None) -> None:
    """Delete a schedule. Workflows that it started go on."""
    place = place_of(home, server, key_file)
    _call(place, lambda each: each.delete(name, by=actor_at(place, by)))
    say(f"{name}: deleted")


def _time_of(text: str) -> datetime:
    """Parse a time. Raises BadUsage."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadUsage(
            f"{text!r} is not a time.",
            why="A backfill starts the workflows of due times in a range of time.",
            fix="Write it as 2026-11-01T00:00:00+01:00; without a zone it is UTC.",
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _call(
    place: CommandPlace,
    call: Callable[[Schedules | ClientSchedules], Awaitable[ResultT]],
    machines: Sequence[AnyMachine] = (),
) -> ResultT:
    """Run a call at a server, or on a store that is opened without a worker."""

    async def run() -> ResultT:
        if place.server is not None:
            async with client_at(place) as client:
                return await call(client.schedules)
        async with engine_at(place.home, [*machines, schedule_machine], create=bool(machines)) as engine:
            return await call(engine.schedules)

    return asyncio.run(run())


def _cells(each: ScheduleView) -> tuple[object, ...]:
    when = each.cron or f"every {each.every_s:g} s"
    due = "paused" if each.paused else moment_text(each.next_due)
    zone = "" if each.timezone == "UTC" or each.cron is None else f" {each.timezone}"
    return each.name, each.machine, f"{when}{zone}", due, each.last or "", each.waiting, each.started, each.skipped


def _show(output: ResultFormat, view: ScheduleView) -> None:
    if output is ResultFormat.JSON:
        show_json(view)
        return
    say(f"{view.name}: {'paused' if view.paused else f'next due {moment_text(view.next_due)}'}")
