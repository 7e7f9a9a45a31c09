"""One at a time does what many want done: the first caller begins it, and all of them get what came of it.

A burst on a new counter would otherwise make its tables a hundred times. A caller who is cancelled leaves it to the
others. It is not remembered that it was done: that is for those who know what it means.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


class Once(Generic[ResultT]):
    """What is under way, by what it is for."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[ResultT]] = {}

    async def do(self, what: Hashable, function: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """What the function returns, called by this caller or by another one in the same event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A function given to `transact` runs outside of any loop: what it calls says by itself that it may not.
            return await function()
        # A task can only be awaited in its own event loop, and a database may be used from several.
        place = loop, what
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(function())
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)
