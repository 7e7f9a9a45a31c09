"""Retry schedule for connections that the server has refused.

Hundreds of callers may wait for a server that is full or restarts. If each of them tried on its own, the server would
be busy with refusals. So one of them tries at a time, and the pause between two tries grows, with jitter, up to a
second. The first connection that is opened ends the schedule for all callers.
"""

import contextlib
from collections.abc import Generator

from interlock.seams import Chance
from interlock.sql.postgres.failures import Away, NotNow

FIRST_PAUSE_S = 0.05
PAUSE_S_MAX = 1.0


class Reaching:
    """The retry state of one node: whether the server takes connections."""

    def __init__(self, chance: Chance) -> None:
        self.refusal: NotNow | None = None
        """Why the last connection was not opened; None when it was."""
        self._chance = chance
        self._reached = False
        self._trying = False
        self._tries = 0
        self._next_s = 0.0

    def may_try(self, now_s: float) -> bool:
        """Return whether it is time to open a connection."""
        return self.refusal is None or (not self._trying and now_s >= self._next_s)

    def pause_s(self, now_s: float) -> float:
        """Return the seconds to wait before asking again, unless the caller is woken earlier."""
        return PAUSE_S_MAX if self._trying else max(self._next_s - now_s, 0.0)

    @contextlib.contextmanager
    def trying(self) -> Generator[None]:
        """Surround one attempt. The first caller after a refusal keeps the others from trying too."""
        first = self.refusal is not None
        self._trying = self._trying or first
        try:
            yield
        finally:
            if first:
                self._trying = False

    def opened(self) -> None:
        """The server has taken a connection."""
        self._reached = True
        self.refusal = None
        self._tries = 0

    def refused(self, refusal: NotNow, now_s: float) -> None:
        """Record a refused connection. Raises the refusal when no server has ever answered at the address."""
        if isinstance(refusal, Away) and not self._reached:
            raise refusal
        longest_s = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** min(self._tries, 16))
        self.refusal = refusal
        self._tries += 1
        self._next_s = now_s + longest_s * (1 + self._chance.fraction()) / 2
