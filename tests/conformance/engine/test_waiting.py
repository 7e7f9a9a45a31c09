"""wait: until there, until it can never be, or until the time is over."""

import asyncio

import pytest

from interlock import Engine, InvalidPayload, WaitFailed, WaitTimeout
from tests.conformance.engine.places import PATIENCE_S, Place, run, settled
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Declined,
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


async def submitted(engine: Engine, order: OrderMachine) -> None:
    await engine.start(order, "o-1", Order())
    await engine.send("o-1", Submit())


def test_without_states_a_wait_ends_on_resting_and_on_final(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            assert (await engine.wait("o-1")).state is State.DONE
            assert (await engine.wait("o-1", timeout_s=0)).state is State.DONE
            await engine.send("o-1", Ship())
            assert (await engine.wait("o-1")).state is State.SHIPPED

    run(scenario)


def test_a_wait_for_states_passes_over_resting_ones(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            waiting = asyncio.create_task(engine.wait("o-1", State.SHIPPED, State.CANCELLED))
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            assert not waiting.done()
            await engine.send("o-1", Ship())
            view = await waiting
            assert (view.state, view.version) == (State.SHIPPED, 5)

    run(scenario)


def test_another_final_state_than_asked_for_fails_at_once(place: Place) -> None:
    async def scenario() -> None:
        held = Held(Declined())
        order = shop(World(charge=Outside(held))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            waiting = asyncio.create_task(engine.wait("o-1", State.DONE))
            await held.begun.wait()
            held.go.set()
            with pytest.raises(WaitFailed, match="'cancelled', not in 'done'"):
                await waiting
            with pytest.raises(WaitFailed):
                await engine.wait("o-1", State.DONE, timeout_s=60)

    run(scenario)


def test_time_over_is_a_timeout_error_that_says_where_the_workflow_stands(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            for timeout_s in (0, 0.01):
                with pytest.raises(WaitTimeout, match="'draft' at version 1") as over:
                    await engine.wait("o-1", timeout_s=timeout_s)
                assert isinstance(over.value, TimeoutError)
            assert len(engine._inside.waiters) == 0

    run(scenario)


def test_many_may_wait_for_one_workflow_and_one_may_go_away(place: Place) -> None:
    async def scenario() -> None:
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        async with place.engine(order) as engine:
            await submitted(engine, order)
            waits = [asyncio.create_task(engine.wait("o-1")) for _ in range(5)]
            await settled(engine)
            waits[2].cancel()
            held.go.set()
            answers = await asyncio.gather(*waits, return_exceptions=True)
            assert isinstance(answers[2], asyncio.CancelledError)
            assert len({answer for answer in answers if not isinstance(answer, BaseException)}) == 1
            assert len(engine._inside.waiters) == 0

    run(scenario)


def test_a_state_that_is_only_passed_is_seen_by_a_wait_that_was_there_before(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            waiting = asyncio.create_task(engine.wait("o-1", State.CHARGING))
            await settled(engine)
            await engine.send("o-1", Submit())
            assert (await waiting).state is State.CHARGING

    run(scenario)


def test_a_move_between_looking_and_waiting_is_not_missed(kept: Place) -> None:
    """The trap of the lost wake-up: the workflow is not in memory, and moves while it is looked up."""

    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order) as engine:
            for number in range(20):
                await engine.start(order, f"o-{number}", Order())
        async with kept.engine(order) as engine:
            for number in range(20):
                waiting = asyncio.create_task(engine.wait(f"o-{number}", timeout_s=PATIENCE_S))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                await engine.send(f"o-{number}", Cancel())
                assert (await waiting).state is State.CANCELLED

    run(scenario)


def test_an_event_sent_while_the_result_of_a_step_is_committed_is_not_lost(place: Place) -> None:
    """The trap of the lost wake-up, from the other side: every interleaving ends where it must."""

    async def scenario() -> None:
        for turn in range(12):
            held = Held(Charged())
            order = shop(World(charge=Outside(held))).machine
            async with place.engine(order) as engine:
                workflow = f"o-{turn}"
                await engine.start(order, workflow, Order())
                await engine.send(workflow, Submit())
                await held.begun.wait()
                held.go.set()
                for _ in range(turn):
                    await asyncio.sleep(0)
                await engine.send(workflow, Note("x"), if_allowed=True)
                assert (await engine.wait(workflow, timeout_s=PATIENCE_S)).state is State.DONE

    run(scenario)


def test_a_wait_for_what_is_no_state_of_the_machine_is_refused(place: Place) -> None:
    """It would wait for ever."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(InvalidPayload):
                await engine.wait("o-1", "done", timeout_s=0.01)  # type: ignore[arg-type]
            assert len(engine._inside.waiters) == 0

    run(scenario)
