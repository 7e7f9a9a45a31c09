"""What a walk has to tell: the figures, what happened when, and in the end what was verified.

It is filled while the orders move, from the news of the worker, and completed when they are verified. Whoever shows the
walk reads it at any time. Times are seconds since the walk began.
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
    """The time when the bank answered nobody, and what the breaker made of it."""

    began_s: float
    opened_s: float | None = None
    """When the breaker opened."""
    ended_s: float | None = None
    """When the bank was back."""
    closed_s: float | None = None
    """When the breaker let calls through again."""
    probes: int = 0
    refused: int = 0
    """Calls that the bank did not answer."""


@dataclass(slots=True)
class Kill:
    """What there was when the worker was killed, and how the next one came back."""

    at_s: float
    acknowledged: int = 0
    on_their_way: int = 0
    recovery_s: float = 0.0
    """From opening the store to having taken up everything that was owed."""
    gap_s: float = 0.0
    """From the kill to the first news of the next worker, Python's own start included."""


@dataclass(slots=True)
class Stall:
    """Orders that nobody packs, until they are found."""

    began_s: float
    held: set[str] = field(default_factory=set[str])
    listed: set[str] = field(default_factory=set[str])
    """Those of them that the engine has listed as stalled."""
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must be so in the end."""

    what: str
    found: int
    expected: int

    @property
    def holds(self) -> bool:
        """Whether it is."""
        return self.found == self.expected

    def __str__(self) -> str:
        return f"{self.what}: {self.found:,}, expected {self.expected:,}"


@dataclass(frozen=True, slots=True)
class Remark:
    """A line for people, as something happens."""

    told: str
    style: str


@dataclass(slots=True)
class Outcome:
    """Everything that a walk has to tell, complete when the walk is over and verified."""

    orders: int
    seed: int
    tally: Tally
    timeline: Timeline = field(default_factory=Timeline)
    done: int = 0
    paid: int = 0
    """Orders that the hot counter was told of, and has acknowledged."""
    counted_again: int = 0
    """Of those: told once more after the kill, because nobody knew whether the first time had worked."""
    acknowledged: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    observer_failures: int = 0
    breaker: str = "closed"
    """Of the bank, as it is now."""
    outage: Outage | None = None
    kill: Kill | None = None
    stall: Stall | None = None
    walking_s: float = 0.0
    verifying_s: float = 0.0
    books: Counter[str] = field(default_factory=Counter[str])
    """The entries of the world's books, by what was done."""
    keys: int = 0
    """The idempotency keys under which the world was asked for something."""
    fingerprint: str = ""
    examples: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])
    """What, why and fix of the first refusal of each code."""
    longest: tuple[str, OrderHistory] = ("", [])
    """The order with the longest history."""
    remarks: list[Remark] = field(default_factory=list[Remark])
    checks: list[Check] = field(default_factory=list[Check])
    problems: list[str] = field(default_factory=list[str])

    def remark(self, told: str, style: str = "bold") -> None:
        """Say something to whoever watches."""
        self.remarks.append(Remark(told, style))
