"""`interlock demo`: the command, from options to exit code, and what it shows: progress, the final report and the plot.

The stopwatches of the demo are for display only. No decision depends on them or on when the worker is killed, so the
same seed gives the same histories on fast and slow machines.

Text fits into 80 columns. The summary comes last, because it stays visible on the screen. The plot has the looks of
the plots of `interlock bench`.
"""

import contextlib
import functools
import math
import socket
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import fields
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from interlock.bench.plots import Axis, Scale, floor_axis, grid_lines, round_step, scale, svg_document
from interlock.cli.console import Exit, counted, run_interruptible, stdout, write_file
from interlock.cli.demo.kill_and_resume import OrdersWalk, Watcher
from interlock.cli.demo.outcome import FAILS_EVERY, MOMENTS_PER_S, Kill, Moment, Outage, Outcome, Stall
from interlock.cli.demo.verify import verify
from interlock.core import diagrams
from interlock.core.events import Event
from interlock.core.values import StepFailure, StoredJson
from interlock.examples.order import order
from interlock.server.lifecycle import HOST, bound_socket
from interlock.testing.faults import Processes

# --- Command ---------------------------------------------------------------------------------------------------------

ORDERS_MAX = 1_000_000
ORDERS_DEFAULT = 5_000
OUTPUT_DEFAULT = Path("out/demo.svg")


def demo(
    *,
    orders: Annotated[int, typer.Option(min=1, max=ORDERS_MAX, help="How many orders to walk.")] = ORDERS_DEFAULT,
    seed: Annotated[int, typer.Option(help="The same seed gives the same demo.")] = 1,
    headless: Annotated[
        bool, typer.Option("--headless", help="Plain lines instead of the live table, as when piped; never stays.")
    ] = False,
    stay: Annotated[
        bool | None,
        typer.Option("--stay/--no-stay", help="Keep the dashboard up until Ctrl-C; by default on a terminal only."),
    ] = None,
    plot: Annotated[
        Path,
        typer.Option("--plot", metavar="FILE", help="Where to write the plot (SVG); the machine goes beside it."),
    ] = OUTPUT_DEFAULT,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", hidden=True)] = None,
) -> None:
    """Run thousands of orders through an outage and a kill -9, and verify that nothing is lost.

    The orders live in a store in a temporary folder. Payments are declined, calls
    fail, lose their answers or take long, the bank has an outage, customers cancel
    or want their money back, events arrive too late, parcels get stuck, an observer
    fails on purpose, all paid orders are counted in one hot row, and half way
    through the process that moves the orders is killed with SIGKILL. Another one
    takes up what was owed. The dashboard shows all of it at an address of its own.
    In the end every order is verified against what was acknowledged, against its
    history and against the books of the bank, which is another process.

    Exits with 1 if anything is not as it should be in the end.
    """
    stays = stay if stay is not None else not headless and sys.stdin.isatty() and sys.stdout.isatty()

    async def run() -> bool:
        console = stdout()
        console.print(f"Walking {orders:,} orders through the machine {order.name!r}, seed {seed}.", soft_wrap=True)
        with (
            tempfile.TemporaryDirectory(prefix="interlock-demo-", ignore_cleanup_errors=True) as folder,
            _dashboard() as dashboard,
            Processes() as processes,
        ):
            walk = OrdersWalk(orders, seed, Path(folder), processes, dashboard)
            url = None if dashboard is None else f"http://{HOST}:{dashboard.getsockname()[1]}/"
            await _walk(console, walk, url, output or plot, headless=headless, stays=stays and not headless)
            return not walk.outcome.problems

    if not run_interruptible(run()):
        raise typer.Exit(Exit.ERROR)


async def _walk(
    console: Console, walk: OrdersWalk, dashboard: str | None, output: Path, *, headless: bool, stays: bool
) -> None:
    """Walk, verify and show, and stay until the dashboard closes."""
    if dashboard is None:
        console.print('No dashboard: uvicorn is not installed. pip install "interlock[server]"', soft_wrap=True)
    else:
        console.print(f"Dashboard: {dashboard}", style="bold", soft_wrap=True)
    with watching(console, walk.outcome, live=console.is_terminal and not headless) as watch:
        outcome = await walk.run(watch)
    console.print("Verifying every order…", soft_wrap=True)
    await verify(walk)
    show_outcome(console, outcome)
    # Written after the proof is printed: if the files cannot be written, the results are still on the screen.
    machine = output.with_stem(f"{output.stem}-machine")
    write_file(output, outcome_plot(outcome))
    write_file(machine, diagrams.svg(order.describe(), visits=outcome.tally.visits))
    console.print()
    console.print(f"The walk, plotted: {output}", soft_wrap=True)
    console.print(f"The machine, coloured by visits: {machine}", soft_wrap=True)
    show_verdict(console, outcome)
    if stays and dashboard is not None:
        line = f"The dashboard stays up at {dashboard} until Ctrl-C."
        await walk.show(lambda: console.print(line, style="bold", soft_wrap=True))


@contextlib.contextmanager
def _dashboard() -> Generator[socket.socket | None, None, None]:
    """Yield a loopback socket at a free port; None when uvicorn is not installed."""
    if find_spec("uvicorn") is None:
        yield None
        return
    with contextlib.closing(bound_socket(HOST, 0)) as dashboard:
        yield dashboard


# --- Final report ----------------------------------------------------------------------------------------------------

WIDTH = 32
DETAIL_CHARACTERS_MAX = 44
_STYLES = ("bright_black", "blue", "cyan", "green", "yellow", "red")


def bar(count: int, most: int) -> Text:
    """Draw a bar for one count. Its length is proportional; its colour follows the square root, to show rare states."""
    if count <= 0 or most <= 0:
        return Text("·", style=_STYLES[0])
    heat = math.sqrt(count / most)
    style = _STYLES[round(heat * (len(_STYLES) - 1))]
    return Text("█" * max(1, round(WIDTH * count / most)), style=style)


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print everything but the verdict."""
    _show_refusals(console, outcome)
    _show_history(console, outcome)
    _show_visits(console, outcome)
    _show_figures(console, outcome)
    _show_proof(console, outcome)


def show_verdict(console: Console, outcome: Outcome) -> None:
    """Print whether the walk is verified, and every problem."""
    if not outcome.problems:
        verdict = (
            "Verified: everything acknowledged is there, before the kill and after it; histories are dense and replay "
            "to the same orders, the books and the counter agree, no order is lost."
        )
        console.print(verdict, style="bold green", soft_wrap=True)
        return
    console.print(f"NOT VERIFIED: {counted(len(outcome.problems), 'problem')}", style="bold red", soft_wrap=True)
    for problem in outcome.problems:
        console.print(f"  {problem}", soft_wrap=True)


def _show_refusals(console: Console, outcome: Outcome) -> None:
    for code, refusal in sorted(outcome.examples.items()):
        _heading(console, f"One of {outcome.rejected[code]:,} events rejected as {code}")
        table = Table(box=None, padding=(0, 2, 0, 1), show_header=False)
        table.add_column(style="dim")
        table.add_column()
        for part, text in zip(("what", "why", "fix"), refusal, strict=True):
            table.add_row(part, text)
        console.print(table)


def _show_history(console: Console, outcome: Outcome) -> None:
    workflow, records = outcome.longest
    _heading(console, f"The history of {workflow}")
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("version", "event", "to", "with"):
        table.add_column(column, justify="right" if column == "version" else "left", no_wrap=column != "with")
    for record in records:
        detail = _detail(record.payload)
        table.add_row(str(record.version), record.event, Text(record.to_state.value, style="bold"), detail)
    console.print(table)


def _detail(payload: Event | StepFailure | StoredJson | None) -> str:
    if payload is None or isinstance(payload, StepFailure | StoredJson):
        return ""
    values = [str(getattr(payload, each.name)) for each in fields(payload)]  # type: ignore[arg-type]  # Events are.
    text = ", ".join(value for value in values if value)
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[: DETAIL_CHARACTERS_MAX - 1] + "…"


def _show_visits(console: Console, outcome: Outcome) -> None:
    _heading(console, "Where the orders went, and where they are now")
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    table.add_column("state", style="bold")
    table.add_column("visits", justify="right")
    table.add_column("now", justify="right")
    table.add_column("")
    for state, visits, now, drawn in _visits(outcome):
        table.add_row(state, visits, now if now != "0" else "", drawn)
    console.print(table)


def _visits(outcome: Outcome) -> Iterator[tuple[str, str, str, Text]]:
    """Yield for each state: its name, its visits, the orders that are in it now, and a bar."""
    tally = outcome.tally
    most = max(tally.visits.values())
    for state, visits in tally.visits.items():
        yield state, f"{visits:,}", f"{tally.now[state]:,}", bar(visits, most)


def _show_figures(console: Console, outcome: Outcome) -> None:
    tally = outcome.tally
    rejected = ", ".join(f"{count:,} {code}" for code, count in sorted(outcome.rejected.items())) or "none"
    resting = [state.name for state in order.describe().states if state.final or state.resting]
    ends = ", ".join(f"{tally.now[name]:,} {name}" for name in resting)
    _heading(console, "Summary")
    table = Table(box=None, padding=(0, 2, 0, 1), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    walking_s = outcome.walking_s
    rate = tally.transitions / walking_s if walking_s > 0 else 0.0
    table.add_row("orders", f"{outcome.orders:,}: {ends}")
    table.add_row("transitions", f"{tally.transitions:,}, all durable, in {walking_s:.2f} s, {rate:,.0f} per second")
    if outcome.outage is not None:
        _add_outage(table, outcome.outage)
    if outcome.kill is not None:
        _add_kill(table, outcome, outcome.kill)
    done = outcome.books
    table.add_row(
        "the bank",
        f"{done['charged']:,} charged, {done['refunded']:,} refunded, {done['declined']:,} declined; "
        f"asked under {outcome.keys:,} keys",
    )
    table.add_row(
        "its faults",
        f"{done['failed']:,} calls failed, {done['lost']:,} answers were lost, {done['slow']:,} came late; "
        "all were repeated or waited for",
    )
    table.add_row(
        "hot counter",
        f"{outcome.paid:,} paid orders in one row; {outcome.counted_again:,} were sent to it again after the kill, "
        "and counted once",
    )
    if outcome.stall is not None:
        _add_stall(table, outcome.stall)
    table.add_row(
        "verified", f"{outcome.done:,} orders, each replayed from its history, in {outcome.verifying_s:.2f} s"
    )
    table.add_row("coverage", f"{tally.covered} of {len(tally.arrows)} transitions of the machine were taken")
    table.add_row("rejected", rejected)
    times = counted(outcome.observer_failures, "time")
    table.add_row("observers", f"one failed on every {FAILS_EVERY}th signal ({times}) and harmed nothing")
    table.add_row("result", f"{outcome.fingerprint} (the same whenever --orders and --seed are)")
    console.print(table)


def _add_outage(table: Table, outage: Outage) -> None:
    ended_s = outage.ended_s or outage.began_s
    text = f"the bank was down for {ended_s - outage.began_s:.1f} s and refused {counted(outage.refused, 'call')}"
    if outage.opened_s is not None and outage.closed_s is not None:
        text += (
            f"; the breaker opened after {outage.opened_s - outage.began_s:.2f} s, probed "
            f"{counted(outage.probes, 'time')}, and closed {outage.closed_s - ended_s:.2f} s after the bank was back"
        )
    table.add_row("outage", text)


def _add_kill(table: Table, outcome: Outcome, kill: Kill) -> None:
    before, after = kill.acknowledged, outcome.acknowledged - kill.acknowledged
    table.add_row(
        "killed",
        f"the worker, once, by SIGKILL, with {counted(kill.on_their_way, 'order')} on their way; the next one had "
        f"taken up all that was owed in {kill.recovery_s:.2f} s, {kill.gap_s:.2f} s after the kill",
    )
    table.add_row("acknowledged", f"{outcome.acknowledged:,} calls, {before:,} before the kill and {after:,} after it")


def _add_stall(table: Table, stall: Stall) -> None:
    lasted_s = (stall.ended_s or stall.began_s) - stall.began_s
    table.add_row(
        "stall",
        f"{counted(len(stall.stuck), 'order')} on the packing table; engine.stalled listed {len(stall.listed):,} of "
        f"them, and they continued after {lasted_s:.1f} s",
    )


def _show_proof(console: Console, outcome: Outcome) -> None:
    _heading(console, "The proof")
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    table.add_column("")
    table.add_column("", overflow="fold")
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    for check in outcome.checks:
        mark = Text("ok", style="bold green") if check.holds else Text("NO", style="bold red")
        table.add_row(mark, check.what, f"{check.found:,}", f"{check.expected:,}")
    console.print(table)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold cyan", soft_wrap=True)


# --- Progress --------------------------------------------------------------------------------------------------------
# A separate thread draws the live table from counts that the walk keeps anyway. It reads them while they change, so
# a frame may be slightly out of date; the next one corrects it.

FRAMES_PER_S = 20
LINES = 10
_BREAKER_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


@contextlib.contextmanager
def watching(console: Console, outcome: Outcome, *, live: bool) -> Generator[Watcher, None, None]:
    """Yield a watcher for the walk; the display ends with the block."""
    if not live:
        yield _print_tenths(console)
        return
    progress = Progress(TextColumn("orders"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    task = progress.add_task("orders", total=outcome.orders)

    def frame() -> Group:
        progress.update(task, completed=outcome.done)
        return Group(progress, _states_now(outcome), _others_now(outcome))

    with Live(get_renderable=frame, console=console, refresh_per_second=FRAMES_PER_S, transient=True):
        yield functools.partial(_print_remarks, console)


def _print_remarks(console: Console, outcome: Outcome) -> None:
    """Print and remove all queued remarks."""
    while outcome.remarks:
        remark = outcome.remarks.pop(0)
        console.print(remark.text, style=remark.style, soft_wrap=True)


def _print_tenths(console: Console) -> Watcher:
    printed = 0

    def watch(outcome: Outcome) -> None:
        nonlocal printed
        _print_remarks(console, outcome)
        tenth = outcome.done * LINES // outcome.orders
        if tenth > printed:
            printed = tenth
            console.print(
                f"{outcome.done:>9,} of {outcome.orders:,} orders done, {outcome.tally.transitions:,} transitions, "
                f"{outcome.paid:,} paid, {outcome.rejected.total():,} events rejected",
                soft_wrap=True,
            )

    return watch


def _states_now(outcome: Outcome) -> Table:
    table = Table(box=None, padding=(0, 1))
    table.add_column("state", style="bold")
    table.add_column("orders now", justify="right")
    table.add_column("visits", justify="right")
    table.add_column("")
    for state, visits, now, drawn in _visits(outcome):
        table.add_row(state, now, visits, drawn)
    return table


def _others_now(outcome: Outcome) -> Text:
    state = outcome.breaker
    return Text.assemble(
        " hot counter ",
        (f"{outcome.paid:,} paid", "bold"),
        "   breaker of the bank ",
        (state.replace("_", "-"), _BREAKER_STYLES.get(state, "")),
    )


# --- Plot ------------------------------------------------------------------------------------------------------------
# Three panels share one time axis. Incidents are drawn twice: as named bars in the middle, and as bands under the
# curves, so that a dip is seen together with its cause.

PLOT_WIDTH, LEFT, RIGHT = 860, 128, 28
ACROSS = PLOT_WIDTH - LEFT - RIGHT
HEAD = 104
RATE_HEIGHT, ROW_HEIGHT, ORDERS_HEIGHT = 220, 26, 170
GAP = 52
POINTS_MAX = 160
LABEL_LEFT_AFTER = 0.62
"""Bars that end after this share of the axis have their label on the left: the right side has no room."""

_RULES = ".area{opacity:.16}.band{opacity:.12}.halo{paint-order:stroke;stroke-width:4;stroke-linejoin:round}"
_COLOURS = {
    "rate": ("#175cd3", "#84adff"),
    "down": ("#d92d20", "#f97066"),
    "open": ("#e04f16", "#f38744"),
    "dead": ("#475467", "#98a2b3"),
    "stuck": ("#ca8504", "#fac515"),
    "started": ("#6941c6", "#bdb4fe"),
    "paid": ("#067647", "#47cd89"),
    "done": ("#175cd3", "#84adff"),
}


class Incident(NamedTuple):
    """An incident with a duration: its name, CSS class, start, end and label."""

    name: str
    look: str
    from_s: float
    to_s: float
    label: str


def outcome_plot(outcome: Outcome) -> str:
    """Return the plot as a standalone SVG document."""
    spans = spans_of(outcome)
    across = _seconds(max(outcome.walking_s, len(outcome.timeline.moments) / MOMENTS_PER_S, 0.1))
    rows_height = ROW_HEIGHT * len(spans)
    rows_top = HEAD + RATE_HEIGHT + (GAP if spans else 0)
    orders_top = rows_top + rows_height + GAP
    height = orders_top + ORDERS_HEIGHT + 60
    verdict = counted(len(outcome.problems), "problem") if outcome.problems else "nothing lost"
    title = f"{outcome.orders:,} orders through a bad day: {verdict}"
    parts = [
        f'<text class="soft" x="24" y="56">{escape(_plot_footer(outcome))}</text>',
        f'<g transform="translate({LEFT} 0)">',
        *_bands(spans, across, HEAD, RATE_HEIGHT),
        *_rate(outcome.timeline.moments, across),
        *_rows(spans, across, rows_top),
        *_bands(spans, across, orders_top, ORDERS_HEIGHT),
        *_orders(outcome, across, orders_top),
        *floor_axis(across, ACROSS, orders_top + ORDERS_HEIGHT, "seconds"),
        "</g>",
    ]
    return svg_document(title, (PLOT_WIDTH, height), _COLOURS, parts, rules=_RULES)


def _seconds(whole_s: float) -> Scale:
    """Return the time axis that all panels share."""
    step_s = round_step(whole_s, 10)
    ticks = [tick * step_s for tick in range(int(whole_s / step_s) + 1)]
    return Scale(lambda seconds: min(seconds, whole_s) / whole_s * ACROSS, ticks)


def _up(largest: float, top: int, height: int) -> Scale:
    return scale([max(largest, 1.0)], Axis(""), top + height, top, at_values=False)


def _panel_grid(title: str, up: Scale, top: int) -> list[str]:
    return [f'<text class="head" x="0" y="{top - 12}">{escape(title)}</text>', *grid_lines(up, ACROSS)]


def spans_of(outcome: Outcome) -> list[Incident]:
    """Return the incidents in drawing order."""
    end_s = outcome.walking_s
    spans: list[Incident] = []
    outage, kill, stall = outcome.outage, outcome.kill, outcome.stall
    if outage is not None:
        ended_s = end_s if outage.ended_s is None else outage.ended_s
        spans.append(Incident("bank down", "down", outage.began_s, ended_s, f"{outage.refused:,} calls refused"))
        if outage.opened_s is not None:
            closed_s = end_s if outage.closed_s is None else outage.closed_s
            spans.append(Incident("breaker open", "open", outage.opened_s, closed_s, "calls stopped"))
    if kill is not None:
        label = f"kill -9, {kill.on_their_way:,} orders on their way"
        spans.append(Incident("no worker", "dead", kill.at_s, kill.at_s + kill.gap_s, label))
    if stall is not None:
        ended_s = end_s if stall.ended_s is None else stall.ended_s
        label = f"{len(stall.listed):,} orders, found by engine.stalled"
        spans.append(Incident("parcels stuck", "stuck", stall.began_s, ended_s, label))
    return spans


def _plot_footer(outcome: Outcome) -> str:
    done = outcome.books
    return (
        f"{outcome.acknowledged:,} calls acknowledged · {done['charged']:,} charges and {done['refunded']:,} refunds"
        f"{'' if outcome.problems else ', none twice'} · {outcome.tally.transitions:,} durable transitions · "
        f"seed {outcome.seed}"
    )


def _bands(spans: Sequence[Incident], across: Scale, top: int, height: int) -> list[str]:
    parts: list[str] = []
    for span in spans:
        x = across.place(span.from_s)
        width = max(1.0, across.place(span.to_s) - x)
        parts.append(f'<rect class="band f-{span.look}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>')
    return parts


def _rate(moments: Sequence[Moment], across: Scale) -> list[str]:
    together = max(1, math.ceil(len(moments) / POINTS_MAX))
    rates = [
        sum(moment.transitions for moment in moments[at : at + together]) * MOMENTS_PER_S / together
        for at in range(0, len(moments), together)
    ]
    up = _up(max(rates), HEAD, RATE_HEIGHT)
    step_s = together / MOMENTS_PER_S
    points = [(across.place((at + 0.5) * step_s), up.place(rate)) for at, rate in enumerate(rates)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    floor = HEAD + RATE_HEIGHT
    return [
        *_panel_grid("transitions per second, all durable", up, HEAD),
        f'<polygon class="area f-rate" points="{points[0][0]:.1f},{floor} {line} {points[-1][0]:.1f},{floor}"/>',
        f'<polyline class="line l-rate" points="{line}"/>',
    ]


def _rows(spans: Sequence[Incident], across: Scale, top: int) -> list[str]:
    parts = [f'<text class="head" x="0" y="{top - 12}">what happened</text>'] if spans else []
    for row, span in enumerate(spans):
        y = top + row * ROW_HEIGHT
        x, end = across.place(span.from_s), across.place(span.to_s)
        width = max(2.0, end - x)
        at, anchor = (x - 8, "end") if end > ACROSS * LABEL_LEFT_AFTER else (end + 8, "start")
        label = f"{span.to_s - span.from_s:.1f} s · {span.label}"
        parts += [
            f'<line class="grid" x1="0" x2="{ACROSS}" y1="{y + 11}" y2="{y + 11}"/>',
            f'<text class="tick" text-anchor="end" x="-12" y="{y + 15}">{escape(span.name)}</text>',
            f'<rect class="f-{span.look}" x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="16" rx="3"/>',
            f'<text class="tick halo" text-anchor="{anchor}" x="{at:.1f}" y="{y + 15}">{escape(label)}</text>',
        ]
    return parts


def _orders(outcome: Outcome, across: Scale, top: int) -> list[str]:
    moments = outcome.timeline.moments
    up = _up(outcome.orders, top, ORDERS_HEIGHT)
    parts = _panel_grid("orders, so far", up, top)
    place = ACROSS - 330
    for look, name, width in (("started", "started", 92), ("paid", "paid: the hot counter", 166), ("done", "done", 72)):
        values = [getattr(moment, look) for moment in moments]
        points = [(across.place((at + 1) / MOMENTS_PER_S), up.place(value)) for at, value in enumerate(values)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts += [
            f'<polyline class="line l-{look}" points="0,{top + ORDERS_HEIGHT} {line}"/>',
            f'<line class="line l-{look}" x1="{place}" x2="{place + 20}" y1="{top - 16}" y2="{top - 16}"/>',
            f'<text class="tick" x="{place + 26}" y="{top - 12}">{escape(name)}</text>',
        ]
        place += width
    return parts
