"""Tools: workloads with declared needs, which the advisor compares with measurements (D10, D16).

    Tool("stock", write_latency_budget=0.020, aggregate_write_rate=500, latency_critical=True)

A declaration does not say where the workload lives; the advisor proposes that. Its knobs are settings of the database
that has its name, or that was opened with it. A knob that is not given is left to the environment, to `[tools.NAME]`
and `[databases.NAME]` of `interlock.toml`, and to its default, in this order but for a database's own table, which
comes before its tool's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from interlock.core.policies import is_number, is_positive_int
from interlock.errors import BadUsage, DefinitionError
from interlock.lanes.lane_settings import COUNTER_SHARDS_MAX, KINDS
from interlock.settings import FILE, KNOBS, configured_tool, lane_settings

NAME_CHARACTERS_MAX = 100
BUDGET_S_MAX = 3_600.0
RATE_MAX = 1_000_000_000.0

_NEEDED = ("write_latency_budget", "aggregate_write_rate")


class _Named(msgspec.Struct, frozen=True):  # A class of its own, because `kw_only` applies to all fields of one.
    name: str


class Tool(_Named, frozen=True, kw_only=True):
    """The needs of a workload, and its knobs. Raises DefinitionError for a value out of range."""

    write_latency_budget: float
    """Seconds within which 99 of 100 writes should be durable."""
    aggregate_write_rate: float
    """Writes per second that it needs, all its writers together."""
    latency_critical: bool = False
    """Whether a user waits for the write. If not, the advisor never proposes a move for being over the budget."""
    shardable: bool | None = None
    """Whether its hot rows can be spread: a plain count can, a balance with a limit cannot. None: not declared."""
    counter_shard_count: int | None = None
    counter_kind: str | None = None
    group_commit_window: float | None = None
    group_commit_max_batch: int | None = None
    contention_flag_threshold: float | None = None
    contention_flag_wait_s: float | None = None
    db_per_write_stream: bool | None = None

    def __post_init__(self) -> None:
        name: object = self.name  # Not every caller has a type checker.
        valid = isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()
        _demand(valid, "name", name, f"a text of 1 to {NAME_CHARACTERS_MAX} printable characters")
        budget, rate = self.write_latency_budget, self.aggregate_write_rate
        within = is_number(budget) and 0 < budget <= BUDGET_S_MAX
        _demand(
            within, "write_latency_budget", budget, f"a number of seconds, more than 0 and at most {BUDGET_S_MAX:,g}"
        )
        within = is_number(rate) and 0 <= rate <= RATE_MAX
        _demand(within, "aggregate_write_rate", rate, f"a number of writes per second from 0 to {RATE_MAX:,.0f}")
        critical: object = self.latency_critical
        _demand(isinstance(critical, bool), "latency_critical", critical, "True or False")
        shardable: object = self.shardable
        _demand(shardable is None or isinstance(shardable, bool), "shardable", shardable, "True, False, or None")
        shards = self.counter_shard_count
        counted = shards is None or (is_positive_int(shards) and shards <= COUNTER_SHARDS_MAX)
        _demand(counted, "counter_shard_count", shards, f"a whole number from 1 to {COUNTER_SHARDS_MAX}, or None")
        _ = lane_settings(tool_settings(self))  # The other knobs have their ranges there.


def tool_settings(tool: Tool) -> dict[str, float]:
    """Return the knobs that are set in the tool, as settings of a database."""
    knobs = {knob: cast("float | None", getattr(tool, knob)) for knob in KNOBS if knob in KINDS}
    return {knob: value for knob, value in knobs.items() if value is not None}


def declared_tool(
    name: str, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Tool | None:
    """Return the tool of that name in `interlock.toml`; None without a declaration. Raises BadUsage for half of one."""
    found = configured_tool(name, environment=environment, folder=folder)
    missing = [each for each in _NEEDED if each not in found]
    if len(missing) == len(_NEEDED) and not {"latency_critical", "shardable"} & set(found):
        return None
    if missing:
        raise BadUsage(
            f"{FILE}: the tool {name!r} declares no {' and no '.join(missing)}.",
            why="What is measured is held against both: how long a write may take, and how many there are per second.",
            fix=f"Add it below [tools.{name}]: write_latency_budget in seconds, aggregate_write_rate per second.",
        )
    try:
        return Tool(name, **found)  # type: ignore[arg-type]  # Kinds are those of the file, and Tool checks the rest.
    except DefinitionError as error:
        raise BadUsage(f"{FILE}: {error.what}", why=error.why, fix=error.fix) from error


def undeclared(name: str) -> Tool:
    """Return a tool without a declaration: the longest budget and no required rate."""
    return Tool(name, write_latency_budget=BUDGET_S_MAX, aggregate_write_rate=0.0)


def _demand(holds: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 -- it is an assertion.
    if not holds:
        raise DefinitionError(
            f"Tool.{name} is {value!r}; it must be {allowed}.",
            why="The advisor holds what is measured against what a tool declares.",
            fix=f"Give {name} {allowed}.",
            rule="value-out-of-range",
        )
