"""One transaction waiting in a lane: its function, its waiter, and its result.

A work may run more than once (a group that vanished is run again), and ends in exactly one of three ways: its value,
its error, or cancelled before it was taken. G9: an error of class OutcomeUnknown is the only one after which the
transaction may have happened.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVarTuple

from interlock.lanes.session import Session

ArgumentsT = TypeVarTuple("ArgumentsT")


class Work:
    """One transaction in the lane."""

    __slots__ = (
        "arguments",
        "digest",
        "error",
        "function",
        "future",
        "key",
        "limit_s",
        "single",
        "value",
        "waiting_since_s",
    )

    def __init__(
        self,
        function: Callable[[Session, *ArgumentsT], object],
        *arguments: *ArgumentsT,
        key: str | None = None,
        digest: bytes = b"",
        limit_s: float | None = None,
        single: bool = False,
    ) -> None:
        self.function: Callable[..., object] = function
        self.arguments: tuple[object, ...] = arguments
        """The arguments of the function after the session."""
        self.key = key
        self.digest = digest
        self.single = single and key is None
        """True when the function runs one statement and nothing else: SQLite undoes a failing one by itself."""
        self.limit_s = limit_s
        """How long the function may hold the lane, when it runs code of the user."""
        self.future: asyncio.Future[object] | None = None
        self.waiting_since_s = 0.0
        self.value: object = None
        self.error: Exception | None = None

    def cancelled(self) -> bool:
        """Whether its caller has cancelled it. Cancelling a task cancels the future it awaits immediately."""
        return self.future is not None and self.future.cancelled()

    def finish(self) -> None:
        """Complete the waiter's future. Runs in the waiter's own event loop."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)
