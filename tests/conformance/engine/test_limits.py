"""C5, C8, C9: places, rates and budgets of dependencies, and undos that find their way past all of them."""

import asyncio

import pytest

from interlock import Breaker, Dependency, StepFailure
from interlock.clock import SystemChance
from tests.conformance.engine.outages import attempts_of, called, down, later, look, named, submit
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import (
    Call,
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

NEVER = Breaker(failures=1_000_000)
"""For tests that are not about breakers."""


# --- places and rates -------------------------------------------------------------------------------------------------


def test_a_dependency_that_hangs_takes_no_more_than_its_places_and_others_go_on(place: Place) -> None:
    """C8: whoever waits for a place has no slot meanwhile, so there are slots for what calls somebody else."""

    async def scenario() -> None:
        held = Held(Charged())
        slow = shop(World(charge=Outside(held)), name="slow", charges_at="gateway")
        quick = shop(name="quick", charges_at="bank")
        limits = [Dependency("gateway", concurrency_max=2)]
        async with place.engine(
            slow.machine, quick.machine, clock=SetClock(), dependencies=limits, steps_max=3
        ) as engine:
            await submit(engine, slow.machine, named(6))
            assert len(slow.world.charge.calls) == 2
            view = engine.breakers()["gateway"]
            assert (view.state, view.under_way, view.waiting) == ("closed", 2, 4)
            waiting = (await engine.get("o-6")).waiting
            assert waiting is not None
            assert "all 2 places of 'gateway' are taken" in waiting
            others = [f"q-{number}" for number in range(10)]
            await submit(engine, quick.machine, others)
            for workflow in others:
                assert (await engine.wait(workflow)).state is State.DONE
            assert len(slow.world.charge.calls) == 2
            held.go.set()
            for workflow in named(6):
                assert (await engine.wait(workflow)).state is State.DONE
            assert [await_one.under_way for await_one in engine.breakers()] == [0, 0]

    run(scenario)


def test_a_rate_is_kept_and_can_be_changed_while_everything_runs(place: Place) -> None:
    """C8."""

    async def scenario() -> None:
        clock = SetClock()
        order, world, _ = shop(charges_at="gateway")
        limits = [Dependency("gateway", rate_per_s=10.0)]
        async with place.engine(order, clock=clock, dependencies=limits) as engine:
            await submit(engine, order, named(8))
            assert len(world.charge.calls) == 1
            waiting = (await engine.get("o-8")).waiting
            assert waiting is not None
            assert "at most 10 times per second" in waiting
            for calls in (2, 3):
                await later(engine, clock, 0.11)
                assert len(world.charge.calls) == calls
            engine.set_limit("gateway", rate_per_s=20.0)
            await look(engine)
            before = len(world.charge.calls)
            await later(engine, clock, 0.11)
            assert len(world.charge.calls) - before == 2
            engine.set_limit("gateway", rate_per_s=None)
            await settled(engine)
            for workflow in named(8):
                assert (await engine.wait(workflow)).state is State.DONE
            assert engine.breakers()["gateway"].rate_per_s is None

    run(scenario)


def test_more_places_are_used_at_once_and_fewer_when_calls_have_ended(place: Place) -> None:
    """C8: limits can be changed at run time."""

    async def scenario() -> None:
        held = [Held(Charged()) for _ in range(6)]
        order, world, _ = shop(World(charge=Outside(*held)), charges_at="gateway")
        limits = [Dependency("gateway", concurrency_max=1)]
        async with place.engine(order, clock=SetClock(), dependencies=limits) as engine:
            await submit(engine, order, named(6))
            assert len(world.charge.calls) == 1
            engine.set_limit("gateway", concurrency_max=4)
            await settled(engine)
            assert len(world.charge.calls) == 4
            engine.set_limit("gateway", concurrency_max=1)
            for answered in held[:3]:
                answered.go.set()
            await settled(engine)
            assert len(world.charge.calls) == 4
            for answered in held[3:]:
                answered.go.set()
            for workflow in named(6):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


# --- retries ----------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_a_budget_delays_retries_and_fails_none_and_the_first_ten_are_free(place: Place) -> None:
    """C5: with a budget of nothing, ten retries of each ten seconds go through and the next ones wait."""

    async def scenario() -> None:
        clock = SetClock()
        order, world, _ = shop(World(charge=Outside(OSError("net"))), attempts=100, charges_at="gateway")
        limits = [Dependency("gateway", budget=0.0, breaker=NEVER)]
        async with place.engine(order, clock=clock, dependencies=limits) as engine:
            await submit(engine, order, ["o-1"])
            await called(engine, world.charge, 11)
            assert world.charge.attempts == list(range(1, 12))
            view = await engine.get("o-1")
            assert view.state is State.CHARGING
            assert view.waiting is not None
            assert "the retry budget of 'gateway' is spent" in view.waiting
            await submit(engine, order, ["o-2"])
            assert len(world.charge.calls) == 12  # A first call needs no budget, and its retry waits.
            for windows in (1, 2, 3, 4):
                await later(engine, clock, 10.0)
                await called(engine, world.charge, 12 + 10 * windows)
            world.charge.answers = [Charged()]
            await later(engine, clock, 10.0)
            for workflow in named(2):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


@pytest.mark.campaign
def test_what_a_crash_has_ended_is_no_retry_and_waits_for_no_budget(kept: Place) -> None:
    """C5: it did not fail. Counted, everybody who was under way then would come back ten at a time."""

    async def scenario() -> None:
        clock, limits = SetClock(), [Dependency("gateway", budget=0.0, breaker=NEVER)]
        hanging = shop(World(charge=Outside(Held())), charges_at="gateway").machine
        engine = await kept.engine(hanging, clock=clock, dependencies=limits)
        await submit(engine, hanging, named(25))
        await crash(engine)
        order, world, _ = shop(charges_at="gateway")
        async with kept.engine(order, clock=clock, dependencies=limits) as after:
            for workflow in named(25):
                assert (await after.wait(workflow)).state is State.DONE
            assert sorted(world.charge.attempts) == [2] * 25

    run(scenario)


@pytest.mark.campaign
def test_a_retry_beyond_the_budget_is_made_although_first_calls_never_cease(place: Place) -> None:
    """C5: it is delayed; if everybody who comes for the first time went before it, it would never be made."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(*[OSError("net") for _ in range(11)], Charged()))
        order = shop(world, attempts=30, charges_at="gateway").machine
        limits = [Dependency("gateway", concurrency_max=1, budget=0.0, breaker=NEVER)]
        async with place.engine(order, clock=clock, dependencies=limits) as engine:
            await submit(engine, order, ["o-1"])
            await called(engine, world.charge, 11)
            world.charge.answers = [Held(Charged())]
            await submit(engine, order, named(30, first=2))
            for _ in range(12):
                await later(engine, clock, 10.0)
                held = world.charge.answers[0]
                assert isinstance(held, Held)
                await held.begun.wait()
                world.charge.answers = [Held(Charged())]
                held.go.set()
                await settled(engine)
            made = [call.ctx.workflow for call in world.charge.calls]
            assert made.count("o-1") == 12, "the line of those who come for the first time is never empty"
            assert len(made) < 11 + 30
            last = world.charge.answers[0]
            assert isinstance(last, Held)
            last.go.set()

    run(scenario)


def test_attempts_are_counted_durably_over_restarts(kept: Place) -> None:
    """C5: one before a clean stop, one that dies with its process, and the last."""

    async def scenario() -> None:
        clock, held = SetClock(), Held()
        world = World(charge=Outside(down(1.0), held, OSError("net")))

        def made() -> OrderMachine:
            return shop(world, attempts=3, charges_at="gateway").machine

        order = made()
        async with kept.engine(order, clock=clock) as engine:
            await submit(engine, order, ["o-1"])
            assert await attempts_of(engine, "o-1") == 1
        clock.now_s += 2.0
        engine = await kept.engine(made(), clock=clock)
        await settled(engine)
        await held.begun.wait()
        await crash(engine)
        async with kept.engine(made(), clock=clock) as engine:
            assert (await engine.wait("o-1")).state is State.CANCELLED
            failed = (await engine.history("o-1"))[2].payload
            assert isinstance(failed, StepFailure)
            assert (failed.attempts, world.charge.attempts) == (3, [1, 2, 3])

    run(scenario)


@pytest.mark.campaign
def test_retries_are_spread_over_the_whole_wait(place: Place) -> None:
    """C5: full jitter. A hundred workflows that fail at one moment are not tried again at one moment."""

    async def scenario() -> None:
        clock = SetClock()
        order, world, _ = shop(World(charge=Outside(OSError("net"))), charges_at="gateway")
        limits = [Dependency("gateway", breaker=NEVER, budget=1.0)]
        async with place.engine(order, clock=clock, dependencies=limits, chance=SystemChance(7)) as engine:
            workflows = named(100)
            await asyncio.gather(*(engine.start(order, each, Order()) for each in workflows))
            await asyncio.gather(*(engine.send(each, Submit()) for each in workflows))
            await settled(engine)
            rows = await engine._store.load(workflows)
            delays_us = [(row.wake_us or 0) - int(clock.now_s * 1_000_000) for row in rows.values()]
            assert {call.ctx.attempt for call in world.charge.calls} == {1}
            assert all(0 <= delay_us < 100_000 for delay_us in delays_us)
            assert len({delay_us // 10_000 for delay_us in delays_us}) >= 8

    run(scenario)


# --- undos ------------------------------------------------------------------------------------------------------------


def test_undos_run_while_all_slots_and_all_places_are_taken_by_steps(place: Place) -> None:
    """C9."""

    async def scenario() -> None:
        held = Held(Charged())
        world = World(charge=Outside(Charged(), held))
        order = shop(world, charges_at="gateway", reserves_at="gateway").machine
        limits = [Dependency("gateway", concurrency_max=2)]
        async with place.engine(order, clock=SetClock(), dependencies=limits, steps_max=2) as engine:
            await submit(engine, order, ["o-1"])
            assert (await engine.wait("o-1")).state is State.DONE
            await submit(engine, order, named(6, first=2))
            assert len(world.charge.calls) == 3
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1", State.CANCELLED)).state is State.CANCELLED
            assert (len(world.release.calls), len(world.refund.calls)) == (1, 1)
            assert len(world.charge.calls) == 3
            held.go.set()
            for workflow in named(6, first=2):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


def test_an_undo_that_fails_twice_and_then_works_keeps_its_key(place: Place) -> None:
    """C9."""

    async def scenario() -> None:
        world = World(refund=Outside(OSError("net"), TimeoutError("net"), None))
        order = shop(world, charges_at="gateway", reserves_at="gateway").machine
        async with place.engine(order, clock=SetClock()) as engine:
            await submit(engine, order, ["o-1"])
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1", State.CANCELLED)).state is State.CANCELLED
            assert world.refund.attempts == [1, 2, 3]
            assert len(set(world.refund.keys)) == 1
            assert await engine.dead_letters() == []

    run(scenario)


@pytest.mark.parametrize("ruling", ["retry", "resolve"])
def test_an_undo_that_fails_three_times_waits_for_a_person_with_its_key(place: Place, ruling: str) -> None:
    """C9: newest first; the older undo waits meanwhile and goes on afterwards."""

    async def scenario() -> None:
        undone: list[str] = []
        world = World(release=Outside(*[OSError("net") for _ in range(3)], None))
        order = shop(world, charges_at="gateway", reserves_at="gateway").machine
        note(world.release, undone, "release")
        note(world.refund, undone, "refund")
        async with place.engine(order, clock=SetClock(), undo_attempts=3) as engine:
            await submit(engine, order, ["o-1"])
            await engine.send("o-1", Cancel())
            while not (letters := await engine.dead_letters("undo")):
                await settled(engine)
            [letter] = letters
            assert (letter.workflow, letter.name, letter.attempts) == ("o-1", "reserve", 3)
            assert letter.key == world.release.keys[0]
            assert "OSError: net" in letter.error
            assert (await engine.get("o-1")).state is State.UNDOING
            assert [(each.step, each.state) for each in await engine.compensations()] == [
                ("reserve", "dead"),
                ("charge", "waiting"),
            ]
            assert undone == ["release"] * 3
            if ruling == "retry":
                await engine.retry_dead_letter(letter.id)
            else:
                await engine.resolve_dead_letter(letter.id, note="given back by hand")
            assert (await engine.wait("o-1", State.CANCELLED)).state is State.CANCELLED
            assert undone == ["release"] * (4 if ruling == "retry" else 3) + ["refund"]
            assert len(set(world.release.keys)) == 1

    run(scenario)


def note(outside: Outside, told: list[str], name: str) -> None:
    """Write down when it is called."""
    answer = outside.answer

    async def noted(call: Call) -> object:
        told.append(name)
        return await answer(call)

    outside.answer = noted  # type: ignore[method-assign]


def test_a_workflow_that_waits_for_two_things_in_turn_keeps_no_place(place: Place) -> None:
    """C16: it waits for a slot, is cancelled, and its undo waits too: the slot that comes free is not lost on it."""

    async def scenario() -> None:
        charging, reserving, refunding = Held(Charged()), Held(), Held()
        world = World(
            charge=Outside(Charged(), Charged(), charging), reserve=Outside(reserving), refund=Outside(refunding, None)
        )
        order = shop(world, charges_at="gateway", reserves_at="gateway").machine
        limits = [Dependency("gateway", concurrency_max=1)]
        async with place.engine(order, clock=SetClock(), dependencies=limits, steps_max=1, undos_max=1) as engine:
            await submit(engine, order, ["o-1"])  # Hangs in its second step, and has the only slot and place.
            await reserving.begun.wait()
            await submit(engine, order, named(3, first=2))
            await engine.send("o-1", Cancel())
            await settled(engine)
            for held in (reserving, charging, refunding):
                held.go.set()
            for workflow in named(3, first=2):
                await engine.send(workflow, Cancel(), if_allowed=True)
            for workflow in named(4):
                assert (await engine.wait(workflow, State.CANCELLED)).state is State.CANCELLED
            await settled(engine)
            places = engine._inside.places
            assert (places.steps.free, places.undos.free, places.waiting) == (1, 1, 0)
            assert engine.breakers()["gateway"].under_way == 0

    run(scenario)
