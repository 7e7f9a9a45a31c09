"""`interlock doctor`: what it prints, and what it exits with."""

import asyncio
import json
import re
from pathlib import Path

import apsw
import pytest

from interlock.database.database import Database
from interlock.errors import LaneOwned
from interlock.lanes import lane_doctor
from tests.docs.blocks import read_blocks
from tests.unit.cli.running import Interlock, run_program

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/command-line.md"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A lane with a table and a key, closed."""
    address = f"lanes://{tmp_path}/shop/stock"

    async def fill() -> None:
        async with Database.open(address) as db:
            await db.execute("CREATE TABLE stock (sku text PRIMARY KEY, n integer NOT NULL CHECK (n >= 0))")
            await db.execute("INSERT INTO stock (sku, n) VALUES ($1, $2)", "a", 1, key="first")

    asyncio.run(fill())
    return address


def test_a_healthy_lane_exits_with_0(interlock: Interlock, url: str) -> None:
    done = interlock("doctor", url)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("healthy\n")
    assert re.search(r"(?m)^ owner +none *$", done.out)


def test_the_sample_on_the_page_has_the_lines_of_the_real_thing(interlock: Interlock, url: str) -> None:
    [sample] = [block.text for block in read_blocks(PAGE.read_text()) if "$ interlock doctor lanes:" in block.text]
    labels = [line[:11] for line in sample.splitlines()[1:]]
    assert [line[:11] for line in interlock("doctor", url).out.splitlines()] == labels


def test_every_finding_is_on_the_page() -> None:
    known = set(lane_doctor.FINDINGS)
    [table] = re.findall(r"\| finding \|.*?\n\n", PAGE.read_text(), re.DOTALL)
    assert set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == known


def test_json_has_everything(interlock: Interlock, url: str) -> None:
    done = interlock("doctor", url, "-o", "json")
    report = json.loads(done.out)
    assert done.code == 0
    assert (report["healthy"], report["owner"], report["keys"], report["tables"]) == (True, None, 1, 1)
    assert report["findings"] == []


def test_beside_the_owner_it_names_the_owner(url: str, tmp_path: Path) -> None:
    async def owned() -> str:
        async with Database.open(url, idle_s=60) as db:
            await db.execute("UPDATE stock SET n = n + 1")
            done = await asyncio.to_thread(run_program, "doctor", url, "-o", "json", folder=tmp_path)
            assert done.code == 0, done.err
            await db.execute("UPDATE stock SET n = n + 1")
            return done.out

    report = json.loads(asyncio.run(owned()))
    assert report["owner"]["pid"] > 0
    assert report["log_bytes"] > 0


def test_problems_exit_with_1_and_tell_what_why_and_fix(interlock: Interlock, url: str, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "shop" / "stock.lane"))
    connection.execute("CREATE TABLE item (sku TEXT REFERENCES stock (sku)); INSERT INTO item VALUES ('gone')")
    connection.close()
    done = interlock("doctor", url)
    assert done.code == 1
    assert "error [foreign-key]\n  row 1 of item refers to a row of stock that is not there.\n  why: " in done.out
    assert done.out.endswith("1 problem\n")
    assert interlock("doctor", url, "-o", "json").code == 1


def test_no_lane_exits_with_4(interlock: Interlock, tmp_path: Path) -> None:
    done = interlock("doctor", f"lanes://{tmp_path}/nothing")
    assert done.code == 4
    assert "there is no lane at" in done.err
    assert not (tmp_path / "nothing.lane").exists()


def test_a_locked_lane_exits_with_5(interlock: Interlock, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise apsw.BusyError("database is locked")

    monkeypatch.setattr(lane_doctor, "_look", locked)
    done = interlock("doctor", url)
    assert done.code == 5
    assert LaneOwned.code == "lane-owned"
    assert "stayed locked" in done.err
