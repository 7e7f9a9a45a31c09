"""Who listens while the orders move: a counter, and an observer that fails on purpose (A9).

The counts that the demo shows come from signals alone; that they agree with the histories in the end is one of the
things it verifies. The failing observer is subscribed first, so that whoever comes after it would notice.
"""

from collections import Counter

from interlock.core.description import MachineDescription
from interlock.core.events import STARTED
from interlock.signals import Signal, TransitionApplied, TransitionRejected

FAILS_EVERY = 100


class Tally:
    """Counts what happened. Every state has an entry from the beginning, so a display may read it at any time."""

    def __init__(self, description: MachineDescription) -> None:
        self.arrows = {(each.source, each.event, each.target): 0 for each in description.transitions}
        self.visits = {state.name: 0 for state in description.states}
        self.now = dict(self.visits)
        self.started = 0
        self.transitions = 0
        self.rejected: Counter[str] = Counter()

    def __call__(self, signal: Signal, /) -> None:
        """Count one signal."""
        match signal:
            case TransitionApplied():
                self._applied(signal)
            case TransitionRejected(code=code):
                self.rejected[code] += 1
            case _:
                pass

    @property
    def covered(self) -> int:
        """How many of the machine's transitions were taken at least once."""
        return sum(1 for count in self.arrows.values() if count)

    def _applied(self, signal: TransitionApplied) -> None:
        self.visits[signal.to_state] += 1
        self.now[signal.to_state] += 1
        if signal.event == STARTED:
            self.started += 1
            return
        self.now[signal.from_state] -= 1
        self.arrows[signal.from_state, signal.event, signal.to_state] += 1
        self.transitions += 1


class Faulty:
    """An observer whose metrics server is down now and then. It harms nothing, which is the point."""

    def __init__(self) -> None:
        self.seen = 0
        self.failures = 0

    def __call__(self, signal: Signal, /) -> None:
        """Fail on every hundredth signal."""
        self.seen += 1
        if self.seen % FAILS_EVERY == 0:
            self.failures += 1
            raise ConnectionError(f"the metrics server did not take {type(signal).__name__}")
