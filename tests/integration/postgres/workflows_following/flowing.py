"""Orders that flow through an engine without a pause while somebody moves its workflows, and the audit of them all."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from interlock import Engine
from tests.unit.engine.follow_moves.shop import Gateway, Shop, problems_of, shop

CUSTOMERS = 8

Buy = Callable[[str], Awaitable[None]]


class Flow:
    """Customers who order one thing after the other until they are told to stop."""

    def __init__(self, buy: Buy, *, customers: int = CUSTOMERS, ahead: int | None = None) -> None:
        """`ahead` bounds the orders that are through before `more` is called again: a long move is not made longer."""
        self._buy = buy
        self._customers = customers
        self._ahead = ahead
        self._wanted = 0
        self._numbers = itertools.count()
        self._stopping = False
        self._bought = asyncio.Condition()
        self.through: list[str] = []
        """Orders that are through, as their customers were told."""

    @asynccontextmanager
    async def flowing(self) -> AsyncGenerator[None]:
        """Customers come while the block runs, and each gets what it has ordered before it is left."""
        async with asyncio.TaskGroup() as customers:
            for _ in range(self._customers):
                customers.create_task(self._customer())
            yield
            self._stopping = True
            async with self._bought:
                self._bought.notify_all()

    async def more(self, count: int) -> None:
        """Wait until so many more orders are through."""
        wanted = self._wanted = len(self.through) + count
        async with self._bought:
            self._bought.notify_all()
            await self._bought.wait_for(lambda: len(self.through) >= wanted)

    async def _customer(self) -> None:
        while not self._stopping:
            workflow = f"o-{next(self._numbers)}"
            await self._buy(workflow)
            async with self._bought:
                self.through.append(workflow)
                self._bought.notify_all()
                await self._bought.wait_for(self._goes_on)

    def _goes_on(self) -> bool:
        return self._ahead is None or self._stopping or len(self.through) < self._wanted + self._ahead


def made() -> tuple[Gateway, Shop]:
    """A shop whose steps take a few turns of the event loop."""
    gateway = Gateway(turns=20)
    return gateway, shop(gateway)


async def problems(engine: Engine, flow: Flow, gateway: Gateway) -> list[str]:
    """What is wrong with any of them."""
    found: list[str] = []
    for workflow in flow.through:
        found += problems_of(await engine.get(workflow), await engine.history(workflow), gateway, notes=1)
    return found + gateway.problems()
