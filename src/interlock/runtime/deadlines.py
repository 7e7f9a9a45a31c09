"""The time limits of attempts: one timer of the event loop per length of timeout, however many attempts run.

`asyncio.timeout` costs a timer in the event loop's heap per attempt. Attempts with the same timeout end in the order in
which they began, so a dictionary in that order and one timer for its first entry do the same for a fraction.
"""

import asyncio
from typing import Protocol


class Limited(Protocol):
    """Something that has a time limit."""

    timeout_s: float

    def expire(self) -> None:
        """The time is over."""
        ...


class Deadlines:
    """Calls `expire` on whatever has not been removed in time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_timeout: dict[float, dict[Limited, float]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, limited: Limited) -> None:
        """Its time runs from now on."""
        timeout_s = limited.timeout_s
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = {}
        deadline_s = self._loop.time() + timeout_s
        waiting[limited] = deadline_s
        if timeout_s not in self._timers:
            self._timers[timeout_s] = self._loop.call_at(deadline_s, self._look, timeout_s)

    def remove(self, limited: Limited) -> None:
        """It has ended; not being there is no error."""
        waiting = self._by_timeout.get(limited.timeout_s)
        if waiting is not None:
            waiting.pop(limited, None)

    def close(self) -> None:
        """Nothing expires any more."""
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
