"""What is in the middle of something when workflows return to a lane: attempts, groups, clocks."""

import asyncio
import uuid
from pathlib import Path

import pytest

from interlock import Engine
from interlock.clock import SystemClock
from interlock.store.lane_store import HELD
from interlock.store.open_store import open_store
from interlock.store.protocol import Holder
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_following.flowing import made
from tests.integration.postgres.workflows_moving.moves import move
from tests.unit.engine.follow_moves.shop import Noted, Order, Submit


class Behind(SystemClock):
    """The clock of a host that is a minute behind."""

    def wall_s(self) -> float:
        return super().wall_s() - 60


@pytest.mark.slow
def test_nothing_is_begun_before_every_engine_knows_of_the_move(tmp_path: Path, postgres_url: str) -> None:
    """G5: an engine elsewhere may be in the middle of the attempt; events are taken meanwhile, steps wait."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(postgres_url, machines=[machine], worker=False) as front:
            await front.start(machine, "o-1", Order())
            await front.send("o-1", Submit())
        async with opened(postgres_url) as elsewhere:
            assert len(await elsewhere.claim("shop", owner="elsewhere", limit=1, lease_s=600.0)) == 1
        await move(postgres_url, home)
        called_us: list[int] = []
        noted = asyncio.Event()

        async def pause() -> None:
            called_us.append(int(SystemClock().wall_s() * 1_000_000))
            await noted.wait()

        gateway.pause = pause
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            held_us = int((await engine._inside.store.notes())[HELD])
            await engine.send("o-1", Noted())
            noted.set()
            view = await engine.wait("o-1")
            assert view.context == Order(notes=1, charges=1, packs=1)
            assert min(called_us) >= held_us
        assert gateway.problems() == []

    asyncio.run(test())


def test_an_unknown_outcome_is_settled_by_what_was_left_behind(tmp_path: Path, postgres_url: str) -> None:
    """G9: it was written before the workflows left, or never will be."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await begun(store, started("a"), started("b"))
            written, lost = [moved(row, state="paid") for row in rows]
            holder = Holder("me", 9.0, str(uuid.uuid4()))
            assert await store.commit_as([written], holder) == []
            await move(postgres_url, home)
            assert await store.settle([written, lost], holder.envelope) == {"a"}
            assert await store.settle([written, lost], str(uuid.uuid4())) == set()

    run(scenario)


def test_no_time_goes_back(tmp_path: Path, postgres_url: str) -> None:
    """G8: the host of the lane is a minute behind the database."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(store, started("a", at_us=store.now_us()))
            last_us = store.now_us()
            await move(postgres_url, home, clock=Behind())
        there = await open_store(home, clock=Behind())
        assert there.now_us() >= last_us
        await there.close()

    run(scenario)
