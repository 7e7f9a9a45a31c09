"""B6, G4, G5: what becomes of a workflow or an effect that was claimed."""

import msgspec
import pytest

from interlock import Engine, UnavailableError
from interlock.engine.path.engine_commands import FireTimers, TakeUp
from tests.conformance.engine.places import turns
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
from tests.unit.engine.shared.stores import (
    LEASE_S,
    Lease,
    SharedMemory,
    engine_on,
    inside,
    now_s,
    owner_of,
    passed,
    play,
)


async def submitted(engine: Engine, order: OrderMachine, *workflows: str) -> None:
    for workflow in workflows:
        await engine.start(order, workflow, Order())
        await engine.send(workflow, Submit())


async def dies(engine: Engine, store: SharedMemory) -> None:
    """The process is gone, and its leases are over."""
    inside(engine).pipeline.dead = UnavailableError("this engine was crashed by its test.")
    for task in inside(engine)._tasks:
        task.cancel()
    await inside(engine).runner.drain(0)
    store.over(*store.held)
    for each in store.held_effects:
        store.held_effects[each] = Lease("dead", store.now_us())


def taken_by_others(store: SharedMemory, workflow: str) -> None:
    """Somebody else has claimed it, for long."""
    store._claimed(store.row(workflow), "other", 10**6)


def test_a_timer_fires_once_at_its_time_wherever_it_was_set() -> None:
    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=30, send=Cancel())

        store, order = SharedMemory(), shop(declare=declare).machine
        async with engine_on(store, order, worker=False) as door:
            await door.start(order, "o-1", Order())
            begun_s = now_s()
            async with engine_on(store, order, seed=2) as one, engine_on(store, order, seed=3):
                assert (await one.wait("o-1")).state is State.CANCELLED
                assert now_s() - begun_s == pytest.approx(30, abs=0.5)
                await passed(60)
                assert [each.event for each in await one.history("o-1")] == ["STARTED", "CANCEL", "UNWOUND"]

    play(scenario)


def test_a_timer_fires_while_an_attempt_is_under_way_here() -> None:
    """Nobody else can claim the workflow, so this process looks after its timers."""

    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            order.after(State.CHARGING, after_s=2, send=Cancel())

        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), declare=declare)
        async with engine_on(store, order) as engine:
            await submitted(engine, order, "o-1")
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert now_s() == pytest.approx(2, abs=0.5)
            assert held.cancelled.is_set()
            assert world.refund.attempts == [1]
            inside(engine).pipeline.add(FireTimers("unknown"))
            await inside(engine).pipeline.idle()

    play(scenario)


def test_what_the_dead_have_begun_is_tried_again_with_the_same_key() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("never"))
        order, world, _ = shop(World(charge=Outside(held, Charged("second"))))
        async with engine_on(store, order) as first:
            await submitted(first, order, "o-1")
            await held.begun.wait()
            await dies(first, store)
        async with engine_on(store, order, seed=2) as second:
            assert (await second.of(order).wait("o-1")).context.receipt == "second"
        assert world.charge.attempts == [1, 2]
        assert len(set(world.charge.keys)) == 1

    play(scenario)


def test_the_last_attempt_of_the_dead_is_not_made_again() -> None:
    """It may have happened, so it is undone."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("never"))
        order, world, _ = shop(World(charge=Outside(held)), attempts=1)
        async with engine_on(store, order) as first:
            await submitted(first, order, "o-1")
            await held.begun.wait()
            await dies(first, store)
        async with engine_on(store, order, seed=2) as second:
            view = await second.of(order).wait("o-1")
            assert (view.state, view.context.note) == (State.CANCELLED, "crashed after 1")
        assert world.charge.attempts == [1]
        assert world.refund.attempts == [1]

    play(scenario)


def test_an_undo_of_the_dead_is_tried_again() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held()
        order, world, _ = shop(World(refund=Outside(held, None)))
        async with engine_on(store, order) as first:
            await submitted(first, order, "o-1")
            await first.wait("o-1")
            await first.send("o-1", Cancel())
            await held.begun.wait()
            await dies(first, store)
        async with engine_on(store, order, seed=2) as second:
            assert (await second.wait("o-1")).state is State.CANCELLED
        assert world.refund.attempts == [1, 2]

    play(scenario)


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_effect_of_the_dead_is_tried_again_unless_it_was_the_last_time(attempts: int) -> None:
    """B12: then it is a dead letter, and its place is free."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held()
        order, world, _ = shop(World(mail=Outside(held, None)), attempts=attempts)
        async with engine_on(store, order) as first:
            await submitted(first, order, "o-1")
            await held.begun.wait()
            await dies(first, store)
        async with engine_on(store, order, seed=2, effects_max=1) as second:
            await passed(5)
            letters = await second.dead_letters("effect")
            assert world.mail.attempts == ([1] if attempts == 1 else [1, 2])
            assert [each.attempts for each in letters] == ([1] if attempts == 1 else [])
            assert not store._kept.effects
            assert inside(second).runner.effect_slots.free == 1

    play(scenario)


def test_an_effect_that_runs_here_is_not_begun_again_although_its_lease_was_over() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held()
        order, world, _ = shop(World(mail=Outside(held)))
        async with engine_on(store, order, poll_s=0.1) as engine:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            for each in store.held_effects:
                store.held_effects[each] = Lease(owner_of(engine), store.now_us())
            await passed(1)
            held.go.set()
            await passed(1)
            assert world.mail.attempts == [1]
            assert not store._kept.effects

    play(scenario)


def test_what_waits_for_a_slot_keeps_its_lease() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, steps_max=1) as engine:
            await submitted(engine, order, "o-1", "o-2")
            await passed(2)
            assert "o-2" in inside(engine).runner.claimed
            lease = store.row("o-2").lease
            await passed(5 * LEASE_S)
            assert store.held["o-2"].owner == owner_of(engine)
            assert store.held["o-2"].until_us > store.now_us()
            assert store.row("o-2").lease == lease
            held.go.set()
            assert (await engine.wait("o-2")).state is State.DONE
            assert world.charge.attempts == [1, 1]
            assert not inside(engine).runner.claimed

    play(scenario)


def test_what_was_taken_by_others_while_it_waited_for_a_slot_is_dropped() -> None:
    """G4: by the next renewal, or by a look at its token when it is called; the place is given back."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, steps_max=1) as engine:
            await submitted(engine, order, "o-1", "o-2", "o-3")
            await passed(2)
            assert set(inside(engine).runner.claimed) == {"o-2", "o-3"}
            taken_by_others(store, "o-2")
            await passed(LEASE_S)
            assert set(inside(engine).runner.claimed) == {"o-3"}
            taken_by_others(store, "o-3")
            held.go.set()
            await engine.wait("o-1")
            await passed(1)
            assert world.charge.attempts == [1]
            assert inside(engine).runner.slots.free == 1
            assert not inside(engine).runner.claimed

    play(scenario)


def test_a_claim_that_somebody_else_has_renewed_since_changes_nothing() -> None:
    """G4: another token is another holder."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order) as engine:
            await submitted(engine, order, "o-1")
            await held.begun.wait()
            before = store.row("o-1")
            for lease in (before.lease - 1, before.lease + 1):
                inside(engine).pipeline.add(TakeUp("o-1", lease, 3, {}))
            inside(engine).pipeline.add(TakeUp("unknown", 1, 3, {}))
            await inside(engine).pipeline.idle()
            assert store.row("o-1") == before
            held.go.set()
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1]

    play(scenario)


def test_what_is_not_due_any_more_is_given_up_with_the_time_at_which_it_is() -> None:
    async def scenario() -> None:
        def declare(order: OrderMachine) -> None:
            order.after(State.DRAFT, after_s=30, send=Cancel())

        store, order = SharedMemory(), shop(declare=declare).machine
        async with engine_on(store, order, poll_s=1_000) as engine:
            await engine.start(order, "o-1", Order())
            due_us = store.row("o-1").wake_us
            row = store._claimed(store.row("o-1"), owner_of(engine), LEASE_S)
            inside(engine).pipeline.learn(row)
            assert inside(engine).runner.take_up(row)
            await inside(engine).pipeline.idle()
            assert store.row("o-1").wake_us == due_us
            assert "o-1" not in store.held

    play(scenario)


def test_a_step_that_the_machine_does_not_have_any_more_is_left_to_a_person() -> None:
    async def scenario() -> None:
        store, old = SharedMemory(), shop().machine
        async with engine_on(store, old, worker=False) as door:
            await submitted(door, old, "o-1")
        store._kept.rows["o-1"] = msgspec.structs.replace(store.row("o-1"), state="paused")
        async with engine_on(store, old, seed=2, steps_max=1) as worker:
            await passed(2)
            assert [each.kind for each in await worker.dead_letters()] == ["step"]
            assert store.row("o-1").wake_us is None
            assert inside(worker).runner.slots.free == 1

    play(scenario)


def test_a_workflow_that_became_unreadable_while_it_waited_gives_its_place_back() -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), timeout_s=1_000)
        async with engine_on(store, order, steps_max=1) as engine:
            await submitted(engine, order, "o-1", "o-2", "o-3")
            await passed(2)
            store._kept.rows["o-2"] = msgspec.structs.replace(store.row("o-2"), context=b"{not json", revision=99)
            held.go.set()
            for each in ("o-1", "o-3"):
                assert (await engine.wait(each)).state is State.DONE
            await turns()
            assert inside(engine).runner.slots.free == 1
            assert world.charge.attempts == [1, 1]

    play(scenario)


def test_a_step_of_a_stopping_engine_is_handed_over_at_once() -> None:
    """It is not counted, and nobody waits for the lease."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("never"))
        order, world, _ = shop(World(charge=Outside(held, Charged("second"))))
        async with engine_on(store, order, seed=2, poll_s=1_000) as other:
            async with engine_on(store, order) as first:
                await submitted(first, order, "o-1")
                await held.begun.wait()
            begun_s = now_s()
            assert (await other.of(order).wait("o-1")).context.receipt == "second"
            assert now_s() - begun_s < 1
            assert world.charge.attempts == [1, 1]
            assert len(set(world.charge.keys)) == 1

    play(scenario)
