"""A mover may die anywhere on the way back, and PostgreSQL may crash: whoever moves again finishes, or begins again."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere, UnavailableError
from interlock.store.open_store import open_store
from interlock.testing.faults import Processes
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.test_restarts import OwnServer, own_server
from tests.integration.postgres.workflows_moving.moves import Died, dying, dying_at, move, unwatched
from tests.integration.postgres.workflows_moving.test_crashes_of_the_target import crashing
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled

__all__ = ["own_server"]

CRASHES = ("watch", "copy/1", "catch up/0", "seal/0", "verify", "leave/before")
LAST_BEFORE = "leave/before"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started_here:
        yield started_here


@pytest.mark.slow
def test_a_mover_dies_at_every_point(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        reached: list[str] = []
        async with opened(postgres_url) as store:
            ids = [row.id for row in await filled(store)]
            while LAST_BEFORE not in reached:
                die = dying(after=len(reached))

                def at(point: str, die: Callable[[str], None] = die) -> None:
                    try:
                        die(point)
                    except Died:
                        reached.append(point)
                        raise

                with pytest.raises(Died):
                    await move(postgres_url, home, at=at)
                # Nothing has moved, and the seal is gone.
                new = f"after {len(reached)}"
                await begun(store, started(new))
                ids.append(new)
            before = await contents(store, ids)
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("leave"))
            with pytest.raises(MovedElsewhere):
                await store.load(ids)
        with pytest.raises(Died):
            await move(postgres_url, home, at=dying_at("arrive"))
        done = await move(postgres_url, home)
        assert done.resumed
        assert done.amounts[0].rows == len(ids)
        there = await open_store(home, clock=SystemClock())
        assert await contents(there, ids) == before
        await there.close()
        assert {"watch", "copy/aside", "copy/1", "catch up/0", "seal/0/before", "seal/0", "verify"} < set(reached)

    run(scenario)


def moving(say: Callable[[str], None], source: str, target: str, point: str) -> None:
    """Move until a point, say so, and wait there to be killed."""

    def at(reached: str) -> None:
        if reached == point:
            say(json.dumps(reached))
            threading.Event().wait()

    asyncio.run(move(source, target, at=at, watch=unwatched))


@pytest.mark.campaign
@pytest.mark.parametrize("point", ["copy/1", "leave/before", "leave"])
def test_a_mover_is_killed(tmp_path: Path, postgres_url: str, processes: Processes, point: str) -> None:
    """kill -9: whoever waits for the seal goes on at once, for it was the connection's."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            ids = [row.id for row in await filled(store)]
            mover = processes.start(f"{__name__}:moving", postgres_url, home, point)
            assert await asyncio.to_thread(list, mover.lines(1)) == [json.dumps(point)]
            writing = asyncio.ensure_future(begun(store, started("waiting")))
            mover.kill()
            assert await asyncio.to_thread(mover.end) == -9
            mover.close()
            if point == "leave":
                with pytest.raises(MovedElsewhere):
                    await writing
            else:
                await writing
                ids.append("waiting")
        done = await move(postgres_url, home)
        assert done.resumed
        there = await open_store(home, clock=SystemClock())
        assert set(await there.load([*ids, "waiting"])) == set(ids)
        await there.close()

    run(scenario)


@pytest.mark.slow
def test_the_source_crashes_at_every_stage(tmp_path: Path, own_server: OwnServer) -> None:
    home, url = f"lanes://{tmp_path}/home", f"{own_server.url}&schema=shop"

    async def scenario() -> None:
        async with opened(url) as store:
            ids = [row.id for row in await filled(store)]
            for point in CRASHES:
                with pytest.raises(UnavailableError):
                    await move(url, home, at=crashing(own_server, point))
            before = await contents(store, ids)
            assert (await move(url, home)).resumed
        there = await open_store(home, clock=SystemClock())
        assert await contents(there, ids) == before
        await there.close()

    run(scenario)
