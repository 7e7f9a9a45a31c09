"""Cached counts of workflows per state, shared by concurrent callers.

A count reads every workflow. A small store counts for each call, so that a caller sees the event it has just sent. A
large store keeps a count: the longer it took, the longer it is kept. Counting therefore takes a bounded share of the
store's time, whatever the number of open dashboards.
"""

import asyncio
from collections.abc import Awaitable, Callable

from interlock.seams import Clock

Counted = dict[tuple[str, int, str], int]

SMALL = 10_000
"""Number of workflows up to which a count is never kept: it takes a few milliseconds."""

SHARE = 9
"""A count of a large store is kept for SHARE times as long as it took: a tenth of the time is spent counting."""

KEPT_S_MAX = 30.0


class Counts:
    """Counts of one store, cached."""

    def __init__(self, count: Callable[[], Awaitable[Counted]], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._turn = asyncio.Lock()
        self._kept: Counted = {}
        self._began_s = self._until_s = -1.0

    async def now(self) -> Counted:
        """Return the counts: current ones, or recent ones in a large store."""
        called_s = self._clock.monotonic_s()
        async with self._turn:
            # Another count began after this call and finished while this one waited: its result is recent enough.
            if self._clock.monotonic_s() < self._until_s or self._began_s >= called_s:
                return self._kept
            began_s = self._clock.monotonic_s()
            self._kept = await self._count()
            took_s = self._clock.monotonic_s() - began_s
            self._began_s = began_s
            large = sum(self._kept.values()) > SMALL
            self._until_s = began_s + took_s + min(KEPT_S_MAX, SHARE * took_s) if large else began_s
            return self._kept
