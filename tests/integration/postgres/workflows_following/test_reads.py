"""Whoever reads at an engine that has not noticed the move sees nothing older than what was acknowledged elsewhere."""

import asyncio
from pathlib import Path

from interlock import Engine
from tests.integration.postgres.workflows_following.flowing import made
from tests.integration.postgres.workflows_moving.moves import move
from tests.unit.engine.follow_moves.shop import Charged, Noted, Order, Submit


def test_what_is_in_memory_is_not_shown_behind_the_tombstone(tmp_path: Path, postgres_url: str) -> None:
    async def test() -> None:
        home = f"lanes://{tmp_path}"
        _, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as old:
            await old.start(machine, "o-1", Order())
            await move(home, postgres_url)
            async with Engine.open(postgres_url, machines=[machine], drain_s=0) as new:
                await new.send("o-1", Noted())
                version = (await new.get("o-1")).version
                assert (await old.get("o-1")).version == version
                assert (await old.stats("o-1")).applied == version - 1

    asyncio.run(test())


def test_nothing_is_refused_for_what_is_in_memory_behind_the_tombstone(tmp_path: Path, postgres_url: str) -> None:
    async def test() -> None:
        home = f"lanes://{tmp_path}"
        _, machine = made()
        async with Engine.open(home, machines=[machine], worker=False) as old:
            await old.start(machine, "o-1", Order())
            await move(home, postgres_url)
            async with Engine.open(postgres_url, machines=[machine], worker=False) as new:
                await new.send("o-1", Submit())
                # In memory the order is new, and whoever is not submitted is not charged.
                assert (await old.send("o-1", Charged(receipt="by hand"))).version == 3

    asyncio.run(test())
