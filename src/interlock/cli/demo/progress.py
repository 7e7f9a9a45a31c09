"""How far the walk is: a live table on a terminal, plain lines elsewhere.

The live table is drawn by a thread of its own from counts that the walk keeps anyway, so watching costs the walk
nothing. It reads them while they change: a frame may be a little late, and the next one is right.
"""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from interlock.cli.demo.bars import bar
from interlock.cli.demo.walk import Outcome, Watcher
from interlock.cli.output import counted

FRAMES_PER_S = 20
LINES = 10


@contextmanager
def watching(console: Console, outcome: Outcome, *, live: bool) -> Generator[Watcher, None, None]:
    """A watcher for the walk, for as long as it takes."""
    if not live:
        yield _lines(console, outcome)
        return
    progress = Progress(TextColumn("orders"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    task = progress.add_task("orders", total=outcome.orders)

    def frame() -> Group:
        progress.update(task, completed=outcome.done)
        return Group(progress, _states_now(outcome))

    watch = _remarks(console)
    with Live(get_renderable=frame, console=console, refresh_per_second=FRAMES_PER_S, transient=True):
        yield watch


def _remarks(console: Console) -> Watcher:
    """Say that the worker was killed, and that the next one is there."""
    said: set[str] = set()

    def say(what: str, told: str, style: str) -> None:
        if what not in said:
            said.add(what)
            console.print(told, style=style, soft_wrap=True)

    def watch(now: Outcome, /) -> None:
        kill = now.kill
        if kill is None:
            return
        told = (
            f"Killed the worker (SIGKILL) in the middle: {kill.acknowledged:,} calls were acknowledged, "
            f"{counted(kill.on_their_way, 'order')} on their way."
        )
        say("killed", told, "bold red")
        if kill.recovery_s:
            told = f"Another worker has opened the store and taken up what was owed in {kill.recovery_s:.2f} s."
            say("recovered", told, "bold green")

    return watch


def _lines(console: Console, outcome: Outcome) -> Watcher:
    told = 0
    remark = _remarks(console)

    def watch(now: Outcome, /) -> None:
        nonlocal told
        remark(now)
        tenth = now.done * LINES // outcome.orders
        if tenth > told:
            told = tenth
            tally = now.tally
            console.print(
                f"{now.done:>9,} of {outcome.orders:,} orders done, {tally.transitions:,} transitions, "
                f"{sum(now.rejected.values()):,} events rejected",
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
