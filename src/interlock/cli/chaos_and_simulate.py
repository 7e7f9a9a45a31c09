"""`interlock chaos` breaks servers and workers around running orders, `interlock simulate` everything in virtual time.

Progress goes to stderr and the verdicts to stdout, so that the JSON stays JSON. Ctrl-C and SIGTERM cancel the one task,
whose cleanup runs to its end; a second Ctrl-C does not interrupt that.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, cast

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
    progress_bar,
    run_interruptible,
    show_raw,
    show_table,
    stderr,
    stdout,
)
from interlock.cli.parse_arguments import OutputOfOne
from interlock.errors import BadUsage, MissingExtra

if TYPE_CHECKING:
    from interlock.testing.campaigns import Campaign, Simulated, Watcher


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
    """Break servers, workers and disks under running orders, and check every guarantee.

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


# --- `interlock simulate` --------------------------------------------------------------------------------------------
# The simulations are in `interlock.testing`; that of lanes needs an extra, so they are imported on demand.

simulate = typer.Typer(
    help="Simulate crashes, outages and lost answers from seeds, and check every run.", no_args_is_help=True
)

EXAMPLE = "Example: interlock simulate lanes --seeds 5000 --from 1000"
STORIES_MAX = 3


@simulate.command(name="lanes", epilog=EXAMPLE)
def lanes(
    *,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many seeds to run.")] = 500,
    first: Annotated[int, typer.Option("--from", metavar="SEED", help="The first seed.")] = 0,
    processes: Annotated[
        int | None,
        typer.Option(metavar="K", help="Machines that want the lane, 1 to 8; by default each seed has two to four."),
    ] = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Simulate lanes whose log is a bucket: processes that are killed or stand still, and a bucket that fails.

    The real code runs in virtual time, and a seed decides everything: the same seed is the same story. Exits with 1
    and tells the story when a promise was broken.
    """
    run = _load_lane_campaign()
    with _watch_seeds(stderr(), seeds) as watch:
        campaign = run(first, seeds, processes=processes, watch=watch)
    _show_campaign(campaign, output)


@simulate.command(name="engine", epilog="Example: interlock simulate engine --seeds 5000 --from 1000")
def engine(
    *,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many seeds to run.")] = 1_000,
    first: Annotated[int, typer.Option("--from", metavar="SEED", help="The first seed.")] = 0,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Simulate the engine: processes that are killed anywhere, a store that fails, a world outside that misbehaves.

    Workflows with steps, undos, effects and timers run in virtual time, and a seed decides everything: the same seed is
    the same story. Exits with 1 and tells the story when a promise was broken.
    """
    run = cast(
        "Callable[..., Campaign]", import_module("interlock.testing.engine_simulation.simulate_engine").run_campaign
    )
    with _watch_seeds(stderr(), seeds) as watch:
        campaign = run(first, seeds, watch=watch)
    _show_campaign(campaign, output)


def _show_campaign(campaign: "Campaign", output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_raw(json_text(campaign))
    else:
        _show_results(stdout(), campaign)
    if campaign.failed:
        raise typer.Exit(Exit.ERROR)


def _load_lane_campaign() -> Callable[..., "Campaign"]:
    try:
        module = import_module("interlock.testing.lane_simulation.simulate_lanes")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"the simulation of lanes needs {error.name}, which is not installed.", extra="objects"
        ) from error
    return cast("Callable[..., Campaign]", module.run_campaign)


@contextmanager
def _watch_seeds(console: Console, seeds: int) -> Generator["Watcher", None, None]:
    if not console.is_terminal:
        yield lambda _done: None
        return
    with progress_bar(console) as progress:
        task = progress.add_task("seeds", total=seeds)
        yield lambda done: progress.update(task, advance=done)


def _show_results(console: Console, campaign: "Campaign") -> None:
    for result in campaign.failed[:STORIES_MAX]:
        _show_story(console, result)
    last = campaign.first + campaign.seeds - 1
    rate = campaign.seeds / campaign.seconds if campaign.seconds else 0.0
    console.print(f"{counted(campaign.seeds, 'seed')}, {rate:,.1f} per second", soft_wrap=True)
    _show_counts(console, "what happened", campaign.counts)
    _show_counts(console, "faults", campaign.faults)
    if campaign.failed:
        console.print(Text(f"{counted(len(campaign.failed), 'seed')} broke a promise", style="bold red"))
    else:
        line = f"Every promise was kept, from seed {campaign.first} to {last}."
        console.print(Text(line, style="green"), soft_wrap=True)


def _show_story(console: Console, result: "Simulated") -> None:
    console.print(Text(f"seed {result.seed} broke a promise", style="bold red"))
    for complaint in result.complaints[:STORIES_MAX]:
        console.print(f"  {complaint}", soft_wrap=True)
    for line in result.story:
        console.print(line, soft_wrap=True)
    console.print(f"Again: {result.repeat}\n", soft_wrap=True)


def _show_counts(console: Console, heading: str, counts: dict[str, int]) -> None:
    console.print(Text(f"\n{heading}", style="bold"))
    for name, count in counts.items():
        console.print(Text.assemble(f" {count:>9,}  ", (name, "")), soft_wrap=True)
    if not counts:
        console.print("         -  nothing")
