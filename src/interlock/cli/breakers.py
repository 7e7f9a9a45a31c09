"""`interlock breakers`: the breakers of dependencies, from the notes of engines at a home or from a server.

A breaker lives in the memory of a process, so that opening one costs nothing; a store holds only a note of each change.
On a store this command reads the notes, and says that they are notes. A server answers itself, and can hold a breaker.
An unreadable note is shown as unknown, so that the other breakers stay visible during an outage.
"""

import asyncio
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import typer

from interlock.cli.check import Listing
from interlock.cli.homes import store_at
from interlock.cli.looking import Output
from interlock.cli.output import stderr
from interlock.cli.places import Home, KeyFile, Place, Server, client_at, place_of
from interlock.cli.shown import moment_text, show_ids, show_json, show_table
from interlock.core.refusals import suggestion
from interlock.errors import BadUsage, TargetNotFound
from interlock.runtime.resilience.views import BreakerView

PREFIX = "breaker:"
"""The prefix of a breaker's note; the rest is the name of its dependency."""

HELD = "breaker-held:"
"""The prefix of the note of an operator's hold: "open", "closed" or "auto"."""

_HINT = (
    "This is what engines here last noted of their breakers. A process that runs is asked itself: through its server, "
    "or by engine.breakers() in its code."
)


class Noted(msgspec.Struct, frozen=True):
    """The note of a breaker, as an engine writes it."""

    state: Literal["closed", "open", "half_open"]
    since: Annotated[datetime, msgspec.Meta(tz=True)]
    forced: Literal["open", "closed"] | None = None
    reason: str = ""


class ShownBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as it was last noted."""

    dependency: str
    state: Literal["closed", "open", "half_open", "unknown"]
    forced: Literal["open", "closed"] | None = None
    since: datetime | None = None
    reason: str = ""


class Hold(StrEnum):
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
        Hold | None,
        typer.Option(help="Hold the breaker of NAME open or closed; auto lets it decide again. With --server only."),
    ] = None,
    output: Output = Listing.TABLE,
) -> None:
    """List the breakers of dependencies: as engines last noted them, or as a server has them; or hold one.

    Listing changes nothing, and needs no machine. Exits with 4 when nothing calls a dependency NAME.
    """
    place = place_of(home, server, key_file)
    _refuse_hold(place, dependency, force)

    async def here() -> list[ShownBreaker]:
        async with store_at(place.home) as store:
            notes = await store.noted()
        names = [name.removeprefix(PREFIX) for name in sorted(notes) if name.startswith(PREFIX)]
        return [_breaker_of(name, notes[PREFIX + name], notes.get(HELD + name)) for name in names]

    async def there() -> list[ShownBreaker]:
        async with client_at(place) as client:
            found = [_shown_live(each) for each in await client.breakers()]
            if force is not None and dependency is not None:
                _only(found, dependency)
                await client.force_breaker(dependency, force.value)
                found = [_shown_live(each) for each in await client.breakers()]
            return found

    found = asyncio.run(there() if place.server is not None else here())
    if dependency is not None:
        found = _only(found, dependency)
    _show(found, output)
    if output is Listing.TABLE and place.server is None:
        stderr().print(_HINT, soft_wrap=True)


def _refuse_hold(place: Place, dependency: str | None, force: Hold | None) -> None:
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


def _only(found: list[ShownBreaker], dependency: str) -> list[ShownBreaker]:
    names = [each.dependency for each in found]
    if dependency not in names:
        raise TargetNotFound(
            f"there is no breaker of {dependency!r:.100}; there are {', '.join(names) or 'none'}."
            f"{suggestion(dependency, names)}",
            why="A breaker is there once something calls its dependency; in a store, once it has changed.",
            fix="Use one of those names.",
        )
    return [each for each in found if each.dependency == dependency]


def _show(found: list[ShownBreaker], output: Listing) -> None:
    match output:
        case Listing.TABLE:
            rows = [
                (
                    each.dependency,
                    each.state,
                    each.forced or "",
                    moment_text(each.since) if each.since else "",
                    each.reason,
                )
                for each in found
            ]
            show_table(("dependency", "state", "forced", "since", "reason"), rows)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.dependency for each in found])


def _breaker_of(dependency: str, text: str, hold: str | None) -> ShownBreaker:
    try:
        note = msgspec.json.decode(text, type=Noted)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ShownBreaker(dependency=dependency, state="unknown", reason=f"its note cannot be read: {text}")
    forced = note.forced if hold is None else "open" if hold == "open" else "closed" if hold == "closed" else None
    return ShownBreaker(dependency=dependency, state=note.state, forced=forced, since=note.since, reason=note.reason)


def _shown_live(view: BreakerView) -> ShownBreaker:
    return ShownBreaker(
        dependency=view.name, state=view.state, forced=view.forced, since=view.since, reason=view.reason
    )
