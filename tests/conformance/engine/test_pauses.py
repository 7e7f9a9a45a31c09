"""E7: nothing begins for a workflow, a state or a machine that is paused; events apply; it survives restarts."""

import asyncio

import pytest

from interlock import Engine, Machine, UnavailableError, WorkflowNotFound
from interlock.engine import internals
from interlock.engine.pauses import PAUSES_MAX, PauseScope
from interlock.engine.shared.shared_store_policy import SharedStorePolicy
from interlock.errors import BadUsage, InvalidPayload
from tests.conformance.engine.places import Place, SetClock, run, settled, turns
from tests.conformance.engine.shop import (
    Again,
    Cancel,
    Held,
    Note,
    Order,
    OrderEvent,
    Outside,
    State,
    Submit,
    World,
    shop,
)


async def quiet(engine: Engine) -> None:
    """Give everything that could begin its chance: claims, queues and groups."""
    for _ in range(3):
        policy = engine._inside.policy
        if isinstance(policy, SharedStorePolicy):
            await policy.claiming._poll()
        await settled(engine)
        await turns()


def test_a_resumption_that_fails_is_logged_and_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(internals, "RESUME_FIRST_S", 0.0)

    async def scenario() -> None:
        made = shop()
        order = made.machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.pause(machine=order)
            await engine.send("o-1", Submit(5))
            await quiet(engine)
            policy, failures = engine._inside.policy, [OSError("the disk"), UnavailableError("the store is away.")]
            resume, tasks = policy.resume, len(engine._inside._tasks)

            async def failing(scope: PauseScope) -> None:
                if failures:
                    raise failures.pop()
                await resume(scope)

            monkeypatch.setattr(policy, "resume", failing)
            await engine.resume(machine=order)
            assert (await engine.wait("o-1")).state is State.DONE
            while len(engine._inside._tasks) > tasks:
                await turns(1)
        assert caplog.text.count("what was resumed in machine 'order' cannot be taken up, and is tried again") == 2

    run(scenario)


def test_no_step_begins_while_its_machine_is_paused_and_events_apply(place: Place) -> None:
    async def scenario() -> None:
        made = shop()
        order = made.machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            pause = await engine.pause(machine=order, by="ada", note="the bank is down")
            assert (pause.machine, pause.state, pause.workflow, pause.by) == ("order", None, None, "ada")
            assert await engine.pauses() == [pause]
            await engine.send("o-1", Note("n"))
            assert (await engine.send("o-1", Submit(5))).state is State.CHARGING
            await quiet(engine)
            view = await engine.get("o-1")
            assert (view.state, view.paused, view.waiting) == (State.CHARGING, True, "its step is paused")
            assert made.world.charge.calls == []
            assert await engine.resume(machine=order, by="bob", note="up again") is True
            assert (await engine.wait("o-1")).state is State.DONE
            assert await engine.resume(machine=order) is False
            assert await engine.pauses() == []
            rows = await engine.history(PauseScope("order").id)
            kept = [(row.event, getattr(row.payload, "by", ""), getattr(row.payload, "note", "")) for row in rows]
            assert kept == [("STARTED", "", ""), ("PAUSED", "ada", "the bank is down"), ("RESUMED", "bob", "up again")]

    run(scenario)


def test_a_pause_of_a_workflow_or_a_state_leaves_the_others(place: Place) -> None:
    async def scenario() -> None:
        made = shop()
        order = made.machine
        async with place.engine(order) as engine:
            for name in ("o-1", "o-2"):
                await engine.start(order, name, Order())
            await engine.pause(id="o-1")
            for name in ("o-1", "o-2"):
                await engine.send(name, Submit(5))
            assert (await engine.wait("o-2")).state is State.DONE
            await quiet(engine)
            assert (await engine.get("o-1")).state is State.CHARGING
            await engine.pause(machine=order, state=State.RESERVING)
            await engine.resume(id="o-1")
            await engine.wait("o-1", State.RESERVING)
            await quiet(engine)
            assert (await engine.get("o-1")).paused
            assert len(made.world.reserve.calls) == 1  # That of o-2.
            await engine.resume(machine=order, state=State.RESERVING)
            assert (await engine.wait("o-1")).state is State.DONE

    run(scenario)


def test_undos_effects_and_timers_wait_and_running_attempts_go_on(place: Place) -> None:
    def declare(order: Machine[State, Order, OrderEvent]) -> None:
        order.after(State.DRAFT, after_s=0.01, send=Submit(5))

    async def scenario() -> None:
        held = Held()
        made = shop(World(reserve=Outside(held)), declare=declare)
        order = made.machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await asyncio.wait_for(held.begun.wait(), 600)  # The timer has fired, and an attempt runs.
            await engine.pause(machine=order)
            await engine.start(order, "o-2", Order())
            await engine.send("o-1", Cancel())
            await asyncio.wait_for(held.cancelled.wait(), 600)
            await quiet(engine)
            assert (await engine.get("o-1")).state is State.UNDOING
            assert made.world.refund.calls == made.world.release.calls == []
            assert (await engine.get("o-2")).state is State.DRAFT  # Its timer is due.
            held.go.set()
            made.world.reserve.answers[:] = [Again()]
            await engine.pause(machine=order, state=State.CHARGING)
            await engine.resume(machine=order)
            assert (await engine.wait("o-1")).state is State.CANCELLED
            await engine.wait("o-2", State.CHARGING)
            await quiet(engine)
            assert len(made.world.charge.calls) == 1

    run(scenario)


def test_an_effect_begins_when_its_workflow_is_resumed(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        made = shop(World(mail=Outside(held)))
        order = made.machine
        async with place.engine(order) as engine:
            await engine.pause(machine=order, state=State.DONE)
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit(5))
            await engine.wait("o-1", State.DONE)
            await quiet(engine)
            assert made.world.mail.calls == []
            await engine.resume(machine=order, state=State.DONE)
            await asyncio.wait_for(held.begun.wait(), 600)
            held.go.set()
            await quiet(engine)
            assert len(made.world.mail.calls) == 1

    run(scenario)


def test_it_survives_a_restart_and_is_seen_by_every_engine(kept: Place) -> None:
    async def scenario() -> None:
        made = shop()
        order = made.machine
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.pause(machine=order)
            await engine.send("o-1", Submit(5))
        async with kept.engine(order) as engine:
            assert (await engine.get("o-1")).paused
            await quiet(engine)
            assert made.world.charge.calls == []
            if engine._store.shared:
                async with kept.engine(order) as other:
                    await other.pause(id="o-1")
                    await engine._inside.pauses.read(engine._store)
                    assert (await engine.get("o-1")).paused
                    await other.resume(machine=order)
                    await quiet(engine)
                    await quiet(other)
                    assert made.world.charge.calls == []
            await engine.resume(machine=order)
            await engine.resume(id="o-1")
            assert (await engine.wait("o-1")).state is State.DONE

    run(scenario)


def test_the_pause_of_a_workflow_that_was_pruned_ends(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        clock = SetClock()
        async with place.engine(order, clock=clock) as engine:
            await engine.start(order, "o-1", Order())
            await engine.start(order, "o-2", Order())
            await engine.pause(id="o-1")
            await engine.send("o-1", Cancel())
            clock.now_s += 10
            assert (await engine.prune(older_than_s=0)).workflows == 1
            assert await engine.resume(id="o-1") is True
            assert await engine.pauses() == []
            assert await engine.resume(id="o-1") is False
            with pytest.raises(WorkflowNotFound):
                await engine.resume(id="o-3")

    run(scenario)


def test_mistakes_are_refused(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(WorkflowNotFound):
                await engine.pause(id="o-2")
            for wrong in ({}, {"id": "o-1", "machine": order}, {"state": State.DONE}):
                with pytest.raises(BadUsage, match="names neither"):
                    await engine.pause(**wrong)
            with pytest.raises(UnavailableError, match="is another object"):
                await engine.pause(machine=shop().machine)
            with pytest.raises(InvalidPayload, match="name of an actor"):
                await engine.pause(id="o-1", by="a\nb")
            await engine.pause(id="o-1")
            with pytest.raises(WorkflowNotFound):
                await engine.pause(id=PauseScope(workflow="o-1").id)
            assert PAUSES_MAX == 1_000
            assert PauseScope("a", "b/c").id != PauseScope("a/b", "c").id

    run(scenario)
