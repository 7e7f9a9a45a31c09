"""What has to be looked at later: retries and timers, in memory, by the time of the store.

A lane has one owner, so its wake-ups need no index and no polling: they are kept in a heap, and rebuilt when the store
is opened. An entry is a time and a name, nothing else; what is due is found in the row, so an entry that has become
wrong does no harm. One call of the event loop's clock waits for the soonest.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

LOOK_AT_LEAST_EVERY_S = 1.0
"""Wall clocks are set: a long wait is made of short ones."""


class Wakes:
    """Calls back when a time has come."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._heap: list[tuple[int, int, Callable[[str], None], str]] = []
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False
        self.look_at_least_every_s = LOOK_AT_LEAST_EVERY_S
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._heap)

    def at(self, time_us: int, call: Callable[[str], None], name: str) -> None:
        """Call `call(name)` at that time, or soon after."""
        if self._closed:
            return
        heapq.heappush(self._heap, (time_us, next(self._numbers), call, name))
        if self._heap[0][0] == time_us:
            self._wait()

    def soonest_us(self) -> int | None:
        """When the next call is due."""
        return self._heap[0][0] if self._heap else None

    def close(self) -> None:
        """Forget everything: it is all in the store."""
        self._closed = True
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _wait(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        left_s = max(0.0, (self._heap[0][0] - self._now_us()) / 1_000_000)
        self._handle = self._loop.call_later(min(left_s, self.look_at_least_every_s), self._look)

    def _look(self) -> None:
        self._handle = None
        now_us = self._now_us()
        while self._heap and self._heap[0][0] <= now_us:
            _, _, call, name = heapq.heappop(self._heap)
            call(name)
        if self._heap and self._handle is None:
            self._wait()
