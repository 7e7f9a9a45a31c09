"""Groups of one process: those that share a workflow one after the other, in the order given; the others together.

Another process would be skipped and told to decide again. Within one process that would be waste, and a change that
builds upon another one under way would be lost without need (G1).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager


class Turns:
    """Who is writing which workflow."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, workflows: Iterable[str]) -> AsyncGenerator[None]:
        """Wait for everybody who came before and writes one of the workflows. Takes its place at once."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before: set[asyncio.Future[None]] = set()
        names = list(workflows)
        for each in names:
            earlier = self._last.get(each)
            if earlier is not None:
                before.add(earlier)
            self._last[each] = mine
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            mine.set_result(None)
            for each in names:
                if self._last.get(each) is mine:
                    del self._last[each]
