"""From the name of a database to its move: the catalog and the tombstones say where it lives, and are told of the move.

A name without an address is looked up at the home. Either way the tombstones decide: who names a place that was left
means the place where everything lives now.
"""

from typing import Final, NamedTuple

from interlock.catalog.catalog import Catalog
from interlock.catalog.moves import At, Moved, Plan, Watch, nowhere
from interlock.catalog.secrets import with_secrets, without_secrets
from interlock.database.moving.mover import abandon_database, move_database, plan_database, unwatched
from interlock.database.moving.opening import is_same, opened_source, restoring, shown_url
from interlock.errors import BadUsage, CorruptionError
from interlock.lanes.objects.addresses import is_bucket
from interlock.seams import Clock

HOPS_MAX: Final = 32
"""So many places are looked at; a chain that is longer leads nowhere."""


class Route(NamedTuple):
    """A database on its way."""

    name: str
    source: str
    target: str
    home: str | None
    epoch: int = 0
    """Of the last move that the catalog knows of."""

    @property
    def undo(self) -> str:
        """The command that moves it back; from a bucket none does, and this says what can be done instead."""
        if is_bucket(self.target):
            return (
                f"nothing moves it out of a bucket while it runs. {restoring(self.target)} makes a file of what it is "
                f"by then; {shown_url(self.source)} stays as it was left."
            )
        named = f"{self.name} --home {without_secrets(self.home)}" if self.home else without_secrets(self.target)
        return f"interlock route {named} --to {without_secrets(self.source)}"


async def find_route(name: str, target: str, *, home: str | None, clock: Clock, source: str = "") -> Route:
    """Where the database lives now. `source` is where it is known to live, if that is known."""
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
            f"{name!r} is the name of a database, and nobody knows at which home.",
            why="Where a name lives is written down in the catalog of a home.",
            fix="Add --home lanes:///var/shop, or name the database by its address.",
        )
    else:
        catalog = Catalog(home)
        entry = await catalog.entry(name)
        source, epoch = source or catalog.address(name, entry), entry.epoch
    source = await _lives_at(source, target, clock)
    return Route(name if home else shown_url(name), source, with_secrets(target, source, home or ""), home, epoch)


async def _lives_at(url: str, target: str, clock: Clock) -> str:
    seen = [url]
    while len(seen) < HOPS_MAX:
        if is_same(seen[-1], target):
            return seen[-1]  # The mover says so.
        end = await opened_source(seen[-1], clock=clock)
        try:
            left = await end.moved()
        finally:
            await end.close()
        if left is None or is_same(left[0], target):
            return seen[-1]  # Here, or about to arrive where it is to go: that move is finished.
        seen.append(with_secrets(left[0], *reversed(seen)))
    raise CorruptionError(
        f"{shown_url(url)} was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name the database by the address where it lives.",
    )


async def plan_route(route: Route, *, clock: Clock) -> Plan:
    """What the move would be. Changes nothing."""
    return await plan_database(route.source, route.target, name=route.name, epoch=route.epoch + 1, clock=clock)


async def move_along(route: Route, *, clock: Clock, watch: Watch = unwatched, at: At = nowhere) -> Moved:
    """Move it, and tell the catalog. The same again goes on where it ended."""
    moved = await move_database(
        route.source, route.target, name=route.name, epoch=route.epoch + 1, clock=clock, watch=watch, at=at
    )
    if route.home is not None:
        watch("enter", 0, 0)
        at("enter/before")
        _ = await Catalog(route.home).enter(route.name, route.target, moved.epoch)
        at("enter")
    return moved


async def abandon_route(route: Route, *, clock: Clock) -> bool:
    """End a move that was begun. False when there was none."""
    return await abandon_database(route.source, route.target, clock=clock)
