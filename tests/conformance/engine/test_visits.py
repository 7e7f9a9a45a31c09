"""B10, G5: the result of a step belongs to one visit of its state, and is applied there at most once."""

import asyncio
import contextlib

import pytest

from interlock import Event, ResultLate, Signal, StepContext
from tests.conformance.engine.places import Place, run, settled
from tests.conformance.engine.shop import (
    Again,
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    Outside,
    Pause,
    Reserved,
    State,
    Submit,
    World,
    shop,
)


def test_a_result_that_is_refused_here_counts_as_non_retryable(place: Place) -> None:
    """Outcomes."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(Reserved())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            view = await engine.of(order).wait("o-1")
            assert (view.state, view.context.note) == (State.CANCELLED, "invalid-transition after 1")
            assert world.charge.attempts == [1]
            assert world.refund.calls == []

    run(scenario)


@pytest.mark.parametrize("wrong", [None, "CHARGED", 7, Charged, Charged("a\x00b"), Charged("\ud800")], ids=repr)
def test_a_result_that_is_no_event_is_a_dead_letter_and_may_have_happened(place: Place, wrong: object) -> None:
    """C18: it is a mistake of the program, so it does not take the way of the business. G5: it is undone."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(wrong)))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await settled(engine)
            [letter] = await engine.dead_letters()
            assert (letter.kind, letter.attempts) == ("step", 1)
            assert (await engine.get("o-1")).state is State.CHARGING
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


def test_a_late_result_is_told_and_never_applied(place: Place) -> None:
    """G5: the workflow has left the visit; whatever its step still says changes nothing."""

    async def scenario() -> None:
        held = Held(Charged("late"), stubborn=True)
        order, _, charge = shop()
        seen: list[Signal] = []

        async def stubborn(order: Order, ctx: StepContext) -> Event:
            with contextlib.suppress(asyncio.CancelledError):
                await held.wait()
            return Charged("late")

        async with place.engine(order, steps={charge: stubborn}, observers=[seen.append]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await engine.send("o-1", Pause())
            await held.cancelled.wait()
            held.go.set()
            await settled(engine)
            view = await engine.of(order).get("o-1")
            assert (view.state, view.version, view.context.receipt) == (State.PAUSED, 3, "")
            assert [each.workflow for each in seen if isinstance(each, ResultLate)] == ["o-1"]

    run(scenario)


def test_leaving_the_state_cancels_its_step(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order = shop(World(charge=Outside(held))).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await engine.send("o-1", Pause())
            await held.cancelled.wait()

    run(scenario)


def test_an_internal_transition_lets_the_step_go_on_and_its_result_meets_the_new_context(place: Place) -> None:
    async def scenario() -> None:
        held = Held(Charged("r"))
        order, world, _ = shop(World(charge=Outside(held)))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await engine.send("o-1", Note("meanwhile"))
            held.go.set()
            view = await engine.of(order).wait("o-1")
            assert (view.context.note, view.context.receipt) == ("meanwhile", "r")
            assert len(world.charge.calls) == 1
            assert world.charge.calls[0].context.note == ""

    run(scenario)


def test_a_self_target_enters_anew_with_a_new_key(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(charge=Outside(held, Charged())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await engine.send("o-1", Again())
            assert (await engine.wait("o-1")).state is State.DONE
            assert held.cancelled.is_set()
            first, second = world.charge.calls
            assert first.ctx.key != second.ctx.key
            assert (first.ctx.visit, second.ctx.visit) == (2, 3)
            assert (first.ctx.attempt, second.ctx.attempt) == (1, 1)

    run(scenario)


def test_a_step_may_return_the_event_that_enters_its_own_state_again(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(Again(), Again(), Charged())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.DONE
            assert len(set(world.charge.keys)) == 3

    run(scenario)
