"""Telling those who wait, each in its own event loop: from any thread, and whatever has become of the loop."""

import asyncio
import contextlib
from collections.abc import Sequence

from interlock.lanes.work import Work


def tell(works: Sequence[Work]) -> None:
    """Let every work's waiter know how it ended; one call into each event loop."""
    waiters: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.future is not None:
            waiters.setdefault(work.future.get_loop(), []).append(work)
    for loop, theirs in waiters.items():
        # A loop that is closed has nobody left who could be told.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, theirs)


def settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """Let one waiter go on, or fail, unless it has gone. Runs in the waiter's event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        try:
            work.finish()
        except Exception:  # noqa: BLE001, S112 -- whatever is wrong with one of them, the others are told.
            continue
