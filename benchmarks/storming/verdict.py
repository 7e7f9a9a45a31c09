"""What the storm has shown: figures, ratios against the naive chain, and tables for people.

An order has ended correctly when it was completed, or declined because its payment is. Throughput counts completed
orders over the time until the last order was final, or until nobody waited any longer. Latencies are of all orders,
from when they should have arrived; an order that never was final has waited until the end.
"""

import statistics
from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.report import Figure, Round, percentile
from benchmarks.storming.arena import Turn
from benchmarks.storming.load import Outcome
from benchmarks.storming.weather import Script

NAIVE = "naive chain on PostgreSQL"
EMBEDDED = "Interlock, embedded"
POSTGRES = "Interlock on PostgreSQL"
PREFIXES = {EMBEDDED: "", POSTGRES: "postgres_"}

WANTED = {
    "throughput_vs_naive": 4.0,
    "p95_vs_naive": 0.32,
    "rss_growth_vs_naive": 0.35,
    "cpu_per_order_vs_naive": 0.66,
    "error_rate": 0.003,
    "double_charges": 0.0,
    "uncompensated_charges": 0.0,
}
GOALS = {f"{prefix}{name}": goal for prefix in PREFIXES.values() for name, goal in WANTED.items()}
AT_MOST = {name for name in GOALS if not name.endswith("throughput_vs_naive")}

Turns = Mapping[str, Sequence[Turn]]


def figure_of(script: Script, turns: Sequence[Turn]) -> Figure:
    """The turns as rounds of completed orders."""
    return Figure([_round(script, turn) for turn in turns])


def _round(script: Script, turn: Turn) -> Round:
    return Round(
        max(1, turn.count(Outcome.COMPLETED)),
        turn.report.seconds,
        turn.cpu_s + turn.server_cpu_s,
        latencies(script, turn),
        {
            "process_cpu_ms": 1e3 * turn.cpu_s,
            "server_cpu_ms": 1e3 * turn.server_cpu_s,
            "gateway_cpu_ms": 1e3 * turn.gateway_cpu_s,
        },
    )


def latencies(script: Script, turn: Turn) -> list[float]:
    """From arrival to end, of all orders."""
    report = turn.report
    return [
        (report.seconds if outcome == Outcome.OPEN else end_s) - arrived_s
        for arrived_s, end_s, outcome in zip(script.arrivals(), report.ends_s, report.outcomes, strict=True)
    ]


def errors(turn: Turn) -> int:
    """Orders that did not reach a correct end."""
    return turn.count(Outcome.FAILED, Outcome.REFUSED, Outcome.OPEN) + turn.wrong


def rss_growth(turn: Turn) -> int:
    """How much more memory the contestant had at its peak than before the storm."""
    return turn.rss_peak_bytes - turn.rss_before_bytes


def ratios_of(script: Script, turns: Turns) -> dict[str, float]:
    """The ratios of one run, from medians; errors and money are of all rounds together."""
    naive = turns[NAIVE]
    theirs = figure_of(script, naive)
    ratios: dict[str, float] = {}
    for name, prefix in PREFIXES.items():
        if name in turns:
            ours, mine = figure_of(script, turns[name]), turns[name]
            offered = sum(len(turn.report.outcomes) for turn in mine)
            ratios |= {
                f"{prefix}throughput_vs_naive": ours.per_second / theirs.per_second,
                f"{prefix}p95_vs_naive": (ours.latency_ms(0.95) or 0.0) / (theirs.latency_ms(0.95) or 1.0),
                f"{prefix}rss_growth_vs_naive": _growth(mine) / max(1.0, _growth(naive)),
                f"{prefix}cpu_per_order_vs_naive": ours.cpu_ms / theirs.cpu_ms,
                f"{prefix}error_rate": sum(map(errors, mine)) / offered,
                f"{prefix}double_charges": float(sum(len(turn.books["charged_twice"]) for turn in mine)),
                f"{prefix}uncompensated_charges": float(sum(turn.uncompensated for turn in mine)),
            }
    return ratios


def _growth(turns: Sequence[Turn]) -> float:
    return statistics.median(rss_growth(turn) for turn in turns)


def storm_figures(turns: Turns) -> dict[str, dict[str, float]]:
    """For the JSON report: what is not a rate, as medians of the rounds."""
    return {name: {key: _median(rows, key) for key in rows[0]} for name, rows in _rows(turns).items()}


def _rows(turns: Turns) -> dict[str, list[dict[str, float]]]:
    return {name: [_row(turn) for turn in mine] for name, mine in turns.items()}


def _median(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return round(statistics.median(row[key] for row in rows), 4)


def _row(turn: Turn) -> dict[str, float]:
    offered, completed = len(turn.report.outcomes), max(1, turn.count(Outcome.COMPLETED))
    return {
        "offered": offered,
        "completed": turn.count(Outcome.COMPLETED),
        "declined": turn.count(Outcome.DECLINED),
        "failed": turn.count(Outcome.FAILED),
        "refused": turn.count(Outcome.REFUSED),
        "not_final": turn.count(Outcome.OPEN),
        "wrong": turn.wrong,
        "seconds": turn.report.seconds,
        "starved_s": turn.starved_s,
        "error_rate": errors(turn) / offered,
        "unknown": turn.unknown,
        "double_charges": len(turn.books["charged_twice"]),
        "uncompensated_charges": turn.uncompensated,
        "unreleased": turn.unreleased,
        "calls_per_order": sum(turn.books["calls"].values()) / offered,
        "concurrent_max": turn.books["concurrent_max"],
        "rss_growth_mb": rss_growth(turn) / 1e6,
        "cpu_ms_per_order": 1e3 * (turn.cpu_s + turn.server_cpu_s) / completed,
        "process_cpu_ms_per_order": 1e3 * turn.cpu_s / completed,
        "server_cpu_ms_per_order": 1e3 * turn.server_cpu_s / completed,
        "gateway_cpu_ms_per_order": 1e3 * turn.gateway_cpu_s / completed,
    }


def storm_table(script: Script, turns: Turns) -> Table:
    """Everything side by side, as medians of the rounds."""
    rounds = len(next(iter(turns.values())))
    table = Table(title=f"the storm, {len(script.arrivals()):,} orders in {script.seconds:g} s, {rounds} round(s)")
    table.add_column("")
    for name in turns:
        table.add_column(name, justify="right")
    figures = storm_figures(turns)
    for key in next(iter(figures.values())):
        table.add_row(key.replace("_", " "), *(_shown(figures[name][key]) for name in turns))
    return table


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def timeline_table(script: Script, turns: Turns) -> Table:
    """What became of the orders that arrived in each segment, in the last round."""
    table = Table(title="by segment of arrival, last round: ended well, P95, calls that the gateway got in the segment")
    for heading in ("segment", "orders/s"):
        table.add_column(heading, justify="left" if heading == "segment" else "right")
    for name in turns:
        table.add_column(name, justify="right")
    arrivals = script.arrivals()
    places = [script.place(at_s) for at_s in arrivals]
    waited = {name: latencies(script, mine[-1]) for name, mine in turns.items()}
    for place, segment in enumerate(script.segments):
        numbers = [number for number, found in enumerate(places) if found == place]
        cells: list[str] = []
        for name, mine in turns.items():
            outcomes = mine[-1].report.outcomes
            good = sum(outcomes[number] in (Outcome.COMPLETED, Outcome.DECLINED) for number in numbers)
            p95 = percentile([waited[name][number] for number in numbers], 0.95) if numbers else 0.0
            calls = mine[-1].books["calls_by_segment"].get(segment.name, 0)
            cells.append(f"{100 * good / max(1, len(numbers)):.1f} %  {p95:.2f} s  {calls:,}")
        table.add_row(segment.name, f"{segment.rate_per_s:,.0f}", *cells)
    return table
