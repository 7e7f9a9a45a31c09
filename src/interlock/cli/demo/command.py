"""`interlock demo`: the command itself, from options to exit code.

The stopwatches of the demo are for display only. No decision depends on them or on when the worker is killed, so the
same seed gives the same histories on fast and slow machines.
"""

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from interlock.cli.console import Exit, stdout, write_file
from interlock.cli.demo.show import plot, show_outcome, show_verdict, watching
from interlock.cli.demo.verify import verify
from interlock.cli.demo.walk import Walk
from interlock.core import diagrams
from interlock.examples.order import order
from interlock.server.running import HOST, bound_socket

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
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="Where to write the plot (SVG); the machine goes beside it."),
    ] = OUTPUT_DEFAULT,
) -> None:
    """Walk thousands of orders through a bad day, kill the worker in the middle, and lose nothing.

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
    console = stdout()
    console.print(f"Walking {orders:,} orders through the machine {order.name!r}, seed {seed}.", soft_wrap=True)
    with (
        _folder() as folder,
        _dashboard() as dashboard,
        contextlib.closing(Walk(orders, seed, folder, dashboard)) as walk,
    ):
        url = None if dashboard is None else f"http://{HOST}:{dashboard.getsockname()[1]}/"
        # One event loop for everything: Ctrl-C cancels its tasks, and their cleanup runs.
        asyncio.run(_demo(console, walk, url, output, headless=headless, stays=stays and not headless))
    if walk.outcome.problems:
        raise typer.Exit(Exit.ERROR)


async def _demo(
    console: Console, walk: Walk, dashboard: str | None, output: Path, *, headless: bool, stays: bool
) -> None:
    """Run the whole demo, from the first order until the dashboard closes."""
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
    write_file(output, plot(outcome))
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


@contextlib.contextmanager
def _folder() -> Generator[Path, None, None]:
    """Create a temporary folder, and remove it at the end. Ctrl-C cannot interrupt either half-way."""
    folder: tempfile.TemporaryDirectory[str] | None = None
    try:
        with _interrupted_later():
            folder = tempfile.TemporaryDirectory(prefix="interlock-demo-", ignore_cleanup_errors=True)
        yield Path(folder.name)
    finally:
        if folder is not None:
            with _interrupted_later():
                folder.cleanup()


@contextlib.contextmanager
def _interrupted_later() -> Generator[None, None, None]:
    """Defer Ctrl-C until the block has completed."""
    pending: list[int] = []
    # An ignored Ctrl-C (a background job of a shell) stays ignored. Only the main thread may install handlers.
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heeds = heeds and threading.current_thread() is threading.main_thread()
    if heeds:
        signal.signal(signal.SIGINT, lambda number, _frame: pending.append(number))
    try:
        yield
    finally:
        if heeds:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if pending:
        raise KeyboardInterrupt
