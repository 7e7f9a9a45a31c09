"""How many workflows are in each state: counted once for everybody who asks at the same time.

A count looks at every workflow there is. A small store counts afresh for everyone, so that whoever has just sent an
event sees it counted. In a large one a count is kept for a while: the longer it took, the longer it is kept, and so
counting takes a bounded share of the store's time, however many dashboards are open.
"""

import asyncio
from collections.abc import Awaitable, Callable

from interlock.seams import Clock

Counted = dict[tuple[str, int, str], int]

SMALL = 10_000
"""Workflows up to which a count is never kept: it takes a few milliseconds."""

SHARE = 9
"""A larger one is kept for so many times as long as it took: a tenth of the time is spent on counting."""

KEPT_S_MAX = 30.0


class Counts:
    """The counts of one store."""

    def __init__(self, count: Callable[[], Awaitable[Counted]], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._turn = asyncio.Lock()
        self._kept: Counted = {}
        self._began_s = self._until_s = -1.0

    async def now(self) -> Counted:
        """The counts: of now, or of a short while ago in a large store."""
        asked_s = self._clock.monotonic_s()
        async with self._turn:
            # Whoever waited while another count began behind their question has their answer.
            if self._clock.monotonic_s() < self._until_s or self._began_s >= asked_s:
                return self._kept
            began_s = self._clock.monotonic_s()
            self._kept = await self._count()
            took_s = self._clock.monotonic_s() - began_s
            self._began_s = began_s
            large = sum(self._kept.values()) > SMALL
            self._until_s = began_s + took_s + min(KEPT_S_MAX, SHARE * took_s) if large else began_s
            return self._kept
