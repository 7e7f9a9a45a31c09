"""Scenarios in which orders flow: before, during and after a disturbance, and then the audit.

What a scenario adds is the disturbance and what only it can check. Everything else is the same for all: nothing
acknowledged is lost, every order ends, money moves once.
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
    """What is being done, in a few words."""

    def lives(self, stage: Stage) -> list[Life]:
        """The workers: two on one PostgreSQL, unless a scenario wants something else."""
        return [stage.life(worker, stage.schema()) for worker in (1, 2)]

    @abstractmethod
    async def disturb(self, stage: Stage) -> None:
        """Disturb, and put back what was disturbed: whatever comes back afterwards comes back by itself."""

    async def afterwards(self, stage: Stage) -> None:
        """Wait for what else has to come back, when every order has ended."""
        del stage

    @abstractmethod
    def happened(self, stage: Stage) -> str:
        """What happened, in a clause."""

    def broken(self, stage: Stage) -> Iterator[str]:
        """What was promised for this disturbance alone, and was not kept."""
        del stage
        yield from ()

    def home(self, stage: Stage) -> str:
        """Where the audit reads."""
        return stage.kept

    async def play(self, stage: Stage) -> Played:
        """Orders, the disturbance, and the audit."""
        recovery_s = await self._orders_flow(stage)
        stage.doing = "audit"
        await stage.stop()
        customers = stage.world.customers
        kept = await read(self.home(stage))
        found = problems(kept, customers.told, stage.world.gateway.lines, customers.orders)
        found += [f"{asked.what} of {asked.workflow} was refused: {code}" for asked, code in customers.refused]
        found += self.broken(stage)
        return Played(self.happened(stage), found, recovery_s)

    async def _orders_flow(self, stage: Stage) -> float:
        """Orders before, during and after the disturbance; returns how long it took until all had ended."""
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
