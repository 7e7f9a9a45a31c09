"""C2: attempts of one timeout share one timer of the event loop, and each ends at its own time."""

import asyncio

from interlock.engine.steps.runner import Deadlines


class Limited:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.expired = asyncio.Event()

    def expire(self) -> None:
        self.expired.set()


def test_what_is_not_removed_in_time_expires_and_what_is_does_not() -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        first, second, last = (Limited(0.01) for _ in range(3))
        for each in (first, second, last):
            deadlines.add(each)
        deadlines.remove(second)
        deadlines.remove(second)
        await last.expired.wait()
        assert first.expired.is_set()
        assert not second.expired.is_set()
        assert not deadlines._timers

    asyncio.run(scenario())


def test_there_is_one_timer_per_length_however_many_run() -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        for timeout_s in (60.0, 30.0, 60.0, 30.0, 60.0):
            deadlines.add(Limited(timeout_s))
        assert len(deadlines._timers) == 2
        deadlines.close()
        assert not deadlines._timers

    asyncio.run(scenario())


def test_each_length_has_its_own_order_and_a_later_one_is_waited_for() -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        first, second, other = Limited(0.01), Limited(0.01), Limited(0.005)
        deadlines.add(first)
        deadlines.add(other)
        await other.expired.wait()
        deadlines.add(second)
        await second.expired.wait()
        assert first.expired.is_set()
        assert not deadlines._timers

    asyncio.run(scenario())
