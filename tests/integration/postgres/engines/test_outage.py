"""C4, C5, C9 on PostgreSQL with its own clock: several engines, an outage, a crash in the middle, and all come through.

Two engines of one process share the breaker and the database; a third takes over what the first has left.
"""

import asyncio
from collections import Counter

from interlock import Breaker, Dependency, Engine, Signal, StepAttempted, StepContext
from interlock.engine.dependencies.outlet import forget_outlets
from interlock.engine.open_engine import EngineOpening
from tests.conformance.engine.outages import Changes
from tests.conformance.engine.places import crash, run
from tests.conformance.engine.shop import Charged, Order, State, Submit, shop

GATEWAY = Dependency("gateway", concurrency_max=4, breaker=Breaker(failures=5, reset_s=0.3))
ORDERS = 40


class Gateway:
    """It is up or down, and does everything once per key."""

    def __init__(self) -> None:
        self.up = True
        self.under_way = self.most = 0
        self.calls: Counter[str] = Counter()
        self.charged: dict[str, str] = {}

    async def charge(self, order: Order, ctx: StepContext) -> Charged:
        self.calls["up" if self.up else "down"] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            if not self.up:
                raise ConnectionError("down")
            self.charged[ctx.key] = ctx.workflow
            return Charged(ctx.key)
        finally:
            self.under_way -= 1


class Attempts:
    """The attempts of charges by workflow."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.highest = 0

    def __call__(self, signal: Signal, /) -> None:
        if isinstance(signal, StepAttempted) and signal.step == "charge":
            self.made[signal.workflow] += 1
            self.highest = max(self.highest, signal.attempt)


def test_engines_that_share_a_database_and_a_breaker_come_through_an_outage_and_a_crash(postgres_url: str) -> None:
    """C4: of many orders only a few call what is down, nobody gives up, and all are done soon after it is back."""

    async def scenario() -> None:
        forget_outlets()
        gateway, changes, attempts = Gateway(), Changes(), Attempts()

        order, _, charge = shop(attempts=3, charges_at="gateway")

        def opened() -> EngineOpening[Engine]:
            return Engine.open(
                postgres_url,
                machines=[order],
                dependencies=[GATEWAY],
                steps={charge: gateway.charge},
                observers=[changes, attempts],
                poll_s=0.05,
            )

        first, second = await opened(), await opened()
        names = [f"o-{number}" for number in range(ORDERS)]
        gateway.up = False
        await asyncio.gather(*(first.start(order, name, Order()) for name in names))
        await asyncio.gather(*(first.send(name, Submit()) for name in names))
        await changes.until("open")
        await changes.until("half_open")  # Somebody has probed it in vain.
        await changes.until("open")
        await crash(first)
        down = gateway.calls["down"]
        gateway.up = True
        third = await opened()
        for name in names:
            assert (await second.wait(name, timeout_s=60)).state is State.DONE
        assert down < ORDERS / 2, "most of the orders never called what was down"
        assert len(gateway.charged) == len(set(gateway.charged.values())) == ORDERS
        assert attempts.highest <= 3
        assert gateway.most <= GATEWAY.concurrency_max
        assert await second.dead_letters() == []
        views = [engine.breakers()["gateway"] for engine in (second, third)]
        assert [(view.state, view.under_way, view.waiting) for view in views] == [("closed", 0, 0)] * 2
        await second.close()
        await third.close()
        forget_outlets()

    run(scenario)
