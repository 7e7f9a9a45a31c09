"""D4: an idle lane costs no thread and no open file but its lock, at every place."""

import asyncio
import threading

from tests.conformance.lanes.places import Place, opened
from tests.unit.lanes.lanes import count, increment, make_counter, rested, run
from tests.unit.lanes.test_idle import open_files

READ = "SELECT n FROM counter WHERE id = 1"
END_S = 60.0
"""A thread that has not ended after this time never will."""


def file(place: Place) -> str:
    path = place.path()
    assert path is not None
    return path.name


def lock(place: Place) -> str:
    return f"{file(place)}.lock"


def drivers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "interlock-lane"]


def test_an_idle_lane_has_no_thread_and_no_file_but_its_lock(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, idle_s=0.0) as lane:
            assert open_files(place.folder) == [lock(place)], "a lane that was never used"
            await make_counter(lane)
            for turn in range(3):
                assert await lane.run(increment()) == 1
                await rested(lane)
                assert open_files(place.folder) == [lock(place)], "after a write"
                answer = await lane.read(lambda connection: connection.execute(READ).get)
                assert answer == turn + 1
                await rested(lane)
                assert open_files(place.folder) == [lock(place)], "after a read"
            for thread in drivers():  # It has said that it drives no more, and may be on its way to its end.
                await asyncio.to_thread(thread.join, END_S)
            assert drivers() == []
            assert lane.stats().log_bytes == 0
            assert await count(lane) == 3

    run(scenario)


def test_a_lane_that_is_used_keeps_its_files_open(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, idle_s=60.0) as lane:
            await make_counter(lane)
            await lane.read(lambda connection: connection.execute(READ).get)
            assert open_files(place.folder).count(file(place)) == 2, "one writer, one reader"
            assert lane.stats().log_bytes > 0

    run(scenario)
    assert open_files(place.folder) == []
