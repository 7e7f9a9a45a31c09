"""Windows by the clock of a lane (G8). The suite of all engines is in tests/conformance/hotrow."""

from datetime import UTC, datetime
from pathlib import Path

from interlock.hotrow.window_quotas import Quota
from interlock.testing.virtual_time import VirtualClock
from tests.conformance.hotrow.places import Place, run


def test_a_window_ends_when_the_lanes_clock_says_so(tmp_path: Path) -> None:
    """G8: windows are aligned to the epoch, and the end is told."""

    async def scenario() -> None:
        clock = VirtualClock()
        async with Place("memory", tmp_path, lambda _: "memory:").opened(clock=clock) as db:
            quota = Quota(db, "api", limit=1, window_s=60)
            assert await quota.take()
            ends_at = await quota.resets_at()
            assert (ends_at.second, ends_at.microsecond, ends_at.tzinfo) == (0, 0, UTC)
            left_s = (ends_at - datetime.fromtimestamp(clock.wall_s(), UTC)).total_seconds()
            assert 0 < left_s <= 60
            clock.now_s += left_s - 0.001
            assert not await quota.take()
            clock.now_s += 0.001
            assert await quota.left() == 1
            assert await quota.take()

    run(scenario)


def test_a_window_may_be_a_fraction_of_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with Place("memory", tmp_path, lambda _: "memory:").opened(clock=clock) as db:
            quota = Quota(db, "api", limit=2, window_s=0.25)
            for _ in range(3):
                assert await quota.take(2)
                assert not await quota.take()
                clock.now_s += 0.25

    run(scenario)


def test_another_length_of_the_window_takes_over_what_is_used(tmp_path: Path) -> None:
    """A name whose window is changed is neither stuck for ever nor reset more than once."""

    async def scenario() -> None:
        clock = VirtualClock()
        async with Place("memory", tmp_path, lambda _: "memory:").opened(clock=clock) as db:
            minutes, hours = (Quota(db, "api", limit=3, window_s=window_s) for window_s in (60, 3600))
            assert await minutes.take(2)
            assert await hours.take(1)
            assert not await hours.take(1)
            clock.now_s += 3600
            assert await hours.left() == 3
            assert await hours.take(3)
            assert not await hours.take(1)

    run(scenario)
