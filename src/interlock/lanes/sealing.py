"""The wait at a seal: while a mover seals a lane, its writer meets a lock and waits for it.

The lock is SQLite's own, so it vanishes with the mover, however that ends. SQLite's busy timeout would look again after
up to a tenth of a second, which is as long as a whole seal. Here the looks are a millisecond apart, so that writers go
on immediately. The wait is bounded: past it the group is refused, nothing of it happened, and the lane lives on.
"""

import threading

from interlock.errors import UnavailableError
from interlock.lanes import points

LOOK_S = 0.001
"""Between two looks at the lock."""


class SealWait:
    """The busy handler of one connection."""

    def __init__(self, wait_s: float, *, look_s: float = LOOK_S, point: str | None = None) -> None:
        self._looks_max = max(1, int(wait_s / look_s))
        self._look_s = look_s
        self._point = point
        self._pause = threading.Event()

    def __call__(self, looks: int) -> bool:
        """Wait as SQLite's busy handler: called with the number of previous attempts; return False to stop waiting."""
        if looks == 0 and self._point is not None:
            points.reach(self._point)
        if looks >= self._looks_max:
            return False
        self._pause.wait(self._look_s)
        return True


def sealed_too_long(wait_s: float) -> UnavailableError:
    """The error for a group that has met a seal for too long."""
    return UnavailableError(
        f"the lane was locked by another process for {wait_s:g} s (seal_wait_s); this did not happen.",
        why="A mover seals a lane while it hands over the last of it, or something that is not Interlock writes there.",
        fix="Repeat the transaction. If it stays so, find out what else has the file open.",
    )
