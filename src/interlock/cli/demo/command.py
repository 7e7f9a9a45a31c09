"""`interlock demo`: the command itself, from options to exit code.

The stopwatch is here and in the walk for display only. Nothing that the demo decides depends on it, which is why the
same seed gives the same demo on a fast machine and on a slow one.
"""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.demo.progress import watching
from interlock.cli.demo.show import show_outcome, show_verdict
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
    """Walk thousands of orders through the order machine, in memory, and verify every one of them.

    Payments are declined, customers cancel or want their money back,
    events arrive too late, and an observer fails on purpose.

    Exits with 1 if anything is not as it should be in the end.
    """
    console = stdout()
    walk = Walk(orders, seed)
    console.print(f"Walking {orders:,} orders through the machine {order.name!r}, seed {seed}.", soft_wrap=True)
    began = time.perf_counter()
    with watching(console, walk.outcome, live=console.is_terminal and not headless) as watch:
        outcome = asyncio.run(walk.run(watch))
    elapsed_s = time.perf_counter() - began
    write_file(output, diagrams.svg(order.describe(), visits=outcome.tally.visits))
    show_outcome(console, outcome, elapsed_s)
    console.print()
    console.print(f"The machine, coloured by visits: {output}", soft_wrap=True)
    show_verdict(console, outcome)
    if outcome.problems:
        raise typer.Exit(Exit.ERROR)
