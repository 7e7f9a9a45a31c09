"""Locks that a mover waits for, and the one that keeps other movers out.

Nobody may wait long behind a mover, so it waits only a moment for a lock, lets the others go first, and comes again.
The lock against other movers belongs to a connection: it is gone when the server has noticed that its mover is.
"""

import asyncio
from typing import Final

from interlock.errors import UnavailableError

PAUSE_S: Final = 0.02
LOCKS_S: Final = 30.0
"""So long it is tried again."""


class Tries:
    """Again and again, with a pause in between, for a while."""

    def __init__(self, wait_s: float = LOCKS_S) -> None:
        self._until_s = asyncio.get_running_loop().time() + wait_s
        self._first = True

    async def next(self) -> bool:
        """Whether to try (again)."""
        if not self._first:
            await asyncio.sleep(PAUSE_S)
        self._first = False
        return asyncio.get_running_loop().time() < self._until_s


def no_lock(shown: str) -> UnavailableError:
    """Our error for locks that could not be had."""
    return UnavailableError(
        f"the tables of {shown} could not be locked: somebody holds one of them all the time.",
        why="A mover waits only a moment for each lock, so that nobody waits long behind it.",
        fix="Look for long transactions in pg_stat_activity, and run the command again: it goes on where it ended.",
    )


def another_mover(shown: str) -> UnavailableError:
    """Our error for a place where a mover lives, perhaps one that sleeps."""
    return UnavailableError(
        f"another mover is at work at {shown}.",
        why="Two of them would write into the same draft, or forget for each other what is still to be brought over.",
        fix="Wait for it, or end it: the move goes on with the same command.",
    )
