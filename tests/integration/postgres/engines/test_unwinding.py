"""An undo must not overtake what it undoes, whichever process does either (G5)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from interlock import Engine, StepContext
from tests.integration.postgres.stores import somebody
from tests.unit.engine.order_shop import Cancel, Charged, Order, Orders, State, Submit

LEASE_S = 600.0
"""Longer than any test: whatever waits for a lease to end never ends."""

POLL_S = 0.02

PATIENCE_S = 60.0


class World:
    """What happens outside, in its order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.charging = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.end = asyncio.Event()

    async def charge(self, _ctx: StepContext) -> Charged:
        self.told.append("charge begins")
        self.charging.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.end.wait()
            self.told.append("charge ends")
        return Charged()

    async def refund(self, _ctx: StepContext) -> None:
        self.told.append("refund")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(main())


@pytest.mark.parametrize("canceller", ["an API process", "another worker", "the worker itself"])
def test_a_refund_waits_for_the_end_of_the_charge_wherever_that_runs(postgres_url: str, canceller: str) -> None:
    """G5: the cancelled charge takes its time to end; nobody refunds before, and somebody does at once after."""

    async def scenario() -> None:
        world = World()
        order = Orders(world.charge, refund=world.refund).machine
        async with Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S) as one:
            await one.start(order, "o-1", Order())
            await one.send("o-1", Submit())
            await world.charging.wait()
            async with (
                Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S) as two,
                Engine.open(postgres_url, machines=[order], worker=False, lease_s=LEASE_S, poll_s=POLL_S) as api,
            ):
                sender = {"an API process": api, "another worker": two, "the worker itself": one}[canceller]
                await sender.send("o-1", Cancel())
                await world.cancelled.wait()
                for _ in range(10):
                    await two._inside.policy.claiming._poll()  # type: ignore[union-attr]
                assert world.told == ["charge begins"]
                world.end.set()
                assert (await api.wait("o-1")).state is State.CANCELLED
                assert world.told == ["charge begins", "charge ends", "refund"]

    run(scenario)


def test_a_rewind_undoes_after_the_end_of_the_charge_wherever_that_runs(postgres_url: str) -> None:
    """F6, G5: of two processes that rewind at once one begins it, and the charge of a third has ended before."""

    async def scenario() -> None:
        world = World()
        order = Orders(world.charge, refund=world.refund).machine
        async with Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S) as one:
            await one.start(order, "o-1", Order())
            await one.send("o-1", Submit())
            await world.charging.wait()
            async with (
                Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S) as two,
                Engine.open(postgres_url, machines=[order], worker=False, lease_s=LEASE_S, poll_s=POLL_S) as api,
            ):
                found = await asyncio.gather(api.rewind("o-1", 1), two.rewind("o-1", 1), api.rewind("o-1", 1))
                assert sorted(each.duplicate for each in found) == [False, True, True]
                assert all(len(each.undo) == 1 and not each.undo[0].known for each in found)
                await world.cancelled.wait()
                for _ in range(10):
                    await two._inside.policy.claiming._poll()  # type: ignore[union-attr]
                assert world.told == ["charge begins"]
                world.end.set()
                initial = order.compiled.initial
                assert initial is not None
                view = await api.wait("o-1", initial.state)
                assert (view.version, world.told) == (4, ["charge begins", "charge ends", "refund"])

    run(scenario)


@pytest.mark.slow
def test_the_charge_of_a_dead_worker_is_refunded_when_its_lease_is_over(postgres_url: str) -> None:
    """G5: nobody waits for ever for one who cannot say that it has ended."""

    async def scenario() -> None:
        world = World()
        order = Orders(world.charge, refund=world.refund).machine
        dead = await Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S)
        await dead.start(order, "o-1", Order())
        await dead.send("o-1", Submit())
        await world.charging.wait()
        for task in dead._inside._tasks:
            task.cancel()
        async with (
            somebody(postgres_url) as connection,
            Engine.open(postgres_url, machines=[order], lease_s=LEASE_S, poll_s=POLL_S) as two,
        ):
            # Before that, or it would be charged anew by one who was there sooner than the customer.
            assert (await two.send("o-1", Cancel())).state is State.UNDOING
            await connection.execute("UPDATE workflows SET lease_until = lease_until - interval '1 day'")
            assert (await two.wait("o-1")).state is State.CANCELLED
            assert world.told == ["charge begins", "refund"]
        world.end.set()
        await dead.close()

    run(scenario)
