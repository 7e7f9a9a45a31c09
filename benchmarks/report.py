"""What every benchmark shares: interleaved rounds, medians, ratios against baselines of the same run, one report.

Machines are noisy, so a figure alone means little. Contestants take turns, round by round, in a rotating order; each
contestant's median over the rounds is its figure; a ratio compares medians of one run. CPU time per operation
stands beside every throughput, because it is the steadier of the two.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS_MIN = 3
WIDTH_IN_A_PIPE = 110
LATENCIES = {"p50_ms": 0.50, "p95_ms": 0.95, "p99_ms": 0.99}


@dataclass(frozen=True)
class Round:
    """One turn of one contestant: how many operations in how much time."""

    operations: int
    seconds: float
    cpu_seconds: float
    latencies_s: Sequence[float] = ()
    """How long each operation took, where clients waited for theirs."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """What else the round used, as totals: see `metering`."""


@dataclass
class Figure:
    """All rounds of one contestant."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """The median throughput."""
        return statistics.median(each.operations / each.seconds for each in self.rounds)

    @property
    def cpu_ms(self) -> float:
        """The median CPU time per operation, in milliseconds."""
        return statistics.median(1e3 * each.cpu_seconds / each.operations for each in self.rounds)

    @property
    def spread(self) -> float:
        """How far the fastest and the slowest round are apart, as a share of the median."""
        rates = [each.operations / each.seconds for each in self.rounds]
        return (max(rates) - min(rates)) / statistics.median(rates)

    def latency_ms(self, share: float) -> float | None:
        """The latency that this share of the operations did not exceed: the median over the rounds; None if unknown."""
        found = [percentile(each.latencies_s, share) for each in self.rounds if each.latencies_s]
        return 1e3 * statistics.median(found) if found else None

    def each(self, count: str) -> float | None:
        """The median of what one operation used of something that was counted; None if it was not."""
        found = [each.counts[count] / each.operations for each in self.rounds if count in each.counts]
        return statistics.median(found) if found else None

    def as_json(self) -> dict[str, float | int]:
        """The figure for the JSON report."""
        counted = sorted({name for each in self.rounds for name in each.counts})
        latencies = {name: self.latency_ms(share) for name, share in LATENCIES.items()}
        return {
            "per_second": round(self.per_second, 1),
            "cpu_ms": round(self.cpu_ms, 6),
            "rounds": len(self.rounds),
            "spread": round(self.spread, 3),
            **{name: round(value, 4) for name, value in latencies.items() if value is not None},
            **{f"{name}_each": round(self.each(name) or 0.0, 4) for name in counted},
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def timed(operations: int, work: Callable[[], None]) -> Round:
    """Run the work once, with the garbage of others collected before."""
    gc.collect()
    cpu = time.process_time()
    wall = time.perf_counter()
    work()
    return Round(operations, time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(contestants: Mapping[str, Callable[[], Round]], *, rounds: int) -> dict[str, Figure]:
    """Let the contestants take turns; the first round warms up and does not count."""
    names = list(contestants)
    figures = {name: Figure() for name in names}
    for number in range(max(rounds, ROUNDS_MIN) + 1):
        # The order rotates, so that nobody always runs behind the one that heats the machine.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            result = contestants[name]()
            if number:
                figures[name].rounds.append(result)
    return figures


def machine() -> dict[str, object]:
    """What this ran on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": ", ".join(sorted(models)) or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }


def arguments(description: str) -> argparse.Namespace:
    """The command line that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="end within 90 seconds on 2 cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    return parser.parse_args()


def publish(
    name: str,
    *,
    figures: Mapping[str, Figure],
    ratios: Mapping[str, float],
    goals: Mapping[str, float],
    unit: str,
    file: Path | None,
    extra: Mapping[str, object] | None = None,
    at_most: Collection[str] = (),
) -> None:
    """Print the figures and the ratios with their goals; write the JSON when asked.

    A goal may also be set for a number in `extra`. Goals are reached from below, except those in `at_most`.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_IN_A_PIPE)
    console.print(_table(f"{name}: {unit}", figures, unit))
    wanted = {key: value for key, value in (extra or {}).items() if key in goals and isinstance(value, int | float)}
    for ratio, value in {**ratios, **wanted}.items():
        goal = goals.get(ratio)
        console.print(f"  {ratio} = {value:,.2f}{_verdict(value, goal, at_most=ratio in at_most)}", highlight=False)
    if file is not None:
        report: dict[str, object] = {
            "name": name,
            "machine": machine(),
            "unit": unit,
            "at_most": sorted(at_most),
            "ratios": {ratio: round(value, 3) for ratio, value in ratios.items()},
            "goals": dict(goals),
            "figures": {**{key: figure.as_json() for key, figure in figures.items()}, **(extra or {})},
        }
        file.write_text(json.dumps(report, indent=2) + "\n")
        print(f"written to {file}", file=sys.stderr)


def _verdict(value: float, goal: float | None, *, at_most: bool) -> str:
    if goal is None:
        return ""
    met = value <= goal if at_most else value >= goal
    return f"  goal {'≤' if at_most else '≥'} {goal:,g}: {'met' if met else 'MISSED'}"


def _table(title: str, figures: Mapping[str, Figure], unit: str) -> Table:
    latencies = any(figure.latency_ms(0.5) is not None for figure in figures.values())
    table = Table(title=title)
    headings = [f"P{share * 100:.0f} ms" for share in LATENCIES.values()] if latencies else []
    for heading in ("contestant", f"{unit}/s (median)", "CPU µs each", *headings):
        first = heading == "contestant"
        table.add_column(heading, justify="left" if first else "right", no_wrap=first)
    table.add_column("rounds", justify="right")
    table.add_column("spread", justify="right")
    for contestant, figure in figures.items():
        known = [figure.latency_ms(share) for share in LATENCIES.values()] if latencies else []
        table.add_row(
            contestant,
            f"{figure.per_second:,.0f}",
            f"{figure.cpu_ms * 1e3:.2f}",
            *("" if value is None else f"{value:.2f}" for value in known),
            str(len(figure.rounds)),
            f"{figure.spread:.0%}",
        )
    return table
