"""`interlock tasks` and `interlock task`: list the tasks that wait for a person, show one, claim and release them.

On a store the machine's code says which states wait for a person, so MODULE:ATTR comes first. A server has the code,
and records the claim with the client's key in its audit log. A decision is an event: `interlock send`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated

import msgspec
import typer

from interlock.cli.command_place import (
    CommandPlace,
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
from interlock.cli.console import ListingFormat, moment_text, remark, show_json, show_listing
from interlock.cli.load_machines import load_machines
from interlock.cli.operator_commands import audited
from interlock.cli.parse_arguments import By, Failures, Limit, ListingGroup, Output, refuse_invalid_payloads
from interlock.cli.workflow_commands import named_machines, read_row, split_words
from interlock.client.client import Client
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow
from interlock.engine.engine import Engine
from interlock.engine.operators.tasks import Task, TaskFilter, TaskPage, parse_task_id, read_tasks
from interlock.store.records import Row

task = typer.Typer(
    cls=ListingGroup,
    help="Claim a task for yourself, release it, or show it. List them with `interlock tasks`.",
)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MACHINE] TASK",
        help="The id of a task, or - for ids on stdin. With --home the machine comes first: MODULE[:ATTR].",
    ),
]


def tasks(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MACHINE",
            help="A machine, or several of them: MODULE[:ATTR]. With --server a machine's name, or nothing for all.",
        ),
    ] = None,
    *,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="Only tasks of this role.")] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks that this person has claimed.")] = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Where the page before has ended.")] = None,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the tasks that wait for a person, the most urgent first, page by page. Changes nothing.

    With --by a page may be short, or empty, although there are more.
    """
    place = place_of(home, server, key_file)

    async def read() -> TaskPage:
        if place.server is not None:
            # The server takes one machine, and has the code.
            machine = next(iter(named_machines(target)), None)
            async with client_at(place) as client:
                return await client.tasks(role=role, by=by, machine=machine, limit=limit, cursor=cursor)
        if target is None:
            raise missing_word("MACHINE")
        machines = {each.name: BoundMachine(each) for each in load_machines(target)}

        def readable(_: BoundMachine, rows: Sequence[Row]) -> list[LoadedWorkflow]:
            return [read_row(row, machines) for row in rows]

        async with store_at(place.home) as store:
            chosen = TaskFilter(role, by)
            return await read_tasks(store, machines.values(), readable, chosen, limit=limit, cursor=cursor)

    with refuse_invalid_payloads():
        page = asyncio.run(read())
    _show(output, page.items, page.cursor)


@task.command(epilog="Example: interlock task show o-1@3 --server http://127.0.0.1:8080")
def show(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Show a task. One that has ended is refused with the decision: who, how and when."""
    place = place_of(home, server, key_file)
    _each(words, place, output, lambda engine, each: engine.task(each))


@task.command(epilog="Example: interlock task claim o-1@3 --by ada --server http://127.0.0.1:8080")
def claim(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Claim a task, so that others see who works on it. Exits with 3 when another person has claimed it.

    It is not a decision, and refuses none. Exits with 3 too when the task has ended, and says how it was decided.
    """
    place = place_of(home, server, key_file)

    async def act(engine: Engine | Client, each: str) -> Task:
        who = actor_at(place, by)
        async with audited(place, "task.claim", each, before=None, after={"claimed_by": who}, by=by):
            return await engine.claim_task(each, by=who or "")

    _each(words, place, output, act)


@task.command(epilog="Example: interlock task release o-1@3 --by ada --server http://127.0.0.1:8080")
def release(
    words: Words,
    *,
    force: Annotated[bool, typer.Option("--force", help="Release it also from another person.")] = False,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Release a task that you have claimed. Exits with 3 when another person has, unless with --force."""
    place = place_of(home, server, key_file)

    async def act(engine: Engine | Client, each: str) -> Task:
        who = actor_at(place, by)
        async with audited(place, "task.release", each, before=None, after={"force": force}, by=by):
            return await engine.release_task(each, by=who or "", force=force)

    _each(words, place, output, act)


def _each(
    words: list[str],
    place: CommandPlace,
    output: ListingFormat,
    act: Callable[[Engine | Client, str], Awaitable[Task]],
) -> None:
    """Act on each task, and show those that could be acted on."""
    target, argument = split_words(words)
    failures = Failures()

    async def act_on(engine: Engine | Client, each: str) -> Task:
        parse_task_id(each)
        return await act(engine, each)

    async def act_on_all() -> list[Task]:
        opened: AbstractAsyncContextManager[Engine | Client]
        if place.server is not None:
            opened = client_at(place)
        elif target is None:
            raise missing_word("MACHINE TASK")
        else:
            opened = engine_at(place.home, load_machines(target))
        async with opened as engine:
            return await failures.all(argument, partial(act_on, engine))

    found = asyncio.run(act_on_all())
    if found or output is not ListingFormat.TABLE:
        _show(output, found, None, paged=False)
    raise typer.Exit(failures.code)


def _show(output: ListingFormat, found: Sequence[Task], cursor: str | None, *, paged: bool = True) -> None:
    if output is ListingFormat.JSON and paged:
        show_json({"items": [msgspec.structs.asdict(each) for each in found], "cursor": cursor})
        return
    heading = ("id", "role", "title", "due", "claimed by", "events")
    show_listing(output, found, heading, _cells, ids=(each.id for each in found))
    if cursor is not None:
        remark(f"There are more: --cursor {cursor}")


def _cells(each: Task) -> tuple[object, ...]:
    due = "" if each.due_at is None else moment_text(each.due_at) + (" (overdue)" if each.overdue else "")
    return each.id, each.role, each.title, due, each.claimed_by or "", " ".join(each.events)
