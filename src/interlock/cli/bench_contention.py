"""`interlock bench contention`: writers of one row, of distinct rows, of many databases, and of counters.

This module parses options and prints; the measurement is in `interlock.bench`. The table, the findings, the JSON and
the plot are made of the same points.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from interlock.bench import contention as experiment
from interlock.bench.contention import Experiment
from interlock.bench.contention_findings import Point
from interlock.bench.plots import contention_plot
from interlock.cli.bench_shown import check_files, watching, write_files
from interlock.cli.output import stderr, stdout

QUICK_SECONDS = 0.45
EXAMPLE = "Example: interlock bench contention --handoff-ms 10 --json wall.json --plot wall.svg"
TABLE_WIDTH = 100
"""A line of the table is never broken, however narrow the terminal is."""

PARTS = {
    "disk": "this disk or server as it is",
    "alone": "one commit per group",
    "grouped": "groups",
    "databases": "many databases",
}


def contention(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A place that does not exist yet: lanes:///…, s3://bucket/folder, postgresql://… or memory:; "
            "removed afterwards.",
        ),
    ] = None,
    handoff_ms: Annotated[
        float | None,
        typer.Option(
            "--handoff-ms", metavar="MS", help="On lanes: a durable place so far away. 10 unless given; 0: none."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long to measure each setting.")] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.45 seconds each.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the points as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the wall (SVG).")] = None,
) -> None:
    """Measure the contention wall: writers of one row flatten, separate databases scale, counters recover.

    Every increment is durable before it is acknowledged, and after each turn all rows must hold exactly what was
    acknowledged. Groups, shards and logs lower the price of contention; the writers of a row still depend on each
    other.
    """
    hand_off_ms = experiment.hand_off_for(url, handoff_ms)
    if handoff_ms and not hand_off_ms:
        stderr().print("A bucket and PostgreSQL have a way of their own: --handoff-ms is for lanes.", soft_wrap=True)
    seconds = min(seconds, QUICK_SECONDS) if quick else seconds
    experiment.check_bounds(seconds=seconds, hand_off_ms=hand_off_ms)
    settings = experiment.planned(url, hand_off_ms=hand_off_ms, quick=quick)
    check_files(json, plot)
    console = stdout()
    console.print(f"{len(settings)} settings in {experiment.ROUNDS} rounds, {seconds:g} s each.", soft_wrap=True)
    with watching(console, len(settings) * experiment.ROUNDS, _progress_line) as watch:
        result = asyncio.run(
            experiment.measure(url=url, settings=settings, hand_off_ms=hand_off_ms, seconds=seconds, watch=watch)
        )
    _show(console, result)
    write_files(result, json, plot, lambda: contention_plot(result))


def _progress_line(point: Point) -> str:
    spread = f", {point.databases} databases" if point.databases > 1 else ""
    return f"{point.series}{spread}, {point.clients:,} clients: {point.commits_per_s:,.0f} commits/s"


def _show(console: Console, result: Experiment) -> None:
    table = Table(box=None, padding=(0, 1))
    table.add_column("series", no_wrap=True)
    for heading in ("databases", "clients", "commits/s", "P50 ms", "P99 ms", "CPU µs"):
        table.add_column(heading, justify="right")
    part = ""
    for point in result.points:
        if part != point.part:
            if part:
                table.add_row()
            away = f", hand-off {point.hand_off_ms:g} ms" if point.hand_off_ms else ""
            table.add_row(f"{PARTS[point.part]}{away}:")
            part = point.part
        table.add_row(*_cells(point))
    console.print()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table)
    console.print()
    for finding in result.findings:
        console.print(finding, soft_wrap=True)
    console.print()
    for verdict in result.verdicts:
        console.print(
            f"Goal {'met' if verdict.met else 'MISSED'}: {verdict.goal}: {verdict.measured:.0%}.", soft_wrap=True
        )
    console.print("No update was lost: every row holds exactly what was acknowledged.", soft_wrap=True)
    console.print(result.told, soft_wrap=True)


def _cells(point: Point) -> Sequence[str]:
    return (
        f"  {point.series}",
        f"{point.databases:,}",
        f"{point.clients:,}",
        f"{point.commits_per_s:,.0f}",
        f"{point.p50_ms:,.2f}",
        f"{point.p99_ms:,.2f}",
        f"{point.cpu_us:,.1f}",
    )
