"""The queue of a lane: in order, bounded, and cheap however many of those who wait are cancelled (G6)."""

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ParamSpec

import pytest

from interlock.errors import Overloaded
from interlock.lanes.lane import STEPS_PER_CALL, Waiting
from interlock.lanes.writer import Work
from tests.unit.lanes.lanes import count, increment, make_counter, opened, rested, run

ParametersT = ParamSpec("ParametersT")


class Counting(deque[Work]):
    """A queue that counts the steps that are made through it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def popleft(self) -> Work:
        self.steps += 1
        return super().popleft()


def in_a_loop(test: Callable[ParametersT, Coroutine[object, object, None]]) -> Callable[ParametersT, None]:
    """Futures belong to an event loop."""

    @functools.wraps(test)
    def wrapped(*args: ParametersT.args, **named: ParametersT.kwargs) -> None:
        asyncio.run(test(*args, **named))

    return wrapped


def filled(size: int) -> tuple[Waiting, Counting, list[Work]]:
    waiting, steps = Waiting(), Counting()
    waiting._works, waiting.add = steps, steps.append
    works = [future_of(increment()) for _ in range(size)]
    for work in works:
        waiting.add(work)
    return waiting, steps, works


def future_of(work: Work) -> Work:
    """Somebody waits for it."""
    work.future = asyncio.get_running_loop().create_future()
    return work


def cancel(work: Work) -> None:
    """Who waits for it does so no more."""
    assert work.future is not None
    work.future.cancel()


@in_a_loop
async def test_they_are_taken_in_order_without_the_cancelled() -> None:
    waiting, _, works = filled(10)
    for work in works[1::2]:
        cancel(work)
    assert (len(waiting), waiting.alive()) == (10, 5)
    assert waiting.take(2) == [works[0], works[2]]
    assert waiting.take(100) == [works[4], works[6], works[8]]
    assert waiting.take(100) == []
    assert len(waiting) == 0


@in_a_loop
async def test_the_cancelled_are_thrown_out_when_the_queue_is_full_and_the_order_is_kept() -> None:
    waiting, standing, works = filled(100)
    for work in works[::3]:
        cancel(work)
    assert not waiting.full(101)
    assert not waiting.full(100)
    assert len(standing) == 66
    waiting.add(last := increment())
    assert waiting.take(1_000) == [*(work for number, work in enumerate(works) if number % 3), last]


@in_a_loop
async def test_a_work_that_comes_while_they_are_thrown_out_is_the_last() -> None:
    waiting, standing, works = filled(4)
    late = increment()

    def popleft() -> Work:
        if standing.steps == 1:
            waiting.add(late)  # From another thread, which does not wait for the lock.
        return Counting.popleft(standing)

    standing.popleft = popleft  # type: ignore[method-assign]
    cancel(works[0])
    assert waiting.full(4)
    del standing.popleft
    assert waiting.take(9) == [*works[1:], late]


@pytest.mark.campaign
@pytest.mark.parametrize("kept", [0, 1, 10_000])
@in_a_loop
async def test_each_refused_call_costs_a_few_steps_and_nothing_piles_up(kept: int) -> None:
    """However many wait: a hundred thousand calls are not a hundred thousand ways round a full queue."""
    waiting, steps, _ = filled(kept)
    most = kept + 500
    for _ in range(100_000):
        if not waiting.full(most):
            work = future_of(increment())
            waiting.add(work)
            cancel(work)
        assert len(steps) <= most
    assert steps.steps <= 5 * 100_000 + 2 * most


def test_the_cancelled_make_room_and_refusing_is_cheap(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", queue_max=500, idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            steps = Counting()
            lane._waiting._works, lane._waiting.add = steps, steps.append
            runs = [lane.submit(increment()) for _ in range(500)]
            # The event loop has not turned since, so nobody drives.
            for _ in range(100):
                with pytest.raises(Overloaded, match="500 transactions wait"):
                    await lane.submit(increment())
            assert steps.steps <= 500, "one look through the queue"
            for each in runs[:50]:
                each.cancel()
            assert lane.stats().waiting == 450
            for _ in range(500 // STEPS_PER_CALL - 100 + 1):
                with pytest.raises(Overloaded):
                    await lane.submit(increment())
            more = lane.submit(increment())
            await asyncio.gather(*runs[50:], more)
            assert await count(lane) == 451

    run(scenario)
