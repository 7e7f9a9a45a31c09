"""`interlock bench`: run an experiment on this machine and this disk, and print, write and plot its result.

The commands parse options and print; the measurements are in `interlock.bench`. Progress is a live bar on a terminal
and one line per measured setting elsewhere. The table, the JSON and the plot of a command are made of the same points.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from interlock.bench import contention as contention_experiment
from interlock.bench import durability as durability_experiment
from interlock.bench import group_commit as group_commit_experiment
from interlock.bench import orders as orders_experiment
from interlock.bench.load import ROUNDS
from interlock.bench.plots import contention_plot, durability_plot, group_commit_plot, orders_plot
from interlock.cli.console import deliver, json_text, progress_bar, remark, say, stdout
from interlock.cli.parse_arguments import absolute_url
from interlock.errors import UnusableFile

bench = typer.Typer(
    help="Run an experiment on this machine and this disk, with a table, JSON and a plot.", no_args_is_help=True
)

# --- Progress and result files ---------------------------------------------------------------------------------------

DoneT = TypeVar("DoneT")
ResultT = TypeVar("ResultT", bound=msgspec.Struct)
TABLE_WIDTH = 100
"""A line of a table with names is never broken, however narrow the terminal is."""

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write what was measured as JSON.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it (SVG).")]
Seconds = Annotated[float, typer.Option(metavar="S", help="How long to measure each setting.")]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        callback=absolute_url,
        help="A place that does not exist yet, on the disk or server to measure: lanes:///…, s3://bucket/folder, "
        "postgresql://…; removed afterwards.",
    ),
]
LaneUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        callback=absolute_url,
        help="A place that does not exist yet, on the disk to measure: lanes:///…; removed afterwards.",
    ),
]


@contextmanager
def watching(
    console: Console, total: int, line_of: Callable[[DoneT], str]
) -> Generator[Callable[[DoneT], None], None, None]:
    """Show completed steps: a live bar on a terminal, a line for each elsewhere."""
    if not console.is_terminal:
        yield lambda done: console.print(f"  {line_of(done)}", soft_wrap=True)
        return
    with progress_bar(console) as progress:
        task = progress.add_task("beginning", total=total)
        yield lambda done: progress.update(task, advance=1, description=line_of(done))


def check_files(*paths: Path | None) -> None:
    """Raise UnusableFile for files that cannot be written, before minutes of measuring."""
    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
        if path.is_dir():
            raise UnusableFile(f"{path} cannot be written: it is a folder.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UnusableFile(f"{path} cannot be written: permission denied.")


def run_experiment(
    introduction: str,
    steps: int,
    line_of: Callable[[DoneT], str],
    measure: Callable[..., Coroutine[object, object, ResultT]],
    *files: Path | None,
) -> ResultT:
    """Check the files of the result, then measure with a line of progress for each step."""
    check_files(*files)
    console = stdout()
    console.print(introduction, soft_wrap=True)
    with watching(console, steps, line_of) as watch:
        return asyncio.run(measure(watch=watch))


def write_files(result: ResultT, json: Path | None, plot: Path | None, draw: Callable[[ResultT], str]) -> None:
    """Write the result as JSON and as a plot, where paths are set."""
    if json is not None:
        deliver(json_text(result) + "\n", json)
    if plot is not None:
        deliver(draw(result), plot)


def cells(point: object, *columns: str) -> tuple[str, ...]:
    """Return attributes of the point as texts; a column is a name with its format: `p50_ms:,.2f`."""
    return tuple(f"{{0.{column}}}".format(point) for column in columns)


def show_figures(headings: Sequence[str], rows: Iterable[Sequence[str]], *, names: bool = False) -> None:
    """Print columns of figures between two empty lines; with `names` the first column is text, and is never broken."""
    table = Table(box=None, padding=(0, 1))
    for place, heading in enumerate(headings):
        is_name = names and place == 0
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows:
        table.add_row(*row)
    console = stdout()
    console.width = max(console.width, TABLE_WIDTH if names else 0)
    console.print()
    console.print(table)
    console.print()


# --- `interlock bench group-commit` ----------------------------------------------------------------------------------

GROUP_COMMIT_QUICK_SECONDS = 0.2
GROUP_COMMIT_EXAMPLE = (
    "Example: interlock bench group-commit --clients 256 --seconds 2 --json plateau.json --plot plateau.svg"
)


@bench.command(name="group-commit", epilog=GROUP_COMMIT_EXAMPLE)
def group_commit(
    *,
    url: LaneUrl = None,
    window: Annotated[
        list[float] | None, typer.Option(metavar="SECONDS", help="group_commit_window. May be given several times.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(metavar="N", help="group_commit_max_batch. May be given several times.")
    ] = None,
    clients: Annotated[int, typer.Option(metavar="N", help="Clients, each with one commit under way.")] = 256,
    seconds: Seconds = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.2 seconds each.")] = False,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure the plateau of group commit: the rate of durable commits to one row, by the size of groups.

    Larger groups share one write to the disk, until executing one transaction after the other is the limit.
    Grouping lowers the price of contention; the writers of a row still depend on each other.
    """
    windows_s = window or list(group_commit_experiment.QUICK_WINDOWS_S if quick else group_commit_experiment.WINDOWS_S)
    batches = batch or list(group_commit_experiment.QUICK_BATCHES if quick else group_commit_experiment.BATCHES)
    seconds = min(seconds, GROUP_COMMIT_QUICK_SECONDS) if quick else seconds
    group_commit_experiment.check_bounds(windows_s, batches, clients=clients, seconds=seconds)
    settings = len(windows_s) * len(batches)
    introduction = f"{clients:,} clients increment one row, durably; {settings} settings, {seconds:g} s each."
    measure = partial(
        group_commit_experiment.measure, url=url, windows_s=windows_s, batches=batches, clients=clients, seconds=seconds
    )
    result = run_experiment(introduction, settings * ROUNDS, _group_commit_line, measure, json, plot)
    _show_group_commit(result)
    write_files(result, json, plot, group_commit_plot)


def _group_commit_line(point: group_commit_experiment.GroupCommitPoint) -> str:
    return f"window {_milliseconds(point.window_s)}, batch {point.batch:,}: {point.commits_per_s:,.0f} commits/s"


def _show_group_commit(result: group_commit_experiment.GroupCommitResult) -> None:
    columns = ("batch:,", "commits_per_s:,.0f", "group_mean:,.1f", "p50_ms:,.2f", "p99_ms:,.2f", "cpu_us:,.1f")
    rows = [(_milliseconds(point.window_s), *cells(point, *columns)) for point in result.points]
    show_figures(("window", "batch", "commits/s", "per group", "P50 ms", "P99 ms", "CPU µs"), rows)
    for each in result.plateaus:
        grouped = "" if each.times_ungrouped is None else f", {each.times_ungrouped:.1f} times one commit per group"
        say(
            f"Window {_milliseconds(each.window_s)}: plateau at {each.commits_per_s:,.0f} commits/s{grouped}; "
            f"a batch of {each.batch:,} reaches 90 % of it."
        )
    say(result.caveat)


def _milliseconds(window_s: float) -> str:
    return f"{window_s * 1e3:g} ms"


# --- `interlock bench contention` ------------------------------------------------------------------------------------

CONTENTION_QUICK_SECONDS = 0.45
CONTENTION_EXAMPLE = "Example: interlock bench contention --handoff-ms 10 --json wall.json --plot wall.svg"
PARTS = {
    "disk": "this disk or server as it is",
    "alone": "one commit per group",
    "grouped": "groups",
    "databases": "many databases",
}


@bench.command(name="contention", epilog=CONTENTION_EXAMPLE)
def contention(
    *,
    url: Url = None,
    handoff_ms: Annotated[
        float | None,
        typer.Option(
            "--handoff-ms", metavar="MS", help="On lanes: a durable place so far away. 10 unless given; 0: none."
        ),
    ] = None,
    seconds: Seconds = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.45 seconds each.")] = False,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure the contention wall: writers of one row flatten, separate databases scale, counters recover.

    Every increment is durable before it is acknowledged, and after each turn all rows must hold exactly what was
    acknowledged. Groups, shards and logs lower the price of contention; the writers of a row still depend on each
    other.
    """
    hand_off_ms = contention_experiment.hand_off_for(url, handoff_ms)
    if handoff_ms and not hand_off_ms:
        remark("A bucket and PostgreSQL have a way of their own: --handoff-ms is for lanes.")
    seconds = min(seconds, CONTENTION_QUICK_SECONDS) if quick else seconds
    contention_experiment.check_bounds(seconds=seconds, hand_off_ms=hand_off_ms)
    kind = contention_experiment.kind_of(url)
    settings = contention_experiment.settings_for(kind, hand_off_ms=hand_off_ms, quick=quick)
    introduction = f"{len(settings)} settings in {ROUNDS} rounds, {seconds:g} s each."
    measure = partial(
        contention_experiment.measure, url=url, settings=settings, hand_off_ms=hand_off_ms, seconds=seconds
    )
    result = run_experiment(introduction, len(settings) * ROUNDS, _contention_line, measure, json, plot)
    _show_contention(result)
    write_files(result, json, plot, contention_plot)


def _contention_line(point: contention_experiment.ContentionPoint) -> str:
    spread = f", {point.databases} databases" if point.databases > 1 else ""
    return f"{point.series}{spread}, {point.clients:,} clients: {point.commits_per_s:,.0f} commits/s"


def _show_contention(result: contention_experiment.ContentionResult) -> None:
    columns = ("databases:,", "clients:,", "commits_per_s:,.0f", "p50_ms:,.2f", "p99_ms:,.2f", "cpu_us:,.1f")
    rows: list[Sequence[str]] = []
    part = ""
    for point in result.points:
        if part != point.part:
            away = f", hand-off {point.hand_off_ms:g} ms" if point.hand_off_ms else ""
            rows += [()] * bool(part) + [(f"{PARTS[point.part]}{away}:",)]
            part = point.part
        rows.append((f"  {point.series}", *cells(point, *columns)))
    show_figures(("series", "databases", "clients", "commits/s", "P50 ms", "P99 ms", "CPU µs"), rows, names=True)
    for finding in (*result.findings, ""):
        say(finding)
    for verdict in result.verdicts:
        say(f"Goal {'met' if verdict.met else 'MISSED'}: {verdict.goal}: {verdict.measured:.0%}.")
    say(f"No update was lost: every row holds exactly what was acknowledged.\n{result.caveat}")


# --- `interlock bench durability` ------------------------------------------------------------------------------------

DURABILITY_QUICK_CYCLES = 8
DURABILITY_EXAMPLE = (
    "Example: interlock bench durability --url lanes:///var/tmp/crashed --cycles 40 --plot durability.svg"
)


@bench.command(name="durability", epilog=DURABILITY_EXAMPLE)
def durability(
    *,
    url: Url = None,
    cycles: Annotated[int, typer.Option(metavar="N", help="How often to kill.")] = durability_experiment.CYCLES,
    clients: Annotated[
        int, typer.Option(metavar="N", help="Clients, each with one transaction under way.")
    ] = durability_experiment.CLIENTS,
    seed: Annotated[int, typer.Option(metavar="N", help="Chooses the moments of the kills.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="At most 8 cycles.")] = False,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Kill a writing process, kill -9, and check that every acknowledged commit is there and none by half.

    A process of its own commits transactions of several rows, and says what was acknowledged. It is killed at moments
    chosen by chance; then the database is opened again. On a bucket the local disk is lost every other time.
    Exits with 1 when anything acknowledged is gone, or anything is there by half.
    """
    cycles = min(cycles, DURABILITY_QUICK_CYCLES) if quick else cycles
    durability_experiment.check_bounds(url, cycles=cycles, clients=clients)
    introduction = f"{clients:,} clients write; their process is killed {cycles:,} times (seed {seed})."
    measure = partial(durability_experiment.measure, url=url, cycles=cycles, clients=clients, seed=seed)
    result = run_experiment(introduction, cycles, _durability_line, measure, json, plot)
    _show_durability(result)
    write_files(result, json, plot, durability_plot)
    durability_experiment.check(result)


def _durability_line(cycle: durability_experiment.Cycle) -> str:
    disk = ", disk lost" if cycle.disk_lost else ""
    return (
        f"cycle {cycle.cycle:,}{disk}: {cycle.acknowledged:,} acknowledged, {cycle.found:,} found, "
        f"{cycle.lost:,} lost, {cycle.torn:,} torn"
    )


def _show_durability(result: durability_experiment.DurabilityResult) -> None:
    columns = (
        "acknowledged:,",
        "found:,",
        "in_doubt:,",
        "lost:,",
        "torn:,",
        "recovery_p50_ms:,.1f",
        "recovery_max_ms:,.1f",
    )
    headings = ("cycles", "acknowledged", "found", "in doubt", "lost", "torn", "recovery P50 ms", "slowest ms")
    show_figures(headings, [(f"{len(result.cycles):,}", *cells(result, *columns))])
    met = not result.lost and not result.torn
    say(
        f"Goal {'met' if met else 'MISSED'}: {result.lost:,} of {result.acknowledged:,} acknowledged commits lost, "
        f"{result.torn:,} torn, in {len(result.cycles):,} crashes ({result.engine}).\n{result.caveat}"
    )


# --- `interlock bench orders` ----------------------------------------------------------------------------------------

ORDERS_QUICK_SECONDS = 0.5
ORDERS_EXAMPLE = "Example: interlock bench orders --clients 64 --clients 256 --json orders.json --plot orders.svg"


@bench.command(name="orders", epilog=ORDERS_EXAMPLE)
def orders(
    *,
    url: LaneUrl = None,
    clients: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Concurrent orders. May be given several times.")
    ] = None,
    seconds: Seconds = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, 0.5 seconds each.")] = False,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure durable orders, each with a start and four transitions, beside the same written by hand on SQLite.

    Once the steps of the machine move the orders, and once their clients send the events. Everything is on one disk,
    waits for it before it answers, and takes turns; every order that was answered must have arrived.
    """
    counts = clients or list(orders_experiment.QUICK_CLIENTS if quick else orders_experiment.CLIENTS)
    seconds = min(seconds, ORDERS_QUICK_SECONDS) if quick else seconds
    orders_experiment.check_bounds(url, clients=counts, seconds=seconds)
    turns = len(counts) * len(orders_experiment.SERIES) * ROUNDS
    measure = partial(orders_experiment.measure, url=url, clients=counts, seconds=seconds)
    result = run_experiment(f"{turns} turns of {seconds:g} s.", turns, _orders_line, measure, json, plot)
    _show_orders(result)
    write_files(result, json, plot, orders_plot)


def _orders_line(point: orders_experiment.OrdersPoint) -> str:
    return f"{point.series}, {point.clients:,} concurrent: {point.orders_per_s:,.0f} orders/s"


def _show_orders(result: orders_experiment.OrdersResult) -> None:
    times = {(ratio.series, ratio.clients): f"{ratio.times_by_hand:.1f}" for ratio in result.ratios}
    columns = ("clients:,", "orders_per_s:,.0f", "transitions_per_s:,.0f", "p50_ms:,.2f", "p99_ms:,.2f", "cpu_ms:,.3f")
    rows = [
        (point.series, *cells(point, *columns), times.get((point.series, point.clients), "")) for point in result.points
    ]
    headings = ("concurrent", "orders/s", "transitions/s", "P50 ms", "P99 ms", "CPU ms", "times by hand")
    show_figures(("orders", *headings), rows, names=True)
    say(f"Every order that was answered has arrived, with its history.\n{result.caveat}")
