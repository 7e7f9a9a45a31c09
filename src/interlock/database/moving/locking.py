"""Retries of a mover's locks, and the errors for locks that it cannot acquire.

A waiting mover blocks other clients in the lock queue. So it waits only briefly for a lock, lets them pass, and
retries. The lock against other movers belongs to a connection: the server releases it when the connection is lost.
"""

import asyncio
from typing import Final

from interlock.errors import UnavailableError

PAUSE_S: Final = 0.02
LOCKS_S: Final = 30.0
"""Seconds for which locks are retried."""


class Tries:
    """Attempts with a pause in between, for a limited time."""

    def __init__(self, wait_s: float = LOCKS_S) -> None:
        self._until_s = asyncio.get_running_loop().time() + wait_s
        self._first = True

    async def next(self) -> bool:
        """Return whether to try again, after a pause."""
        if not self._first:
            await asyncio.sleep(PAUSE_S)
        self._first = False
        return asyncio.get_running_loop().time() < self._until_s


def no_lock(shown: str) -> UnavailableError:
    """Return the error for locks that could not be acquired."""
    return UnavailableError(
        f"the tables of {shown} could not be locked: another client holds one of them all the time.",
        why="A mover waits only a moment for each lock, so that it does not block other clients.",
        fix="Look for long transactions in pg_stat_activity, and run the command again: it goes on where it ended.",
    )


def another_mover(shown: str) -> UnavailableError:
    """Return the error for a place with another mover, which may be suspended."""
    return UnavailableError(
        f"another mover is at work at {shown}.",
        why="Two of them would write into the same draft, or forget for each other what is still to be brought over.",
        fix="Wait for it, or end it: the move goes on with the same command.",
    )
