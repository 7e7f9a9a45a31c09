"""`interlock simulate`: stories in which everything goes wrong, in virtual time, each checked.

The simulations are in `interlock.testing`; that of lanes needs an extra, so they are imported on demand. Progress goes
to stderr and the verdicts to stdout, so that the JSON stays JSON.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.text import Text

from interlock.cli.arguments import OutputOfOne
from interlock.cli.console import Exit, ResultFormat, counted, json_text, progress_bar, show_raw, stderr, stdout
from interlock.errors import MissingExtra

if TYPE_CHECKING:
    from interlock.testing.campaigns import Campaign, Simulated, Watcher

simulate = typer.Typer(
    help="Tell stories in which everything goes wrong, and check each of them.", no_args_is_help=True
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
    run = cast("Callable[..., Campaign]", import_module("interlock.testing.engine_simulation.run").run_campaign)
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
        module = import_module("interlock.testing.lane_simulation.run")
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
