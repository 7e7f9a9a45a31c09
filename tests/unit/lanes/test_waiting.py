"""The queue of a lane: in order, bounded, and cheap however many of those who wait are cancelled (G6)."""

import asyncio
from collections import deque
from pathlib import Path

import pytest

from interlock.errors import Overloaded
from interlock.lanes.waiting import CANCELLED_MIN, Waiting
from interlock.lanes.work import Work
from tests.unit.lanes.lanes import count, increment, make_counter, opened, rested, run


class Counting(deque[Work]):
    """A queue that counts the steps that are made through it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def popleft(self) -> Work:
        self.steps += 1
        return super().popleft()


def filled(size: int) -> tuple[Waiting, Counting, list[Work]]:
    waiting, steps = Waiting(), Counting()
    waiting._works, waiting.add = steps, steps.append
    works = [increment() for _ in range(size)]
    for work in works:
        waiting.add(work)
    return waiting, steps, works


def test_they_are_taken_in_order_without_the_cancelled() -> None:
    waiting, _, works = filled(10)
    for work in works[1::2]:
        waiting.cancel(work)
    assert len(waiting) == 5
    assert waiting.take(2) == [works[0], works[2]]
    waiting.cancel(works[0])
    assert works[0].state == "taken", "too late"
    assert len(waiting) == 3
    assert waiting.take(100) == [works[4], works[6], works[8]]
    assert waiting.take(100) == []
    assert len(waiting) == 0


def test_none_is_kept_when_all_are_cancelled() -> None:
    waiting, standing, works = filled(CANCELLED_MIN // 2)
    for work in works:
        waiting.cancel(work)
    assert not standing


def test_the_order_is_kept_when_the_cancelled_are_thrown_out() -> None:
    size = 4 * CANCELLED_MIN
    waiting, standing, works = filled(size)
    alive = [work for number, work in enumerate(works) if number % 4 == 0]
    for work in works:
        if work not in alive:
            waiting.cancel(work)
    assert len(standing) < size
    waiting.add(last := increment())
    assert waiting.take(size) == [*alive, last]


def test_a_work_that_comes_while_they_are_thrown_out_is_the_last() -> None:
    waiting, standing, works = filled(4)
    late = increment()

    def popleft() -> Work:
        if standing.steps == 1:
            assert len(waiting) >= 0
            waiting.add(late)  # From another thread, which does not wait for the lock.
        return Counting.popleft(standing)

    standing.popleft = popleft  # type: ignore[method-assign]
    works[0].state = "cancelled"
    waiting._cancelled = 1
    waiting._throw_out()
    del standing.popleft
    assert waiting.take(9) == [*works[1:], late]


@pytest.mark.parametrize("kept", [0, 1, 10_000])
def test_each_cancelled_one_costs_a_few_steps(kept: int) -> None:
    """However many wait beside them: a hundred thousand cancelled ones are not a hundred thousand ways round."""
    waiting, steps, _ = filled(kept)
    for _ in range(100_000):
        work = increment()
        waiting.add(work)
        waiting.cancel(work)
        assert len(waiting) == kept
        assert len(steps) <= 2 * kept + CANCELLED_MIN + 2
    assert steps.steps <= 300_000


def test_the_cancelled_make_room_and_refusing_goes_through_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", queue_max=500, idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            steps = Counting()
            lane._waiting._works, lane._waiting.add = steps, steps.append
            runs = [lane.run(increment()).__await__() for _ in range(500)]
            for each in runs:
                next(each)  # It waits; the event loop has not turned since, so nobody drives.
            for _ in range(100):
                with pytest.raises(Overloaded, match="500 transactions wait"):
                    await lane.run(increment())
            assert steps.steps == 0
            for each in runs[:50]:
                with pytest.raises(asyncio.CancelledError):
                    each.throw(asyncio.CancelledError())
            assert lane.stats().waiting == 450
            lane._refuse_if_unusable()
            for each in runs[50:]:
                each.close()
            assert await lane.run(increment()) == 1
            assert await count(lane) == 451

    run(scenario)
