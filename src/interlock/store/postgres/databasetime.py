"""The database's time without a query for each read (G8).

Each commit returns the server's time; an engine that only reads queries it every few seconds. From then on the
process's monotonic clock counts on. The answer took one network trip, so this time lags the database's clock by that
and never leads it: no process that reads a written time later sees time go back.
"""

from interlock.seams import Clock

MICROSECONDS = 1_000_000

HEARD_US = 5 * MICROSECONDS
"""Longest time to count on. In five seconds two clocks drift apart by less than one network trip."""


class DatabaseTime:
    """The database's time, counted on from its last known value."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_us: int | None = None
        self._last_us = 0
        self._heard_us = 0

    def heard(self, server_us: int) -> None:
        """Take note of a time that has just come in."""
        # Always the newest one: two clocks drift apart, and the best answer of an hour ago is worse than any of now.
        self._heard_us = self._monotonic_us()
        self._offset_us = server_us - self._heard_us

    @property
    def stale(self) -> bool:
        """Return whether the time must be read again."""
        return self._monotonic_us() - self._heard_us > HEARD_US

    def now_us(self) -> int:
        """Return the time, which never goes back."""
        assert self._offset_us is not None, "the database was asked for its time when it was opened"
        self._last_us = max(self._last_us, self._monotonic_us() + self._offset_us)
        return self._last_us

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic_s() * MICROSECONDS)
