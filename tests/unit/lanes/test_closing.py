"""The end of a lane: what waits is finished, what comes later is refused, and loops never wait for each other."""

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from interlock.errors import UnavailableError
from interlock.lanes.lane import Lane
from interlock.testing.faults import FaultyDisk
from tests.conformance.lanes.test_reads import ENDLESS
from tests.unit.lanes.lanes import count, increment, make_counter, opened, run
from tests.unit.lanes.test_idle_close import all_left


def test_a_database_in_memory_that_cannot_be_opened_has_nothing_to_give_back() -> None:
    def fails(_connection: object, _now: object) -> None:
        raise KeyError("not prepared")

    with pytest.raises(KeyError), opened(None, prepare=fails):
        pass


def test_a_dead_lane_can_be_closed(tmp_path: Path) -> None:
    disk = FaultyDisk("faulty-closing")

    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name) as lane:
            await make_counter(lane)
            disk.fails_sync = lambda _number: True
            with pytest.raises(UnavailableError):
                await lane.run(increment())
        with pytest.raises(UnavailableError, match="this lane has stopped"):
            await lane.run(increment())

    run(scenario)
    disk.close()


def test_in_memory_everything_is_gone_with_the_lane() -> None:
    async def scenario() -> None:
        with opened(None) as lane:
            await make_counter(lane)
            assert await read(lane) == 0
        with opened(None) as lane:
            await make_counter(lane)

    run(scenario)


def test_reads_are_ended_before_the_lane_is_closed_and_everything_is_in_its_file(tmp_path: Path) -> None:
    """While a read runs SQLite cannot fold its log: a copy of the file alone would lack what was acknowledged."""

    async def scenario() -> None:
        begun = threading.Event()

        def endless(connection: apsw.Connection) -> object:
            begun.set()
            return connection.execute(ENDLESS).get

        with opened(tmp_path / "x", readers_max=1) as lane:
            await make_counter(lane)
            reading, waiting = (asyncio.ensure_future(lane.read(endless)) for _ in range(2))
            await asyncio.to_thread(begun.wait)
            assert await lane.run(increment()) == 1
            lane.close()
            assert lane.stats().log_bytes == 0
            copy = tmp_path / "copy"
            copy.write_bytes((tmp_path / "x").read_bytes())
            for each in (reading, waiting):
                with pytest.raises(UnavailableError, match="the lane is closed"):
                    await each
        with opened(copy) as lane:
            assert await count(lane) == 1

    run(scenario)


@pytest.mark.slow
def test_a_read_that_does_not_end_keeps_the_lane_open_for_as_long_as_a_statement_may_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, go = threading.Event(), threading.Event()
        used: list[apsw.Connection] = []

        def slow(connection: apsw.Connection) -> object:
            used.append(connection)
            connection.execute("SELECT n FROM counter").fetchall()
            begun.set()
            go.wait()
            return "done"

        with opened(tmp_path / "x", statement_timeout_s=1.0) as lane:
            await make_counter(lane)
            reading = asyncio.ensure_future(lane.read(slow))
            await asyncio.to_thread(begun.wait)
            assert await lane.run(increment()) == 1
            lane.close()
            assert (tmp_path / "x-wal").stat().st_size, "it could not be folded, and is there for the next opening"
            go.set()
            assert await reading == "done"
            await all_left(lane)
        with pytest.raises(apsw.ConnectionClosedError):
            used[0].execute("SELECT 1")
        with opened(tmp_path / "x") as lane:
            assert await count(lane) == 1

    run(scenario)


async def read(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute("SELECT n FROM counter").get)
