"""A database whose clock is set by the test, for suites that move time by hand."""

import pytest

from interlock.seams import Clock
from interlock.store.postgres import store


class SetDatabaseTime:
    """The database's time is what the clock of the test says, and what the server says is not believed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0

    @property
    def stale(self) -> bool:
        """Nobody has to ask."""
        return False

    def heard(self, server_us: int) -> None:
        """The server's clock is another one than the test's."""

    def now_us(self) -> int:
        """The time, which never goes back."""
        self._last_us = max(self._last_us, int(self._clock.wall_s() * 1_000_000))
        return self._last_us


def set_by_the_test(patch: pytest.MonkeyPatch) -> None:
    """From now on stores that are opened have such a time."""
    patch.setattr(store, "DatabaseTime", SetDatabaseTime)
