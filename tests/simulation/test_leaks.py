"""C16: a hundred thousand steps with retries, timeouts and undos leave nothing behind that was not there before.

In virtual time, so that the waits of retries cost nothing. Whatever has ended is pruned, so that the store in memory
stays as large as it was, and everything that grows is a leak. What is compared is the middle with the end: caches are
full by then.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from interlock import Breaker, Dependency, NonRetryable, Signal, StepAttempted, StepContext, pipeline, step
from interlock.clock import SeededIds, SystemChance
from interlock.core.policies import Retry
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.internals import EngineParts
from interlock.store.memory import MemoryStore
from interlock.testing.campaigns import Luck
from interlock.testing.virtual_time import VirtualClock, VirtualLoop, open_on
from tests.simulation.passing import passing
from tests.simulation.tracing import untraced

STEPS = int(os.environ.get("INTERLOCK_LEAK_STEPS", "100000"))
AT_ONCE = 250
GROWTH_BYTES_MAX = 8_000_000
"""Resident memory comes in large pieces: this is 160 bytes for each step since the middle."""

luck = Luck(1)


@dataclass(frozen=True)
class Parcel:
    passed: int = 0


async def world() -> None:
    """One call in seven fails, one in two hundred hangs until its time is over, a few are refused."""
    if luck.often(0.14):
        raise ConnectionError("net")
    if luck.often(0.005):
        await passing(3_600)
    if luck.often(0.005):
        raise NonRetryable("no")
    await passing(luck.one((0.0, 0.001, 0.01)))


@step(timeout_s=2, dependency="gateway", retry=Retry(attempts=4))
async def charge(parcel: Parcel, ctx: StepContext) -> Parcel:
    await world()
    return replace(parcel, passed=parcel.passed + 1)


@charge.undo
async def refund(parcel: Parcel, ctx: StepContext) -> None:
    if luck.often(0.2):
        raise ConnectionError("net")


@step(timeout_s=2, dependency="stock", retry=Retry(attempts=4))
async def reserve(parcel: Parcel, ctx: StepContext) -> Parcel:
    await world()
    return replace(parcel, passed=parcel.passed + 1)


@reserve.undo
async def release(parcel: Parcel, ctx: StepContext) -> None:
    if luck.often(0.2):
        raise ConnectionError("net")


@step(timeout_s=2, read_only=True, retry=Retry(attempts=4))
async def weigh(parcel: Parcel, ctx: StepContext) -> Parcel:
    await world()
    return parcel


parcels = pipeline("parcels", context=Parcel, steps=[weigh, charge, reserve])
DEPENDENCIES = (
    Dependency("gateway", concurrency_max=100, budget=1.0),
    Dependency("stock", concurrency_max=60, rate_per_s=5_000.0, breaker=Breaker(failures=3, reset_s=1.0)),
)


class Counting:
    """How many attempts have ended, and how."""

    def __init__(self) -> None:
        self.steps = 0
        self.outcomes: Counter[str] = Counter()

    def __call__(self, signal: Signal, /) -> None:
        if isinstance(signal, StepAttempted):
            self.steps += 1
            self.outcomes[f"{signal.kind}: {signal.outcome}"] += 1


def descriptors() -> set[tuple[str, str]]:
    """What this process has open: numbers, and what is behind them, which tells one that was given anew."""
    found: set[tuple[str, str]] = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # That of looking here is gone by now.
            found.add((link.name, str(link.readlink())))
    return found


def measured(loop: VirtualLoop, inside: EngineParts, others: set[tuple[str, str]]) -> dict[str, int]:
    """Everything that could have grown.

    What others had open before is left out: connections to servers are closed by threads of theirs when nobody has
    used them for a while.
    """
    gc.collect()
    runner, places = inside.runner, inside.places
    lines = places.lines.values()
    return {
        "tasks": len(asyncio.all_tasks(loop)),
        "timers": sum(not timer.cancelled() for timer in loop._timers()),
        "waiters": len(inside.waiters),
        "wakes": len(inside.runner.timers),
        "attempts": runner.under_way + len(runner._running) + len(runner._leaving) + len(runner._effects),
        "slots": places.steps.free + places.undos.free + places.effects.free,
        "waiting": places.waiting,
        "passes": sum(line.kept for line in lines),
        "places": sum(line.outlet.under_way + line.outlet.undos_under_way for line in lines),
        "in flight": inside.gate.in_flight,
        "descriptors": len(descriptors() - others),
    }


def resident_bytes() -> int:
    """The memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def work(engine: Engine, count: int, already: int) -> None:
    """Some parcels, from their start to their end, and nothing of them is left in the store."""
    names = [f"p{number}" for number in range(already, already + count)]
    await asyncio.gather(*(engine.start(parcels, name, Parcel()) for name in names))
    while len(await engine.dead_letters()) or [view for view in (await engine.find(parcels, limit=10_000)).items
                                               if view.state not in ENDED]:  # fmt: skip
        for letter in await engine.dead_letters():
            await engine.retry_dead_letter(letter.id)
        await passing(10.0)
    await engine.prune(older_than_s=0.0)


ENDED = {parcels.State.COMPLETED, parcels.State.FAILED}


@pytest.mark.slow
def test_a_hundred_thousand_steps_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="interlock")  # pytest keeps what is logged.
    clock = VirtualClock()
    loop = VirtualLoop(clock)
    counting, others = Counting(), descriptors()

    async def scenario() -> tuple[list[dict[str, int]], list[int], list[int]]:
        store = MemoryStore(clock)
        engine, inside = await open_on(
            store,
            {"parcels": BoundMachine(parcels)},
            clock=clock,
            chance=SystemChance(1),
            ids=SeededIds(1),
            settings=EngineSettings(snapshots_max=AT_ONCE),
            observers=[counting],
            dependencies=DEPENDENCIES,
        )
        seen: list[dict[str, int]] = []
        blocks: list[int] = []
        resident: list[int] = []
        made = 0
        for share in (0.5, 0.75, 1.0):
            while counting.steps < STEPS * share:
                await work(engine, AT_ONCE, made)
                made += AT_ONCE
            await passing(113.7)  # Nothing else happens at such a time.
            store.charts._charts().clear()  # A record per minute for a day: bounded, but not by these minutes.
            seen.append(measured(loop, inside, others))
            blocks.append(sys.getallocatedblocks())
            resident.append(resident_bytes())
        await engine.close()
        return seen, blocks, resident

    with untraced():
        try:
            seen, blocks, resident = loop.run(scenario())
        finally:
            loop.leave()
    assert counting.steps >= STEPS
    for outcome in ("step: retryable", "step: timeout", "step: non_retryable", "undo: done", "undo: retryable"):
        assert counting.outcomes[outcome] > STEPS / 5_000, counting.outcomes
    assert seen[0] == seen[1] == seen[2]
    # A leak of one block per attempt would be as many as there were attempts since the middle.
    assert blocks[2] - blocks[0] < STEPS / 100, blocks
    assert resident[2] - resident[0] < GROWTH_BYTES_MAX, resident
