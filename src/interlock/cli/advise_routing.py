"""The moves that verdicts propose, as `interlock route` makes them.

A database is found by its name at a home, or by its address where it has none. Tombstones are followed either way: who
names a place that was left means the place where everything lives now.
"""

import asyncio

from interlock.catalog.moves import Moved, Plan
from interlock.catalog.secrets import shown
from interlock.cli.advise_applying import Routing
from interlock.cli.route import routed
from interlock.database.moving.mover import abandon_database
from interlock.database.moving.opening import is_same
from interlock.database.moving.routing import Route, find_route, plan_route
from interlock.errors import BadUsage, MovedElsewhere
from interlock.seams import SystemClock


class ByAdvice:
    """Moves databases."""

    def find(self, routing: Routing) -> str:
        """Where it lives now. Raises TargetNotFound."""
        return _route(routing).source

    def plan(self, routing: Routing) -> Plan | None:
        """What it would take; None when it has left already, and only has to arrive, or is there."""
        found = _route(routing)
        if found.is_there:
            return None
        try:
            return asyncio.run(plan_route(found, clock=SystemClock()))
        except MovedElsewhere as error:
            if shown(error.url) != shown(routing.target):
                raise
            return None

    def move(self, routing: Routing) -> Moved:
        """Move it, and tell how far it is. What was begun before goes on."""
        return routed(_route(routing, finish=True))

    def move_back(self, routing: Routing) -> None:
        """Move it back. Who was killed before it had left finds it where it was: that move is ended."""
        found = _route(routing, finish=True)
        if is_same(found.source, found.target):
            _ = asyncio.run(abandon_database(found.source, routing.source, clock=SystemClock()))
        else:
            _ = routed(found)


def _route(routing: Routing, *, finish: bool = False) -> Route:
    name = routing.name if routing.home else routing.source
    if not name:
        raise BadUsage(
            f"nobody knows where {routing.name!r} lives.",
            why="The evidence says nothing of its address, and there is no home whose catalog knows the name.",
            fix="Give --home URL.",
        )
    found = find_route(name, routing.target, home=routing.home, clock=SystemClock(), finish=finish)
    return asyncio.run(found)
