"""The outcome of a walk: its tally, its timeline, its incidents and its verification.

It is filled from the worker's news while the orders move, and completed by the verification. Displays may read it at
any time. Times are seconds since the walk began. News that a kill prevented is missing, so the tally and the timeline
are for display only; the final figures are counted again from the histories.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.core.describe import MachineDescription
from interlock.core.events import STARTED
from interlock.engine.views import HistoryRow
from interlock.examples.order import Order, State
from interlock.signals import Signal

TILL, PAID = "till", "orders_paid"
"""The database with the hot counter, and the counter."""

BANK = "payments"
"""The dependency that has an outage."""

STATES = {state.value: number for number, state in enumerate(State)}

# --- Observers -------------------------------------------------------------------------------------------------------
# The failing observer (A9) is subscribed first: if a failure could disturb later observers, the demo would show it.

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


# --- Timeline --------------------------------------------------------------------------------------------------------

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

    def note(self, *, started: int, paid: int, done: int) -> None:
        """Add a transition to the current moment, and set its cumulative counts."""
        at = min(int(self.now_s() * MOMENTS_PER_S), MOMENTS_MAX)
        while len(self.moments) <= at:
            last = self.moments[-1]
            self.moments.append(Moment(0, last.started, last.paid, last.done))
        moment = self.moments[-1]
        moment.transitions += 1
        moment.started, moment.paid, moment.done = started, paid, done


# --- Outcome ---------------------------------------------------------------------------------------------------------

OrderHistory = list[HistoryRow[State, Order]]


@dataclass(slots=True)
class Outage:
    """The outage of the bank, and the reaction of the breaker."""

    began_s: float
    opened_s: float | None = None
    """When the breaker opened."""
    ended_s: float | None = None
    """When the bank was back."""
    closed_s: float | None = None
    """When the breaker let calls through again."""
    probes: int = 0
    refused: int = 0
    """Calls that the bank refused."""


@dataclass(slots=True)
class Kill:
    """The figures at the kill of the worker, and the recovery of the next one."""

    at_s: float
    acknowledged: int = 0
    on_their_way: int = 0
    recovery_s: float = 0.0
    """From opening the store to having resumed all pending work."""
    gap_s: float = 0.0
    """From the kill to the first news of the next worker, Python's own start included."""


@dataclass(slots=True)
class Stall:
    """Orders that wait on the packing table until the engine lists them as stalled."""

    began_s: float
    stuck: set[str] = field(default_factory=set[str])
    listed: set[str] = field(default_factory=set[str])
    """Stuck orders that the engine has listed as stalled."""
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class CountCheck:
    """A count that must equal its expected value at the end."""

    what: str
    found: int
    expected: int

    @property
    def holds(self) -> bool:
        """Whether the counts are equal."""
        return self.found == self.expected

    def __str__(self) -> str:
        return f"{self.what}: {self.found:,}, expected {self.expected:,}"


@dataclass(frozen=True, slots=True)
class Remark:
    """A line of text for the display."""

    text: str
    style: str


@dataclass(slots=True)
class Outcome:
    """All results of a walk, complete when the walk is over and verified."""

    orders: int
    seed: int
    tally: Tally
    timeline: Timeline = field(default_factory=Timeline)
    done: int = 0
    paid: int = 0
    """Orders that the hot counter has acknowledged."""
    counted_again: int = 0
    """Paid orders that were counted again after the kill, because the first outcome was unknown."""
    acknowledged: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    observer_failures: int = 0
    breaker: str = "closed"
    """The current state of the bank's breaker."""
    outage: Outage | None = None
    kill: Kill | None = None
    stall: Stall | None = None
    walking_s: float = 0.0
    verifying_s: float = 0.0
    books: Counter[str] = field(default_factory=Counter[str])
    """The number of entries in the bank's books, by deed."""
    keys: int = 0
    """The number of idempotency keys in the bank's books."""
    fingerprint: str = ""
    examples: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])
    """What, why and fix of the first refusal of each code."""
    longest: tuple[str, OrderHistory] = ("", [])
    """The order with the longest history."""
    remarks: list[Remark] = field(default_factory=list[Remark])
    checks: list[CountCheck] = field(default_factory=list[CountCheck])
    problems: list[str] = field(default_factory=list[str])

    def remark(self, text: str, style: str = "bold") -> None:
        """Queue a remark for the display."""
        self.remarks.append(Remark(text, style))
