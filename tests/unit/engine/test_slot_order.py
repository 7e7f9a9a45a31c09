"""Slots, attempts and undos: ways in which they were broken once."""

import asyncio

import pytest

from interlock import Engine, StepContext
from tests.unit.engine.order_shop import (
    Again,
    Cancel,
    Charged,
    Order,
    Orders,
    State,
    Submit,
    begun,
    charged,
    gated,
    run,
    turns,
)


def test_the_undos_of_a_cancelled_workflow_run_although_no_attempt_ends_meanwhile() -> None:
    """G5: a charge is not left without its undo while slots are free."""

    async def test() -> None:
        undone: list[str] = []

        async def refund(ctx: StepContext) -> None:
            undone.append(ctx.workflow)

        order = Orders(charged, refund=refund)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await begun(engine, order, "o-1")
            await turns()
            await engine.send("o-1", Cancel())
            await turns()
            assert undone == ["o-1"]
            assert (await engine.get("o-1")).state is State.CANCELLED

    run(test())


def test_a_slot_goes_to_the_next_in_the_queue_when_the_first_has_moved_on() -> None:
    """G5: an owed step runs; a cancelled one in front of it does not use its turn up."""

    async def test() -> None:
        going = asyncio.Event()

        async def charge(ctx: StepContext) -> Charged | Again:
            del ctx
            await going.wait()
            return Charged()

        order = Orders(charge)
        async with Engine.open("memory:", machines=[order.machine], steps_max=1, drain_s=0) as engine:
            await begun(engine, order, "o-1", "o-2", "o-3")
            await engine.send("o-2", Cancel())
            going.set()
            await turns()
            assert (await engine.get("o-3")).state is State.SHIPPING

    run(test())


def test_a_slot_that_became_free_during_a_commit_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: between the decision that found no slot and its commit the slot may have become free."""

    async def test() -> None:
        store, going = gated(monkeypatch), asyncio.Event()

        async def charge(ctx: StepContext) -> Charged | Again:
            del ctx
            await going.wait()
            return Charged()

        order = Orders(charge)
        async with Engine.open("memory:", machines=[order.machine], steps_max=1, drain_s=0) as engine:
            await begun(engine, order, "o-1")
            await engine.start(order.machine, "o-2", Order())
            store.gate.clear()
            store.arrived.clear()
            sent = asyncio.ensure_future(engine.send("o-2", Submit()))
            await store.arrived.wait()
            going.set()
            await turns()
            store.gate.set()
            await sent
            await turns()
            assert (await engine.get("o-2")).state is State.SHIPPING

    run(test())


def test_a_workflow_that_begins_steps_again_and_again_does_not_starve_another() -> None:
    """G5: whoever waits for a slot gets one before the workflow that has just had it."""

    async def test() -> None:
        runs: list[str] = []
        going = asyncio.Event()

        async def charge(ctx: StepContext) -> Charged | Again:
            runs.append(ctx.workflow)
            await going.wait()
            await asyncio.sleep(0)
            return Again() if ctx.workflow == "o-1" else Charged()

        order = Orders(charge)
        async with Engine.open("memory:", machines=[order.machine], steps_max=1, drain_s=0) as engine:
            await begun(engine, order, "o-1", "o-2")
            going.set()
            await turns()
            assert "o-2" in runs

    run(test())


def test_a_run_that_was_left_before_it_began_is_not_undone() -> None:
    """G5: only what may have happened is undone; entered and left in one group, the step never ran."""

    async def test() -> None:
        called: list[str] = []

        async def charge(ctx: StepContext) -> Charged | Again:
            called.append("charge")
            return await charged(ctx)

        async def refund(ctx: StepContext) -> None:
            called.append(f"refund of {ctx.undoes}")

        order = Orders(charge, refund=refund)
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await engine.start(order.machine, "o-1", Order())
            await asyncio.gather(engine.send("o-1", Submit()), engine.send("o-1", Cancel()))
            assert await engine.compensations() == []
            await turns()
            assert called == []

    run(test())


def test_a_clean_stop_during_a_commit_counts_no_attempt_that_never_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """B6: with one attempt the step would be failed, and undone, without having run."""

    async def test() -> None:
        store = gated(monkeypatch)
        order = Orders(charged)
        engine = await Engine.open("memory:", machines=[order.machine], drain_s=0)
        await engine.start(order.machine, "o-1", Order())
        store.gate.clear()
        store.arrived.clear()
        sent = asyncio.ensure_future(engine.send("o-1", Submit()))
        await store.arrived.wait()
        closing = asyncio.ensure_future(engine.close())
        await turns()
        store.gate.set()
        await closing
        await sent
        async with Engine.open("memory:", machines=[order.machine], drain_s=0) as engine:
            await turns()
            assert (await engine.get("o-1")).state is State.SHIPPING

    run(test())


def test_an_undo_does_not_overtake_the_attempt_that_it_undoes() -> None:
    """G5: also when it had to wait for a slot, which somebody else then gave back."""

    async def test() -> None:
        called: list[str] = []
        ending, other = asyncio.Event(), asyncio.Event()

        async def charge(ctx: StepContext) -> Charged | Again:
            if ctx.workflow == "o-2":
                await other.wait()
                return Charged()
            try:
                await asyncio.Event().wait()
            finally:
                await ending.wait()
                called.append("charge ended")
            raise AssertionError

        async def refund(ctx: StepContext) -> None:
            del ctx
            called.append("refund")

        order = Orders(charge, refund=refund)
        async with Engine.open("memory:", machines=[order.machine], steps_max=2, drain_s=0) as engine:
            await begun(engine, order, "o-1", "o-2")
            await turns()
            await engine.send("o-1", Cancel())
            other.set()
            await turns()
            ending.set()
            await turns()
            assert called == ["charge ended", "refund"]

    run(test())
