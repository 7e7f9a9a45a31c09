"""Base of scenarios that process orders before, during and after a disturbance, and audit them.

A scenario adds its disturbance and its own checks. The audit is the same for all: no acknowledged operation is lost,
every order ends, money moves once.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from interlock.chaos.audit import problems, read
from interlock.chaos.messages import Life
from interlock.chaos.scenario import Played, Scenario
from interlock.chaos.stage import Stage

PARTS = 3


class Flow(Scenario):
    """Orders flow while something is disturbed."""

    disturbance: ClassVar[str]
    """The disturbance, in a few words."""

    def lives(self, stage: Stage) -> list[Life]:
        """Return the workers: two on one PostgreSQL, unless a scenario overrides this."""
        return [stage.life(worker, stage.schema()) for worker in (1, 2)]

    @abstractmethod
    async def disturb(self, stage: Stage) -> None:
        """Disturb, and undo the disturbance. Recovery after that must happen without help."""

    async def afterwards(self, stage: Stage) -> None:
        """Wait for further recovery after every order has ended."""
        del stage

    @abstractmethod
    def happened(self, stage: Stage) -> str:
        """Summarize the outcome in a clause."""

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield the broken promises of this disturbance."""
        del stage
        yield from ()

    def home(self, stage: Stage) -> str:
        """Return the address of the store that the audit reads."""
        return stage.kept

    async def play(self, stage: Stage) -> Played:
        """Run the orders, the disturbance and the audit."""
        recovery_s = await self._orders_flow(stage)
        stage.doing = "audit"
        await stage.stop()
        customers = stage.world.customers
        kept = await read(self.home(stage))
        found = problems(kept, customers.told, stage.world.gateway.lines, customers.orders)
        found += [
            f"{operation.what} of {operation.workflow} was refused: {code}" for operation, code in customers.refused
        ]
        found += self.broken(stage)
        return Played(self.happened(stage), found, recovery_s)

    async def _orders_flow(self, stage: Stage) -> float:
        """Place orders before, during and after the disturbance; return the seconds until all had ended."""
        customers, share = stage.world.customers, stage.load.orders // PARTS
        await stage.start(self.lives(stage))
        stage.doing = "orders flow"
        before = stage.place(share)
        await stage.prepared("orders flow", lambda: len(customers.ended) >= len(before) // 2)
        stage.doing = f"disturbed: {self.disturbance}"
        placing = asyncio.ensure_future(stage.place_over(share, stage.load.seconds))
        try:
            await self.disturb(stage)
            stage.over_s = stage.world.now_s()
            stage.doing = "over: coming back"
            await placing
        finally:
            placing.cancel()
        stage.place(stage.load.orders - 2 * share)
        await stage.until("every order ends", lambda: customers.quiet)
        recovery_s = stage.world.now_s() - stage.over_s
        await self.afterwards(stage)
        return recovery_s
