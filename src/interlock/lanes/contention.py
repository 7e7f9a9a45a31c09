"""The contention signal: which rows writers hand to each other, how often, and how long they wait for them (D9).

A write is a *hand-off* when the row's previous write was executed while this transaction was already waiting: the two
depend on each other, and no batching takes that away (D13). Many writes to many rows are volume, not contention, and
show no hand-offs at all. A *conflict* is a write that had to be done again because another one came first: a
serialization failure, a version that had moved on, a retry.

Bounded and cheap: a dictionary of the latest rows, forgetting half of the coldest when it is full; rates decay with a
time constant, so an old storm fades.
"""

import math
from collections.abc import Iterable
from typing import Literal, Self

import msgspec

from interlock.lanes.settings import LaneSettings

DECAY_S = 10.0

FADED = 0.01
"""Less than one hand-off or conflict in a hundred is left of it: it is not shown any more."""

Source = Literal["lane", "workflow", "postgres"]
"""The observer: a lane's writer, an engine of workflows, or a client (or the views) of PostgreSQL."""


class HotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row that writers wait for each other on."""

    table: str
    key: object
    """The value of the primary key, a tuple for several columns, or the row's number without a primary key."""
    handoffs_per_s: float
    writes_per_s: float
    wait_s: float
    """The mean time that a handed-off write waited."""
    flagged: bool
    source: Source = "lane"
    conflicts_per_s: float = 0.0
    """Serialization failures, versions that had moved on, and retries."""


class _Row:
    __slots__ = ("at_s", "born_s", "conflicts", "handoffs", "last_s", "wait_s", "writes")

    def __init__(self, now_s: float) -> None:
        self.at_s = now_s
        self.born_s = now_s
        self.last_s = -math.inf
        self.writes = 0.0
        self.handoffs = 0.0
        self.conflicts = 0.0
        self.wait_s = 0.0


class Contention:
    """Counts hand-offs per row. Written by the writer alone."""

    def __init__(self, *, rows_max: int, flag_threshold: float, source: Source = "lane") -> None:
        self.source: Source = source
        self.rows_max = rows_max
        self.flag_threshold = flag_threshold
        self._rows: dict[tuple[str, object], _Row] = {}
        self._key_types: dict[str, tuple[str, ...]] = {}

    @classmethod
    def watching(cls, settings: LaneSettings, *, source: Source = "lane") -> Self:
        """Return a signal with the bounds of these settings."""
        return cls(
            rows_max=settings.contention_rows_max, flag_threshold=settings.contention_flag_threshold, source=source
        )

    def learned(self, types: dict[str, tuple[str, ...]]) -> None:
        """Remember the declared key types of tables: the layer above needs them to decode keys."""
        if len(self._key_types) > self.rows_max:
            watched = {table for table, _ in self._rows}
            self._key_types = {table: kinds for table, kinds in self._key_types.items() if table in watched}
        self._key_types.update(types)

    def key_types(self, table: str) -> tuple[str, ...]:
        """Return the declared types of a table's key columns; empty when it has no key, or is unknown."""
        return self._key_types.get(table, ())

    def wrote(
        self, rows: Iterable[tuple[str, object]], *, waiting_since_s: float, now_s: float, weight: float = 1.0
    ) -> None:
        """Count writes of these rows by a transaction that waited since `waiting_since_s`; it stands for `weight`."""
        known = self._rows
        for key in rows:
            row = known.get(key)
            if row is None:
                if len(known) >= self.rows_max:
                    self._forget(now_s)
                row = known[key] = _Row(now_s)
            elif now_s - row.at_s > 1.0:
                _decay(row, now_s)
            row.writes += weight
            if row.last_s > waiting_since_s:
                row.handoffs += weight
                row.wait_s += weight * (now_s - waiting_since_s)
            row.last_s = now_s

    def conflicted(self, rows: Iterable[tuple[str, object]], *, now_s: float, weight: float = 1.0) -> None:
        """Count a conflict: a transaction on these rows has to be repeated, because another one came first."""
        for key in rows:
            self._row(key, now_s).conflicts += weight

    def took_turns(
        self, key: tuple[str, object], *, writes: float, handoffs: float, wait_s: float, now_s: float
    ) -> None:
        """Count `writes` of one row, of which `handoffs` waited for another one, `wait_s` in all.

        A row that no write has waited for yet is not remembered: volume costs nothing here.
        """
        if not handoffs and key not in self._rows:
            return
        row = self._row(key, now_s)
        row.writes += writes
        row.handoffs += handoffs
        row.wait_s += wait_s
        row.last_s = now_s

    def _row(self, key: tuple[str, object], now_s: float) -> _Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self.rows_max:
                self._forget(now_s)
            row = self._rows[key] = _Row(now_s)
        elif now_s - row.at_s > 1.0:
            _decay(row, now_s)
        return row

    def worst(self, now_s: float) -> list[HotRow]:
        """Return all rows with hand-offs or conflicts, worst first."""
        found: list[HotRow] = []
        for (table, key), row in list(self._rows.items()):
            _decay(row, now_s)
            if row.handoffs >= FADED or row.conflicts >= FADED:
                window_s = _window_s(row, now_s)
                handoffs_per_s, conflicts_per_s = row.handoffs / window_s, row.conflicts / window_s
                found.append(
                    HotRow(
                        table=table,
                        key=key,
                        handoffs_per_s=handoffs_per_s,
                        writes_per_s=row.writes / window_s,
                        wait_s=row.wait_s / row.handoffs if row.handoffs >= FADED else 0.0,
                        flagged=max(handoffs_per_s, conflicts_per_s) > self.flag_threshold,
                        source=self.source,
                        conflicts_per_s=conflicts_per_s,
                    )
                )
        return sorted(found, key=badness, reverse=True)

    def count_recent_rows(self, now_s: float) -> int:
        """Return how many distinct rows, of those remembered, were written within the window."""
        return sum(now_s - row.last_s <= DECAY_S for row in list(self._rows.values()))

    def _forget(self, now_s: float) -> None:
        for row in self._rows.values():
            _decay(row, now_s)
        rows = self._rows
        coldest = sorted(rows, key=lambda key: (rows[key].handoffs + rows[key].conflicts, rows[key].writes))
        for key in coldest[: max(1, self.rows_max // 2)]:
            del self._rows[key]


def badness(row: HotRow) -> tuple[bool, float, float]:
    """Return the sort key of a row, the worst last: flagged, then how often it is waited for, then how long."""
    return row.flagged, row.handoffs_per_s + row.conflicts_per_s, row.wait_s


def _window_s(row: _Row, now_s: float) -> float:
    # A row that is younger than the window has filled only a part of it.
    return max(1.0, DECAY_S * (1.0 - math.exp(-(now_s - row.born_s) / DECAY_S)))


def _decay(row: _Row, now_s: float) -> None:
    # Counters are sums over an exponential window of DECAY_S.
    factor = math.exp(-(now_s - row.at_s) / DECAY_S)
    row.writes *= factor
    row.handoffs *= factor
    row.conflicts *= factor
    row.wait_s *= factor
    row.at_s = now_s
