"""Waiting in virtual time, which costs nothing; in any other event loop it is refused, because tests do not sleep."""

import asyncio

from interlock.testing.virtual_time import VirtualLoop


async def passing(seconds: float) -> None:
    """So much virtual time passes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    passed: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _end, passed)
    try:
        await passed
    finally:
        timer.cancel()


def _end(passed: asyncio.Future[None]) -> None:
    if not passed.done():  # It may have been cancelled at this very moment.
        passed.set_result(None)
