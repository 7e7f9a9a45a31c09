"""D10, G2: PostgreSQL crashes while workflows are on their way to it. Whoever moves again finishes, or begins again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere, UnavailableError
from interlock.store.open_store import open_store
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.test_restarts import OwnServer, own_server
from tests.integration.postgres.workflows_moving.moves import move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled

__all__ = ["own_server"]

POINTS = ("watch", "copy/1", "catch up/0", "seal/0", "verify")


@pytest.mark.slow
def test_the_target_crashes_at_every_stage(tmp_path: Path, own_server: OwnServer) -> None:
    home, url = f"lanes://{tmp_path}/home", f"{own_server.url}&schema=shop"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled(store)]
        for point in POINTS:
            with pytest.raises(UnavailableError):
                await move(home, url, at=crashing(own_server, point))
            # Nothing has moved, and the seal is gone: the source goes on.
            await begun(store, started(f"after {point}"))
            ids.append(f"after {point}")
        before = await contents(store, ids)
        with pytest.raises(UnavailableError):
            await move(home, url, at=crashing(own_server, "leave/before"))
        # The source has left: only the arrival is missing.
        with pytest.raises(MovedElsewhere):
            await store.load(["w1"])
        await store.close()
        assert (await move(home, url)).resumed
        async with opened(url) as there:
            assert await contents(there, ids) == before

    run(scenario)


def crashing(server: OwnServer, point: str) -> Callable[[str], None]:
    """The server crashes when the mover is at that point, and is back at once."""

    def at(reached: str) -> None:
        if reached == point:
            server.restart("immediate")

    return at
