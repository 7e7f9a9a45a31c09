"""Epochs and the tokens made of them: they only grow, whoever gives them (G4)."""

import asyncio

import pytest

from interlock.clock import SeededIds, SystemChance
from interlock.errors import UnavailableError
from interlock.redis.shared_leases import COUNT_BITS, EPOCHS, HIGHEST, Epochs, StoreLeases, read_highest
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Granted, Held
from interlock.testing import VirtualLoop
from tests.unit.lanes.lanes import SetClock

OVER_S = -1.0


def epochs(store: MemoryStore, *, seed: int = 1, highest: int = 0) -> Epochs:
    return Epochs(store.leases, SystemChance(1), SeededIds(seed), highest=highest, notes=store)


def test_epochs_grow_for_whoever_asks_and_are_noted_before_they_are_used() -> None:
    async def scenario() -> None:
        store = MemoryStore(SetClock())
        one, two = epochs(store), epochs(store, seed=2)
        assert [await each.new() for each in (one, two, one, two)] == [1, 2, 3, 4]
        assert read_highest(await store.notes()) == 4
        one.saw(70)
        assert await one.new() == 71, "another home has been there"
        assert (await store.notes())[HIGHEST] == "71"
        assert await epochs(store, seed=3, highest=71).new() == 72

    asyncio.run(scenario())


def test_engines_of_one_store_never_have_the_same_epoch_however_far_redis_was_ahead_of_the_store() -> None:
    """G4: Redis had another home before, so the store's own tokens are far below what both have seen there."""

    async def scenario() -> None:
        store = MemoryStore(SetClock())
        one, two = epochs(store), epochs(store, seed=2)
        one.saw(50)
        two.saw(50)
        assert [await each.new() for each in (one, two, one, two)] == [51, 52, 53, 54]

    asyncio.run(scenario())


def test_the_note_of_the_highest_epoch_does_not_go_back_by_one_who_has_seen_less() -> None:
    """G4: who is opened without Redis has nothing but the note."""

    async def scenario() -> None:
        store = MemoryStore(SetClock())
        one, two = epochs(store), epochs(store, seed=2)
        one.saw(70)
        await one.save()
        two.saw(60)
        await two.save()
        assert read_highest(await store.notes()) == 70

    asyncio.run(scenario())


def test_who_asks_for_an_epoch_waits_for_who_has_one_in_hand_and_gives_up_in_the_end() -> None:
    loop = VirtualLoop()

    async def scenario() -> None:
        store = MemoryStore(loop.clock)
        async with epochs(store).hold_new() as first:
            waiting = asyncio.ensure_future(epochs(store, seed=2).new())
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting == first + 1
        await store.leases.acquire(EPOCHS, "somebody who does not live", 10**6)
        with pytest.raises(UnavailableError, match="gave no epoch"):
            await epochs(store, seed=3).new()

    try:
        loop.run(scenario())
    finally:
        loop.leave()


@pytest.mark.parametrize("noted", [{}, {HIGHEST: "x"}, {HIGHEST: ""}, {HIGHEST: "-1"}])
def test_a_note_that_cannot_be_read_is_none(noted: dict[str, str]) -> None:
    assert read_highest(noted) == 0


def test_leases_of_the_store_have_an_epoch_each_and_the_same_again_for_who_asks_again() -> None:
    async def scenario() -> None:
        store = MemoryStore(SetClock())
        one = StoreLeases(store.leases, epochs(store))
        two = StoreLeases(store.leases, epochs(store, seed=2))
        first = await one.acquire("report", "a", 600)
        assert first == Granted(1 << COUNT_BITS)
        assert await one.acquire("report", "a", 600) == first
        assert isinstance(await two.acquire("report", "b", 600), Held)
        assert not await two.renew("report", 1 << COUNT_BITS, 600), "it was not given there"
        assert await one.renew("report", 1 << COUNT_BITS, OVER_S)
        assert await two.acquire("report", "b", 600) == Granted(2 << COUNT_BITS)
        assert not await one.renew("report", 1 << COUNT_BITS, 600)
        assert not one.has("report", 1 << COUNT_BITS)
        assert await two.release("report", 2 << COUNT_BITS)
        assert not await two.release("report", 2 << COUNT_BITS)
        assert await one.acquire("report", "c", 600) == Granted(3 << COUNT_BITS)

    asyncio.run(scenario())
