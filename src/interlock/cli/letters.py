"""`interlock compensations` and `interlock dead-letters`: what is owed to the outside, and what needs a person.

Listing changes nothing. Retrying and resolving write, and run nothing: what is to be tried again begins when the
service opens the store.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from interlock.cli.check import Listing
from interlock.cli.doctor import Diagnosis
from interlock.cli.given import ids_of
from interlock.cli.homes import Home, Machines, engine_at, several_machines, store_at
from interlock.cli.looking import Limit, Output, OutputOfOne, read_row
from interlock.cli.many import Failures
from interlock.cli.output import escaped, stdout
from interlock.cli.shown import moment_text, show_ids, show_json, show_table
from interlock.runtime.bound import Bound
from interlock.runtime.engine import Engine
from interlock.runtime.views import Compensation, DeadLetter, compensations_of, letter_of
from interlock.store.protocol import Store

PAGE = 1_000

dead_letters = typer.Typer(
    help="What gave up and waits for a person: list it, have it tried again, or say that it is dealt with.",
    no_args_is_help=True,
)

Letters = Annotated[str, typer.Argument(metavar="LETTER", help="The id of a dead letter, or - for ids on stdin.")]


class Kind(StrEnum):
    """What can give up."""

    STEP = "step"
    EFFECT = "effect"
    UNDO = "undo"


def compensations(target: Machines, *, home: Home, output: OutputOfOne = Diagnosis.TABLE) -> None:
    """List the undos that are owed: pending, being tried, or given up. Changes nothing."""
    bound = [Bound(machine) for machine in several_machines(target)]

    async def run() -> list[Compensation]:
        async with store_at(home) as store:
            return [owed for each in bound for owed in await _owed(store, each)]

    found = asyncio.run(run())
    if output is Diagnosis.JSON:
        show_json(found)
    else:
        rows = [(each.workflow, each.machine, each.step, each.state, each.attempts) for each in found]
        show_table(("workflow", "machine", "step", "state", "attempts"), rows)


@dead_letters.command(name="list", epilog="Example: interlock dead-letters list --kind undo --home lanes:///var/shop")
def list_letters(
    *,
    home: Home,
    kind: Annotated[Kind | None, typer.Option(help="Only steps, effects or undos.")] = None,
    limit: Limit = 1_000,
    output: Output = Listing.TABLE,
) -> None:
    """List the dead letters, oldest first. Changes nothing, and needs no machine."""

    async def run() -> list[DeadLetter]:
        async with store_at(home) as store:
            return [letter_of(each) for each in await store.letters(kind, limit=limit)]

    found = asyncio.run(run())
    match output:
        case Listing.TABLE:
            rows = [
                (each.id, each.kind, each.workflow, each.name, each.attempts, moment_text(each.since), each.error)
                for each in found
            ]
            show_table(("id", "kind", "workflow", "name", "attempts", "since", "error"), rows)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.id for each in found])


@dead_letters.command(epilog="Example: interlock dead-letters retry shop.orders:order 0a1b2c --home lanes:///var/shop")
def retry(target: Machines, letter: Letters, *, home: Home) -> None:
    """Have a dead letter tried again, with the same idempotency key and all its attempts.

    It runs nothing: it is tried when the service opens the store. Exits with 4 when there is no such letter.
    """

    async def act(engine: Engine, each: str) -> str:
        await engine.retry_dead_letter(each)
        return f"{each} is tried again when the service opens the store."

    _rule(target, letter, home, act)


@dead_letters.command(
    epilog='Example: interlock dead-letters resolve shop.orders:order 0a1b2c --note "refunded by hand"'
)
def resolve(
    target: Machines,
    letter: Letters,
    *,
    home: Home,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What was done about it. It is printed, not stored.")],
) -> None:
    """Say that a person has dealt with a dead letter: an unwinding goes on, a step's workflow waits for an event.

    It runs nothing: an unwinding goes on when the service opens the store. Exits with 4 when there is no such letter.
    """

    async def act(engine: Engine, each: str) -> str:
        await engine.resolve_dead_letter(each, note=note)
        return f"{each} is resolved: {note}"

    _rule(target, letter, home, act)


def _rule(target: str, letter: str, home: str, act: Callable[[Engine, str], Awaitable[str]]) -> None:
    machines = several_machines(target)
    failures = Failures()

    async def run() -> list[str]:
        done: list[str] = []
        async with engine_at(home, machines) as engine:
            for ids in ids_of(letter):
                done += await failures.each(ids, partial(act, engine))
        return done

    for told in asyncio.run(run()):
        stdout().print(escaped(told), soft_wrap=True)
    raise typer.Exit(failures.code)


async def _owed(store: Store, bound: Bound) -> list[Compensation]:
    found: list[Compensation] = []
    for stored, node in bound.stored.items():
        cursor: str | None = None
        while node.unwinds_to is not None:
            page = await store.find(bound.name, stored, after=cursor, limit=PAGE)
            found += [owed for row in page.rows for owed in compensations_of(read_row(row, {bound.name: bound}))]
            cursor = page.cursor
            if cursor is None:
                break
    return found
