"""A lane's own time, which never goes back, whatever the wall clock does (G8).

The writer logs it with the groups that asked for it. Reads cannot log, but what they have shown is remembered here too,
so that nobody, reader or writer, is shown an earlier time than anybody was before, for as long as the lane is open.
"""

import threading

from interlock.seams import Clock


class LaneTime:
    """The latest time that was shown. For any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.shown_us = 0

    def now_us(self) -> int:
        """The time to show now, in microseconds since the epoch."""
        return self.at_least(int(self._clock.wall_s() * 1_000_000))

    def at_least(self, time_us: int) -> int:
        """Nobody is shown an earlier time than this any more; returns the latest."""
        with self._lock:
            self.shown_us = max(self.shown_us, time_us)
            return self.shown_us
