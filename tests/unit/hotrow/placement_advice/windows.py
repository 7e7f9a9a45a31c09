"""Windows of evidence and tools, as the tests of the advisor make them."""

import itertools
from collections.abc import Iterable

from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.placement_advice import Advisor, Choice, Evidence, Measured, Target, advise, fresh, step
from interlock.hotrow.tool_declarations import Tool
from interlock.lanes.hot_rows import HotRow

HOT = 50.0
"""Hand-offs per second from which on a row is hot, unless somebody says otherwise."""


def a_tool(
    *,
    budget_s: float = 0.020,
    rate: float = 500.0,
    critical: bool = False,
    shardable: bool | None = None,
    threshold: float | None = None,
    batch: int | None = None,
) -> Tool:
    """A tool with a budget of 20 ms that needs 500 writes per second."""
    return Tool(
        "stock",
        write_latency_budget=budget_s,
        aggregate_write_rate=rate,
        latency_critical=critical,
        shardable=shardable,
        contention_flag_threshold=threshold,
        group_commit_max_batch=batch,
    )


def row(
    handoffs: float,
    *,
    writes: float = 500.0,
    wait_s: float = 0.005,
    key: object = "A-1",
    table: str = "stock",
    conflicts: float = 0.0,
) -> HotRow:
    return HotRow(
        table=table,
        key=key,
        handoffs_per_s=handoffs,
        writes_per_s=writes,
        wait_s=wait_s,
        flagged=max(handoffs, conflicts) > HOT,
        conflicts_per_s=conflicts,
    )


def window(
    *rows: HotRow,
    engine: Engine = "lane",
    writes: float = 500.0,
    distinct: int = 1,
    p99_s: float | None = 0.005,
    plateau: float | None = 5_000.0,
    floor_s: float | None = None,
    coupled: float | None = None,
    groups: float | None = None,
    measured: dict[Target, Measured] | None = None,
    streams: int = 1,
    shards: int = 1,
    routed: bool | None = None,
    seconds: float = 10.0,
) -> Evidence:
    """Ten seconds of 500 writes per second to one row that nobody waits for."""
    return Evidence(
        database="stock",
        engine=engine,
        seconds=seconds,
        writes_per_s=writes,
        distinct_rows=distinct,
        rows=rows,
        p99_s=p99_s,
        plateau_per_s=plateau,
        floor_s=floor_s,
        coupled_plateau_per_s=coupled,
        groups_per_s=groups,
        measured=measured or {},
        streams=streams,
        shards=shards,
        routed=routed,
    )


def shown(tool: Tool, windows: Iterable[Evidence], state: Advisor | None = None) -> list[Choice]:
    """What is shown after each window, one after the other."""
    state = state or Advisor()
    now_s = 0.0
    found: list[Choice] = []
    for each in windows:
        now_s += each.seconds
        state = fresh(state, tool, each.engine)
        state = step(state, advise(tool, each, state.choice), now_s)
        assert state.choice is not None
        found.append(state.choice)
    return found


def changes(choices: list[Choice]) -> int:
    """How often what is shown became something else."""
    return sum(before != after for before, after in itertools.pairwise(choices))
