"""The durable log of a lane, which makes a group durable beyond the local disk.

A local lane needs none: its commit is durable when SQLite says so. A lane on a bucket hands every group on. Nothing is
acknowledged and nothing is shown before that is done (G2, G7).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from interlock.clock import Clock


class DurableLog(Protocol):
    """The log beyond the local disk. Only the lane's driver calls it, except for `current`."""

    local_sync: bool
    """Whether the local file must be synced as well; False when it is only a cache."""

    @property
    def upkeep_failed(self) -> int:
        """How often upkeep failed."""
        ...

    def append(self, frames: int, time_us: int) -> None:
        """Make durable what SQLite has committed up to that frame of its write-ahead log; also when that is nothing.

        Raises OutcomeUnknown when that cannot be known, Fenced when the group certainly did not happen.
        """
        ...

    def between(self) -> None:
        """Run upkeep, after all waiters were notified. Raises as `append` does."""
        ...

    def current(self) -> bool:
        """Whether this lane is surely still the owner, so that reads see the latest state."""
        ...

    def close(self, *, clean: bool) -> None:
        """Close the log. `clean`: everything that is in the local file is in the log."""
        ...


OpenLog = Callable[[Path | None], DurableLog]
"""Opens the log of the lane whose local file this is (None: in memory); the file's lock is held already."""

HandOff = Callable[[], None]
"""A stand-in for a log: returns when the group is durable, raises when that cannot be known."""


class HandedOff:
    """A durable log that is one function, for experiments and tests."""

    local_sync = True
    upkeep_failed = 0

    def __init__(self, hand_off: HandOff) -> None:
        self._hand_off = hand_off

    def append(self, frames: int, time_us: int) -> None:
        """Call the function."""
        del frames, time_us
        self._hand_off()

    def between(self) -> None:
        """Do nothing: there is no upkeep."""

    def current(self) -> bool:
        """Return True: there is no other owner."""
        return True

    def close(self, *, clean: bool) -> None:
        """Do nothing: there is nothing to close."""


def stored_us(lane_us: int, clock: Clock) -> int:
    """Return the time that a group is stored with: the clock's, or the lane's own if that is ahead.

    The lane's own stands still while no transaction asks for the time, and history is kept and found by this one.
    """
    return max(lane_us, int(clock.wall_s() * 1_000_000))
