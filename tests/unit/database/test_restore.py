"""A database in a bucket by its address: restored into a file that opens as a lane, and looked at beside its owner."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from interlock.backup.backup import moment, restore_database
from interlock.clock import SystemClock
from interlock.database.database import Database
from interlock.database.doctor import examine_database, examine_in_bucket
from interlock.errors import BadUsage, TargetNotFound
from tests.unit.database.stored import in_memory

URL = "s3://bucket/shop/stock"


@pytest.fixture(autouse=True)
def _bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))


async def fill(rows: int) -> None:
    async with Database.open(URL) as db:
        await db.execute("CREATE TABLE IF NOT EXISTS entry (id bigint PRIMARY KEY, at timestamptz DEFAULT now())")
        for _ in range(rows):
            await db.execute("INSERT INTO entry (id) SELECT coalesce(max(id), 0) + 1 FROM entry")


async def count(url: str) -> int:
    async with Database.open(url) as db:
        [(found,)] = await db.query("SELECT count(*) FROM entry")
        await db.execute("INSERT INTO entry (id) VALUES (1000)")
        return int(str(found))


def test_what_was_restored_opens_as_a_lane_and_can_be_written(tmp_path: Path) -> None:
    asyncio.run(fill(5))
    newest = restore_database(URL, tmp_path / "stock.lane")
    earlier = restore_database(URL, tmp_path / "earlier.lane", at=newest.seq - 2)
    assert newest.url == f"lanes://{tmp_path}/stock"
    assert earlier.url is not None
    assert asyncio.run(count(newest.url)) == 5
    assert asyncio.run(count(earlier.url)) == 3
    assert examine_database(newest.url).healthy
    assert restore_database(URL, tmp_path / "plain").url is None


def test_it_may_be_restored_and_looked_at_beside_the_owner(tmp_path: Path) -> None:
    async def owned() -> None:
        async with Database.open(URL) as db:
            await db.execute("CREATE TABLE entry (id bigint PRIMARY KEY)")
            done = await asyncio.to_thread(restore_database, URL, tmp_path / "x.lane")
            assert done.time is not None
            report = await asyncio.to_thread(examine_in_bucket, URL)
            assert (report.healthy, report.tables, report.findings) == (True, 1, [])
            assert report.owner is not None
            await db.execute("INSERT INTO entry (id) VALUES (1)")

    asyncio.run(owned())


class Standing(SystemClock):
    """A wall clock that is set."""

    now_s = 1_000_000.0

    def wall_s(self) -> float:
        return self.now_s


def test_a_time_finds_what_was_stored_by_then_though_no_statement_asked_for_it(tmp_path: Path) -> None:
    clock = Standing()

    async def hourly() -> None:
        async with Database.open(URL, clock=clock) as db:
            await db.execute("CREATE TABLE entry (id bigint PRIMARY KEY)")
            for number in range(3):
                clock.now_s += 3_600
                await db.execute("INSERT INTO entry (id) VALUES ($1)", number)

    asyncio.run(hourly())
    begun = datetime.fromtimestamp(1_000_000, UTC)
    for hours in range(4):
        done = restore_database(URL, tmp_path / f"{hours}.lane", at=begun + timedelta(hours=hours, minutes=30))
        assert done.time == begun + timedelta(hours=hours)
        assert done.url is not None
        assert asyncio.run(count(done.url)) == hours
    with pytest.raises(TargetNotFound, match="no group that is so old"):
        restore_database(URL, tmp_path / "x", at=begun - timedelta(hours=1))


def test_a_database_that_was_opened_and_never_written_is_healthy() -> None:
    async def touched() -> None:
        async with Database.open(URL):
            pass

    asyncio.run(touched())
    assert examine_in_bucket(URL, probe=True).findings == []


@pytest.mark.parametrize("url", ["lanes:///var/shop/stock", "memory:", "stock"])
def test_what_is_not_in_a_bucket_is_told_what_to_do_instead(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="not in a bucket") as caught:
        restore_database(url, tmp_path / "x")
    assert "interlock backup" in caught.value.fix


def test_the_doctor_of_files_points_to_that_of_buckets() -> None:
    with pytest.raises(BadUsage, match="in a bucket") as caught:
        examine_database(URL)
    assert "examine_in_bucket" in caught.value.fix


def test_moments_are_numbers_or_times_with_a_zone(tmp_path: Path) -> None:
    assert moment("17") == 17
    assert moment("2026-11-15T16:55:14Z") == datetime(2026, 11, 15, 16, 55, 14, tzinfo=UTC)
    for wrong in ("", "-1", "1.5", "yesterday", "\u0661\u0667", "latest"):
        with pytest.raises(BadUsage, match="neither a number"):
            moment(wrong)
    for at in (0, 10**20, moment("2026-11-15T16:55:14")):
        with pytest.raises(BadUsage):
            restore_database(URL, tmp_path / "x", at=at)
