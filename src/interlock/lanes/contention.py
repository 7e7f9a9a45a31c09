"""The contention signal: which rows writers hand to each other, how often, and how long they wait for it (D9).

A write is a *hand-off* when the row's previous write was executed while this transaction was already waiting: the two
depend on each other, and no batching takes that away (D13). Many writes to many rows are volume, not contention, and
show no hand-offs at all.

Bounded and cheap: a dictionary of the latest rows, forgetting half of the coldest when it is full; rates decay with a
time constant, so an old storm fades.
"""

import math
from collections.abc import Iterable

import msgspec

DECAY_S = 10.0


class HotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row that writers wait for each other on."""

    table: str
    key: object
    """The value of the primary key, a tuple if it has several columns, or the row's number if there is none."""
    handoffs_per_s: float
    writes_per_s: float
    wait_s: float
    """The mean time that a handed-off write waited."""
    flagged: bool


class _Row:
    __slots__ = ("at_s", "born_s", "handoffs", "last_s", "wait_s", "writes")

    def __init__(self, now_s: float) -> None:
        self.at_s = now_s
        self.born_s = now_s
        self.last_s = -math.inf
        self.writes = 0.0
        self.handoffs = 0.0
        self.wait_s = 0.0


class Contention:
    """Counts hand-offs per row. Written by the writer alone."""

    def __init__(self, *, rows_max: int, flag_threshold: float) -> None:
        self.rows_max = rows_max
        self.flag_threshold = flag_threshold
        self._rows: dict[tuple[str, object], _Row] = {}
        self._key_types: dict[str, tuple[str, ...]] = {}

    def learned(self, types: dict[str, tuple[str, ...]]) -> None:
        """The declared types of the keys of tables: with them the layer above turns keys back into what was written."""
        if len(self._key_types) > self.rows_max:
            watched = {table for table, _ in self._rows}
            self._key_types = {table: kinds for table, kinds in self._key_types.items() if table in watched}
        self._key_types.update(types)

    def key_types(self, table: str) -> tuple[str, ...]:
        """The declared types of the columns of a table's key; empty when it has none, or is not known."""
        return self._key_types.get(table, ())

    def wrote(
        self, rows: Iterable[tuple[str, object]], *, waiting_since_s: float, now_s: float, weight: float = 1.0
    ) -> None:
        """A transaction that began to wait at `waiting_since_s` has just written these rows; it stands for `weight`."""
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

    def worst(self, now_s: float) -> list[HotRow]:
        """All rows with hand-offs, worst first."""
        found: list[HotRow] = []
        for (table, key), row in list(self._rows.items()):
            _decay(row, now_s)
            if row.handoffs >= 0.01:  # noqa: PLR2004 -- less than one in a hundred: faded.
                window_s = _window_s(row, now_s)
                rate = row.handoffs / window_s
                found.append(
                    HotRow(
                        table=table,
                        key=key,
                        handoffs_per_s=rate,
                        writes_per_s=row.writes / window_s,
                        wait_s=row.wait_s / row.handoffs,
                        flagged=rate > self.flag_threshold,
                    )
                )
        return sorted(found, key=lambda row: row.handoffs_per_s, reverse=True)

    def _forget(self, now_s: float) -> None:
        for row in self._rows.values():
            _decay(row, now_s)
        coldest = sorted(self._rows, key=lambda key: (self._rows[key].handoffs, self._rows[key].writes))
        for key in coldest[: max(1, self.rows_max // 2)]:
            del self._rows[key]


def _window_s(row: _Row, now_s: float) -> float:
    # A row that is younger than the window has filled only a part of it.
    return max(1.0, DECAY_S * (1.0 - math.exp(-(now_s - row.born_s) / DECAY_S)))


def _decay(row: _Row, now_s: float) -> None:
    # Counters are sums over an exponential window of DECAY_S.
    factor = math.exp(-(now_s - row.at_s) / DECAY_S)
    row.writes *= factor
    row.handoffs *= factor
    row.wait_s *= factor
    row.at_s = now_s
