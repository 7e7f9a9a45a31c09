"""Work that blocks, beside the event loop: whoever waits may be cancelled, and the work is waited for all the same.

A server that is half started must not be ended by somebody else meanwhile. So a cancellation is heeded when the call
has returned; each of these calls has a bound of its own.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_thread(call: Callable[[], ResultT]) -> ResultT:
    """Call it in a thread, to its end."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
