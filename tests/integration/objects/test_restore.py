"""Restore and doctor on a real server, by the real program: beside the owner, through snapshots and collections."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.lanes.objectlog.format import log_key
from interlock.lanes.objectlog.remote_bucket import open_bucket
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import BUCKET, Moto
from tests.unit.cli.running import Done, run_program

GROUPS = 30


@pytest.mark.slow
def test_a_database_is_looked_at_restored_and_opened_while_its_owner_serves(
    moto: Moto, folder: str, tmp_path: Path
) -> None:
    url = moto.url(f"{folder}/stock")

    def run(*arguments: str) -> Done:
        return run_program(*arguments, folder=tmp_path)

    async def serve() -> None:
        cache = str(tmp_path / "cache")
        async with Database.open(url, cache=cache, snapshot_bytes_min=8 * 4_096, retention_s=0.0) as db:
            await db.execute("CREATE TABLE entry (id bigint PRIMARY KEY)")
            for number in range(GROUPS):
                await db.execute("INSERT INTO entry (id) VALUES ($1)", number)
            looked = await asyncio.to_thread(run, "doctor", url, "--probe", "-o", "json")
            assert looked.code == 0, (looked.out, looked.err)
            report = json.loads(looked.out)
            assert report["owner"]["pid"] > 0
            assert report["snapshots"]
            assert report["fences_below"] == 1
            first, last = report["first"]["seq"], report["last"]["seq"]
            assert first > 1
            for seq in (first, last):
                done = await asyncio.to_thread(run, "restore", url, "--at", str(seq), f"{seq}.lane")
                assert done.code == 0, done.err
                assert "S3RVER" not in done.out.replace("access_key_id=S3RVER", "")
            early = await asyncio.to_thread(run, "restore", url, "--at", "1", "early.lane")
            assert (early.code, f"the first that is kept is {first}" in early.err) == (4, True), early.err
            await db.execute("INSERT INTO entry (id) VALUES (1000)")

        async def count(seq: int) -> int:
            async with Database.open(f"lanes://{tmp_path}/{seq}") as restored:
                [(found,)] = await restored.query("SELECT count(*) FROM entry")
                return int(str(found))

        assert await count(last) == GROUPS
        assert await count(last) - await count(first) == last - first

    asyncio.run(serve())
    newest = run("restore", url, "newest.lane")
    assert newest.code == 0, newest.err
    open_bucket(parse_bucket_url(url), request_timeout_s=20).delete([log_key(GROUPS + 3)])
    damaged = run("doctor", url)
    assert (damaged.code, f"{log_key(GROUPS + 3)} is missing" in damaged.out) == (1, True), damaged.out


@pytest.mark.slow
def test_no_database_and_no_server_have_their_exit_codes(moto: Moto, folder: str, tmp_path: Path) -> None:
    for command in (("doctor",), ("restore", "--at", "1")):
        file = ["x.lane"] if command[0] == "restore" else []
        nothing = run_program(*command, moto.url(f"{folder}/nothing"), *file, folder=tmp_path)
        assert (nothing.code, "there is no database at" in nothing.err) == (4, True), nothing
        nobody = f"s3://{BUCKET}/stock?endpoint=http://127.0.0.1:9&access_key_id=a&secret_access_key=hidden"
        refused = run_program(*command, nobody, *file, folder=tmp_path)
        assert refused.code == 5, refused
        assert "hidden" not in refused.err
