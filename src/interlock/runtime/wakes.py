"""What has to be looked at later: retries and timers, in memory, by the time of the store.

A lane has one owner, so its wake-ups need no index and no polling: they are kept in a heap, and rebuilt when the store
is opened. One call of the event loop's clock waits for the soonest.
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
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False

    def at(self, time_us: int, call: Callable[[], None]) -> None:
        """Call back at that time, or soon after."""
        if self._closed:
            return
        heapq.heappush(self._heap, (time_us, next(self._numbers), call))
        if self._heap[0][0] == time_us:
            self._wait()

    def fire(self) -> int | None:
        """Call whatever is due; returns the soonest time that is left."""
        now_us = self._now_us()
        while self._heap and self._heap[0][0] <= now_us:
            heapq.heappop(self._heap)[2]()
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
        self._handle = asyncio.get_running_loop().call_later(min(left_s, LOOK_AT_LEAST_EVERY_S), self._look)

    def _look(self) -> None:
        self._handle = None
        if self.fire() is not None:
            self._wait()
