"""The lives of a store: opened again it is what it was, closed it is nothing, and its time never goes back (G2, G8)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from interlock.errors import UnavailableError
from interlock.store.protocol import Store
from tests.conformance.store.places import ITS_OWN_CLOCK, KEPT_BY_ITS_OWN_CLOCK, KEPT_ON_A_SERVER_TOO, Place
from tests.conformance.store.samples import MACHINE, begun, effect, letter, moved, run, started
from tests.unit.lanes.lanes import SetClock


@pytest.mark.slow
@KEPT_ON_A_SERVER_TOO
def test_opened_again_it_shows_exactly_what_was_committed(place: Place) -> None:
    """G2: and what was lost is not there."""

    async def everything(store: Store) -> list[object]:
        return [
            await store.load(["a", "b", "c"]),
            [await store.history(each) for each in ("a", "b", "c")],
            await store.delivered([("a", "k"), ("b", "k")]),
            await store.find(MACHINE, None, after=None, limit=9),
            await store.effects(limit=9),
            await store.letters(limit=9),
            await store.living(),
            await store.notes(),
        ]

    async def scenario() -> None:
        async with place.opened() as store:
            a, _ = await begun(store, started("a"), started("b", wake_us=3))
            late = moved(a, key="late", effects=(effect("late"),))
            await begun(store, moved(a, key="k", effects=(effect("e"),), letters=(letter("l"),)))
            assert await store.commit([late, started("b")]) == ["a", "b"]
            await store.note("shape", "text")
            before = await everything(store)
        for _ in range(2):
            async with place.opened() as store:
                assert await everything(store) == before
        async with place.opened() as store:
            (a,) = (await store.load(["a"])).values()
            assert await store.commit([moved(a, key="k")]) == ["a"], "keys are remembered"
            await begun(store, moved(a), started("c"))
            assert [row.id for row in (await store.find(MACHINE, None, after=None, limit=9)).rows] == ["a", "b", "c"]

    run(scenario)


def test_what_is_under_way_is_finished_when_it_is_closed(place: Place) -> None:
    async def scenario() -> None:
        store = await place.store()
        under_way = [asyncio.ensure_future(store.commit([started(f"w-{number}")])) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*under_way) == [[]] * 20

    run(scenario)


CALLS: list[Callable[[Store], Awaitable[object]]] = [
    lambda store: store.load(["w"]),
    lambda store: store.commit([started()]),
    lambda store: store.delivered([("w", "k")]),
    lambda store: store.history("w"),
    lambda store: store.find(MACHINE, None, after=None, limit=1),
    lambda store: store.stalled(MACHINE, {"new": 1}, limit=1),
    lambda store: store.effects(limit=1),
    lambda store: store.letters(),
    lambda store: store.living(),
    lambda store: store.note("a", "b"),
    lambda store: store.notes(),
]


def test_a_store_that_was_closed_refuses_everything_but_to_be_closed(place: Place) -> None:
    async def scenario() -> None:
        store = await place.store()
        await begun(store, started())
        await store.close()
        for call in CALLS:
            with pytest.raises(UnavailableError, match="closed"):
                await call(store)
        await store.close()

    run(scenario)


@ITS_OWN_CLOCK
def test_time_follows_the_clock_and_never_goes_back(place: Place) -> None:
    """G8."""
    clock = SetClock(100.0)

    async def scenario() -> None:
        async with place.opened(clock) as store:
            assert store.now_us() == 100_000_000
            clock.now_wall_s = 50.0
            assert store.now_us() == 100_000_000
            clock.now_wall_s = 100.5
            assert store.now_us() == 100_500_000

    run(scenario)


@KEPT_BY_ITS_OWN_CLOCK
def test_time_does_not_go_behind_what_was_stored_when_it_is_opened_again(place: Place) -> None:
    """G8: with a clock that was set back in between, twice."""
    clock = SetClock(200.0)

    async def scenario() -> None:
        async with place.opened(clock) as store:
            (row,) = await begun(store, started(at_us=store.now_us()))
        clock.now_wall_s = 10.0
        async with place.opened(clock) as store:
            assert store.now_us() == 200_000_000
            await begun(store, moved(row, at_us=store.now_us()))
        async with place.opened(clock) as store:
            assert store.now_us() == 200_000_000
            clock.now_wall_s = 201.0
            assert store.now_us() == 201_000_000

    run(scenario)


@KEPT_BY_ITS_OWN_CLOCK
def test_time_goes_on_with_the_clock_of_a_commit_that_went_back_before_it_was_durable(place: Place) -> None:
    """G8: what counts is the time that was given out, not the clock at the moment of the commit."""
    clock = SetClock(200.0)

    async def scenario() -> None:
        async with place.opened(clock) as store:
            given_us = store.now_us()
            clock.now_wall_s = 10.0
            await begun(store, started(at_us=given_us))
        async with place.opened(clock) as store:
            assert store.now_us() == given_us

    run(scenario)
