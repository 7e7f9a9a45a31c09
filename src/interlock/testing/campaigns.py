"""Campaigns: many seeds of a simulation on all processors, with counts of what they exercised.

Seeds are independent, so they are distributed in small portions. The first portion with a failing seed ends the
campaign. `Luck` is the one source of randomness of a seed.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

import msgspec

from interlock.clock import Chance, SystemChance
from interlock.errors import BadUsage, MissingExtra

PORTION = 20
SEEDS_MAX = 10_000_000

Watcher = Callable[[int], None]
"""Called with the number of seeds that were completed since the last call."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one seed."""

    seed: int
    complaints: tuple[str, ...]
    story: tuple[str, ...]
    """The relevant lines of a failure; empty otherwise."""
    counts: dict[str, int]
    faults: dict[str, int]
    command: str = "lanes"
    """What was simulated: the command below `interlock simulate`."""

    @property
    def repeat(self) -> str:
        """The command that repeats the seed."""
        return f"interlock simulate {self.command} --seeds 1 --from {self.seed}"


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """The result of many seeds."""

    first: int
    seeds: int
    """How many were run."""
    seconds: float
    counts: dict[str, int]
    faults: dict[str, int]
    failed: tuple[Simulated, ...]


Simulate = Callable[[int], Simulated]
"""Runs one seed. It is sent to other processes, so it is a function of a module, or a `partial` of one."""


def run_seeds(
    simulate: Simulate, first: int, seeds: int, *, workers: int | None = None, watch: Watcher | None = None
) -> Campaign:
    """Run `seeds` seeds, beginning with `first`. Raises BadUsage for numbers out of range."""
    refuse_numbers(("seeds", seeds, 1, SEEDS_MAX), ("from", first, 0, 2**53))
    portions = [range(start, min(start + PORTION, first + seeds)) for start in range(first, first + seeds, PORTION)]
    began_s = time.perf_counter()
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed: list[Simulated] = []
    done = 0
    for results in _results(simulate, portions, workers or len(os.sched_getaffinity(0))):
        for result in results:
            counts.update(result.counts)
            faults.update(result.faults)
        failed += [result for result in results if result.complaints]
        done += len(results)
        if watch is not None:
            watch(len(results))
        if failed:
            break
    return Campaign(
        first=first,
        seeds=done,
        seconds=time.perf_counter() - began_s,
        counts=dict(sorted(counts.items())),
        faults=dict(sorted(faults.items())),
        failed=tuple(sorted(failed, key=lambda result: result.seed)),
    )


def refuse_numbers(*options: tuple[str, int | None, int, int]) -> None:
    """Raise BadUsage for the first option, as (name, value, least, most), that is out of its range."""
    for name, value, least, most in options:
        if value is not None and not least <= value <= most:
            raise BadUsage(f"--{name} is {value:,}.", fix=f"Give a number from {least} to {most:,}.")


def _run_portion(simulate: Simulate, seeds: range) -> list[Simulated]:
    return [simulate(seed) for seed in seeds]


def _results(simulate: Simulate, portions: Sequence[range], workers: int) -> Iterator[list[Simulated]]:
    workers = min(workers, len(portions))
    if workers == 1:
        for portion in portions:
            yield _run_portion(simulate, portion)
        return
    # Spawned, not forked: a forked copy of a process with threads may keep locks locked for ever.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        for future in as_completed([pool.submit(_run_portion, simulate, portion) for portion in portions]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


ItemT = TypeVar("ItemT")


class Luck:
    """Draws from one seeded source."""

    def __init__(self, seed: int) -> None:
        self.chance: Chance = SystemChance(seed)

    def often(self, share: float) -> bool:
        """Return True with this probability."""
        return self.chance.fraction() < share

    def between(self, low: float, high: float) -> float:
        """Return a number from `low` up to `high`."""
        return low + (high - low) * self.chance.fraction()

    def count(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self.chance.fraction() * (high - low + 1))

    def one(self, items: Sequence[ItemT]) -> ItemT:
        """Return one of the items."""
        return items[int(self.chance.fraction() * len(items))]

    def number(self) -> int:
        """Return a seed for another source."""
        return int(self.chance.fraction() * 2**53)


def missing_extra(module: str, package: str) -> MissingExtra:
    """Return the error for a module whose package is not installed, with the command that installs it."""
    return MissingExtra(f"{module} needs {package}, which is not installed.", extra="testing")
