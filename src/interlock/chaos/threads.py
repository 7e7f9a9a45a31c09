"""Blocking calls in threads that complete even if the awaiting task is cancelled.

A half-started server must not be ended concurrently. So the cancellation is raised when the call has returned; each
of these calls has a bound of its own.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_thread(call: Callable[[], ResultT]) -> ResultT:
    """Run the call in a thread, and wait for its end also when cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
