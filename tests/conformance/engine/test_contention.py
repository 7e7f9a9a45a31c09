"""D9 on every store: senders to one workflow stand at the top of the engine's table, many workflows are volume."""

import asyncio

import pytest

from interlock import BlockingEngine
from interlock.engine.path import commit_pipeline
from tests.conformance.engine.places import Place, run
from tests.conformance.engine.shop import Note, Order, World, shop


@pytest.fixture(autouse=True)
def _every_group_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_pipeline, "LOOK_S", 0.0)
    monkeypatch.setattr(commit_pipeline, "LOOK_AT_ONE_S", 0.0)


def test_two_senders_to_one_workflow_are_at_the_top_and_many_workflows_are_not_shown(place: Place) -> None:
    async def scenario() -> None:
        order = shop(World()).machine
        async with place.engine(order, contention_flag_threshold=0.0) as engine:
            for number in range(20):
                await engine.start(order, f"o-{number}", Order())
            for _ in range(5):
                await asyncio.gather(*(engine.send(f"o-{number}", Note("volume")) for number in range(20)))
            assert await engine.contention() == []
            for _ in range(10):
                await asyncio.gather(*(engine.send("o-7", Note("hot")) for _ in range(2)))
            hot = await engine.contention()
            assert [(row.source, row.table, row.key, row.flagged) for row in hot] == [
                ("workflow", order.name, "o-7", True)
            ]
            assert hot[0].writes_per_s >= hot[0].handoffs_per_s > 0

    run(scenario)


def test_a_blocking_engine_has_the_same_table() -> None:
    order = shop(World()).machine
    with BlockingEngine.open("memory:", machines=[order]) as engine:
        engine.start(order, "o-1", Order())
        engine.send_many([("o-1", Note("one")), ("o-1", Note("two"))])
        [hot] = engine.contention()
        assert (hot.key, hot.flagged) == ("o-1", False)
