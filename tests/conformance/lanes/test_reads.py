"""G7: reads show nothing by half, are bounded, and keep nobody else waiting, at every place."""

import asyncio
import threading

import apsw
import pytest

from interlock.clock import SystemClock
from interlock.errors import TransactionError
from tests.conformance.lanes.places import EVERYWHERE, Place, opened
from tests.sabotage.checks import read_count
from tests.unit.lanes.lanes import make_counter, run

ENDLESS = "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"


@EVERYWHERE
def test_a_read_that_does_not_end_is_ended(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, statement_timeout_s=0.05) as lane:
            await make_counter(lane)
            with pytest.raises(TransactionError, match="statement_timeout_s"):
                await lane.read(lambda connection: connection.execute(ENDLESS).get)
            assert await read_count(lane) == 0

    run(scenario)


def test_a_reader_cannot_write(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            for statement in ("UPDATE counter SET n = 7", "PRAGMA query_only = OFF", "DROP TABLE counter"):
                with pytest.raises(TransactionError):
                    await lane.read(lambda connection, sql=statement: connection.execute(sql).get)  # type: ignore[misc]
            assert await read_count(lane) == 0

    run(scenario)


class Watched(SystemClock):
    """A clock that stops a read at its second look and lets everything be overdue at the third."""

    def __init__(self) -> None:
        self.looks = 0
        self.looking, self.go = threading.Event(), threading.Event()

    def monotonic_s(self) -> float:
        if not threading.current_thread().name.startswith("interlock-read"):
            return 0.0
        self.looks += 1
        if self.looks == 2:
            self.looking.set()
            self.go.wait()
        return 0.0 if self.looks <= 2 else 1e9


def test_a_read_that_is_given_up_ends_long_before_its_time_is_over(place: Place) -> None:
    async def scenario() -> None:
        clock = Watched()
        with opened(place, clock=clock, readers_max=1) as lane:
            await make_counter(lane)
            reading = asyncio.ensure_future(lane.read(lambda connection: connection.execute(ENDLESS).get))
            await asyncio.to_thread(clock.looking.wait)
            reading.cancel()
            await asyncio.wait({reading})
            later = asyncio.ensure_future(read_count(lane))
            await asyncio.sleep(0)
            assert not later.done(), "the one connection is still busy"
            clock.go.set()
            assert await later == 0, "nothing of the cancelling reaches the next read on the connection"
            assert clock.looks == 3, "two of the first read and one of the next: the first was not overdue"

    run(scenario)


def test_busy_lanes_keep_no_thread_from_the_others(place: Place) -> None:
    async def scenario() -> None:
        go = threading.Event()

        def slow(_connection: apsw.Connection) -> object:
            return go.wait()

        with (
            opened(place, "busy", readers_max=100) as busy,
            opened(place, "too", readers_max=100) as too,
            opened(place, "other") as other,
        ):
            await make_counter(other)
            slow_reads = [asyncio.ensure_future(lane.read(slow)) for lane in (busy, too) for _ in range(50)]
            await asyncio.sleep(0)
            assert await read_count(other) == 0
            assert not any(read.done() for read in slow_reads)
            go.set()
            assert await asyncio.gather(*slow_reads) == [True] * 100

    run(scenario)
