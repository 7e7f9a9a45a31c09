"""D10, D11: the way back, from PostgreSQL into a lane; and there again, with a higher epoch each time."""

from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import BadUsage, MovedElsewhere
from interlock.relocate.workflow_move import abandon_workflows, machines_at, plan_workflows
from interlock.store.open_store import open_store
from interlock.store.protocol import Granted, Held, Old
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled


def test_there_and_back_and_there_again(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled(store)]
        before = await contents(store, ids)
        await store.close()
        await move(home, postgres_url, epoch=1)
        assert await machines_at(postgres_url, clock=SystemClock()) == {"order": 20, "other": 10}
        plan = await plan_workflows(postgres_url, home, epoch=2, clock=SystemClock())
        done = await move(postgres_url, home, epoch=2)
        assert [(each.table, each.rows) for each in plan.amounts] == [(each.table, each.rows) for each in done.amounts]
        assert (done.amounts[0].rows, done.amounts[1].rows) == (30, 60)
        with pytest.raises(MovedElsewhere) as told:
            await open_store(postgres_url, clock=SystemClock())
        assert (told.value.url, told.value.epoch) == (home, 2)
        store = await open_store(home, clock=SystemClock(), epoch=2)
        assert await contents(store, ids) == before
        assert isinstance(await store.leases.acquire("held", "me", 1.0), Held)
        assert await store.leases.acquire("released", "me", 1.0) == Granted(2)
        await begun(store, started("new"))
        before = await contents(store, [*ids, "new"])
        await store.close()
        again = await move(home, postgres_url, epoch=3)
        assert again.checksum != done.checksum
        async with opened(postgres_url) as there:
            assert await contents(there, [*ids, "new"]) == before
        with pytest.raises(MovedElsewhere) as told:
            await open_store(home, clock=SystemClock())
        assert told.value.epoch == 3

    run(scenario)


def test_what_is_written_meanwhile_comes_along(tmp_path: Path, postgres_url: str) -> None:
    """By engines that have the store open, which are told where it is; whoever moves again begins anew."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
            for point in ("copy/1", "seal/0", "verify", "leave/before"):
                with pytest.raises(Died):
                    await move(postgres_url, home, at=dying_at(point))
                await begun(store, started(f"after {point}"))
            await begun(store, *(moved(row, state="new", effects_done=(f"e{at}",)) for at, row in enumerate(rows[:20])))
            await begun(store, started("old", state="done", active=False, at_us=5))
            assert (await store.prune(Old(machine="order", state="done", before_us=9), after=None, limit=9)).events
            ids = [*(row.id for row in rows), "after copy/1", "after leave/before"]
            before = await contents(store, ids)
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("leave"))
            for ask in (
                store.load(["w1"]),
                store.commit([started("too late")]),
                store.claim("order", owner="me", limit=9, lease_s=1.0),
                store.due(["order"]),
                store.note("a", "b"),
                store.leases.acquire("l", "me", 1.0),
            ):
                with pytest.raises(MovedElsewhere) as told:
                    await ask
                assert (told.value.url, told.value.epoch) == (home, 1)
        # Whoever has seen the tombstone finishes; so does the mover.
        there = await open_store(home, clock=SystemClock(), epoch=1)
        assert await contents(there, ids) == before
        await there.close()
        assert (await move(postgres_url, home)).resumed

    run(scenario)


def test_it_is_taken_back_before_it_has_happened(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("leave/before"))
            assert await abandon_workflows(postgres_url, home, clock=SystemClock())
            assert not await abandon_workflows(postgres_url, home, clock=SystemClock())
            await begun(store, started("still here"))
        assert list((tmp_path / "home").glob("*.lane*")) == [tmp_path / "home" / "workflows.lane.lock"]

    run(scenario)


def test_a_home_with_workflows_is_refused(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        here = await open_store(home, clock=SystemClock())
        await begun(here, started("mine"))
        await here.close()
        async with opened(postgres_url) as store:
            await filled(store)
        with pytest.raises(BadUsage, match="has workflows already"):
            await move(postgres_url, home)
        here = await open_store(home, clock=SystemClock())
        assert (await here.load(["mine"]))["mine"].state == "new"
        await here.close()

    run(scenario)
