"""The choice of a counter's form (D7): a pure function of its measurements, and the signal that measures contention.

Up, immediately: from the row to shards when the row is handed from writer to writer more often than the
threshold, unless they share their commits; from shards to the log when even a shard is, and where appending to the log
is not one more queue. A lane executes one write after the other, so its log is: there the shards, each in a database of
its own, are the end.

Down, only after a long calm: when for `CALM_S` this process has added so little that the form below could not come near
the threshold, even if each of its writes waited for another. What rises at the threshold falls at a quarter of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, assert_never, cast

from interlock.clock import Clock
from interlock.errors import InterlockError
from interlock.lanes.contention import HotRow
from interlock.lanes.transaction import LaneStats
from interlock.redaction import logger_of

Form = Literal["exact", "sharded", "event_log"]
"""Where an add is written."""

Kind = Literal["exact", "sharded", "event_log", "auto"]
"""The kind that a counter is opened with: one fixed form, or a chosen one."""

CALM_S: Final = 60.0
CALM_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements that a choice is made from."""

    row_handoffs_per_s: float = 0.0
    """How often the counter's own row went from one writer to the next that waited for it."""
    shard_handoffs_per_s: float = 0.0
    """The same for the worst of its shards."""
    calm_s: float = 0.0
    """How long the rate of adds has been below `calm_below`."""
    commits_shared: bool = False
    """Whether writers of one row share commits: in a lane whose groups have room hand-offs cost nothing."""
    appends_apart: bool = False
    """Whether appends to the log run side by side: on PostgreSQL they do, in a lane they do not."""


def choose(current: Form, measured: Measured, *, threshold: float) -> Form:
    """Return the form for the next adds."""
    calm = measured.calm_s >= CALM_S
    match current:
        case "exact":
            hurts = measured.row_handoffs_per_s > threshold and not measured.commits_shared
            return "sharded" if hurts else "exact"
        case "sharded":
            if measured.shard_handoffs_per_s > threshold and measured.appends_apart:
                return "event_log"
            return "exact" if calm else "sharded"
        case "event_log":
            return "sharded" if calm else "event_log"
        case _:
            assert_never(current)


def calm_below(current: Form, *, threshold: float, shard_count: int) -> float:
    """Return the adds per second below which the next simpler form would certainly be calm."""
    rows_below = shard_count if current == "event_log" else 1
    return CALM_SHARE * threshold * rows_below


# --- Contention signal -----------------------------------------------------------------------------------------------
# One read serves all counters, at most once a second, independent of the number of adds.
#
# In a lane many writers of one row share one commit as long as its groups have room: each hands the row to the next
# in memory, and all of them wait for the disk together. Splitting such a row would mean many commits instead of one,
# and be slower. Only a lane whose groups are full makes its writers queue (D13).

LOOK_S: Final = 1.0
"""The shortest time between two reads of the signal."""

FULL_SHARE: Final = 0.5
"""Groups count as full when on average they hold more than this of what they may."""

ROW_TABLE: Final = "hotrow_counter"
SHARD_TABLE: Final = "hotrow_counter_shard"

ReadContention = Callable[[], Awaitable[Sequence[HotRow]]]
"""The contention signal of a database: `Database.contention`."""

log = logger_of("interlock.hotrow")


class Groups(NamedTuple):
    """How a lane commits."""

    stats: Callable[[], LaneStats]
    """Its totals so far: `Database.stats`."""
    size_max: int
    """`group_commit_max_batch`."""


class SignalReading(NamedTuple):
    """The result of one read of the signal."""

    rates: Mapping[tuple[str, str], float]
    """Hand-offs and conflicts per second, by table and counter; of several rows of a counter, the worst."""
    commits_shared: bool
    """Whether writers of one row share commits, so that its hand-offs cost nothing."""


class Signal:
    """The contention signal, read again after `LOOK_S`."""

    def __init__(self, contended: ReadContention | None, clock: Clock, *, groups: Groups | None = None) -> None:
        self._contended = contended
        self._clock = clock
        self._groups = groups
        self._looked_s: float | None = None
        self._done = (0, 0)
        self._latest = SignalReading({}, commits_shared=False)
        self.failures = 0
        """Looks that failed. No add fails for that; the counters keep the form they have."""

    async def look(self) -> SignalReading:
        """Return the current signal. While one caller reads it, the others get the previous one."""
        now_s = self._clock.monotonic_s()
        if self._contended is not None and (self._looked_s is None or now_s - self._looked_s >= LOOK_S):
            self._looked_s = now_s
            shared = self._commits_shared()
            try:
                self._latest = SignalReading(_worst(await self._contended()), shared)
            except InterlockError:
                self.failures += 1
                self._latest = SignalReading({}, shared)
                log.warning("the contention signal could not be read; counters keep their form.", exc_info=True)
        return self._latest

    def _commits_shared(self) -> bool:
        if self._groups is None:
            return False
        stats = self._groups.stats()
        groups, transactions = self._done
        self._done = stats.groups, stats.transactions
        return stats.transactions - transactions <= FULL_SHARE * self._groups.size_max * (stats.groups - groups)


def _worst(rows: Sequence[HotRow]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        table = row.table.rpartition(".")[2]
        if table in {ROW_TABLE, SHARD_TABLE}:
            key = table, _counter_of(row.key)
            # A conflict is a hand-off that failed: on PostgreSQL some adds wait, others are run again.
            found[key] = max(found.get(key, 0.0), row.handoffs_per_s + row.conflicts_per_s)
    return found


def _counter_of(key: object) -> str:
    # The key of a shard is its counter and its number.
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    return str(parts[0]) if parts else ""
