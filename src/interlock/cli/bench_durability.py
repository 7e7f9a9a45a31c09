"""`interlock bench durability`: kill a writer repeatedly, and check that no acknowledged commit is missing.

This module parses options and prints; the experiment is in `interlock.bench.durability`.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from interlock.bench import durability as experiment
from interlock.bench.durability import Cycle, Experiment
from interlock.bench.plots import durability_plot
from interlock.cli.bench_shown import check_files, watching, write_files
from interlock.cli.output import stdout

QUICK_CYCLES = 8
EXAMPLE = "Example: interlock bench durability --url lanes:///var/tmp/crashed --cycles 40 --plot durability.svg"


def durability(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A place that does not exist yet: lanes:///…, s3://bucket/folder or postgresql://…; "
            "removed afterwards.",
        ),
    ] = None,
    cycles: Annotated[int, typer.Option(metavar="N", help="How often to kill.")] = experiment.CYCLES,
    clients: Annotated[
        int, typer.Option(metavar="N", help="Clients, each with one transaction under way.")
    ] = experiment.CLIENTS,
    seed: Annotated[int, typer.Option(metavar="N", help="Chooses the moments of the kills.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="At most 8 cycles.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the cycles as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the cycles (SVG).")] = None,
) -> None:
    """Kill a writing process, kill -9, and check that every acknowledged commit is there and none by half.

    A process of its own commits transactions of several rows, and says what was acknowledged. It is killed at moments
    chosen by chance; then the database is opened again. On a bucket the local disk is lost every other time.
    Exits with 1 when anything acknowledged is gone, or anything is there by half.
    """
    cycles = min(cycles, QUICK_CYCLES) if quick else cycles
    experiment.check_bounds(url, cycles=cycles, clients=clients)
    check_files(json, plot)
    console = stdout()
    console.print(f"{clients:,} clients write; their process is killed {cycles:,} times (seed {seed}).", soft_wrap=True)
    with watching(console, cycles, _progress_line) as watch:
        result = asyncio.run(experiment.measure(url=url, cycles=cycles, clients=clients, seed=seed, watch=watch))
    _show(console, result)
    write_files(result, json, plot, lambda: durability_plot(result))
    experiment.check(result)


def _progress_line(cycle: Cycle) -> str:
    disk = ", disk lost" if cycle.disk_lost else ""
    return (
        f"cycle {cycle.cycle:,}{disk}: {cycle.acknowledged:,} acknowledged, {cycle.found:,} found, "
        f"{cycle.lost:,} lost, {cycle.torn:,} torn"
    )


def _show(console: Console, result: Experiment) -> None:
    table = Table(box=None, padding=(0, 1))
    for heading in ("cycles", "acknowledged", "found", "in doubt", "lost", "torn", "recovery P50 ms", "slowest ms"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{len(result.cycles):,}",
        f"{result.acknowledged:,}",
        f"{result.found:,}",
        f"{result.in_doubt:,}",
        f"{result.lost:,}",
        f"{result.torn:,}",
        f"{result.recovery_p50_ms:,.1f}",
        f"{result.recovery_max_ms:,.1f}",
    )
    console.print()
    console.print(table)
    console.print()
    met = not result.lost and not result.torn
    console.print(
        f"Goal {'met' if met else 'MISSED'}: {result.lost:,} of {result.acknowledged:,} acknowledged commits lost, "
        f"{result.torn:,} torn, in {len(result.cycles):,} crashes ({result.engine}).",
        soft_wrap=True,
    )
    console.print(result.told, soft_wrap=True)
