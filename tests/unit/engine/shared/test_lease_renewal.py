"""G4, G5: whoever works holds on to its leases, stops when it has lost one, and never takes itself for dead."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from interlock import Engine, OutcomeUnknown, UnavailableError
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import (
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    State,
    Submit,
    World,
    shop,
)
from tests.unit.engine.shared.stores import LEASE_S, SharedMemory, engine_on, inside, owner_of, passed, play


async def submitted(engine: Engine, order: OrderMachine, *workflows: str) -> None:
    for workflow in workflows:
        await engine.start(order, workflow, Order())
        await engine.send(workflow, Submit())


def test_an_attempt_that_takes_long_is_held_and_nobody_else_begins_it() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, poll_s=1_000) as engine, engine_on(store, order, seed=2):
            await submitted(engine, order, "o-1")
            await passed(10 * LEASE_S)
            assert store.held["o-1"].owner == owner_of(engine)
            held.go.set()
            await engine.wait("o-1")
            assert world.charge.attempts == [1]

    play(scenario)


def test_an_attempt_that_has_just_begun_is_not_renewed() -> None:
    """Most attempts end long before: nothing is written for them."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order) as engine:
            for number in range(20):
                await submitted(engine, order, f"o-{number}")
                await passed(1)
            assert store.calls("renew") == store.calls("renew_effects") == 0

    play(scenario)


def test_an_effect_that_takes_long_is_held_and_so_is_one_that_waits_for_a_slot() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held()
        order, world, _ = shop(World(mail=Outside(held)))
        async with engine_on(store, order, effects_max=1) as engine, engine_on(store, order, seed=2, effects_max=1):
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            await passed(2.5 * LEASE_S)
            assert world.mail.attempts == [1]
            assert store.calls("renew_effects") >= 3
            held.go.set()
            await passed(1)
            assert not store._kept.effects

    play(scenario)


def test_an_attempt_whose_workflow_was_taken_over_is_cancelled() -> None:
    """G4: whatever it still says is late."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("too late"))
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, steps_max=1) as engine:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            store._claimed(store.row("o-1"), "other", 10**6)
            await passed(LEASE_S)
            assert held.cancelled.is_set()
            assert inside(engine).runner.slots.free == 1
            assert store.row("o-1").state == "charging"
            assert world.charge.attempts == [1]

    play(scenario)


def test_a_result_of_an_attempt_that_was_taken_over_is_late() -> None:
    """G4, G5: also when it comes before the engine knows."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("too late"))
        order = shop(World(charge=Outside(held)), timeout_s=1_000).machine
        async with engine_on(store, order) as engine:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            store._claimed(store.row("o-1"), "other", 10**6)
            held.go.set()
            await turns()
            await inside(engine).pipeline.idle()
            assert (store.row("o-1").state, store.row("o-1").version) == ("charging", 2)
            assert not inside(engine).runner.reporting

    play(scenario)


def test_a_lease_of_this_very_process_that_was_over_is_taken_up_and_not_taken_for_a_crash() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, poll_s=0.1) as engine:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            lease = store.row("o-1").lease
            store.over("o-1")
            await passed(1)
            assert store.row("o-1").lease == lease + 1
            held.go.set()
            assert (await engine.of(order).wait("o-1")).context.receipt == "once"
            assert world.charge.attempts == [1]

    play(scenario)


def test_a_report_that_is_under_way_keeps_its_lease() -> None:
    """What has happened outside must not be tried again while it is being written down."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order, poll_s=0.5) as engine, engine_on(store, order, seed=2):
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            store.down["commit"] = UnavailableError("away.")
            held.go.set()
            await passed(5 * LEASE_S)
            assert store.held["o-1"].owner == owner_of(engine)
            store.over("o-1")
            await passed(1)
            del store.down["commit"]
            assert (await engine.of(order).wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1]
            assert not inside(engine).runner.reporting

    play(scenario)


@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknown, OSError])
def test_leases_are_renewed_again_after_it_failed(
    error: Callable[[str], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, poll_s=1_000) as engine:
            await submitted(engine, order, "o-1")
            store.down["renew"] = error("away.")
            await passed(LEASE_S - 1)
            del store.down["renew"]
            await passed(LEASE_S)
            assert store.held["o-1"].until_us > store.now_us()
            held.go.set()
            await engine.wait("o-1")
            assert world.charge.attempts == [1]

    with caplog.at_level(logging.ERROR, logger="interlock.steps"):
        play(scenario)
    assert ("leases could not be renewed; others may take the work over." in caplog.text) is (error is OSError)


def test_an_event_of_another_process_leaves_the_lease_to_whoever_holds_it() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order) as engine, engine_on(store, order, worker=False, seed=2) as door:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            await asyncio.gather(*(door.send("o-1", Note(text)) for text in "abc"))
            held.go.set()
            view = await engine.of(order).wait("o-1")
            assert (view.context.receipt, view.context.note) == ("once", "abc")
            assert world.charge.attempts == [1]

    play(scenario)
