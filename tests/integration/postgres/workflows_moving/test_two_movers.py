"""G1, G4: a move is not taken back once its source has left, and a mover that was taken over forgets nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from interlock.clock import SystemClock
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.relocate import workflow_move
from interlock.relocate.workflow_lanes import LaneWorkflows
from interlock.relocate.workflow_move import abandon_workflows
from interlock.relocate.workflow_postgres import PostgresWorkflows
from interlock.store import lane_store
from interlock.store.lane_store import SqliteStore
from interlock.store.open_store import open_store
from interlock.store.postgres.migrations import migrate
from interlock.store.records import ChildRecord
from tests.conformance.store.samples import begun, moved, run
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import filled


def test_what_has_left_while_it_was_taken_back_is_kept(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mover commits, and dies, just after whoever takes the move back has looked for its tombstone."""
    home = f"lanes://{tmp_path}/home"
    looked, looks = LaneWorkflows.check, 0

    async def check(source: LaneWorkflows) -> None:
        nonlocal looks
        looks += 1
        await looked(source)
        if looks == 1:
            with pytest.raises(Died):
                await move(home, postgres_url, at=dying_at("leave"))

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        await store.close()
        monkeypatch.setattr(LaneWorkflows, "check", check)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(home, postgres_url, clock=SystemClock())
        assert (await move(home, postgres_url)).amounts[0].rows == len(rows)
        async with opened(postgres_url) as there:
            assert len(await there.load([row.id for row in rows])) == len(rows)

    run(scenario)


def test_what_has_left_while_its_return_was_taken_back_is_kept(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = f"lanes://{tmp_path}/home"
    forget_all = PostgresWorkflows.forget_all

    async def forget_late(watching: PostgresWorkflows) -> bool:
        with pytest.raises(Died):
            await move(postgres_url, home, at=dying_at("leave"))
        return await forget_all(watching)

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
        monkeypatch.setattr(PostgresWorkflows, "forget_all", forget_late)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(postgres_url, home, clock=SystemClock())
        assert (await move(postgres_url, home)).amounts[0].rows == len(rows)
        there = await open_store(home, clock=SystemClock())
        assert len(await there.load([row.id for row in rows])) == len(rows)
        await there.close()

    run(scenario)


def test_a_mover_that_was_taken_over_forgets_nothing_that_the_later_one_has_not_seen(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one sleeps where it has copied a part; what it would leave for later the second one has copied."""
    home = f"lanes://{tmp_path}/home"
    monkeypatch.setattr(workflow_move, "CHUNK", 10)
    monkeypatch.setattr(workflow_move, "COPIED_BETWEEN", 1)
    monkeypatch.setattr(workflow_move, "SUMS_S_MAX", -1.0)  # As where there is too much to count it under the seal.
    asleep, go_on = threading.Event(), threading.Event()

    def sleeping(point: str) -> None:
        if point == "copy/1":
            asleep.set()
            assert go_on.wait(60)

    def sleep_and_move() -> None:
        with pytest.raises(UnavailableError, match="another mover"):
            asyncio.run(move(home, postgres_url, at=sleeping))

    async def write() -> None:
        store = await open_store(home, clock=SystemClock())
        await begun(store, moved((await store.load(["w25"]))["w25"], state="written late"))
        await store.close()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        with ThreadPoolExecutor() as threads:
            first = threads.submit(sleep_and_move)
            assert await asyncio.to_thread(asleep.wait, 60)

            def at(point: str) -> None:
                if point == "seal/0/before":
                    threads.submit(lambda: asyncio.run(write())).result()
                    go_on.set()
                    first.result()

            await move(home, postgres_url, at=at)
        async with opened(postgres_url) as there:
            assert (await there.load(["w25"]))["w25"].state == "written late"

    run(scenario)


@pytest.mark.parametrize("kind", ["lane", "postgres"])
def test_a_draft_that_was_overtaken_is_abandoned_from_where_the_workflows_live(
    kind: str, tmp_path: Path, postgres_url: str
) -> None:
    """Its source has left to another place: nothing ends that move, and its target would be taken for ever."""
    home, elsewhere = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/elsewhere"
    target = postgres_url if kind == "postgres" else f"lanes://{tmp_path}/target"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        await store.close()
        with pytest.raises(Died):
            await move(home, target, at=dying_at("copy/1"))
        with pytest.raises(BadUsage, match="which may go on"):
            await abandon_workflows(await another_home(tmp_path), target, clock=SystemClock())
        await move(home, elsewhere)
        with pytest.raises(BadUsage, match="is under way"):
            await move(elsewhere, target, epoch=2)
        assert await abandon_workflows(elsewhere, target, clock=SystemClock())
        assert not await abandon_workflows(elsewhere, target, clock=SystemClock())
        assert (await move(elsewhere, target, epoch=2)).amounts[0].rows == len(rows)

    run(scenario)


@pytest.mark.parametrize("kind", ["lane", "postgres"])
def test_a_draft_whose_source_has_left_for_it_is_not_removed_by_another_move(
    kind: str, tmp_path: Path, postgres_url: str
) -> None:
    """The mover died after the tombstone: the draft is the only copy."""
    home = f"lanes://{tmp_path}/home"
    target = postgres_url if kind == "postgres" else f"lanes://{tmp_path}/target"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        await store.close()
        with pytest.raises(Died):
            await move(home, target, at=dying_at("leave"))
        with pytest.raises(BadUsage, match="which may go on"):
            await abandon_workflows(await another_home(tmp_path), target, clock=SystemClock())
        assert (await move(home, target)).amounts[0].rows == len(rows)

    run(scenario)


def test_a_draft_whose_source_has_left_for_it_is_kept_under_another_address_too(tmp_path: Path) -> None:
    """One place has several addresses; the tombstone has the one that its mover got."""
    (tmp_path / "link").symlink_to(tmp_path)
    home, target, same = (f"lanes://{tmp_path}/{name}" for name in ("home", "target", "link/target"))

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        await store.close()
        with pytest.raises(Died):
            await move(home, target, at=dying_at("leave"))
        with pytest.raises(BadUsage, match="which may go on"):
            await abandon_workflows(await another_home(tmp_path), same, clock=SystemClock())
        assert (await move(home, target)).amounts[0].rows == len(rows)

    run(scenario)


def test_a_table_that_an_engine_adds_during_a_move_is_not_left_out(tmp_path: Path) -> None:
    """A store of an earlier release gets the table of children when it is opened, and no trigger is on it."""
    home, target = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/target"
    child = ChildRecord("child", "parent", 1, 0, "running", 0)

    async def add_child() -> None:
        store = await open_store(home, clock=SystemClock())
        assert isinstance(store, SqliteStore)
        await store._write(
            lambda connection: connection.execute(lane_store.CHILD, msgspec.structs.astuple(child)).fetchall()
        )
        await store.close()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        assert isinstance(store, SqliteStore)
        await store._write(lambda connection: connection.execute("DROP TABLE workflow_children").fetchall())
        await store.close()
        with ThreadPoolExecutor() as threads:

            def at(point: str) -> None:
                if point == "copy/1":
                    threads.submit(lambda: asyncio.run(add_child())).result()

            with pytest.raises(UnavailableError, match="has added a table"):
                await move(home, target, at=at)
        assert (await move(home, target)).amounts[0].rows == len(rows)
        store = await open_store(target, clock=SystemClock())
        assert await store.children("parent", limit=9) == [child]
        await store.close()

    run(scenario)


def test_a_schema_of_an_earlier_release_is_migrated_before_it_moves(tmp_path: Path, postgres_url: str) -> None:
    target = f"lanes://{tmp_path}/target"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
        source = await PostgresWorkflows.opened(postgres_url, clock=SystemClock())
        here = source.address.schema
        older = f"ALTER TABLE {here}.workflow_events DROP actor, DROP attempts"
        await source.link.execute(f"DROP TABLE {here}.workflow_children, {here}.workflow_charts; {older}")
        await source.link.execute(f"DELETE FROM {here}.migrations WHERE number > 1")
        await source.close()
        with pytest.raises(BadUsage, match="of an earlier release: it lacks migration 0002") as refused:
            await move(postgres_url, target)
        assert "Run `interlock migrate`" in str(refused.value)
        assert await migrate(postgres_url)
        assert (await move(postgres_url, target)).amounts[0].rows == len(rows)

    run(scenario)


async def another_home(folder: Path) -> str:
    """A home whose workflows have nothing to do with the others."""
    home = f"lanes://{folder}/another"
    store = await open_store(home, clock=SystemClock())
    await filled(store)
    await store.close()
    return home


def test_a_mover_that_was_overtaken_says_where_the_workflows_live(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faster one has removed the triggers; the slower one says where it went."""
    home, elsewhere = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/elsewhere"
    monkeypatch.setattr(workflow_move, "SUMS_S_MAX", -1.0)

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        with ThreadPoolExecutor() as threads:

            def at(point: str) -> None:
                if point == "copy/aside":
                    threads.submit(lambda: asyncio.run(move(home, elsewhere))).result()

            with pytest.raises(MovedElsewhere, match=f"live at {elsewhere} since move 1"):
                await move(home, postgres_url, at=at)

    run(scenario)


def test_a_mover_whose_notes_were_taken_away_does_not_leave(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes back the move that was there before, a moment after this one has begun to watch."""
    home = f"lanes://{tmp_path}/home"
    monkeypatch.setattr(workflow_move, "SUMS_S_MAX", -1.0)

    async def write_unnoted() -> None:
        source = await LaneWorkflows.opened(home, clock=SystemClock())
        await source.forget_all()
        await source.close()
        store = await open_store(home, clock=SystemClock())
        await begun(store, moved((await store.load(["w25"]))["w25"], state="written late"))
        await store.close()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        with ThreadPoolExecutor() as threads:

            def at(point: str) -> None:
                if point == "seal/0/before":
                    threads.submit(lambda: asyncio.run(write_unnoted())).result()

            with pytest.raises(UnavailableError, match="nothing notes any more"):
                await move(home, postgres_url, at=at)
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            assert (await there.load(["w25"]))["w25"].state == "written late"

    run(scenario)
