"""D11: workflows move from a lane to PostgreSQL and back, and are the same letter by letter."""

import asyncio
import threading
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import BadUsage, LaneOwned, MovedElsewhere, UnavailableError
from interlock.relocate.workflow_move import abandon_workflows, machines_at, plan_workflows
from interlock.store.open_store import open_store
from interlock.store.protocol import Granted, Held, Old
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled


def test_a_round_trip_gives_back_the_same(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled(store)]
        before = await contents(store, ids)
        await store.close()
        there = await move(home, postgres_url)
        assert await machines_at(postgres_url, clock=SystemClock()) == {"order": 20, "other": 10}
        back = await move(postgres_url, home, epoch=2)
        assert back.checksum == there.checksum
        assert [(each.table, each.rows) for each in back.amounts] == [(each.table, each.rows) for each in there.amounts]
        with pytest.raises(MovedElsewhere) as told:
            await open_store(postgres_url, clock=SystemClock())
        assert (told.value.url, told.value.epoch) == (home, 2)
        store = await open_store(home, clock=SystemClock())
        assert await contents(store, ids) == before
        assert isinstance(await store.leases.acquire("held", "me", 1.0), Held)
        assert await store.leases.acquire("released", "me", 1.0) == Granted(2)
        await begun(store, started("new", machine="order"))
        page = await store.find("order", None, after=None, limit=100)
        assert [row.id for row in page.rows] == [*(each for each in ids if int(each[1:]) % 3), "new"]
        await store.close()
        assert (tmp_path / "home" / "workflows.lane.before-2").exists(), "the old lane is kept, with its tombstone"
        # And there again: an epoch only ever grows.
        await move(home, postgres_url, epoch=3)
        async with opened(postgres_url) as again:
            assert (await again.load(["w1"]))["w1"].state == "paid"
        await move(postgres_url, home, epoch=4)
        store = await open_store(home, clock=SystemClock(), epoch=4)
        assert (await store.load(["new"]))["new"].state == "new"
        await store.close()

    run(scenario)


def test_what_is_written_while_it_is_copied_returns(tmp_path: Path, postgres_url: str) -> None:
    """New workflows, moves, claims, pruned workflows and history, an id that begins anew, effects that are done."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("catch up/0"))
            again = [moved(row, state="new", effects_done=(f"e{at}",), letters_gone=(f"l{at}",))
                     for at, row in enumerate(rows[:20])]  # fmt: skip
            await begun(store, *again)
            await begun(store, started("late"), started("last", machine="young"))
            final = started("gone", machine="young", state="done", active=False, at_us=5)
            await begun(store, final, started("kept", machine="young", state="done", active=False, at_us=500))
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("seal/0"))
            await begun(store, started("very last", machine="young"))
            assert (
                await store.prune(Old(machine="young", state="done", before_us=50), after=None, limit=9)
            ).workflows == ("gone",)
            assert (
                await store.prune(
                    Old(machine="young", state="done", before_us=600, history_only=True), after=None, limit=9
                )
            ).events == 1
            await begun(store, started("gone", machine="young", state="again"))
            await store.note("api-key/1", "another hash")
            ids = [*(row.id for row in rows), "late", "last", "gone", "kept", "very last"]
            before = await contents(store, ids)
            done = await move(postgres_url, home)
            assert done.resumed
        there = await open_store(home, clock=SystemClock())
        assert await contents(there, ids) == before
        await there.close()

    run(scenario)


def test_whoever_comes_late_is_told_where_they_are(tmp_path: Path, postgres_url: str) -> None:
    """Every statement on connections from before, prepared or not, and nothing of it happens."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
            ids = [row.id for row in rows]
            # Prepared while the tables were there.
            assert len(await store.load(ids)) == len(ids)
            await store.note("before", "1")
            claimed = await store.claim("order", owner="me", limit=1, lease_s=600.0)
            await store.hint()
            before = await contents(store, ids)
            await move(postgres_url, home)
            for ask in (
                store.commit([started("late")]),
                store.commit([moved(rows[0], state="new")]),
                store.load(ids),
                store.history("w1"),
                store.delivered([("w1", "first")]),
                store.find("order", None, after=None, limit=9),
                store.stalled("order", {"paid": 1}, limit=9),
                store.effects(limit=9),
                store.letters(limit=9),
                store.living(),
                store.note("late", "2"),
                store.notes(),
                store.due(["order"]),
                store.claim("order", owner="me", limit=9, lease_s=1.0),
                store.claim_effects(["order"], owner="me", limit=9, lease_s=1.0),
                store.renew({row.id: row.lease for row in claimed}, owner="me", lease_s=1.0),
                store.renew_effects(["e1"], owner="me", lease_s=1.0),
                store.release({row.id: row.lease for row in claimed}, owner="me"),
                store.leases.acquire("late", "me", 1.0),
                store.leases.renew("held", 1, 1.0),
                store.leases.release("held", 1),
                store.prune(Old(machine="order", state="paid", before_us=9), after=None, limit=9),
            ):
                with pytest.raises(MovedElsewhere) as told:
                    await ask
                assert (told.value.url, told.value.epoch, told.value.retry) == (home, 1, "now")
        for _ in range(2):  # Whoever opens makes no new tables behind the tombstone.
            with pytest.raises(MovedElsewhere):
                await open_store(postgres_url, clock=SystemClock())
        async with somebody(postgres_url) as caller:
            tables = "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            assert {row[0] for row in await caller.fetch(f"{tables} AND relkind = 'r'")} == {"workflows_moved"}
        there = await open_store(home, clock=SystemClock())
        after = await contents(there, ids)
        assert after[1:8] == before[1:8]
        await there.close()

    run(scenario)


@pytest.mark.parametrize("point", ["leave", "arrive"])
def test_whoever_has_seen_the_tombstone_finishes(tmp_path: Path, postgres_url: str, point: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
        with pytest.raises(Died):
            await move(postgres_url, home, at=dying_at(point))
        with pytest.raises(MovedElsewhere) as told:
            await open_store(postgres_url, clock=SystemClock())
        if point == "leave":
            with pytest.raises(UnavailableError, match="is arriving"):
                await open_store(home, clock=SystemClock())
        there = await open_store(told.value.url, clock=SystemClock(), epoch=told.value.epoch)
        assert (await there.load(["w1"]))["w1"].state == "paid"
        # So does the mover that is started again, beside the owner, and tells the same as the first would have.
        done = await move(postgres_url, home)
        assert done.resumed
        assert done.amounts[0].rows == 30
        await there.close()

    run(scenario)


def test_a_lane_with_the_same_address_elsewhere_is_not_taken_for_it(tmp_path: Path, postgres_url: str) -> None:
    """An engine on another host finds an empty disk there, and must not begin anew."""
    home, other = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/other"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
        await move(postgres_url, home)
        with pytest.raises(UnavailableError, match="has not arrived"):
            await open_store(other, clock=SystemClock(), epoch=1)
        await (await open_store(other, clock=SystemClock())).close()
        with pytest.raises(UnavailableError, match="has not arrived"):
            await open_store(other, clock=SystemClock(), epoch=1)

    run(scenario)


def test_a_lane_that_is_used_is_refused(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
            there = await open_store(home, clock=SystemClock())
            with pytest.raises(LaneOwned):
                await move(postgres_url, home)
            await begun(there, started("mine", machine="bill"))
            with pytest.raises(BadUsage, match="1 of 'bill'"):
                await plan_workflows(postgres_url, home, epoch=1, clock=SystemClock())
            await there.close()
            with pytest.raises(BadUsage, match="1 of 'bill'"):
                await move(postgres_url, home)
            with pytest.raises(BadUsage, match="not a home of workflows"):
                await move(postgres_url, "memory:")
            await begun(store, started("still here"))

    run(scenario)


def test_a_return_is_taken_back(tmp_path: Path, postgres_url: str) -> None:
    """The schema goes on as if nothing had been, and so does the tombstone in the lane."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        await (await open_store(home, clock=SystemClock())).close()
        await move(home, postgres_url)
        async with opened(postgres_url) as store:
            await filled(store)
            with pytest.raises(Died):
                await move(postgres_url, home, epoch=2, at=dying_at("leave/before"))
            assert await abandon_workflows(postgres_url, home, clock=SystemClock())
            assert not await abandon_workflows(postgres_url, home, clock=SystemClock())
            await begun(store, started("still here"))
            with pytest.raises(MovedElsewhere) as told:
                await open_store(home, clock=SystemClock())
            assert (told.value.url, told.value.epoch) == (postgres_url, 1)
            async with somebody(postgres_url) as caller:
                left = "SELECT count(*) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
                here = "relnamespace = current_schema()::regnamespace"
                assert await caller.fetchval(f"{left} WHERE {here} AND tgname LIKE 'workflows\\_touch%'") == 0
        await move(postgres_url, home, epoch=3)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(postgres_url, home, clock=SystemClock())

    run(scenario)


def test_a_plan_changes_nothing_and_tells_what_a_return_takes(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
            async with somebody(postgres_url) as caller:
                things = "SELECT oid, relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
                before = await caller.fetch(things)
                plan = await plan_workflows(postgres_url, home, epoch=1, clock=SystemClock())
                assert await caller.fetch(things) == before
            assert not (tmp_path / "home").exists()
            done = await move(postgres_url, home)
        assert [(each.table, each.rows) for each in plan.amounts] == [(each.table, each.rows) for each in done.amounts]
        for planned, was in zip(plan.amounts, done.amounts, strict=True):
            assert was.bytes / 2 <= planned.bytes <= was.bytes * 2
        assert any("20 of 'order'" in note for note in plan.notes)
        assert any("LaneOwned" in note for note in plan.notes)

    run(scenario)


def test_of_two_movers_the_later_one_goes_on(tmp_path: Path, postgres_url: str) -> None:
    """The first one takes no notes away that the second one needs, and leaves nothing, wherever it goes."""
    home, other = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/other"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await filled(store)
            there, go_on = threading.Event(), threading.Event()

            def sleeping(point: str) -> None:
                if point == "seal/0/before":
                    there.set()
                    assert go_on.wait(60)

            first = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(move(postgres_url, other, at=sleeping))))
            assert await asyncio.to_thread(there.wait, 60)
            with pytest.raises(Died):
                await move(postgres_url, home, at=dying_at("catch up/0"))
            await begun(store, started("between"))
            go_on.set()
            with pytest.raises(UnavailableError, match="another mover"):
                await first
            assert (await move(postgres_url, home)).amounts[0].rows == 31

    run(scenario)
