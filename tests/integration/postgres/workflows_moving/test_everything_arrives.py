"""D10: workflows move from a home to PostgreSQL with everything that is stored of them, letter by letter."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from interlock.clock import SystemClock
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.relocate.workflow_move import abandon_workflows, machines_at, plan_workflows
from interlock.store.chart_store import chart_record
from interlock.store.open_store import open_store
from interlock.store.protocol import Granted, Held, Old, Store
from interlock.store.records import COUNTED, ENDED, LIVING, ChildRecord, Row
from tests.conformance.store.samples import begun, effect, letter, moved, run, started
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.test_readable import CONTEXTS
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move

CHILDREN = tuple(
    ChildRecord(f"p.{at}", "p", 7, at, "done" if at % 3 else "", (LIVING, ENDED, COUNTED)[at % 3]) for at in range(30)
)


async def filled(store: Store, *, count: int = 30) -> list[Row]:
    """Workflows of two machines that have moved, with effects, letters, keys, timers, notes and leases."""
    rows = await begun(
        store,
        *(
            started(f"w{at}", machine="order" if at % 3 else "other", context=CONTEXTS[at % len(CONTEXTS)], key="first")
            for at in range(count)
        ),
    )
    changes = [
        moved(
            row,
            key=f"k{at}",
            context=CONTEXTS[at % len(CONTEXTS)],
            owed=b'{"timers":[{"event":"A","at_us":77},{"event":"B","at_us":33}]}' if at % 2 else b"",
            wake_us=33 if at % 2 else None,
            effects=(effect(f"e{at}", workflow=row.id),),
            letters=(letter(f"l{at}", workflow=row.id),),
        )
        for at, row in enumerate(rows)
    ]
    changes[0] = msgspec.structs.replace(changes[0], children=CHILDREN)
    await store.note("machine/order/1", '{"states": []}')
    await store.note("api-key/1", "hash")
    await store.leases.acquire("held", "somebody", 600.0)
    given = await store.leases.acquire("released", "somebody", 600.0)
    assert isinstance(given, Granted)
    await store.leases.release("released", given.token)
    minutes = [chart_record(60, at * 60_000_000, "order", "paid", *range(10), at or None) for at in range(3)]
    await store.charts.add(minutes)
    return await begun(store, *changes)


async def contents(store: Store, ids: list[str]) -> list[object]:
    """What a store answers, without what only one of the two has a column for."""
    rows = [(row.id, row.state, row.context, row.owed, row.wake_us, row.counts, row.revision, row.digest, row.visit)
            for row in (await store.load(ids)).values()]  # fmt: skip
    return [
        sorted(rows),
        [await store.history(each) for each in ids],
        await store.children("p", limit=100),
        await store.ended_children("p", limit=100),
        await store.delivered([(each, key) for each in ids for key in ("first", *(f"k{at}" for at in range(40)))]),
        [row.id for row in (await store.find("order", None, after=None, limit=100)).rows],
        [row.id for row in (await store.find("order", "paid", after=None, limit=100)).rows],
        await store.effects(limit=100),
        await store.letters(limit=100),
        await store.living(),
        await store.notes(),
        await store.charts.read("", 0, 10_000_000_000, 60_000_000),
    ]


def test_everything_that_a_store_keeps_arrives(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        ids = [row.id for row in rows]
        before = await contents(store, ids)
        await store.close()
        assert await machines_at(home, clock=SystemClock()) == {"order": 20, "other": 10}
        done = await move(home, postgres_url)
        assert (done.amounts[0].rows, done.amounts[1].rows) == (30, 60)
        assert len(done.checksum) == 32
        with pytest.raises(MovedElsewhere) as told:
            await open_store(home, clock=SystemClock())
        assert (told.value.url, told.value.epoch) == (postgres_url, 1)
        async with opened(postgres_url) as there:
            assert await contents(there, ids) == before
            found = await there.load(["w0", "w1"])
            assert found["w1"].timer_us == 33
            assert found["w0"].timer_us is None
            # A workflow that is due is claimed at once; a token only ever grows; a lease that is held stays so.
            claimed = await there.claim("order", owner="me", limit=100, lease_s=9.0)
            assert {row.id for row in claimed} == {row.id for row in rows if row.wake_us and row.machine == "order"}
            assert isinstance(await there.leases.acquire("held", "me", 1.0), Held)
            assert await there.leases.acquire("released", "me", 1.0) == Granted(2)
            # New ones are numbered behind the old ones.
            await begun(there, started("new", machine="order"))
            page = await there.find("order", None, after=None, limit=100)
            assert [row.id for row in page.rows] == [*(each for each in ids if int(each[1:]) % 3), "new"]

    run(scenario)


def test_what_is_written_while_it_is_copied_arrives(tmp_path: Path, postgres_url: str) -> None:
    """New workflows, moves, pruned workflows and history, an id that begins anew, effects that are done."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("catch up/0"))
        again = [moved(row, state="new", effects_done=(f"e{at}",), letters_gone=(f"l{at}",))
                 for at, row in enumerate(rows[:20])]  # fmt: skip
        await begun(store, *again)
        await begun(store, started("late"), started("last", machine="young"))
        final = started("gone", machine="young", state="done", active=False, at_us=5)
        await begun(store, final, started("kept", machine="young", state="done", active=False, at_us=500))
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("seal/0"))
        await begun(store, started("very last", machine="young"))
        assert (await store.prune(Old(machine="young", state="done", before_us=50), after=None, limit=9)).workflows == (
            "gone",
        )
        assert (
            await store.prune(Old(machine="young", state="done", before_us=600, history_only=True), after=None, limit=9)
        ).events == 1
        await begun(store, started("gone", machine="young", state="again"))
        ids = [*(row.id for row in rows), "late", "last", "gone", "kept", "very last"]
        before = await contents(store, ids)
        done = await move(home, postgres_url)
        assert done.resumed
        async with opened(postgres_url) as there:
            assert await contents(there, ids) == before
        await store.close()

    run(scenario)


def test_nobody_can_use_the_target_before_everything_is_there(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        async with opened(postgres_url) as idle:  # An engine that was there before: its store is empty.
            assert await idle.claim("order", owner="me", limit=9, lease_s=1.0) == []
            with pytest.raises(Died):
                await move(home, postgres_url, at=dying_at("verify"))
            with pytest.raises(UnavailableError, match="are arriving"):
                await open_store(postgres_url, clock=SystemClock())
            for ask in (
                idle.claim("order", owner="me", limit=9, lease_s=1.0),
                idle.commit([started("mine")]),
                idle.load(["w1"]),
                idle.due(["order"]),
                idle.note("a", "b"),
            ):
                with pytest.raises(UnavailableError, match="are arriving"):
                    await ask
            # Without a tombstone an epoch is no permission.
            assert await store.load(["w1"])
            await move(home, postgres_url)
            assert (await idle.load(["w1"]))["w1"].state == "paid"
            assert await idle.claim("order", owner="me", limit=99, lease_s=1.0)
        await store.close()

    run(scenario)


@pytest.mark.parametrize("point", ["leave", "arrive"])
def test_whoever_has_seen_the_tombstone_finishes(tmp_path: Path, postgres_url: str, point: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at(point))
        with pytest.raises(MovedElsewhere) as told:
            await open_store(home, clock=SystemClock())
        there = await open_store(told.value.url, clock=SystemClock(), epoch=told.value.epoch)
        assert (await there.load(["w1"]))["w1"].state == "paid"
        await there.close()
        # So does the mover that is started again, who tells the same as the first would have.
        done = await move(home, postgres_url)
        assert done.resumed
        assert done.amounts[0].rows == 30

    run(scenario)


def test_a_target_with_workflows_is_refused(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        async with opened(postgres_url) as there:
            await begun(there, started("mine", machine="bill"))
            with pytest.raises(BadUsage, match="1 of 'bill'"):
                await move(home, postgres_url)
            with pytest.raises(BadUsage, match="1 of 'bill'"):
                await plan_workflows(home, postgres_url, epoch=1, clock=SystemClock())
            assert (await there.load(["mine"]))["mine"].state == "new"
        await begun(store, started("still here"))
        await store.close()

    run(scenario)


def test_a_move_is_taken_back(tmp_path: Path, postgres_url: str) -> None:
    """The source goes on as if nothing had been, and so does the empty store that was at the target."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        async with opened(postgres_url) as there:
            await there.note("mine", "kept")
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("leave/before"))
        assert await abandon_workflows(home, postgres_url, clock=SystemClock())
        assert not await abandon_workflows(home, postgres_url, clock=SystemClock())
        await begun(store, started("still here"))
        await store.close()
        async with opened(postgres_url) as there:
            assert await there.notes() == {"mine": "kept"}
        async with somebody(postgres_url) as caller:
            left = await caller.fetch(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE current_schema() || '\\_\\_%'"
            )
            assert left == []
        await move(home, postgres_url, epoch=2)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(home, postgres_url, clock=SystemClock())

    run(scenario)


def test_of_two_movers_the_later_one_goes_on(tmp_path: Path, postgres_url: str) -> None:
    """G4: the first one changes nothing any more, however late it wakes up."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        there, go_on = threading.Event(), threading.Event()

        def sleeping(point: str) -> None:
            if point == "copy/aside":
                there.set()
                assert go_on.wait(60)

        first = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(move(home, postgres_url, at=sleeping))))
        assert await asyncio.to_thread(there.wait, 60)
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("catch up/0"))
        go_on.set()
        with pytest.raises(UnavailableError, match="another mover"):
            await first
        assert (await move(home, postgres_url)).amounts[0].rows == 30

    run(scenario)


def test_a_plan_changes_nothing_and_tells_what_a_move_takes(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        plan = await plan_workflows(home, postgres_url, epoch=1, clock=SystemClock())
        async with somebody(postgres_url) as caller:
            beside = "SELECT nspname FROM pg_namespace WHERE nspname LIKE current_schema() || '\\_\\_%'"
            assert await caller.fetch(beside) == []
        done = await move(home, postgres_url)
        assert [(each.table, each.rows) for each in plan.amounts] == [(each.table, each.rows) for each in done.amounts]
        for planned, was in zip(plan.amounts, done.amounts, strict=True):
            assert was.bytes / 2 <= planned.bytes <= was.bytes * 2
        assert any("20 of 'order'" in note for note in plan.notes)
        await store.close()

    run(scenario)
