"""`interlock breakers`: what the engines of a home last noted of the breakers of their dependencies.

A breaker lives in the memory of a process, so that opening one costs nothing; a store holds only a note of each change.
This command reads the notes, and says that they are notes. One that cannot be read is shown as unknown: whoever looks
for the reason of an outage must see the others.
"""

import asyncio
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from interlock.cli.check import Listing
from interlock.cli.homes import Home, store_at
from interlock.cli.looking import Output
from interlock.cli.output import stderr
from interlock.cli.shown import moment_text, show_ids, show_json, show_table

PREFIX = "breaker:"
"""Of the name under which a breaker is noted; the rest is the name of its dependency."""

HELD = "breaker-held:"
"""The same of how a person holds it: "open", "closed" or "auto"."""

_HINT = (
    "This is what engines here last noted of their breakers. A process that runs is asked itself: through its server, "
    "or by engine.breakers() in its code."
)


class Noted(msgspec.Struct, frozen=True):
    """A note, as an engine writes it."""

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


def breakers(*, home: Home, output: Output = Listing.TABLE) -> None:
    """List the breakers of dependencies as engines last noted them. Changes nothing, and needs no machine."""

    async def run() -> dict[str, str]:
        async with store_at(home) as store:
            return await store.noted()

    noted = asyncio.run(run())
    names = [name.removeprefix(PREFIX) for name in sorted(noted) if name.startswith(PREFIX)]
    found = [_shown(name, noted[PREFIX + name], noted.get(HELD + name)) for name in names]
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
            stderr().print(_HINT, soft_wrap=True)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.dependency for each in found])


def _shown(dependency: str, text: str, held: str | None) -> ShownBreaker:
    try:
        noted = msgspec.json.decode(text, type=Noted)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ShownBreaker(dependency=dependency, state="unknown", reason=f"its note cannot be read: {text}")
    forced = noted.forced if held is None else "open" if held == "open" else "closed" if held == "closed" else None
    return ShownBreaker(dependency=dependency, state=noted.state, forced=forced, since=noted.since, reason=noted.reason)
