"""`interlock chaos`: break real servers and workers around running orders, and check what was promised.

Progress goes to stderr and the verdicts to stdout, so that the JSON stays JSON. Ctrl-C and SIGTERM cancel the one task,
whose cleanup runs to its end; a second Ctrl-C does not interrupt that.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from interlock.chaos.scenario import ChaosReport, Scenario, ScenarioLoad, ScenarioVerdict, Stage
from interlock.chaos.scenarios import SCENARIOS, Watch, run_all
from interlock.cli.console import (
    Exit,
    ResultFormat,
    counted,
    json_text,
    run_interruptible,
    show_raw,
    show_table,
    stderr,
    stdout,
)
from interlock.errors import BadUsage

# --- Output of `interlock chaos` -------------------------------------------------------------------------------------

FRAMES_PER_S = 8
PIPED_WIDTH = 1_000
STYLES = {"kept": "bold green", "broken": "bold red", "not run": "yellow"}


class Progress:
    """What is known so far, by scenario."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows: dict[str, tuple[str, str]] = dict.fromkeys(names, ("", ""))

    def note(self, scenario: Scenario, stage: Stage | None, verdict: ScenarioVerdict | None) -> None:
        """Update the progress of a scenario."""
        if verdict is not None or stage is not None:
            self._rows[scenario.name] = _progress_of(stage, verdict)

    def __rich__(self) -> Table:
        """One line per scenario."""
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for name, (doing, figures) in self._rows.items():
            table.add_row(
                Text(name, style="bold" if doing else "dim"), Text(doing, style=STYLES.get(doing, "cyan")), figures
            )
        return table


@contextmanager
def watching(console: Console, names: Sequence[str]) -> Generator[Watch, None, None]:
    """Yield a callback that shows the progress until the block ends."""
    if not console.is_terminal:
        yield _print_steps(console)
        return
    progress = Progress(names)
    with Live(progress, console=console, refresh_per_second=FRAMES_PER_S, transient=True):
        yield progress.note


def _print_steps(console: Console) -> Watch:
    printed: list[tuple[str, str]] = []

    def watch(scenario: Scenario, stage: Stage | None, verdict: ScenarioVerdict | None) -> None:
        doing, figures = _progress_of(stage, verdict)
        if printed[-1:] != [(scenario.name, doing)]:
            printed.append((scenario.name, doing))
            console.print(f"{scenario.name}: {doing}{f' ({figures})' if figures else ''}", soft_wrap=True)

    return watch


def _progress_of(stage: Stage | None, verdict: ScenarioVerdict | None) -> tuple[str, str]:
    """Return what a scenario is doing, or its outcome, and the figures."""
    if verdict is not None:
        figures = f"{counted(verdict.orders, 'order')}, {_recovery(verdict)} to recover, {verdict.seconds:.1f} s in all"
        return verdict.outcome, "" if verdict.outcome == "not run" else figures
    if stage is None:
        return "", ""
    customers = stage.world.customers
    if not customers.orders:
        return stage.doing, ""
    ended = f"{len(customers.ended)} of {counted(len(customers.orders), 'order')} ended"
    text = f"{ended}, {len(customers.acknowledgements)} acknowledged"
    opened = {dependency for (_, dependency), state in stage.breakers().items() if state != "closed"}
    return stage.doing, text + (f", breaker of {', '.join(sorted(opened))} open" if opened else "")


def _recovery(verdict: ScenarioVerdict) -> str:
    return "-" if verdict.recovery_s is None else f"{verdict.recovery_s:.1f} s"


def show_report(console: Console, report: ChaosReport) -> None:
    """Print the verdicts as a table, the broken promises, and one last line."""
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)  # One line each, for `grep`.
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("scenario", "promised", "happened", "verdict", "recovery"):
        fixed = heading in {"scenario", "verdict", "recovery"}
        table.add_column(heading, no_wrap=fixed, overflow="fold", justify="right" if heading == "recovery" else "left")
    for each in report.verdicts:
        verdict = Text(each.outcome.upper() if each.outcome == "broken" else each.outcome, style=STYLES[each.outcome])
        table.add_row(Text(each.scenario, style="bold"), each.promised, each.happened, verdict, _recovery(each))
    console.print(table)
    for each in report.verdicts:
        if each.problems:
            console.print(Text(f"\n{each.scenario}: {counted(len(each.problems), 'broken promise')}", style="bold red"))
            for problem in each.problems:
                console.print(f"  {problem}", soft_wrap=True)
    console.print()
    console.print(_last_line(report), soft_wrap=True)
    if report.folder is not None:
        console.print(f"Everything that was left is in {report.folder}", soft_wrap=True)


def _last_line(report: ChaosReport) -> Text:
    kept, broken, left_out = (len(report.named(outcome)) for outcome in ("kept", "broken", "not run"))
    orders = sum(each.orders for each in report.verdicts)
    acknowledged = sum(each.acknowledged for each in report.verdicts)
    figures = f"{counted(orders, 'order')}, {acknowledged:,} acknowledgements, seed {report.seed}"
    rest = f" {counted(left_out, 'scenario')} could not be run: pip install 'interlock[chaos]'." if left_out else ""
    if broken:
        return Text(
            f"{counted(broken, 'scenario')} of {kept + broken} broke a promise ({figures}).{rest}", style="bold red"
        )
    if not kept:
        return Text(f"Nothing was run.{rest}", style="yellow")
    return Text(f"Every promise was kept in {counted(kept, 'scenario')} ({figures}).{rest}", style="bold green")


# --- `interlock chaos` -----------------------------------------------------------------------------------------------

ORDERS_MIN, ORDERS_MAX = 15, 10_000
SECONDS_MAX, DEADLINE_S_MAX = 600.0, 3_600.0
PROMISE_MAX = 400
"""A promise is shown whole: it is a sentence."""


def chaos(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run this scenario; may be given several times.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the scenarios and what they promise; run none.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=SECONDS_MAX, help="How long each disturbance lasts at least.")
    ] = ScenarioLoad().seconds,
    orders: Annotated[
        int, typer.Option(min=ORDERS_MIN, max=ORDERS_MAX, help="How many orders flow through each scenario, at least.")
    ] = ScenarioLoad().orders,
    deadline: Annotated[
        float,
        typer.Option(
            min=1.0, max=DEADLINE_S_MAX, help="How many seconds anything may take that has to come back by itself."
        ),
    ] = ScenarioLoad().deadline_s,
    seed: Annotated[int, typer.Option(help="Which calls fail by chance follows from it.")] = 1,
    output: Annotated[
        ResultFormat, typer.Option("--output", "-o", help="A table for people, or JSON.")
    ] = ResultFormat.TABLE,
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
    names = _choose_scenarios(only)
    if listing:
        scenarios = [(name, SCENARIOS[name]) for name in names]
        cells = [(name, ", ".join(each.needs) or "nothing", each.promise) for name, each in scenarios]
        show_table(("scenario", "needs", "promise"), cells, cell_max=PROMISE_MAX)
        return
    load = ScenarioLoad(orders=orders, seconds=seconds, deadline_s=deadline, seed=seed)
    with watching(stderr(), names) as watch:
        report = run_interruptible(run_all(names, load, watch, keep=keep))
    if output is ResultFormat.JSON:
        show_raw(json_text(report))
    else:
        show_report(stdout(), report)
    raise typer.Exit(_exit_code(report, named=bool(only)))


def _choose_scenarios(only: list[str] | None) -> list[str]:
    for name in only or ():
        if name not in SCENARIOS:
            raise BadUsage(
                f"there is no scenario {name!r}.",
                why="A run that leaves out what was asked for would prove nothing.",
                fix=f"Use one of: {', '.join(SCENARIOS)}.",
            )
    return [name for name in SCENARIOS if not only or name in only]


def _exit_code(report: ChaosReport, *, named: bool) -> Exit:
    if report.named("broken"):
        return Exit.ERROR
    if report.named("not run") and (named or not report.named("kept")):
        return Exit.UNAVAILABLE
    return Exit.OK
