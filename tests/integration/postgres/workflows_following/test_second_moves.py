"""D11: workflows move to a schema where they lived before, and the old mark goes away while an engine looks at it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from interlock import Engine, MovedElsewhere
from interlock.backup.postgres_copies import refuse_left
from interlock.clock import SystemClock
from interlock.engine import follow_moves, recovery
from interlock.errors import UnavailableError
from interlock.postgres.pool import Link, PostgresRow, connected
from interlock.store.open_store import open_store
from interlock.store.postgres import migrations
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.workflows_following.flowing import made
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.unit.engine.follow_moves.shop import order

Act = Callable[[], Awaitable[object]]


def after_the_look(monkeypatch: pytest.MonkeyPatch, look: str, act: Act) -> list[str]:
    """Act once, on another connection, right after a connection has read the catalog; returns when that was."""
    read = Link.read
    acted: list[str] = []

    async def read_and_act(link: Link, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        rows = await read(link, sql, values)
        if sql == look and not acted:
            acted.append(sql)
            await act()
        return rows

    monkeypatch.setattr(Link, "read", read_and_act)
    return acted


async def arrive(url: str, epoch: int) -> None:
    """Finish a move, as another engine would that has seen its tombstone."""
    link = await connected(parse_postgres_url(url))
    try:
        assert await migrations.arrive(link, parse_postgres_url(url), epoch)
    finally:
        await link.driver.close()


async def lived_there_before(home: str, postgres_url: str) -> None:
    """Move the workflows of a home there, back, and there again, up to the tombstone of the third move."""
    await move(home, postgres_url, epoch=1)
    await move(postgres_url, home, epoch=2)
    with pytest.raises(Died):
        await move(home, postgres_url, epoch=3, at=dying_at("leave"))


def test_an_engine_follows_although_the_old_mark_goes_while_it_looks(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process lets the workflows arrive between its look at the catalog and its read of the old tombstone."""
    monkeypatch.setattr(recovery, "HELD_AT_BUCKET_US", 0)
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            await order(engine, machine, "o-1", keyed=True)
            await move(home, postgres_url, epoch=1)
            await order(engine, machine, "o-2", keyed=True)
            await move(postgres_url, home, epoch=2)
            await order(engine, machine, "o-3", keyed=True)
            # The mover and the engine are one process: whatever looks first, its look is the one that is overtaken.
            with pytest.raises(Died):
                await move(home, postgres_url, epoch=3, at=dying_at("leave"))
            acted = after_the_look(monkeypatch, migrations._LOOK, lambda: arrive(postgres_url, 3))
            await order(engine, machine, "o-4", keyed=True)
            assert acted
            assert engine._inside.store.shared
            assert len((await engine.find(machine, limit=10)).items) == 4
        assert gateway.problems() == []

    asyncio.run(test())


def test_a_store_that_is_opened_while_its_workflows_leave_says_where_they_are(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave between the look for the migrations and the read of them."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(postgres_url, clock=SystemClock())
        await begun(store, started("w1"))
        await store.close()
        acted = after_the_look(monkeypatch, migrations.TABLES_OF_SCHEMA, lambda: move(postgres_url, home, epoch=1))
        with pytest.raises(MovedElsewhere) as told:
            await open_store(postgres_url, clock=SystemClock())
        assert acted
        assert (told.value.url, told.value.epoch) == (home, 1)

    run(scenario)


def test_a_move_is_taken_back_by_two_at_a_time(tmp_path: Path, postgres_url: str) -> None:
    """Both see the draft; the one that gets the lock later finds nothing left to do."""
    home, address = f"lanes://{tmp_path}/home", parse_postgres_url(postgres_url)

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await begun(store, started("w1"))
        await store.close()
        with pytest.raises(Died):
            await move(home, postgres_url, epoch=1, at=dying_at("leave/before"))
        links = [await connected(address) for _ in range(2)]
        try:
            await migrations.take_back(links[0], address, 1, "me")
            thrown = await asyncio.gather(*[migrations.throw_away(link, address, 1, "me") for link in links])
            assert sorted(thrown) == [False, True]
        finally:
            for link in links:
                await link.driver.close()

    run(scenario)


def test_a_copy_that_begins_while_a_move_ends_says_so(tmp_path: Path, postgres_url: str) -> None:
    """Its snapshot has a mark in the catalog that is not there any more."""
    home, address = f"lanes://{tmp_path}/home", parse_postgres_url(postgres_url)

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await begun(store, started("w1"))
        await store.close()
        await lived_there_before(home, postgres_url)
        link = await connected(address)
        try:
            await link.driver.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await link.driver.fetch("SELECT 1")
            await arrive(postgres_url, 3)
            with pytest.raises(UnavailableError, match="has ended while the copy began"):
                await refuse_left(link.driver, address)
        finally:
            await link.driver.close()

    run(scenario)
