"""A thread for calls that block on a lane's file, so that no event loop does. They run one after the other.

The call of a cancelled task runs to its end; the next call, such as giving up a seal, comes after it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
ResultT = TypeVar("ResultT")


class Apart:
    """One thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="interlock-move")

    async def __call__(self, call: Callable[Given, ResultT], *given: Given.args, **named: Given.kwargs) -> ResultT:
        """Run it there."""
        running = self._threads.submit(call, *given, **named)
        return await asyncio.shield(asyncio.wrap_future(running))

    def close(self) -> None:
        """Wait for nothing: a call that is under way ends by itself."""
        self._threads.shutdown(wait=False)
