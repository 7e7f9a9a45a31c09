"""Move workflows for `interlock route`.

It is a separate module because it needs the driver of PostgreSQL, which is an extra.
"""

from typing import Self

from interlock.catalog.moves import Moved, Plan, Watch
from interlock.clock import SystemClock
from interlock.relocate.workflows.mover import (
    WorkflowsRoute,
    abandon_route,
    find_workflows,
    move_along,
    plan_for_workflows,
)
from interlock.urls import redact_secrets


class WorkflowsMoving:
    """The workflows of a home, from one place to another."""

    def __init__(self, route: WorkflowsRoute) -> None:
        self._route, self._clock = route, SystemClock()
        self.target, self.undo, self.is_there = route.target, route.undo, route.is_there
        self.place = f"the workflows stay at {redact_secrets(route.source)}"

    @classmethod
    async def found(cls, name: str, to: str, *, home: str) -> Self | None:
        """Find the workflows of the machine of that name; return None when the home has none."""
        route = await find_workflows(name, to, home=home, clock=SystemClock())
        return None if route is None else cls(route)

    async def plan(self) -> Plan:
        """Return the estimate of the move."""
        return await plan_for_workflows(self._route, clock=self._clock)

    async def move(self, watch: Watch) -> Moved:
        """Move them."""
        return await move_along(self._route, clock=self._clock, watch=watch)

    async def abandon(self) -> bool:
        """Abandon a move that was begun; return whether there was one."""
        return await abandon_route(self._route, clock=self._clock)
