"""D10, G4: workflows of a home in a bucket move to PostgreSQL, from under an engine that has them open elsewhere."""

import uuid
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import Fenced, MovedElsewhere, UnavailableError
from interlock.relocate.workflow_move import abandon_workflows, machines_at, plan_workflows
from interlock.store.open_store import open_store
from interlock.store.protocol import Old, Store
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.objects.servers import SeaweedFS
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled

LEASE = {"lease_s": 0.5}


def home_in(seaweedfs: SeaweedFS) -> str:
    """A home that nobody has used."""
    return seaweedfs.url(f"homes/{uuid.uuid4().hex}")


async def at_home(home: str, folder: Path) -> Store:
    """An engine's store there."""
    return await open_store(home, clock=SystemClock(), settings=LEASE, cache=str(folder))


@pytest.mark.slow
def test_everything_that_is_written_meanwhile_arrives(tmp_path: Path, seaweedfs: SeaweedFS, postgres_url: str) -> None:
    home = home_in(seaweedfs)

    async def scenario() -> None:
        store = await at_home(home, tmp_path / "first")
        rows = await filled(store)
        assert await machines_at(home, clock=SystemClock()) == {"order": 20, "other": 10}
        plan = await plan_workflows(home, postgres_url, epoch=1, clock=SystemClock())
        assert plan.amounts[0].rows == 30
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("catch up/0"))
        # The owner was not disturbed.
        await begun(store, *(moved(row, state="new", effects_done=(f"e{at}",)) for at, row in enumerate(rows[:20])))
        await begun(store, started("gone", machine="young", state="done", active=False, at_us=5), started("last"))
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("leave/before"))
        # The mover had taken over and died: the owner opens again, and finds everything as it was.
        with pytest.raises(Fenced):
            await begun(store, started("never"))
        await store.close()
        store = await at_home(home, tmp_path / "second")
        assert (await store.prune(Old(machine="young", state="done", before_us=9), after=None, limit=9)).events
        await begun(store, started("very last"))
        ids = [*(row.id for row in rows), "gone", "last", "never", "very last"]
        before = await contents(store, ids)
        done = await move(home, postgres_url)
        assert done.resumed
        with pytest.raises((Fenced, MovedElsewhere)):
            await begun(store, started("too late"))
        await store.close()
        with pytest.raises(MovedElsewhere) as told:
            await at_home(home, tmp_path / "third")
        assert (told.value.url, told.value.epoch) == (postgres_url, 1)
        async with opened(postgres_url) as there:
            assert await contents(there, ids) == before

    run(scenario)


def test_whoever_has_seen_the_tombstone_finishes(tmp_path: Path, seaweedfs: SeaweedFS, postgres_url: str) -> None:
    home = home_in(seaweedfs)

    async def scenario() -> None:
        store = await at_home(home, tmp_path / "first")
        await filled(store)
        await store.close()
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("leave"))
        with pytest.raises(UnavailableError, match="are arriving"):
            await open_store(postgres_url, clock=SystemClock())
        with pytest.raises(MovedElsewhere):
            await at_home(home, tmp_path / "second")
        assert (await move(home, postgres_url)).amounts[0].rows == 30
        async with opened(postgres_url) as there:
            assert (await there.load(["w1"]))["w1"].state == "paid"

    run(scenario)


def test_a_move_is_taken_back(tmp_path: Path, seaweedfs: SeaweedFS, postgres_url: str) -> None:
    home = home_in(seaweedfs)

    async def scenario() -> None:
        store = await at_home(home, tmp_path / "first")
        await filled(store)
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("copy/1"))
        assert await abandon_workflows(home, postgres_url, clock=SystemClock())
        await begun(store, started("still here"))
        await store.close()
        async with opened(postgres_url) as there:
            assert await there.living() == {}

    run(scenario)
