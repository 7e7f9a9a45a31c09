"""The work per event is bounded: calls of functions and blocks of memory, which do not depend on the machine."""

import asyncio
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.stages import Stages
from interlock import Engine
from interlock.bench.orders import EVENTS, TRANSITIONS, MeasuredOrder, sent, stepped
from interlock.engine.path.staged_group import Staged

EVENTS_COUNT = 200
CALLS_MAX = 72.0
"""Calls per event in a group, in all threads. A ratchet: lower it when the path does less."""

STEP_CALLS_MAX = 152.0
"""Calls per transition of an order whose steps do not suspend, in groups, with its start and its wait. As above."""

BLOCKS_MAX = 11.0
"""Blocks of memory per event that is staged, with its caller's future. A ratchet, as above."""


def test_an_event_of_a_group_costs_few_calls_and_objects(tmp_path: Path) -> None:
    stages = Stages()
    blocks: list[int] = []

    async def scenario() -> tuple[int, int]:
        async with Engine.open(f"lanes://{tmp_path}/shop", machines=[sent]) as engine:
            ids = [f"o-{number}" for number in range(EVENTS_COUNT)]
            await asyncio.gather(*(engine.start(sent, each, MeasuredOrder(cents=999)) for each in ids))
            await engine.send_many([(each, EVENTS[0]) for each in ids])
            before = sum(stages.calls.values())
            await engine.send_many([(each, EVENTS[1]) for each in ids])
            calls = sum(stages.calls.values()) - before
            commit = engine._pipeline._commit

            async def measured(changed: Sequence[Staged]) -> Sequence[str]:
                blocks.append(sys.getallocatedblocks())
                return await commit(changed)

            engine._pipeline._commit = measured
            items = [(each, EVENTS[2]) for each in ids]
            gc.collect()
            begun = sys.getallocatedblocks()
            await engine.send_many(items)
            return calls, blocks[0] - begun

    with stages:
        calls, held = asyncio.run(scenario())
    assert calls / EVENTS_COUNT <= CALLS_MAX, f"{calls / EVENTS_COUNT:.1f} calls per event: {stages.calls}"
    assert held / EVENTS_COUNT <= BLOCKS_MAX, f"{held / EVENTS_COUNT:.1f} blocks per event"


def test_a_step_that_does_not_suspend_costs_few_calls(tmp_path: Path) -> None:
    stages = Stages()

    async def scenario() -> int:
        async with Engine.open(f"lanes://{tmp_path}/shop", machines=[stepped]) as engine:
            before = 0
            for turn in ("warm", "measured"):
                before = sum(stages.calls.values())
                ids = [f"{turn}-{number}" for number in range(EVENTS_COUNT)]
                await asyncio.gather(*(engine.start(stepped, each, MeasuredOrder(cents=999)) for each in ids))
                await asyncio.gather(*(engine.wait(each) for each in ids))
            return sum(stages.calls.values()) - before

    with stages:
        calls = asyncio.run(scenario()) / EVENTS_COUNT / TRANSITIONS
    assert calls <= STEP_CALLS_MAX, f"{calls:.1f} calls per transition: {stages.calls}"
