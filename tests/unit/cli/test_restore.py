"""`interlock restore`, and `interlock doctor` on a database in a bucket: what they print, and what they exit with."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from interlock.cli import console
from interlock.database.database import Database
from interlock.lanes.objectlog import doctor_report
from interlock.lanes.objectlog import log as objectlog_log
from interlock.lanes.objectlog.bucket_protocol import Denied
from interlock.lanes.objectlog.format import log_key
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.docs.blocks import read_blocks
from tests.unit.cli.running import Interlock
from tests.unit.database.stored import in_memory
from tests.unit.lanes.objectlog.buckets import ScriptedBucket

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/command-line.md").read_text()
URL = "s3://bucket/shop/stock"
SECRET = f"{URL}?secret_access_key=hidden"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryBucket:
    """A bucket with one database: a fence and three groups at least."""
    made = in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))

    async def fill() -> None:
        async with Database.open(URL) as db:
            await db.execute("CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL)")
            await db.execute("INSERT INTO stock (sku, n) VALUES ($1, $2)", "a", 1, key="first")
            await db.execute("UPDATE stock SET n = 2")

    asyncio.run(fill())
    return made.below("shop/stock")


def test_a_restored_file_is_named_with_its_address(interlock: Interlock, bucket: MemoryBucket, folder: Path) -> None:
    last = len(bucket.keys("log/"))
    done = interlock("restore", SECRET, "stock.lane")
    assert done.code == 0, done.err
    assert re.match(rf"Restored {URL}\?secret_access_key=\*\*\* at {last}, of 20\d\d-.*, into stock.lane: ", done.out)
    assert done.out.endswith(f"It opens as lanes://{folder}/stock\n")
    assert "replaying the log" in done.err
    done = interlock("restore", URL, "--at", str(last - 1), "earlier")
    assert f" at {last - 1}, " in done.out
    assert "opens as" not in done.out
    assert interlock("restore", URL, "--at", "1", "empty").out.startswith(
        f"Restored {URL} at 1, before its first group"
    )


def test_refusals_have_their_exit_codes(interlock: Interlock, bucket: MemoryBucket, folder: Path) -> None:
    last = len(bucket.keys("log/"))
    (folder / "mine").write_text("mine")
    cases = {
        (URL, "--at", "999", "x"): (4, f"the last one is {last}"),
        ("s3://bucket/shop/nothing", "x"): (4, "there is no database at s3://bucket/shop/nothing"),
        (URL, "mine"): (1, "mine exists."),
        (URL, "no/x"): (1, "the folder no does not exist"),
        (URL, "--at", "soon", "x"): (2, "neither a number"),
        ("lanes:///var/shop/stock", "x"): (2, "not in a bucket"),
        ("s3://bucket", "x"): (2, "no database"),
        (URL,): (2, "FILE"),
    }
    for arguments, (code, told) in cases.items():
        done = interlock("restore", *arguments)
        assert (done.code, told in done.err) == (code, True), (arguments, done)
    assert interlock("restore", URL, "--force", "mine").code == 0
    bucket.delete([log_key(last - 1)])
    done = interlock("restore", URL, "x")
    assert (done.code, f"{log_key(last - 1)} cannot be used: it is missing" in done.err) == (1, True), done.err
    assert not (folder / "x").exists()


def silent_bucket(_address: BucketAddress) -> ScriptedBucket:
    bucket = ScriptedBucket()
    bucket.unreadable = [Denied("403 Forbidden")]
    return bucket


def test_a_bucket_that_does_not_answer_exits_with_5(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectlog_log, "bucket_of", silent_bucket)
    for arguments in (("restore", URL, "x"), ("doctor", URL)):
        done = interlock(*arguments)
        assert done.code == 5
        assert "403 Forbidden" in done.err


def test_the_doctor_shows_a_healthy_database(interlock: Interlock, bucket: MemoryBucket) -> None:
    done = interlock("doctor", URL)
    assert (done.code, done.out.splitlines()[-1]) == (0, "healthy")
    assert re.search(r"(?m)^ owner +none$", done.out)
    [sample] = [block.text for block in read_blocks(PAGE) if "$ interlock doctor s3:" in block.text]
    shown = {line[:11] for line in done.out.splitlines()}
    assert shown | {" snapshot  "} == {line[:11] for line in sample.splitlines()[1:]}
    report = json.loads(interlock("doctor", SECRET, "-o", "json").out)
    assert (report["healthy"], report["owner"], report["keys"], report["tables"]) == (True, None, 1, 1)
    assert report["url"] == f"{URL}?secret_access_key=***"
    assert report["last"]["seq"] == len(bucket.keys("log/"))


def test_the_doctor_exits_with_1_for_damage_and_4_for_nothing(interlock: Interlock, bucket: MemoryBucket) -> None:
    bucket.delete([log_key(3)])
    done = interlock("doctor", URL)
    assert done.code == 1
    assert f"error [object-missing]\n  {log_key(3)} is missing.\n  why: " in done.out
    assert re.search(r"(?m)^ lost +3 to \d+$", done.out)
    bucket.put("manifest", b"{}")
    done = interlock("doctor", URL)
    assert (done.code, "error [manifest]" in done.out) == (1, True)
    assert interlock("doctor", "s3://bucket/shop/nothing").code == 4


def test_the_probe_is_for_buckets_and_cleans_up(interlock: Interlock, bucket: MemoryBucket, tmp_path: Path) -> None:
    before = bucket.keys("")
    done = interlock("doctor", URL, "--probe")
    assert (done.code, bucket.keys("")) == (0, before)
    done = interlock("doctor", f"lanes://{tmp_path}/stock", "--probe")
    assert (done.code, "for databases in buckets" in done.err) == (2, True)


def test_every_finding_in_a_bucket_is_on_the_page() -> None:
    [table] = re.findall(r"\| finding in a bucket \|.*?\n\n", PAGE, re.DOTALL)
    assert set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == set(doctor_report.FINDINGS)


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with console.watching() as watch:
        watch("replaying the log", 1, 2)
        watch("replaying the log", 2, 2)
    assert "replaying the log" in capsys.readouterr().err
