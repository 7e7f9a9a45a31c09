"""Move of a database by its name: lookup in the catalog and the tombstones, and update of the catalog.

A name without an address is looked up at the home. In either case the tombstones decide: the address of a place that
was left stands for the current place. A repeated call for a completed move reports that it is completed.
"""

import shlex
from typing import Final, NamedTuple

from interlock.catalog.catalog import Catalog
from interlock.catalog.moves import At, Moved, Plan, Watch, nowhere
from interlock.clock import Clock
from interlock.database.inventory import marks_at
from interlock.errors import BadUsage, CorruptionError, UnavailableError
from interlock.relocate.database.mover import (
    abandon_database,
    is_same,
    move_database,
    opened_source,
    plan_database,
    shown_url,
    unwatched,
)
from interlock.urls import is_bucket_url, with_secrets, without_secrets

HOPS_MAX: Final = 32
"""Maximum length of a chain of tombstones."""


class Route(NamedTuple):
    """Source and target of a move."""

    name: str
    source: str
    target: str
    home: str | None
    epoch: int = 0
    """Epoch of the last move in the catalog, or of the target if the database is there already."""

    @property
    def is_there(self) -> bool:
        """Whether the database is at the target already."""
        return self.epoch > 0 and is_same(self.source, self.target)

    @property
    def undo(self) -> str:
        """Return the command that moves it back; empty when nothing is moved."""
        if self.is_there:
            return ""
        named = (self.name, "--home", without_secrets(self.home)) if self.home else (without_secrets(self.target),)
        # Quoted: an address of PostgreSQL has an ampersand in it, and is pasted into a shell.
        return shlex.join(("interlock", "route", *named, "--to", without_secrets(self.source)))


async def find_route(
    name: str, target: str, *, home: str | None, clock: Clock, source: str = "", finish: bool = False
) -> Route:
    """Find the current place of the database. `source` is its known address, if any.

    With `finish` an earlier move whose mover died after the tombstone is completed; otherwise it is refused.
    """
    if "://" not in target:
        raise BadUsage(
            f"{target!r} is not an address.",
            why="A move goes to a place, and the scheme in front says of which kind it is.",
            fix="Write lanes:///var/shop/stock, s3://bucket/stock or postgresql://host/shop?schema=stock.",
        )
    epoch = 0
    if not source and "://" in name:
        source, home = name, None
    elif home is None:
        raise BadUsage(
            f"{name!r} is the name of a database, and its home is missing.",
            why="Where a name lives is written down in the catalog of a home.",
            fix="Add --home lanes:///var/shop, or name the database by its address.",
        )
    else:
        catalog = Catalog(home)
        entry = await catalog.entry(name)
        source, epoch = source or catalog.address(name, entry), entry.epoch
    source = await _lives_at(source, target, clock, finish=finish)
    if is_same(source, target):
        epoch = max(epoch, await _last_epoch(source, clock))
    return Route(name if home else shown_url(name), source, with_secrets(target, source, home or ""), home, epoch)


async def _lives_at(url: str, target: str, clock: Clock, *, finish: bool) -> str:
    visited = [url]
    while len(visited) < HOPS_MAX:
        here = visited[-1]
        left = await _left(here) if is_same(here, target) else await _stone_at(here, clock)
        if left is None:
            return here
        there = with_secrets(target if is_same(left[0], target) else left[0], *reversed(visited))
        marks = await marks_at(there)
        if marks.state != "left" or marks.epoch < left[1]:  # It was not left since: the chain ends here.
            if is_same(there, target):
                return here  # It is arriving or has arrived at the target: `finish` completes that move.
            if marks.state in {"left", "arriving"}:
                await _let_arrive(here, there, left[1], clock, finish=finish)
            return there
        visited.append(there)
    raise CorruptionError(
        f"{shown_url(url)} was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name the database by the address where it lives.",
    )


async def _let_arrive(here: str, there: str, epoch: int, clock: Clock, *, finish: bool) -> None:
    """Complete a move whose mover died after the tombstone. A draft cannot be moved on before its arrival."""
    if not finish:
        words = ("interlock", "route", without_secrets(here), "--to", without_secrets(there))
        raise UnavailableError(
            f"move {epoch} has left {shown_url(here)} and has not arrived at {shown_url(there)} yet.",
            why="Its mover has ended after the tombstone. The target is a complete draft, which cannot be moved on.",
            fix=f"Open the database once, or finish that move: {shlex.join(words)}",
        )
    _ = await move_database(here, there, name=shown_url(here), epoch=epoch, clock=clock, checked=False)


async def _stone_at(url: str, clock: Clock) -> tuple[str, int] | None:
    if is_bucket_url(url):
        return await _left(url)  # The manifest has it; without reading the whole log.
    end = await opened_source(url, clock=clock)
    try:
        return await end.moved()
    finally:
        await end.close()


async def _left(target: str) -> tuple[str, int] | None:
    """Return where the database went from a place that may not exist, if it was there before."""
    marks = await marks_at(target)
    return (marks.other, marks.epoch) if marks.state == "left" else None


async def _last_epoch(url: str, clock: Clock) -> int:
    end = await opened_source(url, clock=clock)
    try:
        return await end.last_epoch()
    finally:
        await end.close()


async def plan_route(route: Route, *, clock: Clock) -> Plan:
    """Return the plan of the move. Changes nothing."""
    return await plan_database(route.source, route.target, name=route.name, epoch=route.epoch + 1, clock=clock)


async def move_along(
    route: Route, *, clock: Clock, watch: Watch = unwatched, at: At = nowhere, checked: bool = True
) -> Moved:
    """Move the database, and update the catalog. A repeated call continues, and does nothing for a completed move."""
    if route.is_there:
        return _over(route)
    moved = await move_database(
        route.source,
        route.target,
        name=route.name,
        epoch=route.epoch + 1,
        clock=clock,
        watch=watch,
        at=at,
        checked=checked,
    )
    if route.home is not None:
        watch("enter", 0, 0)
        at("enter/before")
        _ = await Catalog(route.home).enter(route.name, route.target, moved.epoch)
        at("enter")
    return moved


async def abandon_route(route: Route, *, clock: Clock) -> bool:
    """Abandon an interrupted move. Return False when there was none."""
    return await abandon_database(route.source, route.target, clock=clock)


def _over(route: Route) -> Moved:
    where = shown_url(route.target)
    return Moved(
        name=route.name,
        source=where,
        target=where,
        epoch=route.epoch,
        amounts=(),
        checksum="",
        copy_s=0.0,
        seal_ms=0.0,
        resumed=True,
    )
