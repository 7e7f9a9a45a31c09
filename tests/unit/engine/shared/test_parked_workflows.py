"""B6, C4, C9: what cannot call its dependency waits in the store, counts no attempt, and holds nobody up."""

import asyncio

import pytest

from interlock import Breaker, Dependency, Engine, Retryable, StepContext
from interlock.engine.bound_machine import StepRun, decode_owed
from interlock.engine.dependencies import wait_queue
from interlock.engine.dependencies.outlet import Outlet
from interlock.engine.dependencies.wait_queue import Line, Parking
from interlock.engine.shared import claims
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.calls import Cancel, Job, Plain, State, begun, jobs, nothing
from tests.unit.engine.dependencies.queues import Queue, fails
from tests.unit.engine.shared.stores import Luck, SharedMemory, engine_on, inside, now_s, passed, play

ONE = Dependency("gateway", 1, breaker=Breaker(failures=1, reset_s=30))


class Gateway:
    """A dependency that is down, or hangs, until it is told otherwise."""

    def __init__(self) -> None:
        self.up = False
        self.hangs = False
        self.calls: list[tuple[str, int]] = []

    async def call(self, ctx: StepContext) -> None:
        self.calls.append((ctx.workflow, ctx.attempt))
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if not self.up:
            raise Retryable("down")


def names(count: int) -> list[str]:
    return [f"j-{each}" for each in range(count)]


def run_of(store: SharedMemory, workflow: str) -> StepRun:
    run = decode_owed(store.row(workflow).owed).run
    assert run is not None
    return run


def parked(store: SharedMemory, workflows: list[str]) -> list[str]:
    return [each for each in workflows if run_of(store, each).parked]


@pytest.fixture
def _few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the places of a dependency wait in memory; the others wait in the store."""
    monkeypatch.setattr(wait_queue, "HELD_MIN", 0)


@pytest.mark.usefixtures("_few_in_memory")
def test_what_is_beyond_the_line_waits_in_the_store_without_an_attempt_and_without_a_lease() -> None:
    async def scenario() -> None:
        store, gateway = SharedMemory(), Gateway()
        machine = jobs(gateway.call)
        async with engine_on(store, machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, *names(8))
            await passed(1)
            left = parked(store, names(8))
            assert len(left) == 6
            for workflow in left:
                run, row = run_of(store, workflow), store.row(workflow)
                assert (run.attempts, run.started, run.unknown) == (0, False, False)
                assert row.wake_us == run.retry_us
                assert 43_000_000 < (run.retry_us or 0) - store.now_us() <= 75_000_000
                assert workflow not in store.held
                waiting = (await engine.get(workflow)).waiting
                assert (waiting or "").startswith("its step waits: the breaker of 'gateway' is open (1 failure")
            assert len(gateway.calls) == 1
            commits = len(store.commits)
            await passed(25)
            assert len(store.commits) == commits

    play(scenario)


@pytest.mark.usefixtures("_few_in_memory")
def test_what_is_parked_begins_when_its_dependency_is_back_with_all_its_attempts() -> None:
    async def scenario() -> None:
        store, gateway = SharedMemory(), Gateway()
        machine = jobs(gateway.call, attempts=2)
        async with engine_on(store, machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, *names(8))
            await passed(95)
            assert all(attempt <= 2 for _, attempt in gateway.calls)
            gateway.up = True
            for workflow in names(8):
                assert (await engine.wait(workflow)).state is State.DONE
            assert now_s() < 180
            await passed(10)
            assert len(parked_names(engine)) == 0

    play(scenario)


def parked_names(engine: Engine) -> Parking:
    return inside(engine).runner.parking


@pytest.mark.usefixtures("_few_in_memory")
def test_what_was_parked_by_somebody_who_died_is_taken_up_by_another_at_its_time() -> None:
    async def scenario() -> None:
        store, gateway = SharedMemory(), Gateway()
        machine = jobs(gateway.call)
        async with engine_on(store, machine, dependencies=[ONE]) as first:
            await begun(first, machine, *names(8))
            await passed(1)
            assert len(parked(store, names(8))) == 6
        gateway.up = True
        async with engine_on(store, machine, dependencies=[ONE], seed=2) as second:
            for workflow in names(8):
                assert (await second.wait(workflow)).state is State.DONE
            assert now_s() < 90

    play(scenario)


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.usefixtures("_few_in_memory")
def test_those_who_wait_for_one_dependency_hold_up_nobody_else(hangs: bool) -> None:
    """C8: however many there are, whether it is down or slow; claimed by a worker with few slots."""

    async def scenario() -> None:
        store, gateway = SharedMemory(), Gateway()
        gateway.hangs = hangs
        machine = jobs(gateway.call, timeout_s=3_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claims, "WAITING_MAX", 4)
            patch.setattr(wait_queue, "HELD_MIN", 50)
            async with (
                engine_on(store, machine, dependencies=[ONE], steps_max=3) as worker,
                engine_on(store, machine, worker=False, seed=2) as door,
            ):
                await begun(door, machine, *names(60))
                await passed(5)
                assert len(gateway.calls) == 1
                begun_s = now_s()
                for each in ("plain-1", "plain-2"):
                    await door.start(machine, each, Job())
                    await door.send(each, Plain())
                    assert (await door.wait(each)).state is State.DONE
                assert now_s() - begun_s < 5
                assert inside(worker).runner.slots.free >= 2

    play(scenario)


def test_undos_are_claimed_while_steps_take_all_the_room() -> None:
    """C9."""

    async def scenario() -> None:
        store, gateway = SharedMemory(), Gateway()
        gateway.hangs = True
        undone = list[str]()

        async def back(ctx: StepContext) -> None:
            undone.append(ctx.workflow)

        machine = jobs(gateway.call, undo=back, timeout_s=2_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claims, "WAITING_MAX", 1)
            async with engine_on(store, machine, seed=2) as other:
                await begun(other, machine, "undo-1")
            async with (
                engine_on(store, machine, steps_max=1, poll_s=1) as worker,
                engine_on(store, machine, worker=False, seed=3) as door,
            ):
                await begun(door, machine, *names(5))
                await passed(5)
                assert inside(worker).runner.slots.free == 0
                assert len(inside(worker).runner.claimed) >= 1
                waiting = next(each for each in ("undo-1", *names(5)) if run_of(store, each).unknown)
                await door.send(waiting, Cancel())
                await passed(5)
                assert undone == [waiting]
                assert inside(worker).runner.slots.free == 0

    play(scenario)


def test_an_undo_that_finds_no_slot_keeps_no_place_from_others() -> None:
    """The next undo of a workflow is left to whoever claims it: a place kept for it here would be lost."""

    async def scenario() -> None:
        store = SharedMemory()
        machine = jobs(nothing)
        async with engine_on(store, machine, dependencies=[ONE], undos_max=1) as engine:
            places = inside(engine).places
            line = places.lines["gateway"]
            assert places.undos.reserve()
            assert places.reserve(None, places.undos, line, "undo") is None
            assert (line.kept, line.outlet.undos_under_way) == (0, 0)
            places.undos.release()

    play(scenario)


# --- the names that are remembered -----------------------------------------------------------------------------------


def test_names_are_taken_by_machine_as_many_as_the_line_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_queue, "HELD_MIN", 0)

    async def scenario() -> None:
        queue, remembered = Queue(Dependency("gateway", 2)), Parking()
        for each in range(3):
            remembered.add(queue.line, f"a-{each}", "a")
            remembered.add(queue.line, f"b-{each}", "b")
        assert (len(remembered), remembered.ready) == (6, True)
        assert dict(remembered.taken()) == {"a": ["a-0", "a-1"], "b": ["b-0", "b-1"]}
        assert dict(remembered.taken()) == {"a": ["a-2"], "b": ["b-2"]}
        assert (len(remembered), remembered.ready, dict(remembered.taken())) == (0, False, {})

    play(scenario)


def test_what_is_parked_while_others_are_taken_up_is_no_error() -> None:
    """B6: claiming takes a while, and another dependency may be found down meanwhile."""

    async def scenario() -> None:
        parking, here, there = Parking(), Queue(ONE), Queue(Dependency("bank", 1))
        parking.add(here.line, "j-1", "job")
        parking.add(here.line, "k-1", "other")
        taking = parking.taken()
        assert next(taking) == ("job", ["j-1"])
        parking.add(there.line, "j-2", "job")
        assert list(taking) == [("other", ["k-1"])]
        assert len(parking) == 1
        assert list(parking.taken()) == [("job", ["j-2"])]

    play(scenario)


def test_no_more_names_are_taken_than_a_store_claims() -> None:
    """Those beyond would be forgotten, and come back by their time alone."""

    async def scenario() -> None:
        parking, many = Parking(), Queue(Dependency("gateway", 1_000))
        for name in names(600):
            parking.add(many.line, name, "job")
        assert [len(taken) for _, taken in parking.taken()] == [500]
        assert [len(taken) for _, taken in parking.taken()] == [100]

    play(scenario)


def test_nobody_is_taken_while_the_breaker_is_not_closed_or_the_line_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_queue, "HELD_MIN", 0)

    async def scenario() -> None:
        clock = VirtualClock()
        queue, remembered = Queue(ONE, clock), Parking()
        remembered.add(queue.line, "a", "m")
        fails(queue.outlet)
        for time_s in (0.0, 30.0):
            clock.now_s = time_s
            assert (remembered.ready, dict(remembered.taken())) == (False, {})
        assert queue.outlet.ask("first") == "probe"
        queue.outlet.leave("first", "probe", "done")
        queue.wait("w-1", "w-2", "w-3")
        assert not remembered.ready
        queue.line.decline("w-1")
        assert remembered.ready

    play(scenario)


def test_the_names_are_bounded_and_those_beyond_come_by_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6."""
    monkeypatch.setattr(wait_queue, "PARKED_MAX", 2)

    async def scenario() -> None:
        line, remembered = Line(Outlet(ONE, VirtualClock()), Luck(), print), Parking()
        for each in range(5):
            remembered.add(line, f"a-{each}", "m")
        assert len(remembered) == 2

    play(scenario)
