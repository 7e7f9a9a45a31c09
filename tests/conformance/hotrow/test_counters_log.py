"""The event log of counters: rolled up, cut off, read in between, nothing is lost and nothing counts twice (D6)."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence

import pytest

from interlock.hotrow.counters import Counter
from tests.conformance.hotrow.counting import KINDS, counters, entries
from tests.conformance.hotrow.meddling import Meddled
from tests.conformance.hotrow.places import Place, run


def test_a_roll_up_keeps_the_value_and_empties_the_log(place: Place) -> None:
    """D6: read = snapshot + tail."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            views, other = here.open("n", kind="event_log"), here.open("other", kind="event_log")
            await asyncio.gather(*[counter.add(2) for counter in (views, other) for _ in range(25)])
            assert await entries(db) == 50
            assert await views.roll_up() == 25
            assert await entries(db) == 25
            assert await views.roll_up() == 0
            assert (await views.value(), await other.value()) == (50, 50)

    run(scenario)


@pytest.mark.parametrize("statement", [1, 2])
def test_a_crash_inside_a_fold_loses_and_doubles_nothing(place: Place, statement: int) -> None:
    """D6: neither before the entries are taken nor between that and the row."""

    async def scenario() -> None:
        async with place.opened() as db:
            cut_off = Meddled(db)
            async with counters(cut_off) as here:
                views = here.open("n", kind="event_log")
                await asyncio.gather(*[views.add(3) for _ in range(10)])
                cut_off.fail_at = statement
                with pytest.raises(ConnectionAbortedError):
                    await views.roll_up()
                assert await entries(db) == 10
                assert await views.value() == 30
                cut_off.fail_at = None
                assert await views.roll_up() == 10
                assert await views.value() == 30

    run(scenario)


def test_a_roll_up_between_any_two_statements_of_a_reader_shows_nothing_twice(place: Place) -> None:
    """D6: nor hides anything: the row and the log are read at one moment."""

    async def scenario() -> None:
        async with place.opened() as db:
            busy = Meddled(db)
            async with counters(busy) as here, counters(db) as there:
                for kind in KINDS:
                    await here.open("n", kind=kind).add(5)
                log = there.open("n", kind="event_log")
                for number in range(1, 7):
                    await log.add(3)
                    queries = itertools.count(1)

                    async def fold(queries: Iterator[int] = queries, number: int = number) -> None:
                        if next(queries) == number:
                            assert await log.roll_up()

                    busy.between = fold
                    assert await here.open("n").value() == 20 + 3 * number
                    busy.between = None
                    await log.roll_up()

    run(scenario)


async def in_between(attempted: Sequence[int], acknowledged: list[int], views: Counter) -> None:
    """One look at the counter: not less than was acknowledged before it, not more than was attempted after it."""
    least = sum(acknowledged)
    seen = await views.value()
    assert least <= seen <= sum(attempted)


def test_readers_never_see_less_than_acknowledged_nor_more_than_attempted(place: Place) -> None:
    """D6: while others append, fold and change the form."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here, counters(db) as there:
            views = [process.open("n", kind=kind) for process in (here, there) for kind in KINDS]
            attempted: list[int] = []
            acknowledged: list[int] = []
            done = asyncio.Event()

            async def write(counter: Counter, amounts: Sequence[int]) -> None:
                for amount in amounts:
                    attempted.append(amount)
                    await counter.add(amount)
                    acknowledged.append(amount)

            async def read(counter: Counter) -> None:
                while not done.is_set():
                    await in_between(attempted, acknowledged, counter)

            async def fold(counter: Counter) -> None:
                while not done.is_set():
                    await counter.roll_up()

            async with asyncio.TaskGroup() as tasks:
                for counter in (views[0], views[7]):
                    tasks.create_task(read(counter))
                    tasks.create_task(fold(counter))
                await asyncio.gather(*[write(counter, range(1, 16)) for counter in views for _ in range(2)])
                done.set()
            assert await views[0].value() == sum(attempted) == 16 * 120

    run(scenario)


def test_those_who_add_to_the_row_do_not_stop_the_roll_up(place: Place) -> None:
    """D6: it has a row of its own; on PostgreSQL a fold that meets them each time would never end."""

    async def scenario() -> None:
        async with place.opened() as db, counters(db) as here:
            log, row = here.open("n", kind="event_log"), here.open("n", kind="exact")
            done = asyncio.Event()
            added = 0

            async def add() -> None:
                nonlocal added
                while not done.is_set():
                    await row.add()
                    added += 1

            await asyncio.gather(*[log.add() for _ in range(50)])
            async with asyncio.TaskGroup() as tasks:
                for _ in range(16):
                    tasks.create_task(add())
                for _ in range(20):
                    await log.add()
                    assert await log.roll_up()
                done.set()
            assert await entries(db) == 0
            assert await log.value() == added + 70

    run(scenario)
