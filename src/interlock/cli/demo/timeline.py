"""How the walk went, moment by moment: what the plot is drawn from.

A moment is a tenth of a second. Counted is what the watching process had heard by then; what the worker did right
before it was killed is in there as far as it was told.
"""

import time
from dataclasses import dataclass

MOMENTS_PER_S = 10
MOMENTS_MAX = 36_000
"""An hour. What happens later is counted in the last moment."""


@dataclass(slots=True)
class Moment:
    """What there was at the end of a moment."""

    transitions: int = 0
    """During it."""
    started: int = 0
    """So far, as the following ones."""
    paid: int = 0
    done: int = 0


class Timeline:
    """The moments of a walk, the first one beginning with the first look."""

    def __init__(self) -> None:
        self.moments: list[Moment] = [Moment()]
        self._began_s = time.perf_counter()

    def begin(self) -> None:
        """The walk begins now."""
        self._began_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._began_s

    def note(self, *, transitions: int, started: int, paid: int, done: int) -> None:
        """Count so many more transitions, and see how many orders have come how far."""
        at = min(int(self.now_s() * MOMENTS_PER_S), MOMENTS_MAX)
        while len(self.moments) <= at:
            last = self.moments[-1]
            self.moments.append(Moment(0, last.started, last.paid, last.done))
        moment = self.moments[-1]
        moment.transitions += transitions
        moment.started, moment.paid, moment.done = started, paid, done
