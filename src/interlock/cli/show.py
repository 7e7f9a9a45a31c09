"""Commands that read workflows: `interlock show`, `history`, `find`, `stalled` and `allowed`. They change nothing.

They read the store itself, or ask a server. On a store, with the machine, contexts are decoded by its types, and the
output includes what a workflow waits for. `show`, `history` and `find` also work without the code, and then show the
stored values. `allowed` asks the guards: on a store the machine decides here, a server decides the same.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from enum import Enum
from typing import Annotated

import msgspec
import typer

from interlock.cli.arguments import (
    Failures,
    complete_event,
    complete_state,
    event_of,
    given_here,
    ids_of,
    seconds_of,
    state_of,
)
from interlock.cli.doctor import Diagnosis
from interlock.cli.homes import (
    AnyMachine,
    Home,
    KeyFile,
    Machines,
    OneMachine,
    Server,
    client_at,
    missing_word,
    one_machine,
    place_of,
    several_machines,
    store_at,
)
from interlock.cli.machines import Listing
from interlock.cli.output import Exit, stderr
from interlock.cli.views import (
    PAGE,
    Served,
    ShownRow,
    ShownWorkflow,
    list_history,
    list_workflows,
    named,
    one_named,
    show_ids,
    show_json,
    show_table,
    show_workflow,
    shown_history,
    shown_raw,
    shown_raw_history,
    shown_view,
)
from interlock.core.decide import allowed as allowed_here
from interlock.core.decide import suggestion
from interlock.core.values import Allowed
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, state_text
from interlock.engine.definitions import PREFIX
from interlock.engine.path.commands import check_id, no_workflow
from interlock.engine.path.pipeline import unknown_machine
from interlock.engine.views import history_row, view_of
from interlock.errors import BadUsage, CorruptionError, InvalidPayload, TargetNotFound
from interlock.store.protocol import Store
from interlock.store.values import Row

# --- `interlock show`, `history`, `find` and `stalled` ---------------------------------------------------------------

LIMIT_MAX = 10_000

Output = Annotated[Listing, typer.Option("--output", "-o", help="A table, JSON, or only the ids.")]
OutputOfOne = Annotated[Diagnosis, typer.Option("--output", "-o", help="Text for people, or JSON.")]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MACHINE] ID",
        help="The id of a workflow, or - for ids on stdin; MODULE[:ATTR] before it, or with --server a machine's name. "
        "Without the machine it is shown as it is stored.",
    ),
]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=LIMIT_MAX, help="The maximum number of results.")]


def show(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = Listing.TABLE,
) -> None:
    """Show a workflow: its state, its context, its version, and what it waits for. Changes nothing.

    Exits with 4 when there is no such workflow, and with 5 when the service owns the store, or is not there.
    """
    place = place_of(home, server, key_file)
    target, argument = _split_words(words)
    failures = Failures()

    async def here() -> list[ShownWorkflow]:
        machines = _bound_machines(target)
        async with store_at(place.home) as store:
            return [_workflow_of(row, machines) async for row in rows_of(store, argument, failures)]

    async def there() -> list[ShownWorkflow]:
        async with client_at(place) as client:
            return await failures.all(argument, Served(client, named(target)).get)

    found = asyncio.run(there() if place.server is not None else here())
    if argument == "-" or output is Listing.IDS:
        list_workflows(found, output)
    elif output is Listing.JSON and found:
        show_json(found[0])
    elif found:
        show_workflow(found[0])
    raise typer.Exit(failures.code)


def history(
    words: Words,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = Listing.TABLE,
) -> None:
    """Show everything that happened to a workflow, in the order it happened. Changes nothing.

    Contexts are in the JSON. Exits with 4 when there is no such workflow, and with 5 when the service owns the store,
    or is not there.
    """
    place = place_of(home, server, key_file)
    target, argument = _split_words(words)
    failures = Failures()

    async def here() -> list[ShownRow]:
        machines = _bound_machines(target)
        async with store_at(place.home) as store:
            return [
                each
                async for row in rows_of(store, argument, failures)
                for each in await _history(store, row, machines)
            ]

    async def there() -> list[ShownRow]:
        async with client_at(place) as client:
            found = await failures.all(argument, Served(client, named(target)).history)
            return [row for rows in found for row in rows]

    rows = asyncio.run(there() if place.server is not None else here())
    if output is Listing.JSON:
        show_json(rows)
    elif output is Listing.IDS:
        show_ids(list(dict.fromkeys(row.workflow for row in rows)))
    elif rows or not failures.code:
        list_history(rows, with_ids=argument == "-")
    raise typer.Exit(failures.code)


def find(
    target: Annotated[
        str, typer.Argument(metavar="MACHINE", help="MODULE:ATTR; or a machine's name, to see what is stored.")
    ],
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only those in this state.", autocompletion=complete_state),
    ] = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after the previous page.")] = None,
    output: Output = Listing.TABLE,
) -> None:
    """List the workflows of a machine, page by page. Changes nothing.

    When there are more, it prints the cursor of the next page.
    """
    place = place_of(home, server, key_file)

    async def here() -> tuple[list[ShownWorkflow], str | None]:
        machine = one_machine(target) if ":" in target else None
        machines = None if machine is None else {machine.name: BoundMachine(machine)}
        name = target if machine is None else machine.name
        wanted = state if machine is None or state is None else state_text(state_of(BoundMachine(machine), state))
        async with store_at(place.home) as store:
            if machine is None:
                await refuse_unknown(store, name)
            with given_here():
                found = await store.find(name, wanted, after=cursor, limit=limit)
            return [_workflow_of(row, machines) for row in found.rows], found.cursor

    async def there() -> tuple[list[ShownWorkflow], str | None]:
        name, machines = one_named(target)
        async with client_at(place) as client:
            with given_here():
                return await Served(client, machines).find(name, state, limit=limit, cursor=cursor)

    found, more = asyncio.run(there() if place.server is not None else here())
    if output is Listing.JSON:
        show_json({"items": found, "cursor": more})
        return
    list_workflows(found, output)
    if more is not None:
        stderr().print(f"There are more: --cursor {more}", soft_wrap=True)


def stalled(
    target: OneMachine,
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            "--older-than-s",
            metavar="TIME",
            help="Longer than this: seconds, or 90s, 15m, 2h, 7d. Without: than declared.",
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only in this state. May be given several times.",
            autocompletion=complete_state,
        ),
    ] = None,
    limit: Limit = 1_000,
    output: Output = Listing.TABLE,
) -> None:
    """List the workflows that have been in their state for too long, the longest first. Changes nothing.

    Without --older-than: longer than the machine declares for the state (dwell). Final and resting states never stall.
    A server tells at most 1,000.
    """
    place = place_of(home, server, key_file)
    dwell_s = None if older_than is None else seconds_of(older_than)

    async def here() -> list[ShownWorkflow]:
        bound = BoundMachine(one_machine(target))
        states = None if state is None else [state_of(bound, each) for each in state]
        async with store_at(place.home) as store:
            before_us = _late_before(bound, store.now_us(), dwell_s, states)
            rows = await store.stalled(bound.name, before_us, limit=limit)
            return [_workflow_of(row, {bound.name: bound}) for row in rows]

    async def there() -> list[ShownWorkflow]:
        name, machines = one_named(target)
        async with client_at(place) as client:
            with given_here():
                return await Served(client, machines).stalled(name, older_than_s=dwell_s, states=state, limit=limit)

    found = asyncio.run(there() if place.server is not None else here())
    list_workflows(found, output)
    if place.server is not None and PAGE == len(found) < limit:
        stderr().print(f"There may be more: a server tells at most {PAGE:,}.", soft_wrap=True)


def _split_words(words: list[str]) -> tuple[str | None, str]:
    match words:
        case [argument]:
            return None, argument
        case [target, argument]:
            return target, argument
        case _:
            raise BadUsage(
                f"{len(words)} words are given; one or two are needed: [MACHINE] ID.",
                why="One workflow is shown, or with - those whose ids are on stdin.",
                fix="Give many ids on stdin: interlock find MACHINE -o ids | interlock show -",
            )


def _bound_machines(target: str | None) -> dict[str, BoundMachine] | None:
    return None if target is None else bound_of(several_machines(target))


def bound_of(machines: Iterable[AnyMachine]) -> dict[str, BoundMachine]:
    """Return the bound machines by their names."""
    return {machine.name: BoundMachine(machine) for machine in machines}


async def rows_of(store: Store, argument: str, failures: Failures) -> AsyncIterator[Row]:
    """Yield the rows of the ids. A failure of one id is reported, and the others continue."""
    for ids in ids_of(argument):
        problems = {each: problem for each in ids if (problem := _not_an_id(each)) is not None}
        found = await store.load([each for each in ids if each not in problems])
        for each in ids:
            if each in found:
                yield found[each]
            else:
                failures.add(problems.get(each) or no_workflow(each))


def _not_an_id(argument: str) -> InvalidPayload | None:
    try:
        check_id(argument, "the id of a workflow")
    except InvalidPayload as error:
        return error
    return None


def _workflow_of(row: Row, machines: dict[str, BoundMachine] | None) -> ShownWorkflow:
    if machines is None:
        return shown_raw(row)
    live = read_row(row, machines)
    return shown_view(live.bound, view_of(live))


def read_row(row: Row, machines: dict[str, BoundMachine]) -> LoadedWorkflow:
    """Decode a row's workflow. Raises UnavailableError for another machine, CorruptionError for unreadable data."""
    bound = machines.get(row.machine)
    if bound is None:
        raise unknown_machine(row)
    try:
        return bound.live(row)
    except CorruptionError as error:
        raise CorruptionError(
            error.what,
            why="This code is not the code that wrote it, and `interlock plan` did not compare the two.",
            fix="Leave the machine out, to see what is stored.",
        ) from error


async def _history(store: Store, row: Row, machines: dict[str, BoundMachine] | None) -> list[ShownRow]:
    bound = None if machines is None else read_row(row, machines).bound
    rows: list[ShownRow] = []
    while page := await store.history(row.id, after=rows[-1].version if rows else 0):
        for each in page:
            typed = None if bound is None else shown_history(bound, row.id, history_row(bound, each))
            rows.append(typed or shown_raw_history(each))
    return rows


async def refuse_unknown(store: Store, machine: str) -> None:
    """Raise TargetNotFound for the name of a machine that has never written here."""
    names = {name.removeprefix(PREFIX).rpartition("/")[0] for name in await store.noted() if name.startswith(PREFIX)}
    if machine not in names:
        raise TargetNotFound(
            f"no machine {machine!r} has stored anything here; there are {', '.join(sorted(names)) or 'none'}."
            f"{suggestion(machine, names)}",
            why="Without a colon it is the name of a machine, as its workflows are stored with it.",
            fix="Write one of these names, or MODULE:ATTR.",
        )


def _late_before(bound: BoundMachine, now_us: int, dwell_s: float | None, states: list[Enum] | None) -> dict[str, int]:
    """Return for each state that can stall the entry time before which a workflow is late, in microseconds."""
    before_us: dict[str, int] = {}
    # Workflows that have not moved since their state was renamed are stored under its old name.
    for stored, node in bound.stored.items():
        longest_s = node.dwell_max_s if dwell_s is None else dwell_s
        if node.active and longest_s is not None and (states is None or node.state in states):
            before_us[stored] = now_us - round(longest_s * 1_000_000)
    return before_us


# --- `interlock allowed` ---------------------------------------------------------------------------------------------


class ShownAllowed(msgspec.Struct, frozen=True, kw_only=True):
    """An existing transition of a workflow."""

    id: str
    event: str
    to: str
    guards: tuple[str, ...]
    blocked_by: str | None
    reason: str | None


def allowed(
    target: Machines,
    workflow: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a workflow, or - for ids on stdin.")
    ] = None,
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT", help="Ask the guards about this event.", autocompletion=complete_event),
    ] = None,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload, as JSON.")] = "{}",
    *,
    home: Home = None,
    server: Server = None,
    key_file: KeyFile = None,
    output: Output = Listing.TABLE,
) -> None:
    """List the events that have a transition from where a workflow stands. Changes nothing.

    With EVENT only its own transitions, and its guards are asked; exits with 3 when it would be refused.
    """
    place = place_of(home, server, key_file)
    failures = Failures()
    machine: str | None = target
    if place.server is not None and (workflow is None or (event is not None and event.lstrip().startswith("{"))):
        machine, workflow, event, payload = None, target, workflow, event or "{}"  # The words are ID [EVENT JSON].
    elif workflow is None:
        raise missing_word("MACHINE ID [EVENT] [JSON]")
    words = workflow

    async def here() -> list[_Answers]:
        machines = bound_of(several_machines(target))
        async with store_at(place.home) as store:
            found: list[_Answers] = []
            async for row in rows_of(store, words, failures):
                live = read_row(row, machines)
                sample = None if event is None else event_of(live.bound, event, payload)
                found.append((row.id, allowed_here(live.bound.table, live.snapshot, sample)))
            return found

    async def there() -> list[_Answers]:
        async with client_at(place) as client:
            served = Served(client, named(machine))

            async def ask(each: str) -> _Answers:
                return each, await served.allowed(each, event, payload)

            return await failures.all(words, ask)

    found = asyncio.run(there() if place.server is not None else here())
    _show_allowed(found, output, many=words == "-")
    blocked = event is not None and any(all(each.blocked_by for each in answers) for _, answers in found)
    raise typer.Exit(failures.code or (Exit.REFUSED if blocked else Exit.OK))


_Answers = tuple[str, list[Allowed[Enum]]]


def _show_allowed(found: list[_Answers], output: Listing, *, many: bool) -> None:
    if not found and not many:
        return
    flat = [(workflow, each) for workflow, answers in found for each in answers]
    if output is Listing.IDS:
        # Of several workflows those that take any event; of one the names of the events.
        show_ids(list(dict.fromkeys(workflow if many else each.event for workflow, each in flat)))
    elif output is Listing.JSON and many:
        show_json(
            [
                ShownAllowed(
                    id=workflow,
                    event=each.event,
                    to=state_text(each.to),
                    guards=each.guards,
                    blocked_by=each.blocked_by,
                    reason=each.reason,
                )
                for workflow, each in flat
            ]
        )
    elif output is Listing.JSON:
        show_json(found[0][1])
    else:
        first = 0 if many else 1
        rows = [
            (workflow, each.event, state_text(each.to), ", ".join(each.guards), _blocked_text(each))
            for workflow, each in flat
        ]
        show_table(("id", "event", "to", "guard", "blocked by")[first:], [row[first:] for row in rows])


def _blocked_text(each: Allowed[Enum]) -> str:
    return ": ".join(part for part in (each.blocked_by, each.reason) if part)
