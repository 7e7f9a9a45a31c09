"""Homes in buckets, over real HTTP: their catalog, and a database that a mover takes from a living owner."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Database
from interlock.catalog.catalog import FILE, Catalog
from interlock.catalog.catalog_entries import CatalogEntry, below
from interlock.clock import SystemClock
from interlock.database.doctor import examine_home, is_home
from interlock.database.lane_engine import Translators
from interlock.errors import Fenced
from interlock.lanes.handover import Tombstone
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.remote_bucket import open_folder
from interlock.relocate.bucket_lane import note_left, take_over
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import SeaweedFS
from tests.unit.catalog.contract import Contract

ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
CLOCK = SystemClock()


@pytest.mark.slow
class TestInRealBucket(Contract):
    @pytest.fixture
    def home(self, seaweedfs: SeaweedFS, folder: str) -> str:
        return seaweedfs.url(folder)

    @pytest.fixture
    def spoil(self, home: str) -> Callable[[], object]:
        bucket = open_folder(parse_bucket_url(below(home, FILE)), request_timeout_s=20)
        return lambda: bucket.put(FILE, b"{")


async def filled(db: Database) -> None:
    await db.execute("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL)")
    await db.execute("INSERT INTO c VALUES (1, 0)")


async def value(db: Database) -> object:
    [(n,)] = await db.query("SELECT n FROM c WHERE id = 1")
    return n


def taken(url: str, file: Path, *, leaves_for: str = "", notes: bool = True, lease_s: float = 5.0) -> None:
    """What a mover does in its seal: take the lane from whoever has it, and leave; or die before that."""
    prepare = Translators().prepare
    lane = take_over(url, file, settings=LaneSettings(lease_s=lease_s), clock=CLOCK, prepare=prepare)
    if leaves_for:
        stone = Tombstone(leaves_for, 1, 0)
        asyncio.run(lane.leave(stone))
        if notes:
            note_left(url, stone, clock=CLOCK)
    lane.close()


@pytest.mark.slow
@pytest.mark.parametrize("notes", [True, False], ids=["and says so in the manifest", "and dies"])
def test_an_owner_that_a_mover_has_replaced_goes_along(
    tmp_path: Path, seaweedfs: SeaweedFS, folder: str, *, notes: bool
) -> None:
    home, new = seaweedfs.url(folder), f"lanes://{tmp_path}/new"

    async def use() -> None:
        async with Database.open(new) as there:
            await filled(there)
        async with Database.open("stock", home=home, cache=str(tmp_path / "mine"), lease_s=1.0) as db:
            await filled(db)
            await asyncio.to_thread(
                taken, below(home, "stock"), tmp_path / "mover.lane", leaves_for=new, notes=notes, lease_s=1.0
            )
            await db.execute(ADD)
            assert (await value(db), db.url) == (1, new)
        assert await Catalog(home).names() == {"stock": CatalogEntry(new, 1)}
        assert await is_home(home)
        assert (await examine_home(home)).healthy
        async with Database.open(below(home, "stock"), cache=str(tmp_path / "other")) as db:
            assert db.url == new

    asyncio.run(use())


@pytest.mark.slow
def test_an_owner_that_was_replaced_by_a_mover_which_gave_up_opens_its_lane_again(
    tmp_path: Path, seaweedfs: SeaweedFS, folder: str
) -> None:
    """It finds the database as it was, and the streams that it has open stay open."""
    url = seaweedfs.url(f"{folder}/stock")

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path / "mine"), lease_s=1.0, db_per_write_stream=True) as db:
            await filled(db)
            stream = await db.stream("eu")
            await filled(stream)
            await asyncio.to_thread(taken, url, tmp_path / "mover.lane", lease_s=1.0)
            calls = await asyncio.gather(*(db.execute(ADD) for _ in range(5)))
            assert calls == [1] * 5
            assert (await value(db), await db.stream("eu") is stream) == (5, True)
            await stream.execute(ADD)

    asyncio.run(use())


def test_an_owner_that_was_replaced_by_one_that_stays_says_so(
    tmp_path: Path, seaweedfs: SeaweedFS, folder: str
) -> None:
    url = seaweedfs.url(f"{folder}/stock")

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path / "mine"), lease_s=0.5) as db:
            await filled(db)
            # As the program of another machine, after a lease that this one has slept through.
            async with Database.open(url, cache=str(tmp_path / "theirs"), lease_s=60.0) as other:
                for _ in range(2):
                    with pytest.raises(Fenced):
                        await db.execute(ADD)
                await other.execute(ADD)
            assert await db.execute(ADD) == 1, "it is free again"
            assert await value(db) == 2

    asyncio.run(use())
