"""D9 on PostgreSQL: two engines that move one workflow decide again and again, and both tables say so."""

import asyncio

import pytest

from interlock import Engine
from interlock.engine.path import commit_pipeline
from tests.conformance.engine.places import run
from tests.conformance.engine.shop import Note, Order, World, shop


def test_two_engines_on_one_workflow_show_conflicts_and_apart_they_show_none(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_pipeline, "LOOK_S", 0.0)
    monkeypatch.setattr(commit_pipeline, "LOOK_AT_ONE_S", 0.0)

    async def scenario() -> None:
        order = shop(World()).machine
        async with (
            Engine.open(postgres_url, machines=[order]) as one,
            Engine.open(postgres_url, machines=[order]) as other,
        ):
            for name in ("apart-1", "apart-2", "both"):
                await one.start(order, name, Order())
            for _ in range(10):
                await asyncio.gather(one.send("apart-1", Note("a")), other.send("apart-2", Note("b")))
            assert await one.contention() == []
            assert await other.contention() == []
            for _ in range(10):
                await asyncio.gather(one.send("both", Note("a")), other.send("both", Note("b")))
            rows = [*await one.contention(), *await other.contention()]
            assert {row.key for row in rows} == {"both"}
            assert sum(row.conflicts_per_s for row in rows) > 0

    run(scenario)
