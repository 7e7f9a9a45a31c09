"""`interlock bench orders`: orders in four durable steps, beside the same orders by hand on SQLite.

This module parses options and prints; the measurement is in `interlock.bench`. The table, the ratios, the JSON and the
plot are made of the same points.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from interlock.bench import orders as experiment
from interlock.bench.orders import BY_HAND, Experiment, Point
from interlock.bench.plots import orders_plot
from interlock.cli.bench_shown import check_files, watching, write_files
from interlock.cli.output import stdout

QUICK_SECONDS = 0.5
EXAMPLE = "Example: interlock bench orders --clients 64 --clients 256 --json orders.json --plot orders.svg"
TABLE_WIDTH = 100
"""A line of the table is never broken, however narrow the terminal is."""


def orders(
    *,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A folder that does not exist yet: lanes:///…; removed afterwards."),
    ] = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Concurrent orders. May be given several times."),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long to measure each setting.")] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.5 seconds each.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the points as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the rates (SVG).")] = None,
) -> None:
    """Measure durable orders, each with a start and four transitions, beside the same written by hand on SQLite.

    Once the steps of the machine move the orders, and once their clients send the events. Everything is on one disk,
    waits for it before it answers, and takes turns; every order that was answered must have arrived.
    """
    counts = clients or list(experiment.QUICK_CLIENTS if quick else experiment.CLIENTS)
    seconds = min(seconds, QUICK_SECONDS) if quick else seconds
    experiment.check_bounds(url, clients=counts, seconds=seconds)
    check_files(json, plot)
    console = stdout()
    turns = len(counts) * len(experiment.SERIES) * experiment.ROUNDS
    console.print(f"{turns} turns of {seconds:g} s.", soft_wrap=True)
    with watching(console, turns, _progress_line) as watch:
        result = asyncio.run(experiment.measure(url=url, clients=counts, seconds=seconds, watch=watch))
    _show(console, result)
    write_files(result, json, plot, lambda: orders_plot(result))


def _progress_line(point: Point) -> str:
    return f"{point.series}, {point.clients:,} concurrent: {point.orders_per_s:,.0f} orders/s"


def _show(console: Console, result: Experiment) -> None:
    times = {(ratio.series, ratio.clients): ratio.times_by_hand for ratio in result.ratios}
    table = Table(box=None, padding=(0, 1))
    table.add_column("orders", no_wrap=True)
    for heading in ("concurrent", "orders/s", "transitions/s", "P50 ms", "P99 ms", "CPU ms", "times by hand"):
        table.add_column(heading, justify="right")
    for point in result.points:
        table.add_row(
            point.series,
            f"{point.clients:,}",
            f"{point.orders_per_s:,.0f}",
            f"{point.transitions_per_s:,.0f}",
            f"{point.p50_ms:,.2f}",
            f"{point.p99_ms:,.2f}",
            f"{point.cpu_ms:,.3f}",
            "" if point.series == BY_HAND else f"{times[point.series, point.clients]:.1f}",
        )
    console.print()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table)
    console.print()
    console.print("Every order that was answered has arrived, with its history.", soft_wrap=True)
    console.print(result.told, soft_wrap=True)
