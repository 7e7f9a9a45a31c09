"""The placement rule, a pure function of a tool's declaration and its measurements (D10).

The default is to stay. A hot row that can be spread gets a helper; unrelated writes that wait for each other get
databases of their own; a workload within its budget, with a plateau above the needed rate, stays; a row that cannot be
spread moves to coupled PostgreSQL if it is latency-critical. Only the dependency between writes decides: a row is hot
by its hand-offs, never by its writes.

Every comparison has a margin. A verdict that is shown already is kept as long as some reading of the thresholds inside
their margins supports it; only then are they read strictly. A margin is so wide that a value which strays by 30 % to
either side cannot be on both ends of it.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from interlock.hotrow.advice.evidence import Evidence
from interlock.hotrow.advice.seen import Seen, seen
from interlock.hotrow.advice.verdict import CHOICES, Case, Choice, Verdict
from interlock.hotrow.advice.words import worded
from interlock.hotrow.tools import Tool


class Limits(NamedTuple):
    """One reading of the thresholds."""

    heat: float = 1.0
    """Hand-offs of the worst row, as a multiple of what makes a row hot."""
    pressure: float = 1.0
    """Time or rate, as a multiple of what the tool declares."""
    floor: float = 1.0
    """Time that the durable append alone takes, as a multiple of the budget."""
    cold: float = 0.25
    """A heat below which a database in PostgreSQL may go back."""
    mixed: float = 0.5
    """A share of the writes below which the hot row is not what most writers want."""
    skew: float = 2.0
    """How many times its fair share one shard may have."""


STRICT = Limits()
MARGINS = Limits(heat=0.5, pressure=0.5, floor=0.5, cold=0.5, mixed=0.25, skew=1.0)
"""The other end of each margin."""
MIXED_MOST = 0.95
SKEW_MOST = 4.0
"""These two are crossed in both directions, so their margins lie on both sides."""


def advise(tool: Tool, evidence: Evidence, current: Choice | None = None) -> Verdict:
    """Return the verdict on one window. `current`, the shown choice, is kept near a threshold."""
    found = seen(tool, evidence)
    return worded(_decided(tool, evidence, found, current), tool, evidence, found)


def _decided(tool: Tool, evidence: Evidence, found: Seen, current: Choice | None) -> Case:
    strict = _case(tool, evidence, found, STRICT)
    if current is None or CHOICES[strict] == current:
        return strict
    for limits in _readings():
        case = _case(tool, evidence, found, limits)
        if CHOICES[case] == current:
            return case
    return strict


def _readings() -> Iterator[Limits]:
    heat, pressure, floor, cold, mixed, skew = zip(STRICT, MARGINS, strict=True)
    for each in product(heat, pressure, floor, cold, (*mixed, MIXED_MOST), (*skew, SKEW_MOST)):
        yield Limits(*each)


def _case(tool: Tool, evidence: Evidence, found: Seen, limits: Limits) -> Case:  # noqa: PLR0911 -- the rule, line by line.
    hot = found.heat > limits.heat
    over = max(found.latency_ratio, found.row_ratio if hot else 0.0, found.lane_ratio) > limits.pressure
    if hot and found.spreadable:
        return _helper(found, limits)
    if evidence.engine == "postgres":
        return _in_postgres(evidence, found, limits, hot=hot, over=over)
    if not over:
        return "affordable" if hot else "calm"
    if found.floor_ratio > limits.floor and tool.latency_critical and evidence.engine == "object":
        return "distant"  # The log alone takes longer than the budget: no arrangement of rows helps.
    if not hot or found.share < limits.mixed:
        if evidence.streams == 1 and evidence.distinct_rows != 1:
            return "mixed" if hot else "unrelated"
        if not hot:
            return "apart"
    if not tool.latency_critical:
        return "priced"
    return "irreducible" if _bears_more(tool, evidence) else "unhelped"


def _helper(found: Seen, limits: Limits) -> Case:
    if found.shards == 1:
        return "countable"
    return "skewed" if found.share * found.shards > limits.skew else "crowded"


def _in_postgres(evidence: Evidence, found: Seen, limits: Limits, *, hot: bool, over: bool) -> Case:
    if found.heat < limits.cold and evidence.routed is not False:
        return "cold"
    if over:
        return "coupled" if hot else "apart"
    return "affordable" if hot else "calm"


def _bears_more(tool: Tool, evidence: Evidence) -> bool:
    """Return False if PostgreSQL was measured to be worse for a row."""
    there = evidence.coupled_plateau_per_s
    return there is None or there >= tool.aggregate_write_rate or there > (evidence.plateau_per_s or 0.0)
