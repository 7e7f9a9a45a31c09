"""`interlock bulk`: an event, a retry of dead letters, a pause or a resumption for all workflows of a filter.

With --dry-run nothing changes, and the answer is exact. On a store the command executes the run itself, and Ctrl-C
interrupts it; at a server the run goes on without the command. The same command with the same --name resumes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import typer

from interlock.cli.command_place import CommandPlace, Home, KeyFile, Server, actor_at, client_at, engine_at, place_of
from interlock.cli.console import (
    Exit,
    ListingFormat,
    ResultFormat,
    escaped,
    moment_text,
    progress_bar,
    remark,
    run_interruptible,
    say,
    show_json,
    show_listing,
    stderr,
)
from interlock.cli.load_machines import load_machine
from interlock.cli.parse_arguments import (
    By,
    Limit,
    ListingGroup,
    Output,
    OutputOfOne,
    SearchOptions,
    UpdatedAfter,
    UpdatedBefore,
    WhereOption,
    event_of,
    object_of,
    refuse_invalid_payloads,
    search_options,
    state_of,
)
from interlock.client.bulk_requests import ClientBulk, ClientBulkRuns
from interlock.clock import RandomIds
from interlock.core.events import Event
from interlock.core.search import where_of
from interlock.engine.bound_machine import BoundMachine, state_text
from interlock.engine.operators.bulk import Bulk, BulkRequest
from interlock.engine.operators.bulk_runs import BulkPlan, BulkRun, BulkRuns, bulk_machine
from interlock.errors import BadUsage, WorkflowNotFound

bulk = typer.Typer(
    cls=ListingGroup,
    help="Act on all workflows of a filter: send an event, retry dead letters, pause, resume. List what ran.",
)

ResultT = TypeVar("ResultT")

LOOK_S = 0.5
"""How often the line of progress is renewed."""

Target = Annotated[
    str, typer.Argument(metavar="MACHINE", help="MODULE:ATTR; or with --server a machine's name is enough.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a bulk run.")]
State = Annotated[str | None, typer.Option(metavar="STATE", help="Only workflows in this state.")]
RunName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name of the run: repeated with it, it is resumed.")
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say how many would move, and why others not.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", help="At most this many workflows per second.")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept in the history of each pause.")]


@dataclass(frozen=True)
class _Order:
    """What a command asks for, and how its result is shown."""

    place: CommandPlace
    target: str
    state: str | None
    options: SearchOptions
    name: str | None
    by: str | None
    rate_per_s: float | None
    dry: bool
    output: ResultFormat
    request: BulkRequest
    event: str | None = None
    payload: str = "{}"


@bulk.command(
    epilog="Example: interlock bulk send shop.orders:order CANCEL --state charging --name '2026-11 cleanup' --dry-run"
)
def send(
    target: Target,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The name of the event, as it is stored: CANCEL.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload, as JSON.")] = "{}",
    *,
    state: State = None,
    where: WhereOption = None,
    updated_after: UpdatedAfter = None,
    updated_before: UpdatedBefore = None,
    name: RunName = None,
    rate: Rate = None,
    dry_run: Dry = False,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Send an event to every workflow of a filter, each once under the name of the run.

    Exits with 5 when the run was interrupted: the same command resumes it.
    """
    if name is None and not dry_run:
        raise BadUsage(
            "--name is missing.",
            why="The events have delivery keys made from it: under the same name no workflow gets the event twice.",
            fix="Add --name '2026-11 cleanup', or --dry-run to see what would happen.",
        )
    options = search_options(where, updated_after, updated_before, None)
    place, request = place_of(home, server, key_file), BulkRequest("send")
    _carry_out(_Order(place, target, state, options, name, by, rate, dry_run, output, request, event, payload))


@bulk.command(
    epilog="Example: interlock bulk retry shop.orders:order --letter charge --dry-run --home lanes:///var/shop"
)
def retry(
    target: Target,
    *,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only dead letters of a step, effect or undo.")
    ] = None,
    letter: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of the step, effect or undo of this name.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those with this error, or of this group of errors.")
    ] = None,
    state: State = None,
    where: WhereOption = None,
    updated_after: UpdatedAfter = None,
    updated_before: UpdatedBefore = None,
    name: RunName = None,
    rate: Rate = None,
    dry_run: Dry = False,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Retry the dead letters of the workflows of a filter that are there now."""
    options = search_options(where, updated_after, updated_before, None)
    place, request = place_of(home, server, key_file), BulkRequest("retry", kind=kind, letter=letter, error=error)
    _carry_out(_Order(place, target, state, options, name, by, rate, dry_run, output, request))


def _pausing(action: Literal["pause", "resume"], text: str) -> Callable[..., None]:
    def command(
        target: Target,
        *,
        note: Note = None,
        state: State = None,
        where: WhereOption = None,
        updated_after: UpdatedAfter = None,
        updated_before: UpdatedBefore = None,
        name: RunName = None,
        rate: Rate = None,
        dry_run: Dry = False,
        home: Home = None,
        server: Server = None,
        key_file: KeyFile = None,
        by: By = None,
        output: OutputOfOne = ResultFormat.TABLE,
    ) -> None:
        options = search_options(where, updated_after, updated_before, None)
        place, request = place_of(home, server, key_file), BulkRequest(action, note=note or "")
        _carry_out(_Order(place, target, state, options, name, by, rate, dry_run, output, request))

    command.__doc__ = text
    return command


pause = bulk.command(
    name="pause", epilog="Example: interlock bulk pause shop.orders:order --where customer=ada --home lanes:///var/shop"
)(_pausing("pause", "Pause each workflow of a filter by itself: nothing begins for it until it is resumed."))

resume = bulk.command(
    name="resume",
    epilog="Example: interlock bulk resume shop.orders:order --where customer=ada --home lanes:///var/shop",
)(_pausing("resume", "Resume each workflow of a filter that is paused by itself."))


@bulk.command(name="list", epilog="Example: interlock bulk list --home lanes:///var/shop")
def list_runs(
    *,
    limit: Limit = 100,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the bulk runs of a home, the newest first, with their progress."""
    found = asyncio.run(_with_runs(place_of(home, server, key_file), lambda runs: runs.list(limit=limit)))
    show_listing(
        output,
        found,
        ("name", "machine", "action", "state", "moved", "refused", "by", "since", "updated"),
        _cells,
        ids=(each.name for each in found),
    )


@bulk.command(epilog="Example: interlock bulk show '2026-11 cleanup' --home lanes:///var/shop")
def show(
    name: Name,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Show a bulk run: what it does, how far it is, and what was refused for which reason."""
    _show(asyncio.run(_with_runs(place_of(home, server, key_file), lambda runs: runs.get(name))), output)


@bulk.command(epilog="Example: interlock bulk stop '2026-11 cleanup' --server http://127.0.0.1:8080")
def stop(
    name: Name,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Stop a bulk run before its next page. The command that began it resumes it."""
    place = place_of(home, server, key_file)
    _show(asyncio.run(_with_runs(place, lambda runs: runs.stop(name, by=actor_at(place, by)))), output)


async def _with_runs(place: CommandPlace, call: Callable[[BulkRuns | ClientBulkRuns], Awaitable[ResultT]]) -> ResultT:
    if place.server is not None:
        async with client_at(place) as client:
            return await call(client.bulk_runs)
    async with engine_at(place.home, [bulk_machine]) as engine:
        return await call(engine.bulk_runs)


def _carry_out(order: _Order) -> None:
    with refuse_invalid_payloads():
        found = run_interruptible(_at_server(order) if order.place.server is not None else _at_home(order))
    if isinstance(found, BulkPlan):
        _show_plan(found, order.output)
        return
    _show(found, order.output)
    if found.state != "done":
        remark("It was interrupted: the same command resumes it.")
        raise typer.Exit(Exit.UNAVAILABLE)


async def _at_home(order: _Order) -> BulkPlan | BulkRun:
    """Execute the run on a store."""
    machine = load_machine(order.target)
    bound, search = BoundMachine(machine), order.options.arguments
    async with engine_at(order.place.home, [machine]) as engine:
        chosen: Bulk[Any] = engine.bulk(
            machine,
            state=None if order.state is None else state_of(bound, order.state),
            where=where_of(bound.name, bound.machine.search.fields, search.get("where", [])),
            updated_after=search.get("updated_after"),
            updated_before=search.get("updated_before"),
        )
        request = order.request
        if order.event is not None:
            request = replace(request, event=event_of(bound, order.event, order.payload))
        if order.dry:
            return await chosen.dry_run(request)
        name, by = order.name or _new_name(order), actor_at(order.place, order.by)
        running = chosen.run(request, name=name, by=by, rate_per_s=order.rate_per_s)
        return await _shown_progress(engine.bulk_runs, name, running)


async def _at_server(order: _Order) -> BulkPlan | BulkRun:
    """Ask a server for the run, and look at its progress."""
    machine = load_machine(order.target) if ":" in order.target else None
    bound = None if machine is None else BoundMachine(machine)
    search = order.options.arguments
    state = order.state if bound is None or order.state is None else state_text(state_of(bound, order.state))
    async with client_at(order.place) as client:
        chosen: ClientBulk[Event] = client.bulk(
            order.target if machine is None else machine,
            state=state,
            where=search.get("where", []),
            updated_after=search.get("updated_after"),
            updated_before=search.get("updated_before"),
        )
        name = order.name or _new_name(order)
        if order.event is None:
            if order.dry:
                return await chosen.dry_run(order.request)
            running = chosen.run(order.request, name=name, by=order.by, rate_per_s=order.rate_per_s)
        else:
            event: Event | str = order.event
            data: dict[str, object] | None = None
            if bound is None:
                data = object_of(order.payload, f"the payload of {event}")
            else:
                event = event_of(bound, order.event, order.payload)
            if order.dry:
                return await chosen.dry_run(event, data=data)
            running = chosen.send(event, data=data, name=name, by=order.by, rate_per_s=order.rate_per_s)
        return await _shown_progress(client.bulk_runs, name, running)


def _new_name(order: _Order) -> str:
    return f"{order.request.action} {order.target.replace('/', '.'):.80} {RandomIds().text()[:8]}"


async def _shown_progress(
    runs: BulkRuns | ClientBulkRuns, name: str, running: Coroutine[object, object, BulkRun]
) -> BulkRun:
    """Await a run; on a terminal, show its progress meanwhile."""
    console = stderr()
    task = asyncio.ensure_future(running)
    try:
        with progress_bar(console) if console.is_terminal else nullcontext() as progress:
            if progress is None:
                return await task
            line = progress.add_task(escaped(name), total=None)
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                try:
                    run = await runs.get(name)
                except WorkflowNotFound:
                    continue
                text = f"{escaped(name)}: {run.moved:,} moved, {run.matching - run.moved:,} refused"
                progress.update(line, description=text)
            return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _show_plan(plan: BulkPlan, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json(plan)
        return
    say(f"{plan.matching:,} match: {plan.moving:,} would move, {plan.matching - plan.moving:,} would be refused")
    _show_reasons(plan)


def _show(run: BulkRun, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json(run)
        return
    what = f"{run.action} {run.event}" if run.event else run.action
    say(f"{escaped(run.name)} ({what}, {run.machine}): {run.state}, {run.moved:,} of {run.matching:,} moved")
    _show_reasons(run)


def _show_reasons(counts: BulkPlan | BulkRun) -> None:
    for reason, count in sorted(counts.refused.items(), key=lambda each: -each[1]):
        say(f"  {count:,} refused: {escaped(reason)} (such as {escaped(', '.join(counts.examples[reason]))})")


def _cells(each: BulkRun) -> tuple[object, ...]:
    what = f"{each.action} {each.event}" if each.event else each.action
    refused = each.matching - each.moved
    since, updated = moment_text(each.since), moment_text(each.updated)
    return each.name, each.machine, what, each.state, each.moved, refused, each.by, since, updated
