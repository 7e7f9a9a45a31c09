"""`interlock restore FILE URL`: a copy becomes a database again, streams and shards too; what is in the way stays."""

import asyncio
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from interlock import Database
from interlock.cli import main
from interlock.clock import SystemClock
from interlock.lanes.handover import Tombstone, is_watched, watch, write_tombstone
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import log as objectlog_log
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.point_in_time import seed
from interlock.urls import parse_bucket_url
from tests.unit.cli.running import Interlock, plain_environment
from tests.unit.database.stored import in_memory

KEYS = ("alpha", "Ünï/coded", "log")


async def fill(url: str) -> None:
    """A database with a row, three streams, one of them with a sharded counter, and a sharded counter of its own."""
    async with Database.open(url, db_per_write_stream=True, counter_shard_count=3) as db:
        await db.execute("CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL)")
        await db.execute("INSERT INTO stock (sku, n) VALUES ('A-1', 5)", key="first")
        for _ in range(20):
            await db.counter("views", kind="sharded").add(1)
        for key in KEYS:
            stream = await db.stream(key)
            await stream.execute("CREATE TABLE t (text text PRIMARY KEY)")
            await stream.execute("INSERT INTO t (text) VALUES ($1)", key)
        await (await db.stream("alpha")).counter("likes", kind="sharded").add(7)


async def held_at(url: str) -> tuple[object, ...]:
    async with Database.open(url, db_per_write_stream=True, counter_shard_count=3) as db:
        rows = await db.query("SELECT sku, n FROM stock")
        again = await db.execute("INSERT INTO stock (sku, n) VALUES ('A-1', 5)", key="first")
        texts = [list(await (await db.stream(key)).query("SELECT text FROM t")) for key in KEYS]
        likes = await (await db.stream("alpha")).counter("likes").value()
        return rows, again, await db.counter("views").value(), texts, likes


EXPECTED = ([("A-1", 5)], 1, 20, [[(key,)] for key in KEYS], 7)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_streams_and_shards_are_in_the_copy_and_come_back(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    done = interlock("backup", url, str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert "databases below it, checked." in done.out
    assert asyncio.run(held_at(f"lanes://{tmp_path}/copy")) == EXPECTED
    back = interlock("restore", str(tmp_path / "copy.lane"), f"lanes://{tmp_path}/other/stock")
    assert back.code == 0, back.err
    assert f"Put {tmp_path}/copy.lane back as lanes://{tmp_path}/other/stock: " in back.out
    assert asyncio.run(held_at(f"lanes://{tmp_path}/other/stock")) == EXPECTED
    assert [name for name in names(tmp_path) + names(tmp_path / "other") if name.startswith(".")] == []


def test_a_database_in_a_bucket_is_copied_with_everything_below_it(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))
    asyncio.run(fill("s3://bucket/shop/stock"))
    done = interlock("backup", "s3://bucket/shop/stock", str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert asyncio.run(held_at(f"lanes://{tmp_path}/copy")) == EXPECTED


def test_what_is_there_is_replaced_only_when_it_is_said(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    copy = str(tmp_path / "copy.lane")
    assert interlock("backup", url, copy).code == 0

    async def change() -> None:
        async with Database.open(url, db_per_write_stream=True) as db:
            await db.execute("UPDATE stock SET n = 0")
            await (await db.stream("gamma")).execute("CREATE TABLE t (text text PRIMARY KEY)")

    asyncio.run(change())
    refused = interlock("restore", copy, url)
    assert refused.code == 1
    assert "--force" in refused.err
    assert interlock("restore", copy, url, "--force").code == 0
    assert asyncio.run(held_at(url)) == EXPECTED
    assert not (tmp_path / "shop/stock.streams/gamma.lane").exists(), "it was not in the copy"
    assert [name for name in names(tmp_path / "shop") if name.startswith(".")] == []


def test_a_log_that_a_dead_owner_left_goes_with_its_file(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    copy = str(tmp_path / "copy.lane")
    assert interlock("backup", url, copy).code == 0
    (tmp_path / "shop/stock.lane-wal").write_bytes(b"left behind")
    assert interlock("restore", copy, url, "--force").code == 0
    assert not (tmp_path / "shop/stock.lane-wal").exists()
    assert asyncio.run(held_at(url)) == EXPECTED


def test_an_open_lane_is_never_replaced(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    copy = str(tmp_path / "copy.lane")
    assert interlock("backup", url, copy).code == 0

    async def beside() -> int:
        async with Database.open(url) as db:
            code = (await asyncio.to_thread(interlock, "restore", copy, url, "--force")).code
            assert await db.query("SELECT n FROM stock") == [(5,)]
            return code

    assert asyncio.run(beside()) == 5


def test_a_damaged_copy_is_refused_and_leaves_nothing(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    copy = tmp_path / "copy.lane"
    assert interlock("backup", url, str(copy)).code == 0
    data = bytearray(copy.read_bytes())
    data[4_096:12_288] = b"\xa5" * 8_192
    copy.write_bytes(data)
    (tmp_path / "other").mkdir()
    assert interlock("restore", str(copy), f"lanes://{tmp_path}/other/stock").code == 1
    assert names(tmp_path / "other") == []
    part = tmp_path / "copy.streams/alpha.lane"
    assert interlock("backup", url, str(copy), "--force").code == 0
    part.write_bytes(part.read_bytes()[:5_000])
    assert interlock("restore", str(copy), f"lanes://{tmp_path}/other/stock").code == 1
    assert names(tmp_path / "other") == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nowhere.lane", "lanes:///tmp/x/y"), 4),
        (("tickets.py", "memory:"), 2),
        (("s3://bucket/stock", "lanes:///tmp/x/y"), 2),
        (("tickets.py", "lanes:///tmp/x/y", "--at", "3"), 2),
    ],
)
def test_refusals_have_their_exit_codes(interlock: Interlock, words: tuple[str, ...], code: int) -> None:
    assert interlock("restore", *words).code == code


def test_a_copy_is_put_into_a_bucket_where_history_stays(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))
    asyncio.run(fill(f"lanes://{tmp_path}/shop/stock"))
    copy, there = str(tmp_path / "copy.lane"), "s3://bucket/shop/stock"
    assert interlock("backup", f"lanes://{tmp_path}/shop/stock", copy).code == 0
    done = interlock("restore", copy, there)
    assert done.code == 0, done.err
    assert asyncio.run(held_at(there)) == EXPECTED

    async def change() -> None:
        async with Database.open(there) as db:
            await db.execute("UPDATE stock SET n = 0")

    asyncio.run(change())
    assert interlock("restore", copy, there).code == 1
    assert interlock("restore", there, str(tmp_path / "changed.lane")).code == 0
    assert interlock("restore", copy, there, "--force").code == 0
    assert asyncio.run(held_at(there)) == EXPECTED
    # What was there before is still in the log.
    found = interlock("restore", there, str(tmp_path / "at.lane"), "--at", "5")
    assert found.code == 0, found.err


@pytest.mark.slow
def test_a_database_in_a_bucket_that_has_an_owner_is_never_replaced(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))
    asyncio.run(fill("s3://bucket/shop/stock"))
    copy = str(tmp_path / "copy.lane")
    assert interlock("backup", "s3://bucket/shop/stock", copy).code == 0

    async def beside() -> int:
        async with Database.open("s3://bucket/shop/stock", lease_s=10.0) as db:
            stop = asyncio.Event()

            async def live() -> None:
                while not stop.is_set():
                    await db.execute("UPDATE stock SET n = n")

            living = asyncio.create_task(live())
            code = (await asyncio.to_thread(interlock, "restore", copy, "s3://bucket/shop/stock", "--force")).code
            stop.set()
            await living
            return code

    assert asyncio.run(beside()) == 5


def left_for(path: Path, url: str) -> None:
    """Give a lane the tombstone of a move."""
    with closing(apsw.Connection(str(path))) as connection, connection:
        write_tombstone(connection.execute, Tombstone(url, 1, 1))


def test_a_database_that_has_moved_is_copied_from_where_it_lives(interlock: Interlock, tmp_path: Path) -> None:
    old, new = f"lanes://{tmp_path}/shop/stock", f"lanes://{tmp_path}/elsewhere/stock"
    asyncio.run(fill(old))
    asyncio.run(fill(new))
    left_for(tmp_path / "shop/stock.lane", new)
    done = interlock("backup", old, str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert f"Copied {new} into" in done.out
    assert f"it has moved: following it to {new}" in done.err
    assert asyncio.run(held_at(f"lanes://{tmp_path}/copy")) == EXPECTED
    left_for(tmp_path / "elsewhere/stock.lane", old)
    assert interlock("backup", old, str(tmp_path / "other.lane")).code == 1, "a circle has no end"


def test_what_a_mover_was_doing_is_no_part_of_the_copy(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    with closing(apsw.Connection(str(tmp_path / "shop/stock.lane"))) as connection, connection:
        watch(connection, {"stock": ["sku"]})
    assert interlock("backup", url, str(tmp_path / "copy.lane")).code == 0
    with closing(apsw.Connection(str(tmp_path / "copy.lane"))) as connection:
        assert not is_watched(connection)
    assert asyncio.run(held_at(f"lanes://{tmp_path}/copy")) == EXPECTED


@pytest.mark.slow
def test_a_backup_that_is_killed_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    """Killed at each of its steps: the name is free, or has the old copy, whole."""
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(fill(url))
    for step in ("copying pages", "copying streams and shards"):
        folder = tmp_path / step.replace(" ", "-")
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", KILLED, url, str(folder / "copy.lane"), step],
            env=plain_environment(),
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        assert not (folder / "copy.lane").exists()
        assert not (folder / "copy.streams").exists()
        assert main(["backup", url, str(folder / "copy.lane")]) == 0
        assert asyncio.run(held_at(f"lanes://{folder}/copy")) == EXPECTED


KILLED = """
import os, signal, sys
from pathlib import Path
from interlock.backup.backup import back_up_database

def watch(what, done, of):
    if what == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

back_up_database(sys.argv[1], Path(sys.argv[2]), watch=watch)
"""


def test_a_database_that_has_left_its_bucket_is_copied_from_where_it_lives(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone is in the log: a state from before can still be restored."""
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))
    asyncio.run(fill(f"lanes://{tmp_path}/shop/stock"))
    copy, there, home = str(tmp_path / "copy.lane"), "s3://bucket/shop/stock", f"lanes://{tmp_path}/shop/stock"
    assert interlock("backup", home, copy).code == 0
    left_for(tmp_path / "copy.lane", home)
    address = parse_bucket_url(there)
    bucket = objectlog_log.proven_bucket_of(address, settings=LaneSettings(), clock=SystemClock())
    last = seed(bucket, tmp_path / "copy.lane", name=there, settings=LaneSettings(), world=Environment(), force=False)
    assert interlock("backup", there, str(tmp_path / "again.lane")).code == 0
    assert asyncio.run(held_at(f"lanes://{tmp_path}/again")) == EXPECTED
    assert interlock("restore", there, str(tmp_path / "late.lane")).code == 5
    assert interlock("restore", there, str(tmp_path / "early.lane"), "--at", str(last - 1)).code == 0
