"""E7 between processes: a pause by one engine holds in the others, also in one that was frozen (virtual time)."""

import asyncio

from interlock.engine.pauses import READ_S, STALE_S
from interlock.errors import UnavailableError
from interlock.store.protocol import Store
from tests.conformance.engine.shop import Cancel, Held, Order, Outside, State, Submit, World, shop
from tests.unit.engine.shared.stores import SharedMemory, engine_on, inside, passed, play


def test_a_pause_by_one_engine_holds_in_another() -> None:
    async def scenario() -> None:
        made = shop()
        order, store = made.machine, SharedMemory()
        async with engine_on(store, order, worker=False) as front, engine_on(store, order) as worker:
            await front.pause(machine=order, state=State.CHARGING)
            await passed(2 * READ_S)
            await front.start(order, "o-1", Order())
            await worker.start(order, "o-2", Order())
            await front.send("o-1", Submit(5))
            await worker.send("o-2", Submit(5))
            await passed(60)
            assert made.world.charge.calls == []
            assert [(await worker.get(each)).paused for each in ("o-1", "o-2")] == [True, True]
            assert store.held == {}  # Nothing is claimed in vain.
            await front.resume(machine=order, state=State.CHARGING)
            await passed(10)
            assert len(made.world.charge.calls) == 2

    play(scenario)


def test_a_workflow_that_was_claimed_before_its_pause_is_given_back() -> None:
    async def scenario() -> None:
        made = shop()
        order, store = made.machine, SharedMemory()
        async with engine_on(store, order, worker=False) as front, engine_on(store, order, steps_max=1) as worker:
            slots = inside(worker).places.steps
            assert slots.reserve()  # Every slot is taken.
            await front.start(order, "o-1", Order())
            await front.send("o-1", Submit(5))
            await passed(5)
            assert inside(worker).runner.claimed
            await front.pause(id="o-1")
            await passed(2 * READ_S)
            slots.release()
            await passed(5)
            assert (made.world.charge.calls, inside(worker).runner.claimed, store.held) == ([], {}, {})
            await front.resume(id="o-1")
            await passed(10)
            assert len(made.world.charge.calls) == 1

    play(scenario)


def test_an_engine_that_could_not_read_the_pauses_begins_nothing_until_it_has() -> None:
    async def scenario() -> None:
        made = shop()
        order, store = made.machine, SharedMemory()
        async with engine_on(store, order, worker=False) as front, engine_on(store, order) as worker:
            await worker.start(order, "o-1", Order())
            pauses = inside(worker).pauses
            read, frozen = pauses.read, True

            async def read_later(store: Store) -> bool:
                if frozen:
                    raise UnavailableError("the store is away.")
                return await read(store)

            pauses.read = read_later  # type: ignore[method-assign]
            await passed(2 * STALE_S)
            await front.pause(machine=order)
            assert not pauses.names("order", "charging", "o-1")  # It does not know.
            await worker.send("o-1", Submit(5))
            await passed(1)
            assert made.world.charge.calls == []
            frozen = False
            await passed(10)
            assert made.world.charge.calls == []
            await front.resume(machine=order)
            await passed(10)
            assert len(made.world.charge.calls) == 1

    play(scenario)


def test_a_timer_during_an_attempt_fires_when_another_engine_has_resumed() -> None:
    """The poll for due work may be the one that reads the resumption; nothing else looks at that timer again."""

    async def scenario() -> None:
        held = Held()
        made = shop(
            World(charge=Outside(held)), declare=lambda order: order.after(State.CHARGING, after_s=5, send=Cancel())
        )
        order, store = made.machine, SharedMemory()
        async with engine_on(store, order, worker=False) as front, engine_on(store, order) as worker:
            await worker.start(order, "o-1", Order())
            await worker.send("o-1", Submit(5))
            await held.begun.wait()
            await front.pause(machine=order)
            await passed(10)
            assert (await front.get("o-1")).state is State.CHARGING
            pauses = inside(worker).pauses
            policy = inside(worker)._sharing
            assert policy is not None
            read, claiming = pauses.read, policy.claiming

            async def read_by_the_poll(store: Store) -> bool:
                task = asyncio.current_task()
                assert task is not None
                return await read(store) if "_read_pauses" not in repr(task.get_coro()) else False

            pauses.read = read_by_the_poll  # type: ignore[method-assign]
            await front.resume(machine=order)
            claiming.due(0)
            await passed(10)
            assert (await front.get("o-1")).state is not State.CHARGING
            held.go.set()
            await passed(60)

    play(scenario)
