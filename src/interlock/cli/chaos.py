"""`interlock chaos`: the command itself, from options to exit code.

Progress goes to stderr and the verdicts to stdout, so that the JSON stays JSON. Ctrl-C and SIGTERM are a cancellation
in the one event loop; what was started is ended on the way out, and a second Ctrl-C does not hurry that.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
import typer

from interlock.chaos.campaign import run_all
from interlock.chaos.scenarios.all import SCENARIOS
from interlock.chaos.stage import Load
from interlock.chaos.verdicts import Report
from interlock.cli.chaos_shown import show_report, watching
from interlock.cli.exits import Exit
from interlock.cli.output import show_raw, stderr, stdout
from interlock.cli.shown import show_table
from interlock.errors import BadUsage

ResultT = TypeVar("ResultT")

ORDERS_MIN, ORDERS_MAX = 15, 10_000
SECONDS_MAX, DEADLINE_S_MAX = 600.0, 3_600.0


class Summary(StrEnum):
    """How the verdicts are printed."""

    TABLE = "table"
    JSON = "json"


def chaos(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Run this scenario; may be given several times."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the scenarios and what they promise; run none.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=SECONDS_MAX, help="How long each disturbance lasts at least.")
    ] = Load().seconds,
    orders: Annotated[
        int, typer.Option(min=ORDERS_MIN, max=ORDERS_MAX, help="How many orders flow through each scenario, at least.")
    ] = Load().orders,
    deadline: Annotated[
        float,
        typer.Option(
            min=1.0, max=DEADLINE_S_MAX, help="How many seconds anything may take that has to come back by itself."
        ),
    ] = Load().deadline_s,
    seed: Annotated[int, typer.Option(help="Which calls fail by chance follows from it.")] = 1,
    output: Annotated[Summary, typer.Option("--output", "-o", help="A table for people, or JSON.")] = Summary.TABLE,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with stores and logs, and say where.")] = False,
) -> None:
    """Break everything around running orders, and check that what was promised is kept.

    Real workers move orders that are reserved, charged and shipped, on a PostgreSQL and
    a Redis of their own, which come from wheels and listen on loopback only. Servers are
    killed, wires cut, workers frozen, the payment gateway hangs and fails. After each
    disturbance every order has to end by itself; then the stores are compared with what
    customers received and with the calls of the payment gateway.

    Exits with 0 when every promise was kept, with 1 when one was broken, and with 5 when
    a scenario that was asked for by name cannot be run here.
    """
    names = _chosen(only)
    if listing:
        show_table(("scenario", "needs", "promise"), [_listed(name) for name in names], cell_max=PROMISE_MAX)
        return
    load = Load(orders=orders, seconds=seconds, deadline_s=deadline, seed=seed)
    with watching(stderr(), names) as watch:
        report = _interruptible(run_all(names, load, watch, keep=keep))
    if output is Summary.JSON:
        show_raw(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        show_report(stdout(), report)
    raise typer.Exit(_exit(report, named=bool(only)))


def _chosen(only: list[str] | None) -> list[str]:
    for name in only or ():
        if name not in SCENARIOS:
            raise BadUsage(
                f"there is no scenario {name!r}.",
                why="A run that leaves out what was asked for would prove nothing.",
                fix=f"Use one of: {', '.join(SCENARIOS)}.",
            )
    return [name for name in SCENARIOS if not only or name in only]


PROMISE_MAX = 400
"""A promise is shown whole: it is a sentence."""


def _listed(name: str) -> tuple[str, str, str]:
    scenario = SCENARIOS[name]
    return name, ", ".join(scenario.needs) or "nothing", scenario.promise


def _exit(report: Report, *, named: bool) -> Exit:
    if report.named("broken"):
        return Exit.ERROR
    if report.named("not run") and (named or not report.named("kept")):
        return Exit.UNAVAILABLE
    return Exit.OK


def _interruptible(work: Coroutine[object, object, ResultT]) -> ResultT:
    """Run the coroutine in a new event loop. The first signal cancels it, and its cleanup runs; others do nothing."""

    async def watched() -> ResultT:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        received: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            if not received:
                task.cancel()
            received.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # Only the main thread may install handlers.
                loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if received:
                raise KeyboardInterrupt from None
            raise

    return asyncio.run(watched())
