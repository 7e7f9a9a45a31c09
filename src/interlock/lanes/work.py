"""One transaction waiting in a lane: what it does, who waits for it, and how it ended.

A work may run more than once (a group that vanished is run again), and ends in exactly one of three ways: its value,
its error, or cancelled before it was taken. G9: an error of class OutcomeUnknown is the only one after which the
transaction may have happened.
"""

import asyncio
from collections.abc import Callable

from interlock.lanes.session import Session

WorkFunction = Callable[[Session], object]


class Work:
    """One transaction in the lane."""

    __slots__ = (
        "digest",
        "error",
        "function",
        "future",
        "key",
        "limit_s",
        "loop",
        "single",
        "state",
        "value",
        "waiting_since_s",
    )

    def __init__(
        self,
        function: WorkFunction,
        *,
        key: str | None = None,
        digest: bytes = b"",
        limit_s: float | None = None,
        single: bool = False,
    ) -> None:
        self.function = function
        self.key = key
        self.digest = digest
        self.single = single and key is None
        """True when the function runs one statement and nothing else: SQLite undoes a failing one by itself."""
        self.limit_s = limit_s
        """How long the function may hold the lane, when it runs code of the user."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[object] | None = None
        self.waiting_since_s = 0.0
        self.state = "waiting"
        self.value: object = None
        self.error: Exception | None = None

    def finish(self) -> None:
        """Tell whoever waits. Runs in the waiter's own event loop."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)
