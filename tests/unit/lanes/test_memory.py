"""G6: memory stays flat under a hundred thousand cancelled calls and under clients that never look at their results."""

import asyncio
import gc
import sys

import pytest

from tests.unit.lanes.lanes import count, increment, make_counter, opened, run

TOLERANCE = 2_000
"""Blocks, a small part of one per call: whatever is kept for a call takes at least one."""


def used() -> int:
    """Blocks of memory that Python has given out."""
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.slow
def test_a_hundred_thousand_cancelled_calls_leave_nothing() -> None:
    async def scenario() -> None:
        with opened(None) as lane:
            await make_counter(lane)

            async def cancelled(calls: int) -> None:
                for _ in range(calls // 1_000):
                    tasks = [asyncio.ensure_future(lane.run(increment())) for _ in range(1_000)]
                    await asyncio.sleep(0)
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)
                await lane.run(increment())

            # Counting is a group of its own: when it is answered, the lane has let go of the one before.
            await cancelled(2_000)
            await count(lane)
            before = used()
            await cancelled(100_000)
            assert await count(lane) < 100_000
            assert used() - before < TOLERANCE
            assert lane.stats().waiting == 0

    run(scenario)


@pytest.mark.slow
def test_a_client_that_never_looks_at_its_results_costs_nothing_afterwards() -> None:
    async def scenario() -> None:
        with opened(None) as lane:
            await make_counter(lane)

            async def careless(calls: int) -> None:
                for _ in range(calls // 1_000):
                    for _ in range(1_000):
                        work = increment()
                        running = lane.run(work).__await__()
                        next(running)
                        running.close()  # Gone without a word, as a client that hangs up.
                    await lane.run(increment())

            await careless(2_000)
            counted = await count(lane)
            before = used()
            await careless(20_000)
            assert await count(lane) == counted + 20_020
            assert used() - before < TOLERANCE

    run(scenario)
