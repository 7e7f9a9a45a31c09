"""Leases of a store: one holder at a time, tokens that only grow, and no say for a former holder (C10, C11, G4)."""

import asyncio

import pytest

from interlock.errors import UnavailableError
from interlock.store.protocol import Granted, Held, Store
from tests.conformance.store.places import KEPT_ON_A_SERVER_TOO, ON_A_SERVER_TOO, Place
from tests.conformance.store.samples import run
from tests.unit.lanes.lanes import SetClock

LONG_S = 600.0
OVER_S = -1.0
"""A lease that is over when it is given, by the keeper's own clock: nobody has to wait for it."""


async def token(store: Store, name: str, owner: str, lease_s: float = LONG_S) -> int:
    """Acquire what must be free."""
    answer = await store.leases.acquire(name, owner, lease_s)
    assert isinstance(answer, Granted), answer
    return answer.token


async def holder(store: Store, name: str, owner: str = "somebody else") -> str:
    """Acquire what must be held; returns by whom."""
    answer = await store.leases.acquire(name, owner, LONG_S)
    assert isinstance(answer, Held), answer
    return answer.owner


@pytest.mark.slow
@ON_A_SERVER_TOO
def test_a_lease_has_one_holder_until_it_is_released(place: Place) -> None:
    """C10: and every name is for itself."""

    async def scenario() -> None:
        async with place.opened() as store:
            first = await token(store, "report", "a")
            assert await holder(store, "report", "b") == "a"
            assert await token(store, "another", "b") == 1
            assert await store.leases.release("report", first)
            second = await token(store, "report", "b")
            assert second > first
            assert await holder(store, "report", "a") == "b"

    run(scenario)


def test_who_is_refused_is_told_since_when_it_is_held(place: Place) -> None:
    """C10, by the keeper's clock alone (C11); a renewal does not change it."""

    async def scenario() -> None:
        async with place.opened() as store:
            first = await token(store, "report", "a")
            before = await store.leases.acquire("report", "b", LONG_S)
            assert await store.leases.renew("report", first, LONG_S)
            after = await store.leases.acquire("report", "b", LONG_S)
            assert isinstance(before, Held)
            assert isinstance(after, Held)
            assert before.since_us == after.since_us <= before.now_us <= after.now_us

    run(scenario)


def test_a_lease_that_is_over_goes_to_the_next_with_a_higher_token(place: Place) -> None:
    """C10, G4: and the former holder has no say any more."""

    async def scenario() -> None:
        async with place.opened() as store:
            stale = await token(store, "report", "a", OVER_S)
            fresh = await token(store, "report", "b")
            assert fresh > stale
            assert not await store.leases.renew("report", stale, LONG_S)
            assert not await store.leases.release("report", stale)
            assert await holder(store, "report", "a") == "b"
            assert await store.leases.renew("report", fresh, LONG_S)

    run(scenario)


def test_a_lease_that_is_over_is_had_again_if_nobody_has_asked_for_it(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            first = await token(store, "report", "a", OVER_S)
            assert await store.leases.renew("report", first, LONG_S)
            assert await holder(store, "report") == "a"

    run(scenario)


def test_what_was_released_can_neither_be_renewed_nor_released_again(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            first = await token(store, "report", "a")
            assert await store.leases.release("report", first)
            assert not await store.leases.renew("report", first, LONG_S)
            assert not await store.leases.release("report", first)
            assert not await store.leases.renew("never heard of", 1, LONG_S)
            assert not await store.leases.release("never heard of", 1)
            assert await token(store, "report", "a") > first, "also for whoever had it before"

    run(scenario)


def test_an_owner_who_asks_again_is_given_the_same_token(place: Place) -> None:
    """G9: a request of which nobody knows whether it arrived can be repeated."""

    async def scenario() -> None:
        async with place.opened() as store:
            first = await token(store, "report", "a", OVER_S)
            assert await token(store, "report", "a") == first
            assert await holder(store, "report") == "a"

    run(scenario)


def test_of_many_who_ask_at_once_one_wins(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            for round_ in range(1, 4):
                asked = [store.leases.acquire("report", f"owner {number}", LONG_S) for number in range(32)]
                answers = await asyncio.gather(*asked)
                [won] = [each for each in answers if isinstance(each, Granted)]
                assert won == Granted(round_)
                assert len({each.owner for each in answers if isinstance(each, Held)}) == 1
                assert await store.leases.release("report", round_)

    run(scenario)


@KEPT_ON_A_SERVER_TOO
def test_a_lease_outlives_the_process_that_held_it(place: Place) -> None:
    """C10: the next life of a store knows what the last one held, and its tokens."""

    async def scenario() -> None:
        async with place.opened() as store:
            held, released = await token(store, "held", "a"), await token(store, "released", "a")
            over = await token(store, "over", "a", OVER_S)
            assert await store.leases.release("released", released)
        async with place.opened() as store:
            assert await holder(store, "held") == "a"
            assert await store.leases.renew("held", held, LONG_S)
            assert await token(store, "released", "b") == released + 1
            assert await token(store, "over", "b") == over + 1

    run(scenario)


@pytest.mark.parametrize("place", ["memory", "local", "bucket"], indirect=True)
def test_a_lease_ends_by_the_clock_of_the_store(place: Place) -> None:
    """C11: a wall clock that is set back does not bring it back."""

    async def scenario() -> None:
        clock = SetClock()
        async with place.opened(clock) as store:
            first = await token(store, "report", "a", 10.0)
            clock.now_wall_s += 9.9
            assert await holder(store, "report") == "a"
            assert await store.leases.renew("report", first, 10.0)
            clock.now_wall_s += 9.9
            assert await holder(store, "report") == "a"
            clock.now_wall_s += 0.2
            store.now_us()
            clock.now_wall_s -= 1_000
            assert await token(store, "report", "b") == first + 1

    run(scenario)


def test_a_closed_store_gives_no_lease(place: Place) -> None:
    async def scenario() -> None:
        store = await place.store()
        first = await token(store, "report", "a")
        await store.close()
        for ask in (
            store.leases.acquire("report", "b", LONG_S),
            store.leases.renew("report", first, LONG_S),
            store.leases.release("report", first),
        ):
            with pytest.raises(UnavailableError):
                await ask

    run(scenario)
