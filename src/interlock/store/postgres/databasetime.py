"""The database's time, told without asking it each time (G8).

Each commit brings the time at which the server made it; who only reads asks for it every few seconds. From then on the
process's own monotonic clock counts on. The answer was on its way for a while, so what is told here is behind the
database's clock by one way of the network, and not ahead of it: whoever writes this time and whoever reads it later, in
whichever process, sees no time go back.
"""

from interlock.seams import Clock

MICROSECONDS = 1_000_000

HEARD_US = 5 * MICROSECONDS
"""How long a time is counted on. In five seconds two clocks part by less than an answer takes to arrive."""


class DatabaseTime:
    """What the database's clock says, at the latest known."""

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
        """Whether it is time to ask again."""
        return self._monotonic_us() - self._heard_us > HEARD_US

    def now_us(self) -> int:
        """The time, which never goes back."""
        assert self._offset_us is not None, "the database was asked for its time when it was opened"
        self._last_us = max(self._last_us, self._monotonic_us() + self._offset_us)
        return self._last_us

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic_s() * MICROSECONDS)
