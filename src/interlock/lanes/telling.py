"""Notification of waiters, each in its own event loop: from any thread, also when the loop is closed."""

import asyncio
import contextlib
from collections.abc import Sequence

from interlock.lanes.work import Work


def tell(works: Sequence[Work]) -> None:
    """Complete the futures of all works; one call into each event loop."""
    waiters: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.future is not None:
            waiters.setdefault(work.future.get_loop(), []).append(work)
    for loop, theirs in waiters.items():
        # A closed loop has no waiter left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, theirs)


def settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """Complete one waiter's future, or fail it, unless it is done. Runs in the waiter's event loop."""
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
        except Exception:  # noqa: BLE001, S112 -- an error of one must not keep the others waiting.
            continue
