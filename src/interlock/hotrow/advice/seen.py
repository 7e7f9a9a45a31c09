"""What the evidence of a window comes to, held against what the tool declares: the figures that the rule compares.

All of them are multiples of a limit, so that the rule can give every comparison the same margin. What was not measured
is taken for good: advice is given for what is known to be wrong.
"""

from typing import NamedTuple, cast

from interlock.hotrow.advice.evidence import Evidence
from interlock.hotrow.tools import Tool
from interlock.lanes.contention import HotRow

COUNTERS = "hotrow_counter"
SHARDS = "hotrow_counter_shard"
"""The tables of Interlock's own counters: by name, and by name and shard. What is in them can be spread by nature."""

SHARD_COUNT = 16
"""Shards of a counter, unless somebody says otherwise."""

THRESHOLD_MIN = 0.01
"""With a threshold of 0 every hand-off makes a row hot; a multiple of 0 could not be told."""


class Seen(NamedTuple):
    """What the evidence comes to, held against what the tool declares."""

    row: HotRow | None
    threshold: float
    heat: float
    """Hand-offs or conflicts of the worst row, as a multiple of what makes a row hot."""
    spreadable: bool
    """Whether it is declared, or known, that the worst row is only added to."""
    counter: str | None
    """The name of the counter behind the worst row, if it is one of Interlock's own."""
    shards: int
    share: float
    """Of all writes, how many went to the worst row."""
    latency_s: float | None
    latency_ratio: float
    floor_ratio: float
    needed_per_s: float
    """Writes per second that the worst row has to bear when the tool runs as it declares."""
    row_ratio: float
    lane_ratio: float


def seen(tool: Tool, evidence: Evidence) -> Seen:
    """Hold what was measured against what is declared."""
    row = max(evidence.rows, key=dependent_per_s, default=None)
    declared = tool.contention_flag_threshold
    threshold = max(THRESHOLD_MIN, evidence.flag_threshold if declared is None else declared)
    share = 1.0
    if row is not None and evidence.writes_per_s > 0:
        share = min(1.0, row.writes_per_s / evidence.writes_per_s)
    floor_s = evidence.floor_s or 0.0
    latency_s = evidence.p99_s
    if latency_s is None and (row is not None or floor_s):
        # The mean of those who waited, or the least that a commit takes: where that is over, the slowest are too.
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
    """Writes per second that waited for another one of the same row, or had to be done again because of it."""
    return max(row.handoffs_per_s, row.conflicts_per_s)


def _counter(row: HotRow | None) -> str | None:
    """The name of the counter that a row belongs to."""
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
    """Its table; in PostgreSQL the schema stands in front of it."""
    return row.table.rpartition(".")[2]
