"""The figures that the rule compares: the evidence of a window relative to the tool's declaration.

All of them are multiples of a limit, so that the rule can give every comparison the same margin. A missing measurement
counts as good: advice is given only for measured problems.
"""

from typing import NamedTuple, cast

from interlock.hotrow.advice.evidence import Evidence
from interlock.hotrow.tools import Tool
from interlock.lanes.contention import HotRow

COUNTERS = "hotrow_counter"
SHARDS = "hotrow_counter_shard"
"""The tables of Interlock's own counters: by name, and by name and shard. Their rows can always be spread."""

SHARD_COUNT = 16
"""Shards of a counter, unless the tool sets another number."""

THRESHOLD_MIN = 0.01
"""A threshold of 0 means that every hand-off makes a row hot, but heat is a multiple of the threshold."""


class Seen(NamedTuple):
    """The figures of one window."""

    row: HotRow | None
    threshold: float
    heat: float
    """Hand-offs or conflicts of the worst row, as a multiple of what makes a row hot."""
    spreadable: bool
    """Whether it is declared, or known, that the worst row is only added to."""
    counter: str | None
    """The name of the counter of the worst row, if it is one of Interlock's own."""
    shards: int
    share: float
    """Share of all writes that went to the worst row."""
    latency_s: float | None
    latency_ratio: float
    floor_ratio: float
    needed_per_s: float
    """Writes per second that the worst row has to bear when the tool runs as it declares."""
    row_ratio: float
    lane_ratio: float


def seen(tool: Tool, evidence: Evidence) -> Seen:
    """Compare the measurements with the declaration."""
    row = max(evidence.rows, key=dependent_per_s, default=None)
    declared = tool.contention_flag_threshold
    threshold = max(THRESHOLD_MIN, evidence.flag_threshold if declared is None else declared)
    share = 1.0
    if row is not None and evidence.writes_per_s > 0:
        share = min(1.0, row.writes_per_s / evidence.writes_per_s)
    floor_s = evidence.floor_s or 0.0
    latency_s = evidence.p99_s
    if latency_s is None and (row is not None or floor_s):
        # The mean wait, or the shortest commit: where that is over the budget, the slowest commits are too.
        latency_s = max(0.0 if row is None else row.wait_s, floor_s)
    plateau = evidence.plateau_per_s
    counter = _counter(row)
    needed = tool.aggregate_write_rate * share
    in_lanes = evidence.engine != "postgres"
    return Seen(
        row=row,
        threshold=threshold,
        heat=0.0 if row is None else dependent_per_s(row) / threshold,
        spreadable=counter is not None if tool.shardable is None else tool.shardable,
        counter=counter,
        shards=_shards(tool, evidence, row),
        share=share,
        latency_s=latency_s,
        latency_ratio=(latency_s or 0.0) / tool.write_latency_budget,
        floor_ratio=min(floor_s, latency_s or 0.0) / tool.write_latency_budget,
        needed_per_s=needed,
        row_ratio=needed / plateau if plateau else 0.0,
        lane_ratio=tool.aggregate_write_rate / (plateau * evidence.streams) if plateau and in_lanes else 0.0,
    )


def dependent_per_s(row: HotRow) -> float:
    """Return the writes per second that waited for another write of the row, or were retried because of it."""
    return max(row.handoffs_per_s, row.conflicts_per_s)


def _counter(row: HotRow | None) -> str | None:
    """Return the name of the counter that a row belongs to."""
    if row is None or _table(row) not in {COUNTERS, SHARDS}:
        return None
    key: object = row.key
    if isinstance(key, tuple | list) and key:
        key = cast("tuple[object, ...] | list[object]", key)[0]
    return key if isinstance(key, str) else None


def _shards(tool: Tool, evidence: Evidence, row: HotRow | None) -> int:
    if evidence.shards > 1 or row is None or _table(row) != SHARDS:
        return evidence.shards
    return tool.counter_shard_count or SHARD_COUNT


def _table(row: HotRow) -> str:
    """Return the table of a row without its PostgreSQL schema."""
    return row.table.rpartition(".")[2]
