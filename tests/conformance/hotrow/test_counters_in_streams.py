"""D4 and D5 together: every write stream has counters of its own, and on lanes each of them shards of its own."""

import asyncio
from typing import cast

import pytest

from interlock.hotrow.counters import Counters
from interlock.lanes.file import owner_of
from tests.conformance.hotrow.counting import KINDS
from tests.conformance.hotrow.places import Place, run

STREAMS = ("a", "b", "ten/ant ü'")


@pytest.mark.campaign
def test_streams_have_sharded_counters_side_by_side(place: Place) -> None:
    """D4, D5: a counter of one stream is not the counter of that name in another, nor in the database around them."""

    async def scenario() -> None:
        async with place.opened(db_per_write_stream=True, counter_shard_count=3) as db:
            databases = [db, *[await db.stream(key) for key in STREAMS]]
            counters = [each.counter("n", kind=kind) for each in databases for kind in KINDS]
            await asyncio.gather(*[counter.add(1) for counter in counters for _ in range(10)])
            assert [await each.counter("n").value() for each in databases] == [10 * len(KINDS)] * len(databases)

    run(scenario)


def test_the_shards_of_a_stream_are_there_when_it_is_opened_again(kept: Place) -> None:
    """D4, D5: a stream's shards end with the database around it, and the next process finds them."""

    async def scenario() -> None:
        for life in range(3):
            async with kept.opened(db_per_write_stream=True, counter_shard_count=3) as db:
                stream = await db.stream("a")
                for number in range(9):
                    await stream.counter("n", kind="sharded").add(1, key=f"k{number}")
                await stream.counter("n", kind="sharded").add(1)
                assert await stream.counter("n").value() == 10 + life

    run(scenario)


def test_a_stream_that_is_closed_and_opened_again_meets_its_own_shards(kept: Place) -> None:
    """D4: whoever closes a stream, or has it closed for another, finds its counters when he asks for it again."""

    async def scenario() -> None:
        async with kept.opened(db_per_write_stream=True, counter_shard_count=2) as db:
            for life in range(3):
                stream = await db.stream("a")
                for number in range(4):
                    await stream.counter("n", kind="sharded").add(1, key=f"k{number}")
                await stream.counter("n", kind="sharded").add(1)
                assert await stream.counter("n").value() == 5 + life
                await stream.close()

    run(scenario)


def test_no_lane_of_a_stream_is_owned_when_the_database_around_it_is_closed(kept: Place) -> None:
    """D4: what was opened below a stream is given up, too."""

    async def scenario() -> None:
        async with kept.opened(db_per_write_stream=True, counter_shard_count=2) as db:
            stream = await db.stream("a")
            for number in range(4):
                await stream.counter("n", kind="sharded").add(1, key=f"k{number}")
        assert [file for file in kept.folder.rglob("*.lane") if owner_of(file) is not None] == []

    run(scenario)


def test_closing_a_database_ends_the_roll_ups_of_its_streams(place: Place) -> None:
    """D6: nothing is rolled up, or complained about, in a database that is closed."""

    async def scenario() -> None:
        async with place.opened(db_per_write_stream=True) as db:
            streams = [await db.stream(key) for key in STREAMS]
            for stream in streams:
                await stream.counter("n", kind="event_log").add(1)
        timers = [cast("Counters", stream._counters).rollup._timer for stream in streams]
        assert [timer is not None and timer.cancelled() for timer in timers] == [True] * len(STREAMS)

    run(scenario)
