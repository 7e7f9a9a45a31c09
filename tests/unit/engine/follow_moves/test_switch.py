"""One switch: what becomes of results, attempts, callers, leases and limits, and of what cannot be followed."""

import asyncio

import pytest

from interlock import Admission, Engine, Fenced, LaneOwned, MovedElsewhere, UnavailableError
from interlock.engine import follow_moves
from interlock.engine.operators.gauges import Gauges
from interlock.signals import Signal
from tests.unit.engine.follow_moves.places import World
from tests.unit.engine.follow_moves.shop import Gateway, Noted, Order, Shop, Submit, problems_of, shop


async def submitted(engine: Engine, machine: Shop, *workflows: str) -> None:
    for workflow in workflows:
        await engine.start(machine, workflow, Order())
        await engine.send(workflow, Submit())


def test_a_result_that_finds_the_tombstone_is_applied_at_the_new_place_and_the_step_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        world, gateway, gate = World(monkeypatch), Gateway(), asyncio.Event()
        machine, gateway.pause = shop(gateway), gate.wait
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await submitted(engine, machine, "o-1")
            await gateway.until(lambda: len(gateway.calls) == 1)
            # Nobody has noticed yet: the result itself finds out.
            world.move("a", "b", 1)
            gate.set()
            view = await engine.wait("o-1")
            assert problems_of(view, await engine.history("o-1"), gateway, notes=0) == []
            assert [name for name, _, _ in gateway.calls if name == "charge"] == ["charge"]
        assert world.place("a").untouched()

    asyncio.run(test())


def test_an_attempt_that_runs_is_cancelled_and_owed_with_the_same_key_and_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G5: it may have happened, so its run is tried again, as it would be after a restart."""

    async def test() -> None:
        world, gateway, gate = World(monkeypatch), Gateway(), asyncio.Event()
        machine, gateway.pause = shop(gateway), gate.wait
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await submitted(engine, machine, "o-1")
            await gateway.until(lambda: len(gateway.calls) == 1)
            world.move("a", "b", 1)
            await engine.send("o-1", Noted())  # Finds the tombstone, and is not lost.
            await gateway.until(lambda: len(gateway.calls) == 2)
            assert gateway.calls[0] == gateway.calls[1]
            assert gateway.attempts == [1, 1]
            gate.set()
            view = await engine.wait("o-1")
            assert problems_of(view, await engine.history("o-1"), gateway, notes=1) == []
        assert gateway.problems() == []

    asyncio.run(test())


def test_a_lane_that_was_taken_over_is_opened_again_and_a_move_that_is_under_way_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bucket's old owner is fenced first; the tombstone is there when the mover is through."""

    async def test() -> None:
        world, gateway = World(monkeypatch), Gateway()
        machine = shop(gateway)
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            world.place("a").fenced = Fenced("the lane was taken over.")
            await engine.send("o-1", Noted())  # The mover died: the same place, opened again.
            assert world.opened == [("a", None), ("a", None)]
            world.place("a").fenced = Fenced("the lane was taken over.")
            world.refuses = [LaneOwned("it is owned by a mover.")]
            sending = asyncio.ensure_future(engine.send("o-1", Submit()))
            reading = asyncio.ensure_future(engine.get("o-1"))
            await world.until(lambda: not world.refuses)
            world.move("a", "b", 1)
            await sending
            assert (await reading).version >= 2
            view = await engine.wait("o-1")
            assert problems_of(view, await engine.history("o-1"), gateway, notes=1) == []
            assert world.opened[-1] == ("b", 1)

    asyncio.run(test())


def test_an_owner_that_was_taken_over_by_another_engine_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: the other one lives, and nobody moves anything: this engine says so instead of waiting for ever."""

    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        monkeypatch.setattr(follow_moves, "RETAKEN_S", 0.0)
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            world.place("a").fenced = Fenced("the lane was taken over by another.")
            world.refuses = [LaneOwned("it is owned by another.")] * 3
            waiting = asyncio.ensure_future(engine.wait("o-1"))
            with pytest.raises(UnavailableError, match="has stopped: the lane was taken over by another"):
                await engine.send("o-1", Noted())
            for call in (engine.get("o-1"), engine.send("o-1", Noted()), waiting):
                with pytest.raises(UnavailableError):
                    await call

    asyncio.run(test())


def test_callers_do_not_wait_for_ever_and_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world, gateway = World(monkeypatch), Gateway()
        machine = shop(gateway)
        monkeypatch.setattr(follow_moves, "WAITED_S", 0.02)
        monkeypatch.setattr(follow_moves, "PAUSE_S_MAX", 0.05)
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            entered = asyncio.Event()
            assert engine._follower is not None
            engine._follower.entered.append(lambda _: entered.set())
            world.refuses = [UnavailableError("the database does not answer.")] * 1_000
            world.move("a", "b", 1)
            waiting = asyncio.ensure_future(engine.wait("o-1"))
            for call in (engine.send("o-1", Noted()), engine.get("o-1"), engine.start(machine, "o-2", Order())):
                with pytest.raises(MovedElsewhere, match="Retry a little later") as caught:
                    await call
                assert (caught.value.retry, caught.value.url, caught.value.epoch) == ("now", "b", 1)
            assert not waiting.done()  # Whoever waits has a time limit of their own.
            world.refuses.clear()
            await entered.wait()
            await engine.send("o-1", Submit())
            assert problems_of(await waiting, await engine.history("o-1"), gateway, notes=0) == []
            assert engine._inside.gate.in_flight == 0

    asyncio.run(test())


def test_callers_of_a_lane_that_was_taken_over_are_not_told_of_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        monkeypatch.setattr(follow_moves, "WAITED_S", 0.02)
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            world.place("a").fenced = Fenced("the lane was taken over.")
            world.refuses = [UnavailableError("the bucket does not answer.")] * 1_000
            with pytest.raises(UnavailableError, match="Another process has taken over the lane"):
                await engine.send("o-1", Noted())

    asyncio.run(test())


def test_an_engine_that_is_closed_on_the_way_lets_everybody_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        engine = await Engine.open("a", machines=[machine], drain_s=0)
        await engine.start(machine, "o-1", Order())
        world.refuses = [UnavailableError("the database does not answer.")] * 1_000
        world.move("a", "b", 1)
        calls = [asyncio.ensure_future(each) for each in (engine.send("o-1", Noted()), engine.history("o-1"))]
        calls.append(asyncio.ensure_future(engine.wait("o-1")))
        await world.until(lambda: len(world.opened) > 1)
        await engine.close()
        for call in calls:
            with pytest.raises(UnavailableError):
                await call
        with pytest.raises(UnavailableError, match="closed"):
            await engine.send("o-1", Noted())

    asyncio.run(test())


def test_a_tombstone_that_leads_nowhere_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        world.move("a", "b", 5)
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            world.place("b").tombstone = ("c", 5)
            with pytest.raises(UnavailableError, match="has stopped"):
                await engine.send("o-1", Noted())

    asyncio.run(test())


def test_leases_limits_and_figures_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    class Looking:
        figures: Gauges

        def opened(self, figures: Gauges) -> None:
            self.figures = figures

        def __call__(self, signal: Signal) -> None:
            del signal

    async def test() -> None:
        world, machine, looking = World(monkeypatch), shop(Gateway()), Looking()
        async with Engine.open("a", machines=[machine], observers=[looking], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            engine.set_admission(Admission(in_flight_max=7))
            async with engine.lease("report") as lease:
                world.move("a", "b", 1)
                await engine.send("o-1", Noted())
                assert await lease.held()
                token = lease.token
            async with engine.lease("report", wait_s=0) as lease:
                assert lease.token > token
                token = lease.token
            leasing = engine.lease("report")
            world.move("b", "c", 2)
            asked = asyncio.ensure_future(leasing.__aenter__())  # The keeper that is asked first has left.
            await engine.send("o-1", Noted())
            assert (await asked).token > token
            assert engine._inside.store is world.place("c")
            assert engine._inside.gate.admission.in_flight_max == 7
            depth = await looking.figures.depth()
            assert depth.workflows["shop", "new"] == 1
            await engine.start(machine, "o-2", Order())
            assert (await looking.figures.depth()).workflows["shop", "new"] == 2
        assert world.place("a").untouched()

    asyncio.run(test())


def test_it_is_told_where_they_went_and_how_long_it_took(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        async with Engine.open("a", machines=[machine], drain_s=0) as engine:
            world.move("a", "postgresql://shop:secret@host/shop", 3)
            await engine.start(machine, "o-1", Order())

    asyncio.run(test())
    assert "workflows moved to postgresql://" in caplog.text
    assert "epoch 3, followed in" in caplog.text
    assert "secret" not in caplog.text
