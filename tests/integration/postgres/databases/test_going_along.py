"""A database that moves between a lane and PostgreSQL while it is open: whoever has it open goes along (D11)."""

import asyncio
import threading
from pathlib import Path

import pytest

from interlock import Database
from interlock.catalog.catalog import Catalog
from interlock.catalog.catalog_entries import CatalogEntry, below
from interlock.clock import SystemClock
from interlock.database.doctor import examine_home
from interlock.database.inventory import residents_of
from interlock.relocate.route_by_name import find_route, move_along
from interlock.urls import parse_postgres_url, redact_postgres_url

ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
CLOCK = SystemClock()


class Died(Exception):
    """The mover is no more."""


async def moved(name: str, target: str, home: str, *, dies_at: str = "") -> None:
    """Move it as `interlock route` does."""

    def at(point: str) -> None:
        if point == dies_at:
            raise Died

    await move_along(await find_route(name, target, home=home, clock=CLOCK), clock=CLOCK, at=at)


async def filled(db: Database) -> None:
    await db.execute("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL)")
    await db.execute("INSERT INTO c VALUES (1, 0)")


async def value(db: Database) -> object:
    [(n,)] = await db.query("SELECT n FROM c WHERE id = 1")
    return n


def test_one_object_goes_to_postgresql_and_back_with_its_helpers_and_its_keys(
    tmp_path: Path, postgres_url: str
) -> None:
    home = f"lanes://{tmp_path}/home"

    async def use() -> None:
        async with Database.open("stock", home=home) as db:
            await filled(db)
            stock, counter, balance = db.stock("sku"), db.counter("views"), db.balance("till")
            await stock.add(10)
            await counter.add(1)
            await balance.deposit(7)
            await db.execute(ADD, key="first")
            for turn, (target, engine) in enumerate([(postgres_url, "postgres"), (f"{home}/stock", "lane")], 1):
                await moved("stock", target, home)
                await db.execute(ADD, key="first")
                await db.execute(ADD, key=f"turn-{turn}")
                assert await value(db) == 1 + turn, "the first key is used up wherever it lives"
                assert db.engine == engine
                assert db.url == redact_postgres_url(target)
                assert await stock.take(3)
                await counter.add(1)
                await balance.withdraw(2)
                assert (await stock.left(), await counter.value(), await balance.value()) == (
                    10 - 3 * turn,
                    1 + turn,
                    7 - 2 * turn,
                )
                assert db.stats().failed == 0
                assert isinstance(await db.contention(), list)

    asyncio.run(use())
    assert asyncio.run(Catalog(home).names()) == {"stock": CatalogEntry("", 2)}


@pytest.mark.parametrize("dies_at", ["arrive/before", "enter/before"])
def test_a_mover_that_dies_behind_the_tombstone_is_not_missed(tmp_path: Path, postgres_url: str, dies_at: str) -> None:
    """The next call, or the next who opens it, finishes; the catalog learns of it; the next move has a higher epoch."""
    home = f"lanes://{tmp_path}/home"

    async def use() -> None:
        async with Database.open("stock", home=home) as db:
            await filled(db)
            with pytest.raises(Died):
                await moved("stock", postgres_url, home, dies_at=dies_at)
            [stale] = await residents_of(home)
            assert (stale.state, stale.other_epoch) == ("left", 1)
            assert [finding.code for finding in (await examine_home(home)).findings] == ["stale-catalog"]
            await db.execute(ADD)
            assert db.engine == "postgres"
        assert (await Catalog(home).entry("stock")).epoch == 1
        async with Database.open(f"{home}/stock") as db:
            assert (await value(db), db.engine) == (1, "postgres")

    asyncio.run(use())


def test_a_move_after_one_that_the_catalog_never_heard_of_can_be_followed(tmp_path: Path, postgres_url: str) -> None:
    """The chain of tombstones has rising epochs, also when the catalog knows none of them."""
    home = f"lanes://{tmp_path}/home"
    last = f"lanes://{tmp_path}/last"

    async def use() -> None:
        async with Database.open("stock", home=home) as db:
            await filled(db)
        with pytest.raises(Died):
            await moved("stock", postgres_url, home, dies_at="enter/before")
        assert await Catalog(home).entry("stock") == CatalogEntry()
        await moved("stock", last, home)
        async with Database.open(f"{home}/stock") as db:
            assert (db.url, await value(db)) == (last, 0)
        async with Database.open("stock", home=home) as db:
            assert db.url == last
        assert await Catalog(home).entry("stock") == CatalogEntry(last, 2)

    asyncio.run(use())


def test_a_database_of_a_home_in_postgresql_goes_to_a_lane_and_comes_home(tmp_path: Path, postgres_url: str) -> None:
    lane = f"lanes://{tmp_path}/stock"
    name = f"stock_{parse_postgres_url(postgres_url).schema[5:17]}"

    async def use() -> None:
        async with Database.open(name, home=postgres_url) as db:
            await filled(db)
            await moved(name, lane, postgres_url)
            await db.execute(ADD)
            assert (db.url, db.engine) == (lane, "lane")
            [resident] = await residents_of(postgres_url)
            assert (resident.url, resident.epoch, resident.state) == (lane, 1, "lives")
            await moved(name, below(postgres_url, name), postgres_url)
            await db.execute(ADD)
            assert (await value(db), db.engine) == (2, "postgres")
            [resident] = await residents_of(postgres_url)
            assert (resident.epoch, resident.state) == (2, "lives")
            assert (await examine_home(postgres_url)).healthy

    asyncio.run(use())
    assert asyncio.run(Catalog(postgres_url).names()) == {name: CatalogEntry("", 2)}


def test_sixteen_writers_go_along_and_only_lose_time(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def use() -> None:
        async with Database.open("stock", home=home) as db:
            await filled(db)
            done, over = [0] * 16, asyncio.Event()

            async def write(number: int) -> None:
                while not over.is_set():
                    await db.execute(ADD, key=f"{number}/{done[number]}" if number % 2 else None)
                    done[number] += 1

            writers = [asyncio.ensure_future(write(number)) for number in range(16)]
            await moved("stock", postgres_url, home)
            await moved("stock", f"{home}/stock", home)
            over.set()
            await asyncio.gather(*writers)
            assert await value(db) == sum(done) > 0

    asyncio.run(use())


@pytest.mark.campaign
@pytest.mark.parametrize("part", ["stream", "shard", "counter"])
def test_a_database_is_moved_to_postgresql_with_parts_of_its_own(tmp_path: Path, postgres_url: str, part: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def use() -> None:
        async with Database.open("stock", home=home, db_per_write_stream=True) as db:
            await filled(db)
            match part:
                case "stream":
                    await (await db.stream("eu")).execute("CREATE TABLE t (n bigint)")
                case "shard":
                    await (await db.shard(1)).execute("CREATE TABLE t (n bigint)")
                case _:
                    await db.counter("views", kind="sharded").add(1)
            await moved("stock", postgres_url, home)
            await db.execute(ADD)
            assert (await value(db), db.engine) == (1, "postgres")
            match part:
                case "stream":
                    assert await (await db.stream("eu")).query("SELECT n FROM t") == []
                case "shard":
                    assert await (await db.shard(1)).query("SELECT n FROM t") == []
                case _:
                    assert await db.counter("views").value() == 1

    asyncio.run(use())


def test_a_stream_that_is_created_while_its_database_is_copied_comes_along(tmp_path: Path, postgres_url: str) -> None:
    """Between the move of the streams and the seal: the seal looks again."""
    asked, answered = threading.Event(), threading.Event()

    def at(point: str) -> None:
        if point == "seal/0/before":
            asked.set()
            answered.wait()

    async def use() -> None:
        async with Database.open(postgres_url, db_per_write_stream=True) as db:
            await filled(db)
            route = await find_route(postgres_url, f"lanes://{tmp_path}/stock", home=None, clock=CLOCK)
            move = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(move_along(route, clock=CLOCK, at=at))))
            await asyncio.to_thread(asked.wait)
            await (await db.stream("eu-1")).execute("CREATE TABLE t (n bigint)")
            await (await db.stream("eu-1")).execute("INSERT INTO t VALUES (7)")
            answered.set()
            done = await move
            assert [each.table for each in done.amounts if each.table.startswith("streams/")] == ["streams/eu-1"]
            assert await (await db.stream("eu-1")).query("SELECT n FROM t") == [(7,)]
            await db.execute(ADD)
            assert db.engine == "lane"
            assert await (await db.stream("eu-1")).query("SELECT n FROM t") == [(7,)]

    asyncio.run(use())


def test_a_stream_of_a_schema_that_was_left_is_made_where_its_database_lives(tmp_path: Path, postgres_url: str) -> None:
    lane = f"lanes://{tmp_path}/stock"

    async def use() -> None:
        async with Database.open(postgres_url, db_per_write_stream=True) as db:
            await filled(db)
            await move_along(await find_route(postgres_url, lane, home=None, clock=CLOCK), clock=CLOCK)
            assert (await db.stream("eu")).url == f"{lane}.streams/eu"

    asyncio.run(use())
