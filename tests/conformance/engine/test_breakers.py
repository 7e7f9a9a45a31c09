"""C2, C3, C4, C11: breakers open for sick dependencies alone, cost nobody an attempt, and let all go on afterwards."""

import asyncio

import pytest

from interlock import Breaker, Classification, Dependency, NonRetryable, Retryable
from interlock.testing.virtual_time import VirtualClock
from tests.conformance.engine.outages import Changes, attempts_of, down, later, look, named, submit
from tests.conformance.engine.places import Place, SetClock, run, settled
from tests.conformance.engine.shop import (
    Call,
    Cancel,
    Charged,
    Declined,
    Held,
    Order,
    Outside,
    State,
    Submit,
    World,
    shop,
)

QUICK = Dependency("gateway", breaker=Breaker(failures=1))
"""Opens with the first failure."""


def test_five_failures_of_different_workflows_open_the_breaker_and_recovery_releases_all_who_wait(place: Place) -> None:
    """C4: one breaker per dependency; who waits stays in its state, says why, burns no attempt and calls nobody."""

    async def scenario() -> None:
        clock, changes = SetClock(), Changes()
        world = World(charge=Outside(*[down() for _ in range(5)], Charged()))
        order = shop(world, charges_at="gateway").machine
        async with place.engine(order, clock=clock, observers=[changes]) as engine:
            await submit(engine, order, named(4))
            assert engine.breakers()["gateway"].state == "closed"
            await submit(engine, order, ["o-5"])
            assert engine.breakers()["gateway"].state == "open"
            assert "5 failures in a row" in changes.seen[-1].reason
            waiting = named(6, first=6)
            await submit(engine, order, waiting)
            await later(engine, clock, 29.0)
            assert len(world.charge.calls) == 5
            for workflow in waiting:
                view = await engine.get(workflow)
                assert view.state is State.CHARGING
                assert view.waiting is not None
                assert "the breaker of 'gateway' is open" in view.waiting
                assert await attempts_of(engine, workflow) == 0
            await later(engine, clock, 2.0)
            for workflow in waiting:
                assert (await engine.wait(workflow)).state is State.DONE
            assert engine.breakers()["gateway"].state == "closed"
            assert [call.ctx.attempt for call in world.charge.calls[5:]] == [1] * 6
            await later(engine, clock, 3_600.0)
            for workflow in named(5):
                assert (await engine.wait(workflow)).state is State.DONE
            assert [change.after for change in changes.seen] == ["open", "half_open", "closed"]

    run(scenario)


def test_a_probe_that_fails_burns_no_attempt(place: Place) -> None:
    """C4: the second attempt is made three times, and the third is still there afterwards."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(down(1.0), Retryable("still down"), OSError("still down"), down(1.0), Charged()))
        order = shop(world, attempts=3, charges_at="gateway").machine
        async with place.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            await submit(engine, order, ["o-1"])
            for _ in range(3):
                assert engine.breakers()["gateway"].state == "open"
                assert await attempts_of(engine, "o-1") == 1
                await later(engine, clock, 31.0)
            await later(engine, clock, 31.0)
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1, 2, 2, 2, 2]
            assert len(set(world.charge.keys)) == 1

    run(scenario)


def test_a_probe_with_one_attempt_in_all_is_made_again(place: Place) -> None:
    """C4: without this the first probe of an outage would fail its workflow for good."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(OSError("still down"), Charged()))
        opens = shop(World(charge=Outside(down())), name="opens", charges_at="gateway").machine
        order = shop(world, attempts=1, charges_at="gateway").machine
        async with place.engine(opens, order, clock=clock, dependencies=[QUICK]) as engine:
            await submit(engine, opens, ["opens-1"])
            await submit(engine, order, ["o-1"])
            assert world.charge.calls == []
            await later(engine, clock, 31.0)
            assert (await engine.get("o-1")).state is State.CHARGING
            assert (world.charge.attempts, await attempts_of(engine, "o-1")) == ([1], 0)
            await later(engine, clock, 31.0)
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1, 1]

    run(scenario)


def refused(error: BaseException) -> Classification | None:
    """What the classifier of this test says."""
    return Classification.NON_RETRYABLE if isinstance(error, OSError) else None


@pytest.mark.parametrize("answer", [NonRetryable("no such card"), OSError("classified"), Declined()], ids=repr)
def test_business_errors_never_trip_it(place: Place, answer: object) -> None:
    """C3: whoever says no is alive."""

    async def scenario() -> None:
        clock, changes = SetClock(), Changes()
        order, world, _ = shop(World(charge=Outside(answer)), classify=refused, charges_at="gateway")
        async with place.engine(order, clock=clock, observers=[changes], dependencies=[QUICK]) as engine:
            await submit(engine, order, named(6))
            for workflow in named(6):
                assert (await engine.wait(workflow)).state is State.CANCELLED
            assert len(world.charge.calls) == 6
            view = engine.breakers()["gateway"]
            assert (view.state, view.failures, changes.seen) == ("closed", 0, [])

    run(scenario)


def test_a_mistake_of_the_program_never_trips_it(place: Place) -> None:
    """C3: it says nothing about whoever is called."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(ZeroDivisionError("a mistake"))), charges_at="gateway")
        async with place.engine(order, clock=SetClock(), dependencies=[QUICK]) as engine:
            await submit(engine, order, ["o-1"])
            assert (await engine.get("o-1")).state is State.CHARGING
            assert [letter.kind for letter in await engine.dead_letters()] == ["step"]
            assert world.charge.attempts == [1]
            assert engine.breakers()["gateway"].state == "closed"

    run(scenario)


@pytest.mark.parametrize("between", ["undos", "refusals"])
def test_what_ends_without_a_call_does_not_keep_it_closed(place: Place, between: str) -> None:
    """C19: every call fails. Undos with nothing to take back, and refusals before the call, are no answers."""

    async def scenario() -> None:
        charge = Outside(OSError("down"), NonRetryable("checked before the call"), OSError("down"))
        if between == "undos":
            charge = Outside(OSError("down"))
        order, world, _ = shop(World(charge=charge), attempts=1, charges_at="gateway")
        async with place.engine(order, clock=SetClock(), dependencies=[Dependency("gateway")]) as engine:
            await submit(engine, order, named(6))
            view = engine.breakers()["gateway"]
            assert view.state == "open"
            assert "5 failures in a row" in view.reason
            assert len(world.refund.calls) >= 5, "an undo each, which returned without a call"

    run(scenario)


def test_an_undo_that_has_called_counts_as_an_answer(place: Place) -> None:
    """C4: whoever takes back is alive."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("down"))), attempts=1, charges_at="gateway")
        wait_in(world.refund)
        async with place.engine(order, clock=SetClock(), dependencies=[Dependency("gateway")]) as engine:
            await submit(engine, order, named(6))
            for workflow in named(6):
                assert (await engine.wait(workflow)).state is State.CANCELLED
            assert engine.breakers()["gateway"].state == "closed"

    run(scenario)


def wait_in(outside: Outside) -> None:
    """Have it wait, as everything does that talks to another machine."""
    answer = outside.answer

    async def waits(call: Call) -> object:
        await asyncio.sleep(0)
        return await answer(call)

    outside.answer = waits  # type: ignore[method-assign]


def test_business_errors_have_a_threshold_of_their_own_if_asked_for(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(NonRetryable("no"))), charges_at="gateway")
        breaker = Breaker(failures=1, business_failures=3)
        async with place.engine(
            order, clock=SetClock(), dependencies=[Dependency("gateway", breaker=breaker)]
        ) as engine:
            await submit(engine, order, named(5))
            assert len(world.charge.calls) == 3
            view = engine.breakers()["gateway"]
            assert view.state == "open"
            assert "3 business errors in a row" in view.reason
            assert (await engine.get("o-5")).state is State.CHARGING

    run(scenario)


def test_a_timeout_trips_it(place: Place) -> None:
    """C2."""

    async def scenario() -> None:
        changes = Changes()
        order, world, _ = shop(World(charge=Outside(Held())), timeout_s=0.05, charges_at="gateway")
        async with place.engine(order, clock=SetClock(), observers=[changes], dependencies=[QUICK]) as engine:
            await submit(engine, order, ["o-1"])
            assert "longer than 0.05 s" in (await changes.until("open")).reason
            await settled(engine)
            waiting = (await engine.get("o-1")).waiting
            assert waiting is not None
            assert "the breaker of 'gateway' is open" in waiting
            assert world.charge.attempts == [1]

    run(scenario)


def test_a_share_of_failures_opens_it(place: Place) -> None:
    """C4: the failure-rate mode; two failures in a row never happen here."""

    async def scenario() -> None:
        answers = (Charged(), down(), Charged(), down(), Charged())
        order, world, _ = shop(World(charge=Outside(*answers)), charges_at="gateway")
        breaker = Breaker(failures=1, failure_rate=0.5, window_calls=10, calls_min=4)
        async with place.engine(
            order, clock=SetClock(), dependencies=[Dependency("gateway", breaker=breaker)]
        ) as engine:
            await submit(engine, order, named(3))
            assert engine.breakers()["gateway"].state == "closed"
            await submit(engine, order, named(2, first=4))
            assert engine.breakers()["gateway"].state == "open"
            assert len(world.charge.calls) == 4

    run(scenario)


def test_calls_that_are_too_slow_open_it_although_they_work(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(charges_at="gateway")
        breaker = Breaker(failures=3, slow_s=1e-9)
        async with place.engine(
            order, clock=SetClock(), dependencies=[Dependency("gateway", breaker=breaker)]
        ) as engine:
            await submit(engine, order, named(4))
            for workflow in named(3):
                assert (await engine.wait(workflow)).state is State.DONE
            assert (await engine.get("o-4")).state is State.CHARGING
            view = engine.breakers()["gateway"]
            assert (view.state, view.reason) == ("open", "calls are too slow")
            assert len(world.charge.calls) == 3

    run(scenario)


def test_engines_of_one_process_share_it(place: Place) -> None:
    """C4: by construction one per dependency and process, whichever engine calls."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(*[down() for _ in range(5)], Charged()))
        first, second = shop(world, charges_at="gateway").machine, shop(world, charges_at="gateway").machine
        elsewhere = Place(place.folder / "elsewhere", "memory:")
        async with place.engine(first, clock=clock) as one, elsewhere.engine(second, clock=clock) as other:
            await submit(one, first, named(3))
            await submit(other, second, named(2))
            assert {each.breakers()["gateway"].state for each in (one, other)} == {"open"}
            await submit(one, first, ["o-8"])
            await submit(other, second, ["o-9"])
            for engine, workflow in ((one, "o-8"), (other, "o-9")):
                waiting = (await engine.get(workflow)).waiting
                assert waiting is not None
                assert "the breaker of 'gateway' is open" in waiting
            assert len(world.charge.calls) == 5
            await later(one, clock, 31.0)
            await look(other)
            assert (await one.wait("o-8")).state is State.DONE
            assert (await other.wait("o-9")).state is State.DONE

    run(scenario)


def test_another_dependency_has_another_breaker(place: Place) -> None:
    async def scenario() -> None:
        world = World(charge=Outside(down()))
        sick = shop(world, name="sick", charges_at="gateway").machine
        well = shop(name="well", charges_at="bank").machine
        async with place.engine(sick, well, clock=SetClock(), dependencies=[QUICK]) as engine:
            await submit(engine, sick, named(2))
            await submit(engine, well, ["w-1"])
            assert (await engine.wait("w-1")).state is State.DONE
            assert [view.state for view in engine.breakers()] == ["closed", "open"]

    run(scenario)


class TwoHands(SetClock):
    """A clock whose wall is set by somebody while time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = VirtualClock()

    def monotonic_s(self) -> float:
        return self.passed_s.now_s


def test_a_wall_clock_that_jumps_changes_nothing(place: Place) -> None:
    """C11, G8: breakers go by time that passes, not by what a clock on the wall says."""

    async def scenario() -> None:
        clock = TwoHands()
        world = World(charge=Outside(down(), Charged()))
        order = shop(world, charges_at="gateway").machine
        async with place.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            await submit(engine, order, ["o-1"])
            await submit(engine, order, ["o-2"])
            for jump_s in (86_400.0, -2 * 86_400.0, 86_400.0, 86_400.0):
                await later(engine, clock, jump_s)
                assert engine.breakers()["gateway"].state == "open"
            assert len(world.charge.calls) == 1
            clock.passed_s.now_s += 31.0
            await later(engine, clock, 2 * 86_400.0)
            for workflow in named(2):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


def test_an_undo_may_try_an_open_breaker_until_one_fails(place: Place) -> None:
    """C9: what it gives back is owed to somebody, and the breaker only guesses."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(
            charge=Outside(Charged(), Charged(), Charged(), down()), refund=Outside(None, OSError("down"), None)
        )
        order = shop(world, charges_at="gateway").machine
        async with place.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            await submit(engine, order, named(4))
            assert engine.breakers()["gateway"].state == "open"
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            for workflow in ("o-2", "o-3"):
                await engine.send(workflow, Cancel())
                await settled(engine)
                assert (await engine.get(workflow)).state is State.UNDOING
            assert len(world.refund.calls) == 2
            assert [each.attempts for each in await engine.compensations()] == [0, 0]
            await later(engine, clock, 31.0)
            for workflow in ("o-2", "o-3"):
                await later(engine, clock, 1.0)
                assert (await engine.wait(workflow)).state is State.CANCELLED
            assert len({call.ctx.key for call in world.refund.calls}) == 3

    run(scenario)


def test_a_workflow_that_is_cancelled_while_it_waits_leaves_nothing_behind(place: Place) -> None:
    """C4: it was never called, so there is nothing to undo and nothing in the line."""

    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(down(), Charged()))
        order = shop(world, charges_at="gateway").machine
        async with place.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            await submit(engine, order, named(3))
            await engine.send("o-2", Cancel())
            assert (await engine.wait("o-2")).state is State.CANCELLED
            await later(engine, clock, 3_700.0)
            for workflow in ("o-1", "o-3"):
                assert (await engine.wait(workflow)).state is State.DONE
            assert world.refund.calls == []
            assert {call.ctx.workflow for call in world.charge.calls} == {"o-1", "o-3"}
            view = engine.breakers()["gateway"]
            assert (view.under_way, view.waiting) == (0, 0)

    run(scenario)


def test_a_worker_that_runs_no_steps_shows_the_breakers(place: Place) -> None:
    async def scenario() -> None:
        order = shop(charges_at="gateway").machine
        async with place.engine(order, clock=SetClock(), worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert engine.breakers()["gateway"].state == "closed"
            assert (await engine.get("o-1")).waiting is not None

    run(scenario)
