"""Deduplication of concurrent calls: the first caller starts the work, and all of them get its result.

A burst on a new counter would otherwise create its tables a hundred times. A cancelled caller does not cancel the work.
Completed work is not recorded: callers keep that themselves.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


class Once(Generic[ResultT]):
    """The running calls of this process, by event loop and key."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[ResultT]] = {}

    async def do(self, what: Hashable, function: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Return the function's result, called by this caller or by a concurrent one in the same event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A function passed to `transact` runs outside of any loop; the statement that it calls raises the error.
            return await function()
        # A task can only be awaited in its own event loop, and a database may be used from several.
        place = loop, what
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(function())
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)
