"""The outcome of a walk: its figures, its timeline and its verification.

It is filled from the worker's news while the orders move, and completed by the verification. Displays may read it at
any time. Times are seconds since the walk began.
"""

from collections import Counter
from dataclasses import dataclass, field

from interlock.cli.demo.observers import Tally
from interlock.cli.demo.timeline import Timeline
from interlock.examples.order import Order, State
from interlock.runtime.views import HistoryRow

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
class Check:
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
    checks: list[Check] = field(default_factory=list[Check])
    problems: list[str] = field(default_factory=list[str])

    def remark(self, text: str, style: str = "bold") -> None:
        """Queue a remark for the display."""
        self.remarks.append(Remark(text, style))
