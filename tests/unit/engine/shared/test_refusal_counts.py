"""B5: events that changed nothing are counted by every process that has seen some, and no count replaces another."""

import asyncio

import pytest

from interlock import InvalidTransition
from interlock.engine.shared.shared_reads import SAVED_S
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import Note, Order, Ship, shop
from tests.unit.engine.shared.stores import SharedMemory, engine_on, inside, passed, play, policy_of, two_engines


def test_two_processes_add_their_differences() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await here.start(order, "o-1", Order())
            for engine, times in ((here, 3), (there, 2)):
                for _ in range(times):
                    with pytest.raises(InvalidTransition):
                        await engine.send("o-1", Ship())
                await engine.send("o-1", Ship(), if_allowed=True)
                await engine.send("o-1", Note("x"), key="k")
            assert store.row("o-1").counts == (0, 0, 0), "a flood of them is not a flood of writes"
            assert (await here.stats("o-1")).refused == 3
            await passed(SAVED_S)
            await turns()
            assert store.row("o-1").counts == (1, 2, 5)
            stats = await there.stats("o-1")
            assert (stats.applied, stats.duplicate, stats.ignored, stats.refused) == (1, 1, 2, 5)

    play(scenario)


def test_counts_are_saved_when_the_engine_stops() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Ship(), if_allowed=True)
        assert store.row("o-1").counts == (0, 1, 0)
        assert store.row("o-1").version == 1

    play(scenario)


def test_counts_that_are_saved_together_with_an_event_are_added_once() -> None:
    """They are in one group with an event of the same workflow, on a row that this process remembers."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Ship(), if_allowed=True)
            sent = asyncio.ensure_future(engine.send("o-1", Note("x")))
            await asyncio.sleep(0)
            policy_of(engine).counts.save()
            await sent
            await inside(engine).pipeline.idle()
            assert store.row("o-1").counts == (0, 1, 0)

    play(scenario)


def test_counts_of_a_workflow_that_is_gone_are_dropped() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            policy_of(engine).counts.add("pruned", 2)
            assert policy_of(engine).counts.of("pruned") == (0, 0, 1)
            await passed(SAVED_S)
            await turns()
            assert policy_of(engine).counts.of("pruned") == (0, 0, 0)
            assert not store.commits

    play(scenario)


def test_counts_on_their_way_to_the_store_are_counted_once() -> None:
    """Whether the row that is read has them cannot be known before they have arrived."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Ship(), if_allowed=True)
            written = store.gates["commit"] = asyncio.Event()
            policy_of(engine).counts.save()
            asking = asyncio.ensure_future(engine.stats("o-1"))
            await turns()
            assert not asking.done()
            written.set()
            assert (await asking).ignored == 1
            assert store.row("o-1").counts == (0, 1, 0)

    play(scenario)


def test_a_row_that_was_read_while_counts_went_to_the_store_is_read_again() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Ship(), if_allowed=True)
            read = store.gates["load"] = asyncio.Event()
            asking = asyncio.ensure_future(engine.stats("o-1"))
            await turns()
            policy_of(engine).counts.save()
            read.set()
            assert (await asking).ignored == 1

    play(scenario)


def test_a_store_that_takes_no_counts_keeps_nobody_waiting_who_asks_for_them() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            for _ in range(2):
                await engine.send("o-1", Ship(), if_allowed=True)
            written = store.gates["commit"] = asyncio.Event()
            policy_of(engine).counts.save()
            assert (await engine.stats("o-1")).ignored == 2
            assert store.row("o-1").counts == (0, 0, 0)
            written.set()

    play(scenario)
