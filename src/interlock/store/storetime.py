"""The time of a store: it never goes back, and it never stands still.

G8: a lane's time is the greater of what was written last and the wall clock. A wall clock that is set back would hold
up every timer and retry until it has caught up, so the time also goes on by the monotonic clock from where it was when
the store was opened.
"""

from interlock.seams import Clock


class StoreTime:
    """Microseconds since the epoch."""

    def __init__(self, clock: Clock, written_us: int = 0) -> None:
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._begun_us = self.last_us = max(written_us, int(clock.wall_s() * 1_000_000))

    def now_us(self) -> int:
        """Return the time in microseconds since the epoch."""
        passed_us = int((self._clock.monotonic_s() - self._begun_s) * 1_000_000)
        self.last_us = max(self.last_us, int(self._clock.wall_s() * 1_000_000), self._begun_us + passed_us)
        return self.last_us
