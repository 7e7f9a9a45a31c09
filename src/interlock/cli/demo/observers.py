"""Who counts while the orders move: the demo's own tally, and an observer that fails on purpose (A9).

The tally is fed by what the worker tells, and what was not told before the kill is missing in it: it is for watching.
The figures of the end are counted again, from the histories. The failing observer is subscribed first, so that whoever
comes after it would notice.
"""

from collections.abc import Callable

from interlock.core.description import MachineDescription
from interlock.core.events import STARTED
from interlock.signals import Signal

FAILS_EVERY = 100


class Tally:
    """Counts what happened. Every state has an entry from the beginning, so a display may read it at any time."""

    def __init__(self, description: MachineDescription) -> None:
        self.arrows = {(each.source, each.event, each.target): 0 for each in description.transitions}
        self.visits = {state.name: 0 for state in description.states}
        self.now = dict(self.visits)
        self.transitions = 0
        self._where: dict[str, str] = {}

    @property
    def covered(self) -> int:
        """How many of the machine's transitions were taken at least once."""
        return sum(1 for count in self.arrows.values() if count)

    def moved(self, order_id: str, event: str, state: str) -> None:
        """An order has come to a state."""
        before = self._where.get(order_id)
        if before is not None:
            self.now[before] -= 1
        self._where[order_id] = state
        self.now[state] += 1
        self.visits[state] += 1
        if event != STARTED:
            self.transitions += 1
            arrow = (before or "", event, state)
            if arrow in self.arrows:  # Behind a kill the state before may be one that nobody told.
                self.arrows[arrow] += 1

    def forget(self, order_id: str) -> None:
        """The order rests: where it is stays counted."""
        self._where.pop(order_id, None)


class Faulty:
    """An observer whose metrics server is down now and then. It harms nothing, which is the point."""

    def __init__(self, failed: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._seen = 0

    def __call__(self, signal: Signal, /) -> None:
        """Fail on every hundredth signal."""
        self._seen += 1
        if self._seen % FAILS_EVERY == 0:
            self._failed()
            raise ConnectionError(f"the metrics server did not take {type(signal).__name__}")
