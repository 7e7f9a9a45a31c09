"""Throttle of a copy: small pieces with pauses in between, so that other clients are not delayed.

A pause is a share of the time of the piece before it, so a busy machine gets longer pauses. When a piece takes much
longer than the fastest one, other clients are waiting, and the pause grows.
"""

import asyncio
from typing import Final

from interlock.seams import Clock

ROWS_PER_PIECE: Final = 1_000
RESTS: Final = 0.35
"""Pause as a share of the time of the piece."""

RESTS_MAX: Final = 1.0
SLOW: Final = 4.0
"""A piece is slow when it takes this multiple of the best time."""

PAUSE_S_MAX: Final = 0.1


class Pace:
    """The pauses of one mover."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._best_s: dict[str, float] = {}
        self._since_s = clock.monotonic_s()

    def begin(self) -> None:
        """Mark the begin of a piece."""
        self._since_s = self._clock.monotonic_s()

    async def rest(self, kind: str, rows: int) -> None:
        """Mark the end of a piece of `rows` rows, and pause."""
        took_s = self._clock.monotonic_s() - self._since_s
        each_s = took_s / max(rows, 1)
        best_s = self._best_s.get(kind, each_s)
        self._best_s[kind] = min(best_s, each_s) if rows >= ROWS_PER_PIECE else best_s
        part = RESTS_MAX if each_s > SLOW * best_s else RESTS
        await asyncio.sleep(min(took_s * part, PAUSE_S_MAX))
        self.begin()
