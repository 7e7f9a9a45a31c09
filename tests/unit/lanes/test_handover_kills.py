"""A mover that is killed, kill -9, has either done nothing or left: its lock is gone with it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.errors import MovedElsewhere
from interlock.testing.faults import Processes
from tests.unit.lanes.lanes import count, increment, make_counter, opened, run
from tests.unit.lanes.movers import leaving, meeting


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.parametrize("point", ["held", "written"])
def test_a_mover_that_is_killed_inside_the_seal_has_done_nothing(
    tmp_path: Path, processes: Processes, point: str
) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            mover = processes.start("tests.unit.lanes.movers:hold", str(tmp_path / "x"), point)
            with meeting() as met:
                assert await asyncio.to_thread(list, mover.lines(1)) == ["sealed"]
                waiting = asyncio.ensure_future(lane.run(increment()))
                await asyncio.to_thread(met.wait)
                mover.kill()
                assert await waiting == 1
            assert await asyncio.to_thread(mover.end) == -9
            mover.close()
            assert await count(lane) == 1
            with leaving(tmp_path / "x") as next_one:
                assert next_one.tombstone() is None
                assert [key for _, _, key in next_one.touched(0, 10)] == [(1,)], "the notes wait for the next mover"

    run(main)


def test_a_mover_that_is_killed_behind_its_commit_has_left(tmp_path: Path, processes: Processes) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            mover = processes.start("tests.unit.lanes.movers:hold", str(tmp_path / "x"), "left")
            assert await asyncio.to_thread(list, mover.lines(1)) == ["sealed"]
            mover.kill()
            await asyncio.to_thread(mover.end)
            mover.close()
            with pytest.raises(MovedElsewhere):
                await lane.run(increment())

    run(main)


def test_the_child_of_a_mover_keeps_away_from_the_lane(tmp_path: Path, processes: Processes) -> None:
    with opened(tmp_path / "x") as lane:
        asyncio.run(make_counter(lane))
    mover = processes.start("tests.unit.lanes.movers:fork", str(tmp_path / "x"))
    refused, parent, child = mover.lines()
    assert "was open when this process was forked" in refused
    assert (parent, child) == ("0", "0"), "what was closed before the fork is nobody's"
    assert mover.end() == 0
    mover.close()
