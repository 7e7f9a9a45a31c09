"""The timeline of a walk: counts per tenth of a second, the data of the plot.

The parent counts the worker's news as it arrives. News that a kill prevented is missing.
"""

import time
from dataclasses import dataclass

MOMENTS_PER_S = 10
MOMENTS_MAX = 36_000
"""One hour. Later transitions are counted in the last moment."""


@dataclass(slots=True)
class Moment:
    """The counts of a tenth of a second."""

    transitions: int = 0
    """During the moment."""
    started: int = 0
    """Cumulative, as the following ones."""
    paid: int = 0
    done: int = 0


class Timeline:
    """The moments of a walk."""

    def __init__(self) -> None:
        self.moments: list[Moment] = [Moment()]
        self._began_s = time.perf_counter()

    def begin(self) -> None:
        """Set the start of the walk to now."""
        self._began_s = time.perf_counter()

    def now_s(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._began_s

    def note(self, *, transitions: int, started: int, paid: int, done: int) -> None:
        """Add transitions to the current moment, and set its cumulative counts."""
        at = min(int(self.now_s() * MOMENTS_PER_S), MOMENTS_MAX)
        while len(self.moments) <= at:
            last = self.moments[-1]
            self.moments.append(Moment(0, last.started, last.paid, last.done))
        moment = self.moments[-1]
        moment.transitions += transitions
        moment.started, moment.paid, moment.done = started, paid, done
