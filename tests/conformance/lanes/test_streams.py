"""Streams: a closed one is opened again, and one that rests makes room for another, at every place."""

import asyncio

import pytest

from interlock.errors import Overloaded
from tests.conformance.lanes.places import Place
from tests.unit.lanes.lanes import SetClock

TABLE = "CREATE TABLE IF NOT EXISTS counter (id bigint PRIMARY KEY, n bigint NOT NULL)"


def test_a_stream_that_was_closed_is_opened_again(place: Place) -> None:
    async def scenario() -> None:
        db = await place.database(db_per_write_stream=True)
        first = await db.stream("a")
        await first.execute(TABLE)
        await first.close()
        again = await db.stream("a")
        assert again is not first
        assert await again.query("SELECT count(*) FROM counter") == [(0,)]
        await db.close()

    asyncio.run(scenario())


def test_a_busy_stream_is_not_closed_for_another(place: Place) -> None:
    async def scenario() -> None:
        clock = SetClock()
        db = await place.database(db_per_write_stream=True, clock=clock, streams_max=1, idle_s=10.0)
        await (await db.stream("a")).execute(TABLE)  # Its thread waits for more.
        clock.now_monotonic_s = 11.0
        with pytest.raises(Overloaded):
            await db.stream("b")
        await db.close()

    asyncio.run(scenario())
