"""B6: what is due is found by whoever has room, at the right time, and nothing makes a worker stop looking."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
import pytest

from interlock import Engine, OutcomeUnknown, RetryAfter, UnavailableError
from interlock.engine.shared import claims
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import (
    Again,
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
from tests.unit.engine.shared.stores import (
    LEASE_S,
    Luck,
    SharedMemory,
    engine_on,
    inside,
    now_s,
    passed,
    play,
    policy_of,
)

LONG_S = 1_000.0
"""A worker that looks so seldom finds nothing by looking."""


async def submitted(engine: Engine, order: OrderMachine, *workflows: str) -> None:
    for workflow in workflows:
        await engine.start(order, workflow, Order())
        await engine.send(workflow, Submit())


def test_a_worker_finds_what_others_have_left_by_looking_alone() -> None:
    """A hint may be lost."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as door:
            await submitted(door, order, "o-1")
        store.hints.clear()
        async with engine_on(store, order, poll_s=3, chance=Luck(0.5), seed=2) as worker:
            assert (await worker.wait("o-1")).state is State.DONE
            assert now_s() < 3

    play(scenario)


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.9])
def test_workers_do_not_look_in_step(fraction: float) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, poll_s=10, chance=Luck(fraction)):
            await passed(1)
            before = store.calls("due")
            await passed(100)
            assert store.calls("due") - before == int(101 / min(10, 10 * (0.9 + 0.2 * fraction)))

    play(scenario)


def test_a_hint_makes_a_worker_look_at_once() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with (
            engine_on(store, order, worker=False) as door,
            engine_on(store, order, poll_s=LONG_S, seed=2) as worker,
        ):
            await passed(1)
            begun_s = now_s()
            await submitted(door, order, "o-1")
            assert (await worker.wait("o-1")).state is State.DONE
            assert now_s() - begun_s < 1

    play(scenario)


def test_hints_are_gathered() -> None:
    """One is as good as a thousand."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as door:
            ids = [f"o-{number}" for number in range(100)]
            for each in ids:
                await door.start(order, each, Order())
            await passed(1)
            assert store.hints_said == 0, "nothing is due of a draft"
            await door.send_many([(each, Submit()) for each in ids])
            await passed(1)
            assert store.hints_said == 1
            store.gates["hint"] = asyncio.Event()
            await door.send_many([(each, Again()) for each in ids[:50]])
            await passed(1)
            await door.send_many([(each, Again()) for each in ids[50:]])
            await passed(1)
            assert store.calls("hint") == 2, "one is on its way"
            store.gates["hint"].set()

    play(scenario)


def test_a_hint_that_cannot_be_said_harms_nobody_and_the_last_one_is_said_before_the_end() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        store.down["hint"] = UnavailableError("away.")
        async with engine_on(store, order) as engine:
            engine._inside.runner.slots.free = 0
            await submitted(engine, order, "o-1")
        assert store.calls("hint") == 1

    play(scenario)


def test_whoever_takes_an_event_and_goes_at_once_has_hinted_at_it() -> None:
    """A command that sends one event is gone before hints are gathered."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, poll_s=LONG_S, seed=2) as worker:
            await passed(1)
            async with engine_on(store, order, worker=False) as door:
                await submitted(door, order, "o-1")
            begun_s = now_s()
            assert store.hints_said == 1
            assert (await worker.wait("o-1")).state is State.DONE
            assert now_s() - begun_s < 1

    play(scenario)


def test_an_ear_that_fails_is_tried_again() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        store.down["hinted"] = OSError("odd")
        async with (
            engine_on(store, order, worker=False) as door,
            engine_on(store, order, poll_s=10, seed=2) as worker,
        ):
            await passed(25)
            assert 2 <= store.calls("hinted") <= 3
            del store.down["hinted"]
            await passed(10)
            begun_s = now_s()
            await submitted(door, order, "o-1")
            assert (await worker.wait("o-1")).state is State.DONE
            assert now_s() - begun_s < 1

    play(scenario)


def test_a_retry_is_begun_at_its_time_and_not_at_the_next_look() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        order, world, _ = shop(World(charge=Outside(RetryAfter(7.0), Charged())))
        async with engine_on(store, order, poll_s=30) as engine:
            await submitted(engine, order, "o-1")
            await engine.wait("o-1")
            assert world.charge.attempts == [1, 2]
            assert 6.999 <= now_s() < 8

    play(scenario)


def test_a_worker_claims_no_more_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: and more when there is room again."""
    monkeypatch.setattr(claims, "WAITING_MAX", 3)

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order, worker=False) as door:
            await submitted(door, order, *(f"o-{number:02}" for number in range(20)))
        async with engine_on(store, order, steps_max=2, poll_s=LONG_S, seed=2) as worker:
            await held.begun.wait()
            await turns(200)
            assert len(world.charge.calls) == 2
            assert len(store.held) == 2 + 3
            held.go.set()
            await passed(1)
            for number in range(20):
                assert (await worker.wait(f"o-{number:02}")).state is State.DONE

    play(scenario)


def test_timers_fire_although_all_slots_are_taken() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())

        def declare(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=5, send=Cancel())

        order = shop(World(charge=Outside(held)), declare=declare).machine
        async with engine_on(store, order, steps_max=1) as engine:
            await submitted(engine, order, "busy")
            await held.begun.wait()
            await engine.start(order, "o-1", Order())
            await passed(5.5)
            assert store.row("o-1").state != "draft"
            held.go.set()
            assert (await engine.wait("o-1")).state is State.CANCELLED

    play(scenario)


def test_effects_are_claimed_as_there_is_room_for_them() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held()
        order, world, _ = shop(World(mail=Outside(held)))
        async with engine_on(store, order, effects_max=2, poll_s=LONG_S) as engine:
            await submitted(engine, order, *(f"o-{number}" for number in range(5)))
            await held.begun.wait()
            await passed(1)
            assert len(world.mail.calls) == 2
            assert len(store._kept.effects) == 5
            held.go.set()
            await passed(1)
            assert len(world.mail.calls) == 5
            assert len(set(world.mail.keys)) == 5
            assert not store._kept.effects

    play(scenario)


@pytest.mark.parametrize("call", ["due", "claim", "claim_effects"])
@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknown, OSError])
def test_nothing_makes_a_worker_stop_looking(call: str, error: Callable[[str], Exception]) -> None:
    """One that gave up would look alive and be dead."""

    async def scenario() -> None:
        store = SharedMemory()
        order, world, _ = shop(World(mail=Outside(OSError("once"), None)))
        async with (
            engine_on(store, order, poll_s=1) as worker,
            engine_on(store, order, worker=False, seed=2) as door,
        ):
            store.down[call] = error("away.")
            await submitted(door, order, "o-1")
            await passed(3 * LEASE_S)
            del store.down[call]
            assert (await worker.wait("o-1")).state is State.DONE
            await passed(2 * LEASE_S)
            assert world.mail.attempts == [1, 2]

    play(scenario)


@pytest.mark.parametrize("more_s", [0.1, 0.9, 1.7, 2.5, 3.3, 4.1])
def test_after_an_outage_the_others_have_time_to_renew_before_anything_is_claimed(more_s: float) -> None:
    """Everybody's leases have run out, and nobody is dead."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=10_000)
        down = ("due", "claim", "claim_effects", "renew", "commit", "load")
        async with engine_on(store, order) as busy, engine_on(store, order, poll_s=0.1, seed=2):
            await submitted(busy, order, "o-1")
            await held.begun.wait()
            for call in down:
                store.down[call] = UnavailableError("away.")
            await passed(10 * LEASE_S + more_s)
            assert store.held["o-1"].until_us < store.now_us(), "the lease has run out"
            store.down.clear()
            await passed(2 * LEASE_S)
            assert store.held["o-1"].until_us > store.now_us()
            held.go.set()
            assert (await busy.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1]

    play(scenario)


def test_a_workflow_that_cannot_be_read_keeps_no_other_from_being_taken_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as door:
            await submitted(door, order, "o-1", "o-2")
        store._kept.rows["o-1"] = msgspec.structs.replace(store.row("o-1"), context=b"{not json")
        async with engine_on(store, order, seed=2, steps_max=1) as worker:
            assert (await worker.wait("o-2")).state is State.DONE
            await turns()
            assert inside(worker).runner.slots.free == 1
            assert not inside(worker).runner.claimed

    with caplog.at_level(logging.ERROR, logger="interlock.steps"):
        play(scenario)
    assert "workflow 'o-1' cannot be taken up, and is left as it is" in caplog.text


def test_what_becomes_due_sooner_wakes_a_worker_sooner_and_what_is_far_away_does_not() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, poll_s=100) as engine:
            await passed(1)
            before, claims = store.calls("due"), policy_of(engine).claiming
            begun_us = store.now_us()
            claims.due(begun_us + 50_000_000)
            claims.due(begun_us + 5_000_000)
            claims.due(begun_us + 20_000_000)
            claims.due(begun_us + 500_000_000)
            await passed(4.9)
            assert store.calls("due") == before
            await passed(0.2)
            assert store.calls("due") == before + 1
            claims.due(begun_us)
            await turns()
            assert store.calls("due") == before + 2

    play(scenario)
