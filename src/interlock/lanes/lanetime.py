"""A lane's own time, which never goes back, whatever the wall clock does (G8).

The writer logs it with the groups that asked for it. Reads cannot log, but the times they returned are remembered here
too. So while the lane is open, no reader and no writer gets an earlier time than any before.
"""

import threading

from interlock.seams import Clock


class LaneTime:
    """The latest time that was returned. For any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.shown_us = 0

    def now_us(self) -> int:
        """Return the current time, in microseconds since the epoch."""
        return self.at_least(int(self._clock.wall_s() * 1_000_000))

    def at_least(self, time_us: int) -> int:
        """Raise the lane's time to at least this one; return the latest."""
        with self._lock:
            self.shown_us = max(self.shown_us, time_us)
            return self.shown_us
