"""The observers of the demo: a tally of transitions, and an observer that fails on purpose (A9).

The tally is filled from the worker's news. News that a kill prevented is missing, so the tally is for display only.
The final figures are counted again from the histories. The failing observer is subscribed first: if a failure could
disturb later observers, the demo would show it.
"""

from collections.abc import Callable

from interlock.core.description import MachineDescription
from interlock.core.events import STARTED
from interlock.signals import Signal

FAILS_EVERY = 100


class Tally:
    """Counts of transitions and visits. Every state has an entry from the start, so another thread may read it."""

    def __init__(self, description: MachineDescription) -> None:
        self.arrows = {(each.source, each.event, each.target): 0 for each in description.transitions}
        self.visits = {state.name: 0 for state in description.states}
        self.now = dict(self.visits)
        self.transitions = 0
        self._where: dict[str, str] = {}

    @property
    def covered(self) -> int:
        """The number of the machine's transitions that were taken at least once."""
        return sum(1 for count in self.arrows.values() if count)

    def moved(self, order_id: str, event: str, state: str) -> None:
        """Count an order's transition into a state."""
        before = self._where.get(order_id)
        if before is not None:
            self.now[before] -= 1
        self._where[order_id] = state
        self.now[state] += 1
        self.visits[state] += 1
        if event != STARTED:
            self.transitions += 1
            arrow = (before or "", event, state)
            if arrow in self.arrows:  # After a kill the previous state may be unknown: its news was lost.
                self.arrows[arrow] += 1

    def forget(self, order_id: str) -> None:
        """Forget the position of an order at rest; its counts stay."""
        self._where.pop(order_id, None)


class Faulty:
    """An observer that fails regularly, which must not disturb the engine or other observers."""

    def __init__(self, failed: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._signals = 0

    def __call__(self, signal: Signal, /) -> None:
        """Fail on every hundredth signal."""
        self._signals += 1
        if self._signals % FAILS_EVERY == 0:
            self._failed()
            raise ConnectionError(f"the metrics server did not take {type(signal).__name__}")
