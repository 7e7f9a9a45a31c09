"""The contention report of a lane: a small file beside it, for `interlock hot` (D9).

Only the owner knows which writers wait for which, and it may be any process. So it leaves `NAME.lane.hot` beside the
lane's file: at most every five seconds, between two groups and after all waiters were notified, replaced as a whole,
never synced to the disk, at most fifty rows. A lane with nothing to report has no such file, a lane that closes removes
it, and a reader ignores an old one; so a file that a crash has left says nothing. A lane in memory has none. The local
file of a bucket has one like any other: it can be read on the owner's host.

A group costs one look at the clock and one number in a histogram: of all that waited in it, one stands for the others.
"""

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from interlock.lanes.contention import Contention, HotRow, badness
from interlock.lanes.work import Work
from interlock.seams import Clock

FORMAT = 1

FIRST_S = 1.0
"""How long after its first group a lane reports for the first time."""

EVERY_S = 5.0

STALE_S = 15.0
"""A report older than this is not true any more: a busy lane reports every `EVERY_S`."""

ROWS_MAX = 50

TRANSACTIONS_MIN = 100
"""A lane without hand-offs reports only when it has run this many transactions since the last time."""

KEY_LENGTH_MAX = 200
"""A key may be any text; the rest of a long one is cut off."""

BUCKETS = 128
BUCKETS_PER_DOUBLING = 4
SHORTEST_S = 1e-6
"""Latencies from a microsecond to an hour, each known to within a fifth of itself."""

Rows = Callable[[], Sequence[HotRow]]
"""Rows that a layer above the lane has observed, worst first. Called by the lane's own thread."""


class HotReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report that a lane's owner leaves beside it: one window of evidence."""

    format: int = FORMAT
    at_s: float
    """When it was written, by the wall clock."""
    pid: int
    window_s: float
    """How many seconds the numbers of transactions and groups cover."""
    transactions_per_s: float
    groups_per_s: float
    latency_p99_s: float | None
    """From submission until durable; None when there were too few transactions."""
    rows_seen: int
    """Distinct rows that were written of late, as far as they are remembered (`contention_rows_max`)."""
    flag_threshold: float
    rows: list[HotRow]
    key_types: dict[str, tuple[str, ...]]
    """The declared types of the keys of these tables: keys are as SQLite stores them."""


class Latencies:
    """The latencies of transactions: a histogram that forgets."""

    def __init__(self) -> None:
        self._counts = [0.0] * BUCKETS

    def add(self, latency_s: float, weight: float) -> None:
        """Add `weight` transactions of about this latency."""
        place = int(math.log2(latency_s / SHORTEST_S) * BUCKETS_PER_DOUBLING) if latency_s > SHORTEST_S else 0
        self._counts[min(place, BUCKETS - 1)] += weight

    def quantile(self, share: float) -> float | None:
        """Return the latency below which this share of all lies; None when there are too few."""
        total = sum(self._counts)
        if total * (1.0 - share) < 1.0:
            return None
        below = 0.0
        for place, count in enumerate(self._counts):
            below += count
            if below >= share * total:
                return SHORTEST_S * math.exp2((place + 1) / BUCKETS_PER_DOUBLING)
        return None

    def fade(self) -> None:
        """Halve the weight of everything so far."""
        self._counts = [count / 2 for count in self._counts]


class Publishing:
    """Publishes the contention of a lane. Used by the lane's driver alone."""

    def __init__(self, path: Path | None, contention: Contention, clock: Clock) -> None:
        self.also: Rows | None = None
        """The rows of the layer above: an engine knows workflows where the lane sees numbers."""
        self.failed = 0
        self._file = None if path is None else hot_path(path)
        self._pid = os.getpid()
        self._contention = contention
        self._clock = clock
        self._latencies = Latencies()
        self._groups = self._transactions = 0
        self._since_s = self._next_s = -math.inf
        self._has_file = False

    def ended(self, group: Sequence[Work]) -> None:
        """Count a group that has ended, after all waiters were notified, and publish when it is due."""
        if self._file is None or not group:
            return
        now_s = self._clock.monotonic_s()
        size = len(group)
        self._groups += 1
        self._transactions += size
        self._latencies.add(now_s - group[self._groups % size].waiting_since_s, size)
        if now_s >= self._next_s:
            self._publish(self._file, now_s)

    def close(self) -> None:
        """Remove the report: the lane is about to be released. Does nothing in the child of a fork."""
        file, self._file = self._file, None  # Only once: the next owner's file has the same name.
        if file is not None and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def _publish(self, file: Path, now_s: float) -> None:
        begun = self._next_s == -math.inf
        self._next_s = now_s + (FIRST_S if begun else EVERY_S)
        if begun:
            self._since_s = now_s
            return
        try:
            report = self._report(now_s)
            if report.rows or self._transactions >= TRANSACTIONS_MIN:
                _replace(file, msgspec.msgpack.encode(report))
                self._has_file = True
            elif self._has_file:
                self._has_file = False
                file.unlink(missing_ok=True)
        except Exception:  # noqa: BLE001 -- a full disk, a key that cannot be written: no reason to stop a lane.
            self.failed += 1
        self._since_s, self._groups, self._transactions = now_s, 0, 0
        self._latencies.fade()

    def _report(self, now_s: float) -> HotReport:
        contention = self._contention
        above = () if self.also is None else self.also()
        rows = sorted([*above, *contention.worst(now_s)], key=badness, reverse=True)[:ROWS_MAX]
        window_s = max(now_s - self._since_s, 0.001)
        return HotReport(
            at_s=self._clock.wall_s(),
            pid=self._pid,
            window_s=window_s,
            transactions_per_s=self._transactions / window_s,
            groups_per_s=self._groups / window_s,
            latency_p99_s=self._latencies.quantile(0.99),
            rows_seen=contention.count_recent_rows(now_s),
            flag_threshold=contention.flag_threshold,
            rows=[msgspec.structs.replace(row, key=_short(row.key)) for row in rows],
            key_types={row.table: contention.key_types(row.table) for row in rows if row.source == "lane"},
        )


def hot_path(database: Path) -> Path:
    """Return the path of a lane's report: beside the file itself, whatever name it was opened by."""
    return Path(f"{os.path.realpath(database)}.hot")


def read_report(file: Path, *, now_s: float) -> HotReport | None:
    """Return the report; None when it is missing, old, or of another version."""
    try:
        report = msgspec.msgpack.decode(file.read_bytes(), type=HotReport)
    except (OSError, msgspec.MsgspecError):
        return None
    # A clock that was set back makes the time of writing lie ahead.
    if report.format != FORMAT or not -STALE_S <= now_s - report.at_s <= STALE_S:
        return None
    rows = [msgspec.structs.replace(row, key=_read(row.key)) for row in report.rows]
    return msgspec.structs.replace(report, rows=rows)


def _read(key: object) -> object:
    return tuple(cast("list[object]", key)) if isinstance(key, list) else key


def _short(key: object) -> object:
    if isinstance(key, tuple):
        return tuple([_short(part) for part in cast("tuple[object, ...]", key)])
    if isinstance(key, str) and len(key) > KEY_LENGTH_MAX:
        return f"{key[: KEY_LENGTH_MAX - 1]}…"
    return key[:KEY_LENGTH_MAX] if isinstance(key, bytes) else key


def _replace(file: Path, data: bytes) -> None:
    """Replace the file as a whole, so that a reader sees the old or the new one. Not synced: useless after a crash."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(data)
    new.replace(file)
