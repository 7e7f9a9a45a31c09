"""Runs many seeds on all processors, and adds up what happened: a simulation that exercised nothing proves nothing.

Seeds are independent of each other, so they are dealt out in small portions. The first portion in which a seed fails
ends the campaign: its story is what one wants to read.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import msgspec

from interlock.errors import BadUsage
from interlock.testing.simulation.run import PROCESSES_MAX, Simulated, simulate

PORTION = 20
SEEDS_MAX = 10_000_000

Watcher = Callable[[int], None]
"""Told how many seeds more are done."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What came of many seeds."""

    first: int
    seeds: int
    """How many were run."""
    seconds: float
    counts: dict[str, int]
    faults: dict[str, int]
    failed: tuple[Simulated, ...]


def run_campaign(
    first: int, seeds: int, *, processes: int | None = None, workers: int | None = None, watch: Watcher | None = None
) -> Campaign:
    """Run so many seeds, beginning with `first`. Raises BadUsage for numbers that make no sense."""
    _check(first, seeds, processes)
    portions = [range(start, min(start + PORTION, first + seeds)) for start in range(first, first + seeds, PORTION)]
    began_s = time.perf_counter()
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed: list[Simulated] = []
    done = 0
    for results in _results(portions, processes, workers or len(os.sched_getaffinity(0))):
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


def _check(first: int, seeds: int, processes: int | None) -> None:
    for name, value, least, most in (
        ("seeds", seeds, 1, SEEDS_MAX),
        ("from", first, 0, 2**53),
        ("processes", processes, 1, PROCESSES_MAX),
    ):
        if value is not None and not least <= value <= most:
            raise BadUsage(f"--{name} is {value:,}.", fix=f"Give a number from {least} to {most:,}.")


def _results(portions: Sequence[range], processes: int | None, workers: int) -> Iterator[list[Simulated]]:
    workers = min(workers, len(portions))
    if workers == 1:
        for portion in portions:
            yield _portion(portion, processes)
        return
    # Not forked: a copy of a process with threads has locks that nobody will ever release.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        for future in as_completed([pool.submit(_portion, portion, processes) for portion in portions]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _portion(seeds: range, processes: int | None) -> list[Simulated]:
    return [simulate(seed, processes=processes) for seed in seeds]
