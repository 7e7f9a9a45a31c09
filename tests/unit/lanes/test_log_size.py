"""G6: the log stays bounded under sustained hot writes, whatever readers do."""

import asyncio
import threading
from pathlib import Path

import apsw

from interlock.lanes.lane import Lane
from interlock.lanes.readers import LOG_EXCESS_MAX
from tests.unit.lanes.lanes import count, increment, make_counter, opened, run, sql

LIMIT = 65_536
ONE_GROUP = 4 * 4_120


class LongRead:
    """A read that stays inside its statement until it is told to end."""

    def __init__(self, lane: Lane) -> None:
        self._go = threading.Event()
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.ensure_future(lane.read(self._read))

    def _read(self, connection: apsw.Connection) -> object:
        cursor = connection.cursor()
        cursor.execute("SELECT n FROM counter")
        self._loop.call_soon_threadsafe(self.begun.set)
        self._go.wait()
        return cursor.fetchall()

    async def end(self) -> None:
        self._go.set()
        await self.task


async def prepared(lane: Lane) -> None:
    await make_counter(lane)
    await lane.run(sql("INSERT INTO counter VALUES (2, 0), (3, 0)"))


def test_the_log_is_written_over_under_sustained_hot_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", wal_bytes_max=LIMIT) as lane:
            await prepared(lane)
            for _ in range(500):
                await lane.run(increment())
            assert lane.stats().log_bytes <= LIMIT + ONE_GROUP
            assert await count(lane) == 500

    run(scenario)


def test_a_long_read_lets_the_log_grow_only_while_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", wal_bytes_max=LIMIT) as lane:
            await prepared(lane)
            long = LongRead(lane)
            await long.begun.wait()
            for _ in range(150):
                assert await lane.run(increment()) == 1, "writers do not wait for readers"
            grown = lane.stats().log_bytes
            await long.end()
            assert grown > LIMIT + ONE_GROUP
            for _ in range(500):
                await lane.run(increment())
            assert lane.stats().log_bytes <= grown + ONE_GROUP

    run(scenario)


def test_reads_that_overlap_for_ever_do_not_let_the_log_grow_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", wal_bytes_max=LIMIT, idle_s=60.0) as lane:
            await prepared(lane)
            reads = [LongRead(lane)]
            await reads[0].begun.wait()
            largest = 0
            for _ in range(40):
                for _ in range(20):
                    await lane.run(increment())
                reads.append(LongRead(lane))
                # The new one begins, or it is made to wait until the old one has ended: never a gap by itself.
                while not (reads[1].begun.is_set() or lane._readers.is_held):  # type: ignore[union-attr]  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await reads.pop(0).end()
                await lane.run(increment())
                await reads[0].begun.wait()
                largest = max(largest, lane.stats().log_bytes)
            await reads[0].end()
            assert largest <= LOG_EXCESS_MAX * LIMIT + 25 * ONE_GROUP
            assert await count(lane) == 40 * 21

    run(scenario)


def test_reads_that_wait_are_let_go_when_the_writers_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", wal_bytes_max=LIMIT) as lane:
            await prepared(lane)
            long = LongRead(lane)
            await long.begun.wait()
            while not lane._readers.is_held:  # type: ignore[union-attr]
                await lane.run(increment())
            waiting = LongRead(lane)
            await long.end()
            await waiting.begun.wait()
            await waiting.end()

    run(scenario)


def test_the_log_is_gone_when_the_lane_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            await prepared(lane)
            assert lane.stats().log_bytes > 0
        assert lane.stats().log_bytes == 0

    run(scenario)
    assert not (tmp_path / "x-wal").exists()


def test_in_memory_there_is_no_log() -> None:
    async def scenario() -> None:
        with opened(None) as lane:
            await prepared(lane)
            assert lane.stats().log_bytes == 0

    run(scenario)
