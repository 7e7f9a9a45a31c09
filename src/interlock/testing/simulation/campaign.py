"""Campaigns of the lane whose log is a bucket: many seeds on all processors."""

from functools import partial

from interlock.testing.campaigns import Campaign, Simulated, Watcher, gather, refuse_numbers
from interlock.testing.simulation.run import PROCESSES_MAX, simulate


def run_campaign(
    first: int, seeds: int, *, processes: int | None = None, workers: int | None = None, watch: Watcher | None = None
) -> Campaign:
    """Run `seeds` seeds, beginning with `first`. Raises BadUsage for numbers out of range."""
    refuse_numbers(("processes", processes, 1, PROCESSES_MAX))
    return gather(partial(run_portion, processes=processes), first, seeds, workers=workers, watch=watch)


def run_portion(seeds: range, *, processes: int | None) -> list[Simulated]:
    """Run some seeds, one after the other."""
    return [simulate(seed, processes=processes) for seed in seeds]
