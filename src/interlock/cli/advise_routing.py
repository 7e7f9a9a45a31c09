"""The moves of verdicts, made as `interlock route` makes them.

A database is found by its name at a home, or by its URL. Tombstones are followed either way, to the current place.
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
        """Return the current URL of the database. Raises TargetNotFound."""
        return _route(routing).source

    def plan(self, routing: Routing) -> Plan | None:
        """Return the estimate of the move; None when the source is already sealed or the move is complete."""
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
        """Move it, and show the progress. A move that was begun before continues."""
        return routed(_route(routing, finish=True))

    def move_back(self, routing: Routing) -> None:
        """Move it back. A begun move whose source is not sealed is abandoned."""
        found = _route(routing, finish=True)
        if is_same(found.source, found.target):
            _ = asyncio.run(abandon_database(found.source, routing.source, clock=SystemClock()))
        else:
            _ = routed(found)


def _route(routing: Routing, *, finish: bool = False) -> Route:
    name = routing.name if routing.home else routing.source
    if not name:
        raise BadUsage(
            f"the place of {routing.name!r} is unknown.",
            why="The evidence says nothing of its address, and there is no home whose catalog knows the name.",
            fix="Give --home URL.",
        )
    found = find_route(name, routing.target, home=routing.home, clock=SystemClock(), finish=finish)
    return asyncio.run(found)
