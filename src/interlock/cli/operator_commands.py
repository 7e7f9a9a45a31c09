"""Commands for operators: `interlock compensations`, `dead-letters`, `breakers` and `prune`.

Listing changes nothing. On a store, retrying and resolving only write: a retry runs when the service opens the store.
A server continues immediately, and records the operator in its audit log. Only a server can hold a breaker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal

import msgspec
import typer

from interlock.cli.arguments import Failures, Limit, Output, OutputOfOne, seconds_of
from interlock.cli.console import (
    ListingFormat,
    ResultFormat,
    counted,
    escaped,
    moment_text,
    remark,
    say,
    show_json,
    show_listing,
    show_raw,
)
from interlock.cli.homes import CommandPlace, Home, KeyFile, Server, client_at, engine_at, place_of, store_at
from interlock.cli.load_machines import load_machine, load_machines
from interlock.cli.workflows import named_machines, read_row, refuse_unknown
from interlock.client.client import Client
from interlock.core.decide import suggestion
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.dependencies.breakers import HELD, NOTE, BreakerView, read_held
from interlock.engine.engine import Engine
from interlock.engine.retention import BATCH, BATCH_MAX, Pruner
from interlock.engine.views import Compensation, DeadLetter, compensations_of, letter_of
from interlock.errors import BadUsage, TargetNotFound
from interlock.store.protocol import Batch, Store

# --- Compensations and dead letters ----------------------------------------------------------------------------------

PAGE = 1_000

dead_letters = typer.Typer(
    help="What gave up and waits for a person: list it, have it tried again, or say that it is dealt with.",
    no_args_is_help=True,
)

LETTER_WORDS_MAX = 2

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MACHINE] LETTER",
        help="The id of a dead letter, or - for ids on stdin. With --home the machine comes first: MODULE[:ATTR].",
    ),
]


class LetterKind(StrEnum):
    """The kinds of dead letters."""

    STEP = "step"
    EFFECT = "effect"
    UNDO = "undo"


def compensations(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MACHINE",
            help="A machine, or several of them: MODULE[:ATTR]. With --server a machine's name, or nothing for all.",
        ),
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the undos that are owed: pending, being tried, or given up. Changes nothing."""
    place = place_of(home, server, key_file)

    async def read() -> list[Compensation]:
        if place.server is not None:
            names = named_machines(target)
            async with client_at(place) as client:
                return [owed for owed in await client.compensations() if not names or owed.machine in names]
        bound = [BoundMachine(machine) for machine in load_machines(_needed(target))]
        async with store_at(place.home) as store:
            return [owed for each in bound for owed in await _owed(store, each)]

    found = asyncio.run(read())
    show_listing(
        output,
        found,
        ("workflow", "machine", "step", "state", "attempts"),
        lambda each: (each.workflow, each.machine, each.step, each.state, each.attempts),
        ids=dict.fromkeys(each.workflow for each in found),
    )


@dead_letters.command(name="list", epilog="Example: interlock dead-letters list --kind undo --home lanes:///var/shop")
def list_letters(
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    kind: Annotated[LetterKind | None, typer.Option(help="Only steps, effects or undos.")] = None,
    limit: Limit = 1_000,
    output: Output = ListingFormat.TABLE,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the traceback of each below the table.")
    ] = False,
) -> None:
    """List the dead letters, oldest first. Changes nothing, and needs no machine."""
    place = place_of(home, server, key_file)

    async def read() -> list[DeadLetter]:
        if place.server is not None:
            async with client_at(place) as client:
                return await client.dead_letters(kind, limit=limit)
        async with store_at(place.home) as store:
            return [letter_of(each) for each in await store.letters(kind, limit=limit)]

    found = asyncio.run(read())
    show_listing(
        output,
        found,
        ("id", "kind", "workflow", "name", "attempts", "since", "error"),
        lambda each: (each.id, each.kind, each.workflow, each.name, each.attempts, moment_text(each.since), each.error),
        ids=(each.id for each in found),
    )
    for each in found if traceback and output is ListingFormat.TABLE else ():
        lines = [f"{each.id}:", *(each.traceback or "(no traceback)").split("\n")]
        show_raw("\n" + "\n".join(escaped(line) for line in lines))


@dead_letters.command(epilog="Example: interlock dead-letters retry shop.orders:order 0a1b2c --home lanes:///var/shop")
def retry(words: Words, *, home: Home = None, server: Server = None, key_file: KeyFile = None) -> None:
    """Have a dead letter tried again, with the same idempotency key and all its attempts.

    With --home it runs nothing: it is tried when the service opens the store. Exits with 4 when there is no such
    letter.
    """
    place = place_of(home, server, key_file)
    when = "when the service opens the store" if place.server is None else "by the server"

    async def act(engine: Engine | Client, each: str) -> str:
        await engine.retry_dead_letter(each)
        return f"{each} is tried again {when}."

    _rule(words, place, act)


@dead_letters.command(
    epilog='Example: interlock dead-letters resolve shop.orders:order 0a1b2c --note "refunded by hand"'
)
def resolve(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="What was done about it. A server writes it into its audit log.")
    ],
) -> None:
    """Say that a person has dealt with a dead letter: an unwinding goes on, a step's workflow waits for an event.

    With --home it runs nothing: an unwinding goes on when the service opens the store. Exits with 4 when there is no
    such letter.
    """

    async def act(engine: Engine | Client, each: str) -> str:
        await engine.resolve_dead_letter(each, note=note)
        return f"{each} is resolved: {note}"

    _rule(words, place_of(home, server, key_file), act)


def _rule(words: list[str], place: CommandPlace, act: Callable[[Engine | Client, str], Awaitable[str]]) -> None:
    target, letter = words[0] if len(words) > 1 else None, words[-1]
    if len(words) > LETTER_WORDS_MAX:
        raise BadUsage(
            f"{len(words)} words are given; one or two are needed: [MACHINE] LETTER.",
            why="One letter is ruled upon, or with - those whose ids are on stdin.",
            fix="Give many ids on stdin: interlock dead-letters list -o ids | interlock dead-letters retry MACHINE -",
        )
    failures = Failures()

    async def rule_all() -> list[str]:
        opened: AbstractAsyncContextManager[Engine | Client] = (
            client_at(place) if place.server is not None else engine_at(place.home, load_machines(_needed(target)))
        )
        async with opened as engine:
            return await failures.all(letter, partial(act, engine))

    for line in asyncio.run(rule_all()):
        say(escaped(line))
    raise typer.Exit(failures.code)


def _needed(target: str | None) -> str:
    if target is None:
        raise BadUsage(
            "no machine is given.",
            why="On a store itself, the machine's code says what is owed.",
            fix="Name it as MODULE:ATTR; or ask a server with --server, which has the code.",
        )
    return target


async def _owed(store: Store, bound: BoundMachine) -> list[Compensation]:
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


# --- Breakers --------------------------------------------------------------------------------------------------------
# A breaker lives in the memory of a process, so that opening one costs nothing; a store holds only a note of each
# change, and this command says so. An unreadable note is shown as unknown, so that the other breakers stay visible
# during an outage.

_HINT = (
    "This is what engines here last noted of their breakers. A process that runs is asked itself: through its server, "
    "or by engine.breakers() in its code."
)


class ShownBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as it was last noted: the note of an engine, with the name of the dependency."""

    dependency: str = ""
    state: Literal["closed", "open", "half_open", "unknown"]
    forced: Literal["open", "closed"] | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None
    reason: str = ""


class BreakerHold(StrEnum):
    """How a breaker is held."""

    OPEN = "open"
    CLOSED = "closed"
    AUTO = "auto"


def breakers(
    dependency: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only the breaker of this dependency.")
    ] = None,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    force: Annotated[
        BreakerHold | None,
        typer.Option(help="Hold the breaker of NAME open or closed; auto lets it decide again. With --server only."),
    ] = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the breakers of dependencies: as engines last noted them, or as a server has them; or hold one.

    Listing changes nothing, and needs no machine. Exits with 4 when nothing calls a dependency NAME.
    """
    place = place_of(home, server, key_file)
    _refuse_hold(place, dependency, force)

    async def read() -> list[ShownBreaker]:
        if place.server is None:
            async with store_at(place.home) as store:
                notes = await store.notes()
            names = [name.removeprefix(NOTE) for name in sorted(notes) if name.startswith(NOTE)]
            return [_breaker_from_note(name, notes[NOTE + name], notes.get(HELD + name)) for name in names]
        async with client_at(place) as client:
            if force is not None and dependency is not None:
                _select_breaker([_breaker_from_server(each) for each in await client.breakers()], dependency)
                await client.force_breaker(dependency, force.value)
            return [_breaker_from_server(each) for each in await client.breakers()]

    found = asyncio.run(read())
    if dependency is not None:
        found = _select_breaker(found, dependency)
    show_listing(
        output,
        found,
        ("dependency", "state", "forced", "since", "reason"),
        lambda each: (each.dependency, each.state, each.forced or "", moment_text(each.since), each.reason),
        ids=(each.dependency for each in found),
    )
    if output is ListingFormat.TABLE and place.server is None:
        remark(_HINT)


def _refuse_hold(place: CommandPlace, dependency: str | None, force: BreakerHold | None) -> None:
    if force is None:
        return
    if dependency is None:
        raise BadUsage(
            "no dependency is named.",
            why="One breaker is held at a time.",
            fix=f"Name it: interlock breakers gateway --force {force} --server URL.",
        )
    if place.server is None:
        raise BadUsage(
            "a breaker cannot be held through --home.",
            why="Breakers live in the processes that call the dependency, and a store has only notes of them.",
            fix="Ask the server: --server http://127.0.0.1:8080; or call engine.force_breaker in the program.",
        )


def _select_breaker(found: list[ShownBreaker], dependency: str) -> list[ShownBreaker]:
    names = [each.dependency for each in found]
    if dependency not in names:
        raise TargetNotFound(
            f"there is no breaker of {dependency!r:.100}; there are {', '.join(names) or 'none'}."
            f"{suggestion(dependency, names)}",
            why="A breaker is there once something calls its dependency; in a store, once it has changed.",
            fix="Use one of those names.",
        )
    return [each for each in found if each.dependency == dependency]


def _breaker_from_note(dependency: str, text: str, hold: str | None) -> ShownBreaker:
    try:
        note = msgspec.json.decode(text, type=ShownBreaker)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ShownBreaker(
            dependency=dependency, state="unknown", since=None, reason=f"its note cannot be read: {text}"
        )
    forced = note.forced if hold is None else read_held(hold)
    return msgspec.structs.replace(note, dependency=dependency, forced=forced)


def _breaker_from_server(view: BreakerView) -> ShownBreaker:
    return ShownBreaker(
        dependency=view.name, state=view.state, forced=view.forced, since=view.since, reason=view.reason
    )


# --- `interlock prune` -----------------------------------------------------------------------------------------------
# It needs no code: the store has the descriptions of its machines, which name the final states. On PostgreSQL it
# runs beside the service. A lane has one owner, so there the server prunes (`--server`), or the service is stopped.

PROGRESS_BATCHES = 10
"""The number of batches per line of progress."""


def prune(
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            "--older-than-s",
            metavar="TIME",
            help="Those that ended so long ago: seconds, or 90s, 15m, 2h, 30d.",
        ),
    ],
    machine: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="Only of this machine: its name, or MODULE:ATTR.")
    ] = None,
    history_only: Annotated[
        bool, typer.Option("--history-only", help="Keep the workflows, and remove only their history.")
    ] = False,
    with_owed: Annotated[
        bool, typer.Option("--with-owed", help="Also those that owe an effect or have a dead letter, with these.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go, and remove nothing.")] = False,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=BATCH_MAX, help="Workflows in one transaction.")
    ] = BATCH,
    pause_ms: Annotated[
        int, typer.Option(metavar="N", min=0, max=60_000, help="Wait so long between two transactions.")
    ] = 0,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Remove workflows that ended some time ago: the workflow, its history, its effects and letters.

    Only final workflows go; resting ones never. May be stopped with Ctrl-C at any time, and run again.
    Exits with 5 when the service owns the store, and names it. A server prunes all of its machines, bit by bit; its key
    needs the scope admin.
    """
    older_than_s = seconds_of(older_than)
    place = place_of(home, server, key_file)
    if place.server is not None and machine is not None:
        raise BadUsage(
            "--machine is given together with a server.",
            why="A server prunes all of the machines that it serves.",
            fix="Leave --machine out, or prune the store itself with --home.",
        )
    removal = _Removal(older_than_s, history_only, with_owed, dry_run, batch, pause_ms / 1_000)
    try:
        asyncio.run(removal.run(machine, place.home) if place.server is None else removal.run_on_server(place))
    except KeyboardInterrupt:
        if place.server is None:
            remark(f"{removal.text()} before it was stopped.")
        raise
    if output is ResultFormat.JSON:
        show_json({"workflows": removal.workflows, "events": removal.events, "dry_run": dry_run})
    else:
        say(f"{removal.text()}.")


@dataclass(slots=True)
class _Removal:
    """The options of `prune`, and the totals of what was removed so far."""

    older_than_s: float
    history_only: bool
    with_owed: bool
    dry_run: bool
    batch: int
    pause_s: float
    workflows: int = 0
    events: int = 0
    batches: int = 0

    async def run(self, machine: str | None, home: str) -> None:
        described = [] if machine is None or ":" not in machine else [load_machine(machine).describe()]
        name = described[0].name if described else machine
        async with store_at(home) as store:
            if name is not None and not described:
                await refuse_unknown(store, name)
            pruner = Pruner(
                store,
                older_than_s=self.older_than_s,
                machines=None if name is None else [name],
                described=described,
                history_only=self.history_only,
                owing=self.with_owed,
                dry_run=self.dry_run,
                batch=self.batch,
                pause_s=self.pause_s,
            )
            await pruner.run(self._add)

    async def run_on_server(self, place: CommandPlace) -> None:
        async with client_at(place) as client:
            done = await client.prune(
                older_than_s=self.older_than_s,
                history_only=self.history_only,
                with_owed=self.with_owed,
                dry_run=self.dry_run,
                batch=self.batch,
                pause_s=self.pause_s,
            )
        self.workflows, self.events = done.workflows, done.events

    def _add(self, batch: Batch) -> None:
        self.workflows += len(batch.workflows)
        self.events += batch.events
        self.batches += 1
        if self.batches % PROGRESS_BATCHES == 0:
            remark(f"{self.text()} so far")

    def text(self) -> str:
        rows, workflows = counted(self.events, "row") + " of history", counted(self.workflows, "workflow")
        what = f"{rows} of {workflows}" if self.history_only else f"{workflows} and {rows}"
        return f"{what} would be removed" if self.dry_run else f"{what} removed"
