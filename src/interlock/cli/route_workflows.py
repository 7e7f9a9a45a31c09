"""Workflows as something that `interlock route` moves.

It is a module of its own because it needs the driver of PostgreSQL, which is an extra.
"""

from typing import Self

from interlock.catalog.moves import Moved, Plan, Watch
from interlock.catalog.secrets import shown
from interlock.seams import SystemClock
from interlock.store.moving.routing import (
    WorkflowsRoute,
    abandon_route,
    find_workflows,
    move_along,
    plan_for_workflows,
)


class WorkflowsMoving:
    """The workflows of a home, from one place to another."""

    def __init__(self, route: WorkflowsRoute) -> None:
        self._route, self._clock = route, SystemClock()
        self.target, self.undo, self.is_there = route.target, route.undo, route.is_there
        self.shown = f"the workflows stay at {shown(route.source)}"

    @classmethod
    async def found(cls, name: str, to: str, *, home: str) -> Self | None:
        """Those of the machine of that name; None when nobody at the home has it."""
        route = await find_workflows(name, to, home=home, clock=SystemClock())
        return None if route is None else cls(route)

    async def plan(self) -> Plan:
        """What it would take."""
        return await plan_for_workflows(self._route, clock=self._clock)

    async def move(self, watch: Watch) -> Moved:
        """Move them."""
        return await move_along(self._route, clock=self._clock, watch=watch)

    async def abandon(self) -> bool:
        """End a move that was begun."""
        return await abandon_route(self._route, clock=self._clock)
