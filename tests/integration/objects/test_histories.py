"""A database is made again from the bucket alone: from its snapshots, in several parts, when the log before is gone."""

import asyncio
import shutil
import uuid
from pathlib import Path

from interlock.database.database import Database, Opening
from interlock.lanes.objectlog.format import log_key
from interlock.lanes.objectlog.log import ObjectLog
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.lanes.objectlog.remote_bucket import open_bucket
from interlock.urls import parse_bucket_url
from tests.conformance.lanes.places import lane_of
from tests.integration.objects.servers import Server

GROUPS_MAX = 5_000
BLOCK = bytes(range(256)) * 4_096
"""A mebibyte; ten of them do not fit into one part of a snapshot."""


def opened(url: str, cache: Path) -> Opening:
    return Database.open(url, cache=str(cache), snapshot_bytes_min=4_096, snapshots_retained=1, retention_s=0.0)


def test_a_database_lives_on_in_its_snapshots(server: Server, tmp_path: Path) -> None:
    url = server.url(f"histories/{uuid.uuid4().hex}")

    groups = 0

    async def write() -> None:
        nonlocal groups
        async with opened(url, tmp_path / "one") as db:
            await db.execute("CREATE TABLE block (id integer PRIMARY KEY, data bytea NOT NULL)")
            for number in range(10):
                await db.execute("INSERT INTO block (id, data) VALUES ($1, $2)", number, BLOCK)
            await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer NOT NULL)")
            await db.execute("INSERT INTO counter (id, n) VALUES (1, 0)")
            await db.execute("DELETE FROM block WHERE id >= 9")
            log = lane_of(db)._log
            assert isinstance(log, ObjectLog)
            # Snapshots are taken beside the writer, and groups deleted after them: write until both have happened.
            while groups < GROUPS_MAX and (log.manifest.collected < 12 or log.manifest.snapshots[0].parts < 2):
                await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
                groups += 1

    async def read() -> None:
        async with opened(url, tmp_path / "two") as db:
            assert await db.query("SELECT n FROM counter") == [(groups,)]
            rows = await db.query("SELECT id, data FROM block ORDER BY id")
            assert [row.id for row in rows] == list(range(9))
            assert {row.data for row in rows} == {BLOCK}
            await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
        shutil.rmtree(tmp_path / "two")

    asyncio.run(write())
    shutil.rmtree(tmp_path / "one")
    bucket = open_bucket(parse_bucket_url(url), request_timeout_s=30)
    found = read_manifest(bucket)
    assert found is not None
    manifest = found[0]
    assert manifest.snapshots[0].parts > 1
    assert manifest.collected >= 12
    kept = [key for key in bucket.keys("log/") if key <= log_key(manifest.collected)]
    assert kept == [log_key(1)], "of the log before the snapshot there is only the fence"
    assert len({key.rpartition("/")[0] for key in bucket.keys("snapshot/")}) <= 2, "and so are snapshots before it"
    asyncio.run(read())
    groups += 1
    asyncio.run(read())
