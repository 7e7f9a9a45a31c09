"""G1, G4: a move is not taken back once its source has left, and a mover that was taken over forgets nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere, UnavailableError
from interlock.relocate.workflows import draft, move_to_postgres
from interlock.relocate.workflows.lane_source import Apart, Left, LocalOrigin
from interlock.relocate.workflows.move_to_postgres import abandon_workflows
from interlock.relocate.workflows.postgres_source import Watching
from interlock.store.open import open_store
from tests.conformance.store.samples import begun, moved, run
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import filled


def test_what_has_left_while_it_was_taken_back_is_kept(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mover commits, and dies, just after whoever takes the move back has looked for its tombstone."""
    home = f"lanes://{tmp_path}/home"
    looked, looks = LocalOrigin.left, 0

    async def left(origin: LocalOrigin) -> Left | None:
        nonlocal looks
        looks, found = looks + 1, await looked(origin)
        if looks == 1:
            with pytest.raises(Died):
                await move(home, postgres_url, at=dying_at("leave/after"))
        return found

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        await store.close()
        monkeypatch.setattr(LocalOrigin, "left", left)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(home, postgres_url, epoch=1, clock=SystemClock())
        assert (await move(home, postgres_url)).amounts[0].rows == len(rows)
        async with opened(postgres_url) as there:
            assert len(await there.load([row.id for row in rows])) == len(rows)

    run(scenario)


def test_what_has_left_while_its_return_was_taken_back_is_kept(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = f"lanes://{tmp_path}/home"
    forget_all = Watching.forget_all

    async def forget_late(watching: Watching) -> bool:
        with pytest.raises(Died):
            await move(postgres_url, home, at=dying_at("leave/after"))
        return await forget_all(watching)

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await filled(store)
        monkeypatch.setattr(Watching, "forget_all", forget_late)
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(postgres_url, home, epoch=1, clock=SystemClock())
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
    monkeypatch.setattr(draft, "CHUNK", 10)
    monkeypatch.setattr(move_to_postgres, "COPIED_BETWEEN", 1)
    monkeypatch.setattr(move_to_postgres, "SUMS_S_MAX", -1.0)  # As where there is too much to count it under the seal.
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
                if point == "seal/before":
                    threads.submit(lambda: asyncio.run(write())).result()
                    go_on.set()
                    first.result()

            await move(home, postgres_url, at=at)
        async with opened(postgres_url) as there:
            assert (await there.load(["w25"]))["w25"].state == "written late"

    run(scenario)


def test_a_mover_whose_notes_were_taken_away_does_not_leave(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes back the move that was there before, a moment after this one has begun to watch."""
    home = f"lanes://{tmp_path}/home"
    monkeypatch.setattr(move_to_postgres, "SUMS_S_MAX", -1.0)

    async def write_unnoted() -> None:
        async with LocalOrigin.opened(home, Apart(), SystemClock()) as origin:
            await origin.forget_all()
        store = await open_store(home, clock=SystemClock())
        await begun(store, moved((await store.load(["w25"]))["w25"], state="written late"))
        await store.close()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        await store.close()
        with ThreadPoolExecutor() as threads:

            def at(point: str) -> None:
                if point == "seal/before":
                    threads.submit(lambda: asyncio.run(write_unnoted())).result()

            with pytest.raises(UnavailableError, match="nothing notes any more"):
                await move(home, postgres_url, at=at)
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            assert (await there.load(["w25"]))["w25"].state == "written late"

    run(scenario)
