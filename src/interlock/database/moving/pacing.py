"""How fast a copy goes: small pieces with pauses in between, so that everybody else keeps their turn.

A pause is a part of the time that the piece before it took, so a busy machine is given more. When a piece takes much
longer than pieces have taken at best, somebody else is being kept waiting, and the pause grows.
"""

import asyncio
from typing import Final

from interlock.seams import Clock

ROWS_PER_PIECE: Final = 1_000
RESTS: Final = 0.35
"""A pause is so much of the time that the piece took."""

RESTS_MAX: Final = 1.0
SLOW: Final = 4.0
"""So many times the best is slow."""

PAUSE_S_MAX: Final = 0.1


class Pace:
    """The pauses of one mover."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._best_s: dict[str, float] = {}
        self._since_s = clock.monotonic_s()

    def begin(self) -> None:
        """A piece begins."""
        self._since_s = self._clock.monotonic_s()

    async def rest(self, kind: str, rows: int) -> None:
        """A piece of so many rows is done."""
        took_s = self._clock.monotonic_s() - self._since_s
        each_s = took_s / max(rows, 1)
        best_s = self._best_s.get(kind, each_s)
        self._best_s[kind] = min(best_s, each_s) if rows >= ROWS_PER_PIECE else best_s
        part = RESTS_MAX if each_s > SLOW * best_s else RESTS
        await asyncio.sleep(min(took_s * part, PAUSE_S_MAX))
        self.begin()
