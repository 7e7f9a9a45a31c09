"""The end of a lane: what waits is finished, what comes later is refused, and loops never wait for each other."""

from pathlib import Path

import pytest

from interlock.errors import UnavailableError
from interlock.lanes.lane import Lane
from interlock.testing.faults.disk import FaultyDisk
from tests.unit.lanes.lanes import increment, make_counter, opened, run


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


async def read(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute("SELECT n FROM counter").get)
