"""The timer heap of an engine: retries and timers, in memory, by the store's clock.

A lane has one owner, so its timers need no index and no polling: they are kept in a heap, and rebuilt when the store is
opened. An entry is a time and a name. The row says what is due, so a wrong entry does no harm. One call of the event
loop's clock waits for the soonest.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

STALE_MAX = 1_000
"""Stale entries that may stay, beside as many valid ones."""

LOOK_AT_LEAST_EVERY_S = 1.0
"""The longest single wait: wall clocks may be set, so a long wait is made of short ones."""


class Wakes:
    """A heap of callbacks by time."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._heap: list[tuple[int, int, Callable[[str], None], str]] = []
        self._wanted: set[tuple[int, str]] = set()
        """Entries that still matter. A workflow that moves often asks for the same time repeatedly."""
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._open = False
        self._closed = False
        self.look_at_least_every_s = LOOK_AT_LEAST_EVERY_S
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """Return the number of valid entries."""
        return len(self._wanted)

    def at(self, time_us: int, call: Callable[[str], None], name: str) -> None:
        """Call `call(name)` at that time, or soon after."""
        if self._closed or (time_us, name) in self._wanted:
            return
        self._wanted.add((time_us, name))
        heapq.heappush(self._heap, (time_us, next(self._numbers), call, name))
        if self._open and self._heap[0][0] == time_us:
            self._wait()

    def drop(self, time_us: int, name: str) -> None:
        """Drop an entry. Stale entries are removed when they are the majority (G6)."""
        self._wanted.discard((time_us, name))
        if len(self._heap) > 2 * len(self._wanted) + STALE_MAX:
            self._heap = [entry for entry in self._heap if (entry[0], entry[3]) in self._wanted]
            heapq.heapify(self._heap)

    def open(self) -> None:
        """Begin to call back."""
        self._open = True
        if self._heap:
            self._wait()

    def soonest_us(self) -> int | None:
        """Return the time of the next callback."""
        return self._heap[0][0] if self._heap else None

    def close(self) -> None:
        """Drop all entries: everything is in the store."""
        self._closed = True
        self._heap.clear()
        self._wanted.clear()
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
            time_us, _, call, name = heapq.heappop(self._heap)
            if (time_us, name) in self._wanted:
                self._wanted.discard((time_us, name))
                call(name)
        if self._heap and self._handle is None:
            self._wait()
