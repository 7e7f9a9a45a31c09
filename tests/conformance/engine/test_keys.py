"""B5, Keys: a delivery key makes an event happen once, and its duplicates are answered like the first."""

import asyncio

import pytest

from interlock import GuardRejected, KeyReused, Moved
from tests.conformance.engine.places import Place, run
from tests.conformance.engine.shop import (
    Cancel,
    Note,
    Order,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def test_an_event_delivered_twice_is_applied_once_and_answered_the_same(place: Place) -> None:
    """B5, Keys: the first state and version, although the workflow has moved on."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            first = await engine.send("o-1", Note("a"), key="k")
            await engine.send("o-1", Note("b"))
            assert await engine.send("o-1", Note("a"), key="k") == Moved(state=State.DRAFT, version=2, duplicate=True)
            assert (first.version, first.duplicate) == (2, False)
            assert (await engine.of(order).get("o-1")).context.note == "ab"
            assert [row.key for row in await engine.history("o-1")] == [None, "k", None]

    run(scenario)


def test_a_duplicate_in_another_life_is_answered_the_same(kept: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with kept.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"), key="k")
        async with kept.engine(order) as engine:
            moved = await engine.send("o-1", Note("a"), key="k")
            assert (moved.version, moved.duplicate) == (2, True)
            with pytest.raises(KeyReused):
                await engine.send("o-1", Note("b"), key="k")

    run(scenario)


def test_a_duplicate_of_an_event_that_passed_two_states_is_answered_as_the_first_time(place: Place) -> None:
    """Keys: an unwinding with nothing to undo is over in the same commit, so the event has two rows of history."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            first = await engine.send("o-1", Cancel(), key="k")
            assert (first.state, first.version) == (State.CANCELLED, 3)
            again = await engine.send("o-1", Cancel(), key="k")
            assert again == Moved(state=first.state, version=first.version, duplicate=True)

    run(scenario)


def test_a_duplicate_of_an_event_that_ended_the_workflow_is_a_duplicate_and_no_refusal(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World()).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit(), key="submit")
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Ship(), key="k")
            assert (await engine.send("o-1", Ship(), key="k")).duplicate
            assert (await engine.send("o-1", Ship(), key="k", if_allowed=True)).duplicate
            assert (await engine.send("o-1", Submit(), key="submit")).duplicate

    run(scenario)


def test_a_key_reused_for_another_event_or_payload_is_an_error(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"), key="k")
            with pytest.raises(KeyReused):
                await engine.send("o-1", Note("b"), key="k")
            with pytest.raises(KeyReused):
                await engine.send("o-1", Submit(), key="k")
            with pytest.raises(KeyReused):
                await engine.send("o-1", Ship(), key="k")
            assert (await engine.get("o-1")).version == 2

    run(scenario)


def test_a_key_is_unique_per_workflow_and_not_among_them(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            for each in ("o-1", "o-2"):
                await engine.start(order, each, Order())
                assert not (await engine.send(each, Note(each), key="k")).duplicate

    run(scenario)


def test_refused_and_ignored_events_do_not_consume_their_key(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(GuardRejected):
                await engine.send("o-1", Submit(cents=0), key="k")
            assert (await engine.send("o-1", Ship(), key="k", if_allowed=True)).ignored
            moved = await engine.send("o-1", Note("x"), key="k")
            assert (moved.version, moved.duplicate) == (2, False)

    run(scenario)


def test_keys_are_looked_up_before_the_expected_version(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("a"), key="k", expect_version=1)
            again = await engine.send("o-1", Note("a"), key="k", expect_version=1)
            assert again == Moved(state=State.DRAFT, version=2, duplicate=True)
            with pytest.raises(KeyReused):
                await engine.send("o-1", Note("b"), key="k", expect_version=1)

    run(scenario)


def test_the_same_key_twice_in_one_group_is_applied_once(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            sent = [engine.send("o-1", Note("a"), key="k") for _ in range(3)]
            sent.append(engine.send("o-1", Note("b"), key="k"))
            *same, other = await asyncio.gather(*sent, return_exceptions=True)
            assert sorted(moved.duplicate for moved in same if isinstance(moved, Moved)) == [False, True, True]
            assert isinstance(other, KeyReused)
            assert (await engine.get("o-1")).version == 2
            assert (await engine.stats("o-1")).duplicate == 2

    run(scenario)
