"""The progress display of a walk: a live table on a terminal, plain lines elsewhere.

A separate thread draws the live table from counts that the walk keeps anyway. It reads them while they change, so a
frame may be slightly out of date; the next one corrects it.
"""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from interlock.cli.demo.bars import bar
from interlock.cli.demo.outcome import Outcome
from interlock.cli.demo.walk import Watcher

FRAMES_PER_S = 20
LINES = 10
_BREAKER_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


@contextmanager
def watching(console: Console, outcome: Outcome, *, live: bool) -> Generator[Watcher, None, None]:
    """Yield a watcher for the walk; the display ends with the block."""
    if not live:
        yield _lines(console, outcome)
        return
    progress = Progress(TextColumn("orders"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    task = progress.add_task("orders", total=outcome.orders)

    def frame() -> Group:
        progress.update(task, completed=outcome.done)
        return Group(progress, _states_now(outcome), _others_now(outcome))

    def watch(now: Outcome, /) -> None:
        _remark(console, now)

    with Live(get_renderable=frame, console=console, refresh_per_second=FRAMES_PER_S, transient=True):
        yield watch


def _remark(console: Console, outcome: Outcome) -> None:
    """Print and remove all queued remarks."""
    while outcome.remarks:
        remark = outcome.remarks.pop(0)
        console.print(remark.text, style=remark.style, soft_wrap=True)


def _lines(console: Console, outcome: Outcome) -> Watcher:
    printed = 0

    def watch(now: Outcome, /) -> None:
        nonlocal printed
        _remark(console, now)
        tenth = now.done * LINES // outcome.orders
        if tenth > printed:
            printed = tenth
            tally = now.tally
            console.print(
                f"{now.done:>9,} of {outcome.orders:,} orders done, {tally.transitions:,} transitions, "
                f"{now.paid:,} paid, {sum(now.rejected.values()):,} events rejected",
                soft_wrap=True,
            )

    return watch


def _states_now(outcome: Outcome) -> Table:
    table = Table(box=None, padding=(0, 1))
    table.add_column("state", style="bold")
    table.add_column("orders now", justify="right")
    table.add_column("visits", justify="right")
    table.add_column("")
    most = max(outcome.tally.visits.values())
    for state, visits in outcome.tally.visits.items():
        table.add_row(state, f"{outcome.tally.now[state]:,}", f"{visits:,}", bar(visits, most))
    return table


def _others_now(outcome: Outcome) -> Text:
    state = outcome.breaker
    return Text.assemble(
        " hot counter ",
        (f"{outcome.paid:,} paid", "bold"),
        "   breaker of the bank ",
        (state.replace("_", "-"), _BREAKER_STYLES.get(state, "")),
    )
