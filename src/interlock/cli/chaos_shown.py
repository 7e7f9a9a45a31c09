"""The output of `interlock chaos`: progress while it runs, and the verdicts at the end.

On a terminal there is one line per scenario that changes in place; elsewhere a line for each step, so that a log can be
read, too.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from interlock.chaos.campaign import Watch
from interlock.chaos.scenario import Scenario
from interlock.chaos.stage import Stage
from interlock.chaos.verdicts import Report, Verdict
from interlock.cli.output import counted

FRAMES_PER_S = 8
PIPED_WIDTH = 1_000
STYLES = {"kept": "bold green", "broken": "bold red", "not run": "yellow"}


class Progress:
    """What is known so far, by scenario."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows: dict[str, tuple[str, str]] = dict.fromkeys(names, ("", ""))

    def note(self, scenario: Scenario, stage: Stage | None, verdict: Verdict | None) -> None:
        """Update the progress of a scenario."""
        if verdict is not None:
            self._rows[scenario.name] = (verdict.outcome, _figures(verdict))
        elif stage is not None:
            self._rows[scenario.name] = (stage.doing, _now(stage))

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
        yield _lines(console)
        return
    progress = Progress(names)
    with Live(progress, console=console, refresh_per_second=FRAMES_PER_S, transient=True):
        yield progress.note


def _lines(console: Console) -> Watch:
    printed: list[tuple[str, str]] = []

    def watch(scenario: Scenario, stage: Stage | None, verdict: Verdict | None) -> None:
        doing = verdict.outcome if verdict is not None else stage.doing if stage is not None else ""
        figures = _figures(verdict) if verdict is not None else _now(stage) if stage is not None else ""
        if printed[-1:] != [(scenario.name, doing)]:
            printed.append((scenario.name, doing))
            console.print(f"{scenario.name}: {doing}{f' ({figures})' if figures else ''}", soft_wrap=True)

    return watch


def _now(stage: Stage) -> str:
    world = stage.world
    customers = world.customers
    if not customers.orders:
        return ""
    text = (
        f"{len(customers.ended)} of {counted(len(customers.orders), 'order')} ended, {len(customers.told)} acknowledged"
    )
    opened = {dependency for (_, dependency), state in stage.breakers().items() if state != "closed"}
    return text + (f", breaker of {', '.join(sorted(opened))} open" if opened else "")


def _figures(verdict: Verdict) -> str:
    if verdict.outcome == "not run":
        return ""
    return f"{counted(verdict.orders, 'order')}, {_recovery(verdict)} to recover, {verdict.seconds:.1f} s in all"


def _recovery(verdict: Verdict) -> str:
    return "-" if verdict.recovery_s is None else f"{verdict.recovery_s:.1f} s"


def show_report(console: Console, report: Report) -> None:
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


def _last_line(report: Report) -> Text:
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
