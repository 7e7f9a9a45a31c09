"""What waits for a slot gets one, also when the one before it has no use for it any more (B12, G6); and a duplicate is
answered as the first time also when its event passed through an unwinding state (B5)."""

import asyncio
from collections.abc import Coroutine

from interlock.core.values import StepContext
from interlock.engine.engine import Engine
from tests.unit.engine.order_shop import Cancel, Charged, Order, Orders, Shipped, State, begun, charged

STALLED_S = 300
"""A test that waits longer than this waits for ever."""


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(story, STALLED_S))


def test_a_slot_that_a_cancelled_workflow_was_called_for_is_passed_on() -> None:
    async def story() -> None:
        charging, ready = asyncio.Event(), asyncio.Event()

        async def slow(ctx: StepContext) -> Charged:
            charging.set()
            await ready.wait()
            return Charged()

        order = Orders(slow)
        async with Engine.open("memory:", machines=[order.machine], steps_max=1) as engine:
            await begun(engine, order, "a", "b", "c")
            await charging.wait()
            await engine.send("b", Cancel())
            ready.set()
            await engine.wait("c", State.SHIPPING)

    run(story())


def test_an_effect_that_finds_its_slot_taken_waits_for_the_next() -> None:
    async def story() -> None:
        told: set[str] = set()
        everybody = asyncio.Event()
        ready = asyncio.Event()

        async def slow(ctx: StepContext) -> None:
            await ready.wait()
            told.add(ctx.workflow)
            if len(told) == 20:
                everybody.set()

        order, names = Orders(charged, mail=slow), [f"o-{number}" for number in range(20)]
        async with Engine.open("memory:", machines=[order.machine], effects_max=2) as engine:
            await begun(engine, order, *names)
            for name in names:
                await engine.wait(name, State.SHIPPING)
            await engine.send_many([(name, Shipped(), None) for name in names])
            ready.set()
            await everybody.wait()
            assert len(told) == 20

    run(story())


def test_a_duplicate_that_passed_through_an_unwinding_state_is_answered_as_the_first_time() -> None:
    async def story() -> None:
        order = Orders(charged)
        async with Engine.open("memory:", machines=[order.machine]) as engine:
            await engine.start(order.machine, "a", Order())
            first = await engine.send("a", Cancel(), key="k")
            again = await engine.send("a", Cancel(), key="k")
            assert (first.state, first.version, first.duplicate) == (State.CANCELLED, 3, False)
            assert (again.state, again.version, again.duplicate) == (State.CANCELLED, 3, True)

    run(story())
