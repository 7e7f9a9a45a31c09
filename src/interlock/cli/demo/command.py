"""`interlock demo`: the command itself, from options to exit code.

The stopwatches of the demo are for display only. No decision depends on them or on when the worker is killed, so the
same seed gives the same histories on fast and slow machines.
"""

import contextlib
import socket
import sys
import tempfile
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from interlock.cli.console import Exit, run_interruptible, stdout, write_file
from interlock.cli.demo.show import plot, show_outcome, show_verdict, watching
from interlock.cli.demo.verify import verify
from interlock.cli.demo.walk import OrdersWalk
from interlock.core import diagrams
from interlock.examples.order import order
from interlock.server.lifecycle import HOST, bound_socket
from interlock.testing.faults.processes import Processes

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
            await _walk(console, walk, url, output, headless=headless, stays=stays and not headless)
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
