"""`interlock allowed`: what can happen to a workflow where it stands, and what its guards would say. Changes nothing.

On a store the machine decides here; a server is asked, and decides the same.
"""

import asyncio
from enum import Enum
from typing import Annotated

import msgspec
import typer

from interlock.cli.check import Listing
from interlock.cli.completing import complete_event
from interlock.cli.exits import Exit
from interlock.cli.given import event_of
from interlock.cli.homes import Machines, missing_word, several_machines, store_at
from interlock.cli.looking import Output, bound_of, read_row, rows_of
from interlock.cli.many import Failures
from interlock.cli.places import Home, KeyFile, Server, client_at, place_of
from interlock.cli.served import Served, named
from interlock.cli.shown import show_ids, show_json, show_table
from interlock.core.allowed import allowed as allowed_here
from interlock.core.values import Allowed
from interlock.runtime.bound import state_text


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
            (workflow, each.event, state_text(each.to), ", ".join(each.guards), _blocked(each))
            for workflow, each in flat
        ]
        show_table(("id", "event", "to", "guard", "blocked by")[first:], [row[first:] for row in rows])


def _blocked(each: Allowed[Enum]) -> str:
    return ": ".join(part for part in (each.blocked_by, each.reason) if part)
