"""Timeouts of attempts: one timer of the event loop per length of timeout, for any number of attempts.

`asyncio.timeout` costs a timer in the event loop's heap per attempt. Attempts with the same timeout end in the order in
which they began. So a dictionary in that order and one timer for its first entry do the same at lower cost.
"""

import asyncio
from typing import Protocol


class Limited(Protocol):
    """An object with a timeout."""

    timeout_s: float

    def expire(self) -> None:
        """Handle the timeout."""
        ...


class Deadlines:
    """Calls `expire` on each object that was not removed before its timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_timeout: dict[float, dict[Limited, float]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, limited: Limited) -> None:
        """Start the timeout of an object."""
        timeout_s = limited.timeout_s
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = {}
        deadline_s = self._loop.time() + timeout_s
        waiting[limited] = deadline_s
        if timeout_s not in self._timers:
            self._timers[timeout_s] = self._loop.call_at(deadline_s, self._look, timeout_s)

    def remove(self, limited: Limited) -> None:
        """Stop the timeout of an object, if it runs."""
        waiting = self._by_timeout.get(limited.timeout_s)
        if waiting is not None:
            waiting.pop(limited, None)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look(self, timeout_s: float) -> None:
        del self._timers[timeout_s]
        waiting = self._by_timeout[timeout_s]
        now_s = self._loop.time()
        while waiting:
            first = next(iter(waiting))
            if waiting[first] > now_s:
                self._timers[timeout_s] = self._loop.call_at(waiting[first], self._look, timeout_s)
                return
            del waiting[first]
            first.expire()
