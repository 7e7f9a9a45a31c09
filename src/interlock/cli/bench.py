"""`interlock bench`: experiments to run on one's own machine and disk.

This module parses options and prints; the measurement is in `interlock.bench`. Progress is a live bar on a terminal and
one line per round of a setting elsewhere. The table, the JSON and the plot are made of the same points.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from interlock.bench import group_commit as experiment
from interlock.bench.group_commit import Experiment, Point, Watcher
from interlock.bench.plots import group_commit_plot
from interlock.cli.bench_contention import EXAMPLE as CONTENTION_EXAMPLE
from interlock.cli.bench_contention import contention
from interlock.cli.bench_durability import EXAMPLE as DURABILITY_EXAMPLE
from interlock.cli.bench_durability import durability
from interlock.cli.bench_orders import EXAMPLE as ORDERS_EXAMPLE
from interlock.cli.bench_orders import orders
from interlock.cli.bench_shown import check_files
from interlock.cli.output import stderr, stdout, write_file

bench = typer.Typer(
    help="Run an experiment on this machine and this disk, with a table, JSON and a plot.", no_args_is_help=True
)

QUICK_SECONDS = 0.2
EXAMPLE = "Example: interlock bench group-commit --clients 256 --seconds 2 --json plateau.json --plot plateau.svg"


@bench.command(name="group-commit", epilog=EXAMPLE)
def group_commit(
    *,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A lane that does not exist yet, on the disk to measure; removed afterwards."),
    ] = None,
    window: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="group_commit_window. May be given several times."),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="group_commit_max_batch. May be given several times."),
    ] = None,
    clients: Annotated[int, typer.Option(metavar="N", help="Clients, each with one commit under way.")] = 256,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long to measure each setting.")] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.2 seconds each.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the points as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the plateau (SVG).")] = None,
) -> None:
    """Measure the plateau of group commit: the rate of durable commits to one row, by the size of groups.

    Larger groups share one write to the disk, until executing one transaction after the other is the limit.
    Grouping lowers the price of contention; the writers of a row still depend on each other.
    """
    windows_s = window or list(experiment.QUICK_WINDOWS_S if quick else experiment.WINDOWS_S)
    batches = batch or list(experiment.QUICK_BATCHES if quick else experiment.BATCHES)
    seconds = min(seconds, QUICK_SECONDS) if quick else seconds
    experiment.check_bounds(windows_s, batches, clients=clients, seconds=seconds)
    check_files(json, plot)
    console = stdout()
    settings = len(windows_s) * len(batches)
    console.print(
        f"{clients:,} clients increment one row, durably; {settings} settings, {seconds:g} s each.", soft_wrap=True
    )
    with _watching(console, settings * experiment.ROUNDS) as watch:
        result = asyncio.run(
            experiment.measure(
                url=url, windows_s=windows_s, batches=batches, clients=clients, seconds=seconds, watch=watch
            )
        )
    _show(console, result)
    for path, content in ((json, _as_json(result) if json else ""), (plot, group_commit_plot(result) if plot else "")):
        if path is not None:
            write_file(path, content)
            stderr().print(f"Wrote {path}", soft_wrap=True)


bench.command(name="contention", epilog=CONTENTION_EXAMPLE)(contention)
bench.command(name="durability", epilog=DURABILITY_EXAMPLE)(durability)
bench.command(name="orders", epilog=ORDERS_EXAMPLE)(orders)


@contextmanager
def _watching(console: Console, rounds: int) -> Generator[Watcher, None, None]:
    if not console.is_terminal:
        yield lambda point: console.print(
            f"  window {_window(point.window_s)}, batch {point.batch:,}: {point.commits_per_s:,.0f} commits/s",
            soft_wrap=True,
        )
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("settings", total=rounds)

        def watch(point: Point) -> None:
            progress.update(
                task,
                advance=1,
                description=f"window {_window(point.window_s)}, batch {point.batch:,}: {point.commits_per_s:,.0f}/s",
            )

        yield watch


def _show(console: Console, result: Experiment) -> None:
    table = Table(box=None, padding=(0, 1))
    for heading in ("window", "batch", "commits/s", "per group", "P50 ms", "P99 ms", "CPU µs"):
        table.add_column(heading, justify="right")
    before: float | None = None
    for point in result.points:
        if before not in {None, point.window_s}:
            table.add_section()
        before = point.window_s
        table.add_row(*_cells(point))
    console.print()
    console.print(table)
    console.print()
    for each in result.plateaus:
        grouped = "" if each.times_ungrouped is None else f", {each.times_ungrouped:.1f} times one commit per group"
        console.print(
            f"Window {_window(each.window_s)}: plateau at {each.commits_per_s:,.0f} commits/s{grouped}; "
            f"a batch of {each.batch:,} reaches 90 % of it.",
            soft_wrap=True,
        )
    console.print(result.told, soft_wrap=True)


def _cells(point: Point) -> Sequence[str]:
    return (
        _window(point.window_s),
        f"{point.batch:,}",
        f"{point.commits_per_s:,.0f}",
        f"{point.group_mean:,.1f}",
        f"{point.p50_ms:,.2f}",
        f"{point.p99_ms:,.2f}",
        f"{point.cpu_us:,.1f}",
    )


def _window(window_s: float) -> str:
    return f"{window_s * 1e3:g} ms"


def _as_json(result: Experiment) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
