"""Stopping, B6: leaving an engine loses nothing that was taken in; what it cuts off is taken up with the same key."""

import asyncio

import pytest

from interlock import Engine, Moved, NonRetryable, Retryable, RetryAfter, UnavailableError
from interlock.engine import recovery
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import (
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Reserved,
    State,
    Submit,
    World,
    shop,
)


async def submitted(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Submit())


def test_leaving_waits_for_running_steps_and_applies_their_results(kept: Place) -> None:
    async def scenario() -> None:
        held = Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)))
        engine = await kept.engine(order)
        await submitted(engine, order)
        await held.begun.wait()
        closing = asyncio.create_task(engine.close())
        await settled(engine)
        held.go.set()
        await closing
        assert not held.cancelled.is_set()
        assert world.reserve.calls == []
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1]

    run(scenario)


def test_a_step_that_is_entered_while_the_engine_closes_has_all_its_attempts_in_the_next_life(kept: Place) -> None:
    """An attempt that never began is not counted: with one attempt it would be lost."""

    async def scenario() -> None:
        held = Held(Charged())
        order, world, _ = shop(World(charge=Outside(held)), attempts=1)
        engine = await kept.engine(order)
        await submitted(engine, order)
        await held.begun.wait()
        closing = asyncio.create_task(engine.close())
        await settled(engine)
        held.go.set()
        await closing
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.reserve.attempts == [1]

    run(scenario)


def test_an_attempt_that_is_counted_in_the_last_group_is_run_or_given_back(kept: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(attempts=1)
        engine = await kept.engine(order)
        await engine.start(order, "o-1", Order())
        sent = asyncio.create_task(engine.send("o-1", Submit()))
        await asyncio.sleep(0)
        await engine.close()
        assert (await sent).state is State.CHARGING
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
        assert world.charge.attempts in ([1], [1, 1])

    run(scenario)


def test_after_drain_s_steps_are_cancelled_and_the_attempt_is_not_counted(kept: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(charge=Outside(held, Charged())), attempts=1)
        async with kept.engine(order, drain_s=0) as engine:
            await submitted(engine, order)
            await held.begun.wait()
        assert held.cancelled.is_set()
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
        assert world.charge.attempts == [1, 1]
        assert len(set(world.charge.keys)) == 1

    run(scenario)


def test_a_step_cancelled_by_the_stop_may_have_happened_and_is_undone_when_it_fails_later(kept: Place) -> None:
    """Outcomes: cancellation means unknown."""

    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(charge=Outside(held, NonRetryable("no"))))
        async with kept.engine(order, drain_s=0) as engine:
            await submitted(engine, order)
            await held.begun.wait()
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.CANCELLED
        assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


def test_undos_and_effects_that_are_cut_off_are_not_counted_and_keep_their_keys(kept: Place) -> None:
    async def scenario() -> None:
        mail, refund = Held(), Held()
        world = World(mail=Outside(mail, None), refund=Outside(refund, None))
        order = shop(world).machine
        async with kept.engine(order, drain_s=0, undo_attempts=1) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await mail.begun.wait()
            world.charge.answers = [Retryable("no"), Retryable("no"), Retryable("no")]
            await submitted(engine, order, "o-2")
            await refund.begun.wait()
        async with kept.engine(order, undo_attempts=1) as engine:
            assert (await engine.wait("o-2")).state is State.CANCELLED
            while len(world.mail.calls) < 2:
                await settled(engine)
            assert await engine.dead_letters() == []
        assert world.mail.attempts == [1, 1]
        assert world.refund.attempts == [1, 1]
        assert len({*world.mail.keys}) == len({*world.refund.keys}) == 1

    run(scenario)


def test_events_that_wait_at_the_stop_are_not_lost(kept: Place) -> None:
    """The trap of queues: what was sent before the engine is left is applied, and answered."""

    async def scenario() -> None:
        order = shop().machine
        engine = await kept.engine(order, group_max=3)
        await engine.start(order, "o-1", Order())
        sent = [asyncio.create_task(engine.send("o-1", Note("x"))) for _ in range(20)]
        await asyncio.sleep(0)
        await engine.close()
        answers = await asyncio.gather(*sent)
        assert [moved.version for moved in answers] == list(range(2, 22))
        async with kept.engine(order) as engine:
            assert (await engine.of(order).get("o-1")).context.note == "x" * 20

    run(scenario)


def test_a_closed_engine_says_so_to_every_call(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
        for call in (engine.get, engine.history, engine.wait, engine.stats, engine.allowed, engine.retry_dead_letter):
            with pytest.raises(UnavailableError, match="the engine is closed"):
                await call("o-1")
        for listing in (engine.compensations, engine.dead_letters):
            with pytest.raises(UnavailableError, match="the engine is closed"):
                await listing()
        with pytest.raises(UnavailableError, match="the engine is closed"):
            await engine.send("o-1", Note("x"))
        with pytest.raises(UnavailableError, match="the engine is closed"):
            await engine.start(order, "o-2", Order())
        with pytest.raises(UnavailableError, match="the engine is closed"):
            await engine.find(order)
        with pytest.raises(UnavailableError, match="the engine is closed"):
            await engine.stalled(order)
        await engine.close()

    run(scenario)


def test_those_who_wait_are_told_when_the_engine_is_closed(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            waiting = asyncio.create_task(engine.wait("o-1"))
            await settled(engine)
        with pytest.raises(UnavailableError, match="closed"):
            await waiting

    run(scenario)


def test_a_block_that_raises_closes_the_engine_and_raises_the_same(kept: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        with pytest.raises(KeyError, match="mine"):
            async with kept.engine(order):
                raise KeyError("mine")
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order())

    run(scenario)


def test_every_acknowledged_event_is_there_after_a_crash(kept: Place) -> None:
    """B6."""

    async def scenario() -> None:
        order = shop().machine
        engine = await kept.engine(order)
        await engine.start(order, "o-1", Order())
        answers = await asyncio.gather(*(engine.send("o-1", Note("x"), key=f"k{n}") for n in range(50)))
        await crash(engine)
        async with kept.engine(order) as engine:
            assert (await engine.get("o-1")).version == max(moved.version for moved in answers) == 51
            again = await engine.send("o-1", Note("x"), key="k7")
            assert again == Moved(state=State.DRAFT, version=answers[7].version, duplicate=True)

    run(scenario)


def test_a_recovered_workflow_blocks_nobody(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of a recovered workflow that stays pending: more owe something than fit a page, one of them hangs."""

    async def scenario() -> None:
        monkeypatch.setattr(recovery, "PAGE", 2)
        world = World(charge=Outside(Held()))
        order = shop(world).machine
        ids = [f"o-{number}" for number in range(7)]
        engine = await kept.engine(order)
        for each in ids:
            await submitted(engine, order, each)
        while len(world.charge.calls) < 7:
            await settled(engine)
        await crash(engine)
        held = Held(Charged())
        world.charge.answers = [held, Charged()]
        async with kept.engine(order, steps_max=2) as engine:
            await held.begun.wait()
            hanging = world.charge.calls[7].ctx.workflow
            views = await asyncio.gather(*(engine.wait(each) for each in ids if each != hanging))
            assert {view.state for view in views} == {State.DONE}
            held.go.set()
            assert (await engine.wait(hanging)).state is State.DONE
        assert world.charge.attempts == [1] * 7 + [2] * 7
        assert len(set(world.charge.keys)) == 7

    run(scenario)


def test_a_retry_waits_on_for_its_time_in_the_next_life(kept: Place) -> None:
    """A restart is no way around backoff."""

    async def scenario() -> None:
        clock = SetClock()
        answers = Outside(RetryAfter(3600.0), Charged())
        order, world, _ = shop(World(charge=answers))
        async with kept.engine(order, clock=clock) as engine:
            await submitted(engine, order)
            await settled(engine)
            assert world.charge.attempts == [1]
        clock.now_s += 1800
        async with kept.engine(order, clock=clock) as engine:
            await settled(engine)
            assert world.charge.attempts == [1]
        clock.now_s += 1801
        async with kept.engine(order, clock=clock) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1, 2]

    run(scenario)


def test_worker_false_takes_events_and_runs_nothing(kept: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with kept.engine(order, worker=False) as engine:
            await submitted(engine, order)
            await settled(engine)
            view = await engine.get("o-1")
            assert view.state is State.CHARGING
            assert world.charge.calls == []
            await engine.send("o-1", Charged("by hand"))
            await engine.send("o-1", Reserved())
            await settled(engine)
            assert world.mail.calls == world.reserve.calls == []
            await submitted(engine, order, "o-2")
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-2")).state is State.DONE
            assert world.charge.attempts == world.reserve.attempts == [1]
            while len(world.mail.calls) < 2:
                await settled(engine)

    run(scenario)
