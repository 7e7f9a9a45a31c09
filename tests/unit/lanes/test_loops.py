"""Reads of a loop that stops, is closed or is thrown away take no place with them."""

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.lanes import readers
from interlock.lanes.lane import Lane
from tests.sabotage.checks import read_count
from tests.unit.lanes.lanes import increment, make_counter, opened, run
from tests.unit.lanes.test_idle_close import all_left


def stopped(_loop: asyncio.AbstractEventLoop, _tasks: list[object]) -> None:
    """It has stopped and may run again, or never."""


def closed(loop: asyncio.AbstractEventLoop, _tasks: list[object]) -> None:
    loop.close()


def thrown_away(loop: asyncio.AbstractEventLoop, tasks: list[object]) -> None:
    loop.close()
    tasks.clear()
    gc.collect()


class Abandoned:
    """A loop with reads that run and wait, which is left to itself."""

    def __init__(self, lane: Lane) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.loop = asyncio.new_event_loop()
        # Nobody will tell it that its tasks were never waited for.
        self.loop.set_exception_handler(lambda _loop, _context: None)
        self.tasks: list[object] = [self.loop.create_task(lane.read(self._slow)) for _ in range(5)]
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def _slow(self, connection: apsw.Connection) -> object:
        self.begun.set()
        self.go.wait()
        return connection.execute("SELECT n FROM counter").get


@pytest.mark.campaign
@pytest.mark.parametrize("before", [True, False], ids=["before it is let in", "after"])
@pytest.mark.parametrize("end", [stopped, closed, thrown_away])
def test_the_reads_of_a_loop_that_is_left_behind_give_their_places_back(
    tmp_path: Path, end: Callable[[asyncio.AbstractEventLoop, list[object]], None], *, before: bool
) -> None:
    free = readers._shares.free
    with opened(tmp_path / "x", readers_max=1) as lane:
        asyncio.run(make_counter(lane))
        other = Abandoned(lane)
        other.begun.wait()
        if before:
            end(other.loop, other.tasks)
        other.go.set()
        if not before:
            asyncio.run(left(lane))
            end(other.loop, other.tasks)
        assert asyncio.run(read_count(lane)) == 0, "nobody keeps the only place"
        asyncio.run(left(lane))
        assert readers._shares.free == free
        if end is stopped:
            tasks = [task for task in other.tasks if isinstance(task, asyncio.Task)]
            assert other.loop.run_until_complete(asyncio.gather(*tasks)) == [0] * 5, "should it run again after all"
            other.loop.close()


async def left(lane: Lane) -> None:
    await all_left(lane)


def test_all_statements_of_a_read_see_one_moment(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, go = threading.Event(), threading.Event()

        def twice(connection: apsw.Connection) -> object:
            query = "SELECT n FROM counter"
            before = connection.execute(query).get
            first.set()
            go.wait()
            return before, connection.execute(query).get

        with opened(tmp_path / "x", readers_max=1) as lane:
            await make_counter(lane)
            for turn in range(2):
                first.clear()
                go.clear()
                reading = asyncio.ensure_future(lane.read(twice))
                await asyncio.to_thread(first.wait)
                await lane.run(increment())
                go.set()
                assert await reading == (turn, turn)
                assert await read_count(lane) == turn + 1, "the next read sees what has come since"

    run(scenario)
