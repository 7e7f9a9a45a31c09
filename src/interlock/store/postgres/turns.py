"""Order of groups in one process: groups that share a workflow run one after the other, others concurrently.

A group of another process is skipped and decided again. Within one process that would be waste, and a change that
builds upon another one under way would be lost without need (G1).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager


class Turns:
    """The queue of groups for each workflow."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, workflows: Iterable[str]) -> AsyncGenerator[None]:
        """Wait for all earlier groups with one of these workflows. The place in the queue is taken immediately."""
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
