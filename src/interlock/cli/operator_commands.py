"""Commands for operators: `interlock compensations`, `dead-letters`, `breakers`, `prune`, `keys` and `audit`.

Listing changes nothing. On a store, retrying and resolving only write: a retry runs when the service opens the store.
A server continues immediately, and records the operator in its audit log. Only a server can hold a breaker.

Sections: compensations and dead letters, breakers, pauses, prune, API keys and the audit log.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import partial
from typing import Annotated, Literal, TypeVar

import msgspec
import typer

from interlock.cli.command_place import (
    CommandPlace,
    Home,
    KeyFile,
    Server,
    StoreHome,
    actor_at,
    client_at,
    engine_at,
    login_name,
    missing_word,
    place_of,
    store_at,
)
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
from interlock.cli.load_machines import AnyMachine, load_machine, load_machines
from interlock.cli.parse_arguments import (
    By,
    Failures,
    Limit,
    ListingGroup,
    Output,
    OutputOfOne,
    ids_of,
    seconds_of,
    state_of,
)
from interlock.cli.workflow_commands import named_machines, read_row, refuse_unknown
from interlock.client.client import Client
from interlock.clock import SystemClock, SystemSecrets
from interlock.core.decide import suggestion
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.dependencies.breakers import HELD, NOTE, BreakerView, read_held
from interlock.engine.engine import Engine
from interlock.engine.operators.retention import BATCH, BATCH_MAX, Pruner
from interlock.engine.pauses import PauseView, read_pauses, view_of_pause
from interlock.engine.views import Compensation, DeadLetter, compensations_of, letter_of
from interlock.errors import BadUsage, TargetNotFound
from interlock.server.security.guard import ENTRIES_READ_MAX, AuditEntry, Identity
from interlock.server.security.keys import LADDER, CreatedKey, KeyRecord, Scope, checked_limits, make_key, parse_key
from interlock.server.security.stores import Security, security_at
from interlock.store.protocol import Batch, Store

ResultT = TypeVar("ResultT")

# --- Compensations and dead letters ----------------------------------------------------------------------------------

PAGE = 1_000


dead_letters = typer.Typer(
    cls=ListingGroup,
    help="List dead letters: steps, undos and effects that gave up. Retry or resolve them.",
)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MACHINE] LETTER",
        help="The ids of dead letters, or - for ids on stdin. With --home the machine comes first: MODULE[:ATTR].",
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
def retry(words: Words, *, home: Home = None, server: Server = None, key_file: KeyFile = None, by: By = None) -> None:
    """Have a dead letter tried again, with the same idempotency key and all its attempts.

    With --home it runs nothing: it is tried when the service opens the store. Exits with 4 when there is no such
    letter.
    """
    place = place_of(home, server, key_file)
    when = "when the service opens the store" if place.server is None else "by the server"

    async def act(engine: Engine | Client, each: str) -> str:
        async with audited(place, "dead_letter.retry", each, before="dead", after="retried", by=by):
            await engine.retry_dead_letter(each, by=actor_at(place, by))
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
    by: By = None,
) -> None:
    """Say that a person has dealt with a dead letter: an unwinding goes on, a step's workflow waits for an event.

    With --home it runs nothing: an unwinding goes on when the service opens the store. Exits with 4 when there is no
    such letter.
    """
    place = place_of(home, server, key_file)

    async def act(engine: Engine | Client, each: str) -> str:
        async with audited(place, "dead_letter.resolve", each, before="dead", after={"resolved": note}, by=by):
            await engine.resolve_dead_letter(each, note=note or "", by=actor_at(place, by))
        return f"{each} is resolved: {note}"

    _rule(words, place, act)


@asynccontextmanager
async def audited(
    place: CommandPlace, action: str, target: str, *, before: object, after: object, by: str | None
) -> AsyncGenerator[None]:
    """Write an action on a store to the audit log of its home, before the block; a server writes its own (F1)."""
    if place.server is not None:
        yield
        return
    security = security_at(place.home, clock=SystemClock())
    try:
        async with security.audit.action(_me(), action, target, before=before, after=after, by=by or ""):
            yield
    finally:
        await security.close()


def _rule(words: list[str], place: CommandPlace, act: Callable[[Engine | Client, str], Awaitable[str]]) -> None:
    # Ids of letters have hyphens and modules have none: `… -o ids | xargs interlock dead-letters retry` has no machine.
    target = words[0] if len(words) > 1 and "-" not in words[0] else None
    letters = words if target is None else words[1:]
    failures = Failures()

    async def rule_all() -> list[str]:
        opened: AbstractAsyncContextManager[Engine | Client] = (
            client_at(place) if place.server is not None else engine_at(place.home, load_machines(_needed(target)))
        )
        async with opened as engine:
            return [line for letter in letters for line in await failures.all(letter, partial(act, engine))]

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
    "These are the last changes that engines stored here. The breakers of a running process: ask its server, or call "
    "engine.breakers() in its code."
)


class ShownBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as it was last stored: the note of an engine, with the name of the dependency."""

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
    by: By = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """List the circuit breakers of dependencies, or hold one open or closed.

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
                await client.force_breaker(dependency, force.value, by=by)
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


# --- Pauses ----------------------------------------------------------------------------------------------------------

Paused = Annotated[
    str | None,
    typer.Argument(metavar="MACHINE", help="MODULE:ATTR; or with --server a machine's name. Needed for --state."),
]
PausedState = Annotated[str | None, typer.Option(metavar="STATE", help="Only this state of the machine.")]
PausedId = Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this workflow.")]
PauseNote = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept in the history of the pause.")]


def pause(
    target: Paused = None,
    *,
    state: PausedState = None,
    workflow: PausedId = None,
    note: PauseNote = None,
    by: By = None,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Pause a machine, a state or a workflow: nothing begins there. Without one, list the pauses.

    No step, undo or effect begins and no timer fires there. Events apply, and running attempts go on.
    """
    place = place_of(home, server, key_file)

    who = actor_at(place, by) or ""

    async def call(engine: Engine | Client, scope: _PauseTarget) -> list[PauseView]:
        workflow = scope.workflow
        if isinstance(engine, Client):
            return [await engine.pause(id=workflow, machine=scope.name, state=scope.state, by=who, note=note or "")]
        return [await engine.pause(id=workflow, machine=scope.machine, state=scope.member, by=who, note=note or "")]

    named = target is not None or workflow is not None or state is not None
    found = asyncio.run(_with_pauses(place, target, state, workflow, call) if named else _list_pauses(place))
    show_listing(
        output,
        found,
        ("machine", "state", "workflow", "since", "by", "note"),
        _pause_cells,
        ids=(each.workflow for each in found if each.workflow is not None),
    )


def resume(
    target: Paused = None,
    *,
    state: PausedState = None,
    workflow: PausedId = None,
    note: PauseNote = None,
    by: By = None,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
) -> None:
    """Resume a machine, a state or a workflow that `interlock pause` has paused.

    Exits with 4 when it was not paused.
    """
    place = place_of(home, server, key_file)

    who = actor_at(place, by) or ""

    async def call(engine: Engine | Client, scope: _PauseTarget) -> bool:
        workflow = scope.workflow
        if isinstance(engine, Client):
            return await engine.resume(id=workflow, machine=scope.name, state=scope.state, by=who, note=note or "")
        return await engine.resume(id=workflow, machine=scope.machine, state=scope.member, by=who, note=note or "")

    if not asyncio.run(_with_pauses(place, target, state, workflow, call)):
        raise TargetNotFound(
            "nothing is paused there.",
            why="It was resumed before, or another machine, state or workflow is paused.",
            fix="List what is paused: interlock pause.",
        )
    say("Resumed.")


async def _list_pauses(place: CommandPlace) -> list[PauseView]:
    if place.server is not None:
        async with client_at(place) as client:
            return await client.pauses()
    async with store_at(place.home) as store:
        return [view_of_pause(pause) for pause in await read_pauses(store)]


def _pause_cells(each: PauseView) -> Sequence[object]:
    return each.machine or "", each.state or "", each.workflow or "", moment_text(each.since), each.by, each.note


@dataclass(frozen=True, slots=True)
class _PauseTarget:
    """What a pause concerns: with the machine's code for a store, by names for a server."""

    workflow: str | None
    name: str | None = None
    state: str | None = None
    machine: AnyMachine | None = None
    member: Enum | None = None


async def _with_pauses(
    place: CommandPlace,
    target: str | None,
    state: str | None,
    workflow: str | None,
    call: Callable[[Engine | Client, _PauseTarget], Awaitable[ResultT]],
) -> ResultT:
    _refuse_pause(target, state, workflow)
    if place.server is not None:
        name = target if target is None or ":" not in target else load_machine(target).name
        async with client_at(place) as client:
            return await call(client, _PauseTarget(workflow, name, state))
    if target is None:
        raise missing_word("MACHINE --id ID")
    machine = load_machine(target)
    member = None if state is None else state_of(BoundMachine(machine), state)
    scope = _PauseTarget(workflow) if workflow is not None else _PauseTarget(None, None, None, machine, member)
    async with engine_at(place.home, [machine]) as engine:
        return await call(engine, scope)


def _refuse_pause(target: str | None, state: str | None, workflow: str | None) -> None:
    if state is not None and workflow is not None:
        raise BadUsage(
            "--state and --id are both given.",
            why="A pause is of one workflow in all its states, or of all workflows in one state.",
            fix="Leave one of them out.",
        )
    if state is not None and target is None:
        raise BadUsage(
            f"--state {state} is given without a machine.",
            why="A state is one of a machine.",
            fix=f"Name the machine: interlock pause MACHINE --state {state}.",
        )


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
    by: By = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go, and remove nothing.")] = False,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=BATCH_MAX, help="Workflows in one transaction.")
    ] = BATCH,
    pause_ms: Annotated[
        int, typer.Option(metavar="N", min=0, max=60_000, help="Wait so long between two transactions.")
    ] = 0,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Remove workflows that ended some time ago, with their history, effects and dead letters.

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
        asyncio.run(removal.run(machine, place, by) if place.server is None else removal.run_on_server(place, by))
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

    async def run(self, machine: str | None, place: CommandPlace, by: str | None) -> None:
        described = [] if machine is None or ":" not in machine else [load_machine(machine).describe()]
        name = described[0].name if described else machine
        async with store_at(place.home) as store:
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
            if self.dry_run:
                await pruner.run(self._add)
                return
            what = {"older_than_s": self.older_than_s, "history_only": self.history_only, "with_owed": self.with_owed}
            async with audited(place, "workflows.prune", name or "workflows", before=None, after=what, by=by):
                await pruner.run(self._add)

    async def run_on_server(self, place: CommandPlace, by: str | None) -> None:
        async with client_at(place) as client:
            done = await client.prune(
                older_than_s=self.older_than_s,
                history_only=self.history_only,
                with_owed=self.with_owed,
                dry_run=self.dry_run,
                batch=self.batch,
                pause_s=self.pause_s,
                by=by,
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


# --- API keys and the audit log --------------------------------------------------------------------------------------
# Keys live beside the workflows, not in their database, so these commands work while a server runs, and it reloads the
# keys within a second. The key itself is printed once, on stdout alone, and is stored nowhere.

EXPIRES_S_MAX = 10 * 366 * 86_400
"""Ten years; a longer lifetime is refused."""


keys = typer.Typer(
    cls=ListingGroup,
    help="List the API keys of a server, make one or revoke one. A running server applies it within a second.",
)


class ShownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key without anything secret."""

    id: str
    name: str
    state: str
    scopes: tuple[str, ...]
    machines: tuple[str, ...]
    prefixes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used: datetime | None


@keys.command(epilog="Example: interlock keys create --scope send --machine order --home lanes:///var/shop -o json")
def create(
    *,
    home: StoreHome,
    scope: Annotated[
        list[Scope], typer.Option(help="What the key may do; each scope includes those before it. May be repeated.")
    ],
    machine: Annotated[
        list[str] | None, typer.Option(metavar="M", help="Only workflows of this machine. May be repeated.")
    ] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Only workflows whose id begins so. May be repeated.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="TEXT", help="Whose key it is, for listings and the audit log.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="The key ends after so long: 12h, 90d. Without it: never.")
    ] = None,
    output: OutputOfOne = ResultFormat.TABLE,
    by: By = None,
) -> None:
    """Make an API key and print it, once: it cannot be shown again.

    From the first key of a home on, its server requires a key of every client.
    """
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)
    limits = checked_limits(tuple(machine or ()), tuple(prefix or ()))
    expires_at = None if expires is None else now + _span(expires)
    created = make_key(SystemSecrets(), name=name, scopes=tuple(scope), limits=limits, now=now, expires_at=expires_at)

    async def act(security: Security) -> None:
        record = created.record
        after = _key_view(record, now)
        async with security.audit.action(_me(), "keys.create", record.id, before=None, after=after, by=by or ""):
            await security.keys.add(record)

    _run(home, act)
    _show_created(created, output)


@keys.command(name="list", epilog="Example: interlock keys list --home lanes:///var/shop")
def list_keys(*, home: StoreHome, output: Output = ListingFormat.TABLE) -> None:
    """List the API keys, the oldest first: never the keys themselves. Changes nothing."""
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)

    async def act(security: Security) -> list[ShownKey]:
        return [_key_view(record, now) for record in await security.keys.load()]

    found = _run(home, act)
    show_listing(
        output,
        found,
        ("id", "state", "scopes", "limits", "expires", "used", "name"),
        lambda each: (
            each.id,
            each.state,
            ",".join(each.scopes),
            " ".join((*each.machines, *(f"{prefix}…" for prefix in each.prefixes))),
            moment_text(each.expires_at),
            "" if each.last_used is None else f"{each.last_used:%Y-%m-%d %H}h",
            each.name,
        ),
        ids=(each.id for each in found),
    )


@keys.command(epilog="Example: interlock keys revoke mfzwk3tjnrsgc4tu --home lanes:///var/shop")
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or - for ids on stdin.")],
    *,
    home: StoreHome,
    by: By = None,
) -> None:
    """Revoke an API key: every server of the home refuses it within a second, for good.

    Exits with 4 when there is no such key. Revoking it again changes nothing.
    """
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)
    failures = Failures()

    async def act(security: Security) -> list[str]:
        async def revoked(argument: str) -> str:
            # The argument may be a whole key, one that has leaked for example; only its id is ever shown.
            whole = parse_key(argument)
            key_id = argument if whole is None else whole.id
            before, after = await security.keys.revoke(key_id, now)
            # Afterwards, unlike other actions: a key that has leaked is revoked also when the log cannot be written.
            views = _key_view(before, now), _key_view(after, now)
            await security.audit.record(_me(), "keys.revoke", key_id, *views, by=by or "")
            return f"{key_id} is revoked."

        return [line for ids in ids_of(key) for line in await failures.each(ids, revoked)]

    for line in _run(home, act):
        say(escaped(line))
    raise typer.Exit(failures.code)


def audit(
    *,
    home: StoreHome,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=ENTRIES_READ_MAX, help="The maximum number of entries.")
    ] = 100,
    output: Annotated[
        ListingFormat, typer.Option("--output", "-o", help="A table, JSON, or only what they did it to.")
    ] = ListingFormat.TABLE,
) -> None:
    """List what operators did: who, what and when, the newest first. Changes nothing.

    The JSON also has the values before and after.
    """

    async def act(security: Security) -> list[AuditEntry]:
        return await security.audit.read(limit)

    entries = _run(home, act)
    show_listing(
        output,
        entries,
        ("time", "key", "who", "action", "target", "result"),
        lambda each: (moment_text(each.at), each.key or "-", each.who, each.action, each.target, each.failed or "ok"),
        ids=dict.fromkeys(each.target for each in entries),
    )


def _run(home: str, act: Callable[[Security], Awaitable[ResultT]]) -> ResultT:
    if home == "memory:":
        raise BadUsage(
            "keys in memory cannot be reached from the command line.",
            why="They exist only inside the program that opened them.",
            fix="Name a home on a disk, in a bucket or in PostgreSQL: lanes:///var/shop.",
        )

    async def run() -> ResultT:
        security = security_at(home, clock=SystemClock())
        try:
            return await act(security)
        finally:
            await security.close()

    return asyncio.run(run())


def _show_created(created: CreatedKey, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json({"id": created.record.id, "key": created.key.reveal()})
        return
    # As it is, on a line of its own: for a person to copy, or for a script to read.
    show_raw(created.key.reveal())
    scopes = ", ".join(created.record.scopes)
    remark(
        f"Key {created.record.id} may {scopes}. This is the only time that it is shown; "
        "send it as `Authorization: Bearer …`."
    )


def _key_view(record: KeyRecord, now: datetime) -> ShownKey:
    return ShownKey(
        id=record.id,
        name=record.name,
        state=record.state(now),
        scopes=tuple(str(scope) for scope in LADDER if scope in record.scopes),
        machines=record.limits.machines,
        prefixes=record.limits.prefixes,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used=record.last_used,
    )


def _me() -> Identity:
    return Identity("", f"{login_name()}@{socket.gethostname()} (command line)", frozenset(Scope))


def _span(text: str) -> timedelta:
    seconds = seconds_of(text)
    if not 0 < seconds <= EXPIRES_S_MAX:
        raise BadUsage(f"{text!r} is not a time after which a key can end.", fix="Write 12h, 90d, at most ten years.")
    return timedelta(seconds=seconds)
