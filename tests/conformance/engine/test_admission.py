"""C7: what an engine takes in, what it refuses at once, and what never passes admission."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock import Admission, Dependency, Overloaded
from tests.conformance.engine.outages import later, named, submit
from tests.conformance.engine.places import Place, SetClock, run
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Held,
    Order,
    OrderMachine,
    Outside,
    State,
    Submit,
    World,
    shop,
)


def test_calls_beyond_the_rate_are_refused_with_the_time_to_come_back(place: Place) -> None:
    """C7."""

    async def scenario() -> None:
        clock = SetClock()
        order = shop().machine
        async with place.engine(order, clock=clock, admission=Admission(rate_per_s=10.0, burst=2.0)) as engine:
            for workflow in named(2):
                await engine.start(order, workflow, Order())
            with pytest.raises(Overloaded) as refused:
                await engine.start(order, "o-3", Order())
            assert refused.value.retry_after_s == pytest.approx(0.1)
            clock.now_s += refused.value.retry_after_s + 0.001
            await engine.start(order, "o-3", Order())
            with pytest.raises(Overloaded):
                await engine.send("o-3", Submit())
            engine.set_admission(Admission())
            await engine.send("o-3", Submit())

    run(scenario)


def test_a_backlog_is_refused_at_the_door_while_events_are_still_taken(place: Place) -> None:
    """C7: the bound on work in flight."""

    async def scenario() -> None:
        held = Held(Charged())
        order = shop(World(charge=Outside(held)), charges_at="gateway").machine
        limits = [Dependency("gateway", concurrency_max=1)]
        async with place.engine(
            order, clock=SetClock(), dependencies=limits, admission=Admission(in_flight_max=3)
        ) as engine:
            await submit(engine, order, named(4))
            assert engine.breakers()["gateway"].waiting == 3
            with pytest.raises(Overloaded) as refused:
                await engine.start(order, "o-5", Order())
            assert refused.value.retry_after_s > 0
            await engine.send("o-4", Cancel())
            held.go.set()
            for workflow in named(3):
                assert (await engine.wait(workflow)).state is State.DONE
            await engine.start(order, "o-5", Order())

    run(scenario)


def test_calls_under_way_are_bounded(place: Place) -> None:
    """C7: of many at once as many are taken as there may be, and all others are refused at once."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, clock=SetClock(), admission=Admission(in_flight_max=5)) as engine:
            answers: Sequence[object] = await asyncio.gather(
                *(engine.start(order, each, Order()) for each in named(50)), return_exceptions=True
            )
            assert sum(isinstance(each, Overloaded) for each in answers) == 45
            assert engine._inside.gate.in_flight == 0

    run(scenario)


def test_results_timers_effects_and_undos_never_pass_admission(place: Place) -> None:
    """C7: whatever was taken in once comes to its end, although nothing more is taken in."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(reserve=Outside(OSError("net")))

        def timed(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=60.0, send=Submit(7))

        order = shop(world, charges_at="gateway", declare=timed).machine
        admission = Admission(rate_per_s=0.000_001, burst=1.0)
        async with place.engine(order, clock=clock, admission=admission) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(Overloaded):
                await engine.send("o-1", Submit())
            await later(engine, clock, 61.0)
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert len(world.charge.calls) == 1
            assert [len(each.calls) for each in (world.reserve, world.release, world.refund)] == [3, 1, 1]

    run(scenario)
