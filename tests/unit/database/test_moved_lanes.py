"""Following with real lanes: what a mover leaves behind, whatever becomes of the mover, and nobody notices."""

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from interlock import Database
from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.clock import SystemClock
from interlock.database.lane_engine import Translators
from interlock.errors import UnavailableError
from interlock.lanes.handover import Draft, Leaving
from interlock.urls import lane_path


def path_of(url: str) -> Path:
    path = lane_path(url)
    assert path is not None
    return path


def leave(source: str, target: str, epoch: int, *, arriving: bool = False) -> None:
    """Do what a mover does in its seal, in few words: copy everything, mark it as a draft, leave."""
    leaving = Leaving(path_of(source), clock=SystemClock(), prepare=Translators().prepare)
    with leaving.sealed(5.0) as seal:
        path_of(target).parent.mkdir(exist_ok=True)
        path_of(target).write_bytes(seal.connection.serialize("main"))
        if arriving:
            mark(path_of(target), Draft(epoch, source))
        seal.leave(target, epoch)
    leaving.close()


def mark(path: Path, draft: Draft) -> None:
    """As a mover that was killed before the arrival has left it."""
    leaving = Leaving(path, clock=SystemClock(), prepare=Translators().prepare)
    leaving.write(
        lambda connection: connection.execute(
            "CREATE TABLE interlock_arriving (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, "
            "source TEXT NOT NULL); INSERT INTO interlock_arriving VALUES (1, ?1, ?2)",
            draft,
        )
    )
    leaving.close()


async def filled(db: Database) -> None:
    await db.execute("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL)")
    await db.execute("INSERT INTO c VALUES (1, 0)")


async def value(db: Database) -> object:
    [(n,)] = await db.query("SELECT n FROM c WHERE id = 1")
    return n


ADD = "UPDATE c SET n = n + 1 WHERE id = 1"


async def add(tx: object) -> None:
    await tx.execute(ADD)  # type: ignore[attr-defined]


def test_calls_go_on_where_the_lane_has_gone(tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"
    new = f"lanes://{tmp_path}/elsewhere/stock"

    async def use() -> None:
        async with Database.open("stock", home=home) as db:
            await filled(db)
            stock, counter = db.stock("sku"), db.counter("views", kind="exact")
            await stock.add(5)
            await counter.add(2)
            await db.execute(ADD, key="once")
            await asyncio.to_thread(leave, f"{home}/stock", new, 1)
            assert await value(db) == 1, "a read"
            await db.execute(ADD, key="once")
            await db.execute(ADD, key="other")
            await db.transact(add, key="third")
            await db.transact(add, key="third")
            assert await value(db) == 3, "a key that was used before the move is used up after it"
            assert await stock.take(4)
            assert not await stock.take(4)
            await counter.add(3)
            assert await counter.value() == 5
            assert (db.url, db.engine, db.stats().failed) == (new, "lane", 0)

    asyncio.run(use())
    assert FolderCatalog(home).names() == {"stock": CatalogEntry(new, 1)}


@pytest.mark.parametrize("arriving", [False, True])
def test_whoever_opens_the_old_place_finishes_what_a_mover_could_not(tmp_path: Path, *, arriving: bool) -> None:
    old, new = f"lanes://{tmp_path}/old", f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(old) as db:
            await filled(db)
        leave(old, new, 1, arriving=arriving)
        if arriving:
            with pytest.raises(UnavailableError, match="is arriving"):
                await Database.open(new)
        async with Database.open(old) as db:
            assert db.url == new
            await db.execute(ADD)
        async with Database.open(new) as db:
            assert await value(db) == 1, "and from then on it opens for everybody"

    asyncio.run(use())


def test_a_draft_of_another_move_is_not_taken_for_the_database(tmp_path: Path) -> None:
    old, new = f"lanes://{tmp_path}/old", f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(old) as db:
            await filled(db)
        leave(old, new, 1)
        mark(path_of(new), Draft(2, "lanes:///elsewhere"))
        with pytest.raises(UnavailableError, match="is arriving: move 2"):
            await Database.open(old, seal_wait_s=0.05)

    asyncio.run(use())


def test_writers_never_notice_that_a_lane_is_moved_again_and_again(tmp_path: Path) -> None:
    urls = [f"lanes://{tmp_path}/place-{number}" for number in range(4)]
    writers = 16

    async def use() -> None:
        async with Database.open(urls[0]) as db:
            await filled(db)
            done, over = [0] * writers, asyncio.Event()
            more: asyncio.Queue[None] = asyncio.Queue()

            async def write(number: int) -> None:
                while not over.is_set():
                    await db.execute(ADD, key=f"{number}/{done[number]}" if number % 2 else None)
                    done[number] += 1
                    more.put_nowait(None)

            tasks = [asyncio.ensure_future(write(number)) for number in range(writers)]
            for epoch, (source, target) in enumerate(pairwise(urls), 1):
                await asyncio.to_thread(leave, source, target, epoch)
                for _ in range(more.qsize() + 10 * writers):
                    await more.get()
            over.set()
            await asyncio.gather(*tasks)
            assert db.url == urls[-1]
            assert await value(db) == sum(done), "no increment is lost and none is doubled"

    asyncio.run(use())


def test_streams_and_shards_are_made_where_the_database_lives(tmp_path: Path) -> None:
    """One that has some is not moved; one that had none makes them at its new place."""
    old, new = f"lanes://{tmp_path}/old", f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(old, db_per_write_stream=True) as db:
            await filled(db)
            leave(old, new, 1)
            await db.execute(ADD)
            stream = await db.stream("eu")
            await stream.execute("CREATE TABLE t (n bigint)")
            shard = await db.shard(3)
            await shard.execute("CREATE TABLE t (n bigint)")
            assert (stream.url, shard.url) == (f"{new}.streams/eu", f"{new}.shards/3")

    asyncio.run(use())
    assert not list(tmp_path.glob("old.s*"))


def test_a_stream_that_is_asked_for_first_after_a_move_is_made_at_the_new_place(tmp_path: Path) -> None:
    """Whoever uses streams alone never calls the database itself, and still must not write where nobody looks."""
    old, new = f"lanes://{tmp_path}/old", f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(old, db_per_write_stream=True) as db:
            await filled(db)
            leave(old, new, 1)
            stream = await db.stream("eu")
            assert (stream.url, db.url) == (f"{new}.streams/eu", new)
            assert (await db.stream("eu")) is stream

    asyncio.run(use())


def test_an_interactive_transaction_begins_where_the_lane_has_gone(tmp_path: Path) -> None:
    old, new = f"lanes://{tmp_path}/old", f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(old) as db:
            await filled(db)
            async with db.transaction(read_only=True) as tx:
                assert len(await tx.query("SELECT n FROM c WHERE id = 1")) == 1
            before, reading = db.transaction(), db.transaction(read_only=True)  # Neither has run a statement yet.
            await asyncio.to_thread(leave, old, new, 1)
            await before.execute(ADD)
            await before.commit()
            assert await reading.query("SELECT n FROM c WHERE id = 1") == [(1,)]
            await reading.rollback()
            assert db.url == new

    asyncio.run(use())


def test_an_interactive_transaction_shows_nothing_that_is_not_durable(tmp_path: Path) -> None:
    """G7, where a group is durable only after its hand-off."""
    handing, let = threading.Event(), threading.Event()
    let.set()

    def hand_off() -> None:
        handing.set()
        let.wait()

    async def use() -> None:
        async with Database.open(f"lanes://{tmp_path}/x", hand_off=hand_off) as db:
            await filled(db)
            let.clear()
            handing.clear()
            writing = asyncio.ensure_future(db.execute(ADD))
            await asyncio.to_thread(handing.wait)
            tx = db.transaction(read_only=True)
            reading = asyncio.ensure_future(tx.query("SELECT n FROM c WHERE id = 1"))
            done, _ = await asyncio.wait([reading], timeout=0.05)
            assert not done, "it has seen a group that may still be lost"
            let.set()
            assert (await writing, await reading) == (1, [(1,)])
            await tx.rollback()

    asyncio.run(use())


def test_a_cancelled_read_does_not_show_the_next_one_what_is_not_durable(tmp_path: Path) -> None:
    async def use() -> None:
        async with Database.open(f"lanes://{tmp_path}/x") as db:
            await filled(db)
            waits = asyncio.Semaphore(0)

            async def wait_for_ever(_groups: int) -> None:
                waits.release()
                await asyncio.Event().wait()

            lane = db._engine.lane  # type: ignore[attr-defined]
            lane.durable_up_to = wait_for_ever
            tx = db.transaction(read_only=True)
            for _ in range(2):
                reading = asyncio.ensure_future(tx.query("SELECT n FROM c WHERE id = 1"))
                held = asyncio.ensure_future(waits.acquire())
                await asyncio.wait([reading, held], return_when=asyncio.FIRST_COMPLETED)
                assert held.done()
                reading.cancel()
            await tx.rollback()

    asyncio.run(use())
