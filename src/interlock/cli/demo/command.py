"""`interlock demo`: the command itself, from options to exit code.

The stopwatches of the demo are for display only. Nothing that it decides depends on them or on when the worker is
killed, which is why the same seed gives the same histories on a fast machine and on a slow one.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.demo.progress import watching
from interlock.cli.demo.show import show_outcome, show_verdict
from interlock.cli.demo.verify import verify
from interlock.cli.demo.walk import Walk
from interlock.cli.exits import Exit
from interlock.cli.output import stdout, write_file
from interlock.core import diagrams
from interlock.examples.order import order

ORDERS_MAX = 1_000_000
ORDERS_DEFAULT = 5_000
OUTPUT_DEFAULT = Path("out/demo.svg")


def demo(
    *,
    orders: Annotated[int, typer.Option(min=1, max=ORDERS_MAX, help="How many orders to walk.")] = ORDERS_DEFAULT,
    seed: Annotated[int, typer.Option(help="The same seed gives the same demo.")] = 1,
    headless: Annotated[
        bool, typer.Option("--headless", help="Plain lines instead of the live table, as when piped.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Where to write the diagram, coloured by visits (SVG).")
    ] = OUTPUT_DEFAULT,
) -> None:
    """Walk thousands of orders through the order machine, durably, kill the worker in the middle, and lose nothing.

    The orders live in a store in a temporary folder. Payments are declined, calls
    fail or lose their answers, customers cancel or want their money back, events
    arrive too late, an observer fails on purpose, and half way through the process
    that moves the orders is killed with SIGKILL. Another one takes up what was owed.
    In the end every order is verified against what was acknowledged, against its
    history and against the books of the bank.

    Exits with 1 if anything is not as it should be in the end.
    """
    console = stdout()
    console.print(f"Walking {orders:,} orders through the machine {order.name!r}, seed {seed}.", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder:
        walk = Walk(orders, seed, Path(folder))
        with watching(console, walk.outcome, live=console.is_terminal and not headless) as watch:
            outcome = walk.run(watch)
        console.print("Verifying every order…", soft_wrap=True)
        asyncio.run(verify(walk))
    write_file(output, diagrams.svg(order.describe(), visits=outcome.tally.visits))
    show_outcome(console, outcome)
    console.print()
    console.print(f"The machine, coloured by visits: {output}", soft_wrap=True)
    show_verdict(console, outcome)
    if outcome.problems:
        raise typer.Exit(Exit.ERROR)
