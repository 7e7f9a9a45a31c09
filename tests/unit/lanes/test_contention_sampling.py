"""One of every sixteen large groups is looked at, in no rhythm that work could have, and counts for sixteen."""

from pathlib import Path

import pytest

from interlock.lanes.hot_rows import Contention
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.writer import LARGE_GROUP, Turns
from tests.unit.lanes.lanes import group, increment, make_counter, opened, run, sql

BLOCKS = 2_000


def test_one_of_each_block_is_chosen_and_counts_for_it() -> None:
    turns = Turns(16)
    for _ in range(BLOCKS):
        block = [turns.weight() for _ in range(16)]
        assert sum(block) == 16.0
        assert sum(weight > 0 for weight in block) <= 2


def test_the_first_is_looked_at_and_stands_for_itself() -> None:
    assert Turns(16).weight() == 1.0
    assert [Turns(1).weight() for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize("rhythm", [2, 3, 4, 8, 16, 32])
def test_no_rhythm_hides_a_part_of_the_work(rhythm: int) -> None:
    turns = Turns(16)
    seen = [0.0] * rhythm
    for number in range(16 * BLOCKS):
        seen[number % rhythm] += turns.weight()
    fair = 16 * BLOCKS / rhythm
    assert all(0.7 * fair < each < 1.3 * fair for each in seen)


class Counted(Contention):
    """Notes what every write counts for."""

    def __init__(self) -> None:
        super().__init__(LaneSettings(contention_rows_max=10))
        self.counted = 0.0

    def wrote(self, rows: object, *, weight: float = 1.0, **_when: float) -> None:
        self.counted += weight * bool(rows)


async def counted(lane: Lane, groups: int, *, small_between: int) -> float:
    """What the writes of so many large groups count for, with small ones of another row in between."""
    signal = Counted()
    assert lane._writer is not None
    lane._writer._contention = signal
    for _ in range(groups):
        await group(lane, *(increment() for _ in range(LARGE_GROUP)))
        kept = signal.counted
        for _ in range(small_between):
            await lane.run(increment())
        signal.counted = kept
    return signal.counted


@pytest.mark.parametrize("small_between", [0, 1, 3])
def test_small_groups_in_between_change_nothing(tmp_path: Path, small_between: int) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await lane.run(increment())
            assert await counted(lane, 32, small_between=small_between) == 32 * LARGE_GROUP

    run(scenario)


def test_what_vanished_with_its_group_and_was_run_again_is_counted_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await lane.run(increment())
            signal = Counted()
            assert lane._writer is not None
            lane._writer._contention = signal
            await group(lane, increment(), sql("INSERT OR ROLLBACK INTO counter VALUES (1, 7)"), increment())
            assert signal.counted == 2

    run(scenario)
