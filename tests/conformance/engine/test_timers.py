"""B9, Timers: a state times out into an event; the three policies say what a restart means for it."""

import pytest

from interlock import Engine, Signal, TransitionRejected
from interlock.core.values import TimerPolicy
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import (
    Again,
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def timed(after_s: float = 100.0, policy: TimerPolicy = "deadline") -> OrderMachine:
    """An order that is cancelled when nobody submits it."""
    return shop(declare=lambda order: order.after(State.DRAFT, after_s=after_s, send=Cancel(), policy=policy)).machine


async def state_after(kept: Place, order: OrderMachine, clock: SetClock) -> object:
    """Where the workflow stands when an engine has been open for a moment."""
    async with kept.engine(order, clock=clock) as engine:
        await settled(engine)
        return (await engine.get("o-1")).state


async def begin(engine: Engine, order: OrderMachine) -> None:
    await engine.start(order, "o-1", Order())
    await settled(engine)


def test_a_timer_sends_its_event_and_history_carries_the_name_of_it(place: Place) -> None:
    async def scenario() -> None:
        order = timed(after_s=0.02)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            row = (await engine.history("o-1"))[1]
            assert (row.event, row.from_state, row.payload, row.key) == ("CANCEL", State.DRAFT, Cancel(), None)

    run(scenario)


def test_leaving_the_state_ends_its_timers(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed()
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
        clock.now_s += 1_000
        assert await state_after(kept, order, clock) is State.DONE

    run(scenario)


def test_an_internal_transition_lets_the_timers_go_on_and_a_self_target_sets_them_anew(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed()
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
            clock.now_s += 60
            await engine.send("o-1", Note("internal"))
        clock.now_s += 39
        assert await state_after(kept, order, clock) is State.DRAFT
        async with kept.engine(order, clock=clock) as engine:
            await engine.send("o-1", Again())
        clock.now_s += 99
        assert await state_after(kept, order, clock) is State.DRAFT
        clock.now_s += 2
        assert await state_after(kept, order, clock) is State.CANCELLED

    run(scenario)


def test_an_internal_transition_does_not_move_the_deadline(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed()
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
            clock.now_s += 60
            await engine.send("o-1", Note("internal"))
        clock.now_s += 41
        assert await state_after(kept, order, clock) is State.CANCELLED

    run(scenario)


@pytest.mark.parametrize(("policy", "seconds"), [("deadline", 60.0), ("remaining", 160.0), ("restart", 200.0)], ids=str)
def test_a_policy_says_when_a_timer_fires_after_a_stop(kept: Place, policy: TimerPolicy, seconds: float) -> None:
    """Of 100 s, 40 s passed with an engine; then it was away. Left: the same moment, 60 s of running, 100 s."""

    async def scenario() -> None:
        clock, order = SetClock(), timed(policy=policy)
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
            clock.now_s += 40
        stopped_s = clock.now_s
        clock.now_s += 100 if policy != "deadline" else 50
        async with kept.engine(order, clock=clock) as engine:
            await settled(engine)
            assert (await engine.get("o-1")).state is State.DRAFT
            soonest_us = (await engine._store.load(["o-1"]))["o-1"].wake_us
            assert soonest_us is not None
            assert soonest_us / 1e6 == pytest.approx(stopped_s + seconds, abs=0.01)

    run(scenario)


def test_a_deadline_that_passed_without_an_engine_fires_at_once(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed()
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
        clock.now_s += 101
        async with kept.engine(order, clock=clock) as engine:
            assert (await engine.wait("o-1")).state is State.CANCELLED

    run(scenario)


@pytest.mark.slow
def test_after_a_crash_the_last_saved_value_of_the_remaining_time_counts(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed(policy="remaining")
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
            clock.now_s += 40
        engine = await kept.engine(order, clock=clock)
        await settled(engine)
        await crash(engine)
        clock.now_s += 1_000
        async with kept.engine(order, clock=clock) as engine:
            await settled(engine)
            soonest_us = (await engine._store.load(["o-1"]))["o-1"].wake_us
            assert soonest_us is not None
            assert soonest_us / 1e6 == pytest.approx(clock.now_s + 60, abs=0.01)

    run(scenario)


@pytest.mark.campaign
def test_remaining_time_goes_on_over_many_stops(kept: Place) -> None:
    async def scenario() -> None:
        clock, order = SetClock(), timed(policy="remaining")
        async with kept.engine(order, clock=clock) as engine:
            await begin(engine, order)
        for _ in range(9):
            clock.now_s += 10_000
            async with kept.engine(order, clock=clock) as engine:
                await settled(engine)
                assert (await engine.get("o-1")).state is State.DRAFT
                clock.now_s += 10
        clock.now_s += 10_000
        async with kept.engine(order, clock=clock) as engine:
            clock.now_s += 11
            assert (await engine.wait("o-1")).state is State.CANCELLED

    run(scenario)


def test_a_timer_whose_event_is_refused_is_over_and_told(place: Place) -> None:
    async def scenario() -> None:
        seen: list[Signal] = []
        order = shop(declare=lambda order: order.after(State.DRAFT, after_s=0.01, send=Submit(cents=0))).machine
        async with place.engine(order, observers=[seen.append]) as engine:
            await engine.start(order, "o-1", Order())
            while not seen or not isinstance(seen[-1], TransitionRejected):
                await settled(engine)
            assert [each.code for each in seen if isinstance(each, TransitionRejected)] == ["guard-rejected"]
            await settled(engine)
            assert len(engine._inside.runner.timers) == 0
            assert (await engine.get("o-1")).version == 1
            assert (await engine.send("o-1", Note("x"))).version == 2

    run(scenario)


def test_a_timer_of_a_state_with_a_step_ends_the_step(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(
            World(charge=Outside(held)),
            declare=lambda order: order.after(State.CHARGING, after_s=0.02, send=Cancel()),
        )
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert held.cancelled.is_set()
            assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


def test_several_timers_of_one_state_fire_in_the_order_of_their_times(place: Place) -> None:
    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=0.03, send=Cancel())
            order.after(State.DRAFT, after_s=0.01, send=Note("first"))

        order = shop(declare=declare).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            assert (await engine.of(order).wait("o-1")).context.note == "first"

    run(scenario)


def test_a_workflow_that_moves_often_has_one_wake_up_for_its_timer(place: Place) -> None:
    """G6: what waits in memory does not grow with the events of a workflow."""

    async def scenario() -> None:
        order = timed(after_s=3600.0)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            for _ in range(30):
                await engine.send("o-1", Note(""))
            assert len(engine._inside.runner.timers) <= 2

    run(scenario)


def test_a_timer_of_a_resting_state_fires(place: Place) -> None:
    async def scenario() -> None:
        order = shop(
            World(charge=Outside(Charged())),
            declare=lambda order: order.after(State.DONE, after_s=0.02, send=Ship()),
        ).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1", State.SHIPPED)).state is State.SHIPPED

    run(scenario)
