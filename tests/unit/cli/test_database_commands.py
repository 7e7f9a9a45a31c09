"""`interlock databases` and the doctor of a home: where each name lives, and what its place says itself."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from interlock.catalog.catalog import FILE, FolderCatalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.clock import SystemClock
from interlock.database.database import Database
from interlock.database.lane_engine import Translators
from interlock.lanes.handover import Draft, Leaving
from tests.unit.cli.running import Interlock
from tests.unit.database.test_moved_lanes import leave, mark, path_of

TARGET = "postgresql://shop:secret@db.internal/shop?schema=stock"


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A home with two databases that nobody uses."""
    address = f"lanes://{tmp_path}/home"

    async def fill() -> None:
        for name in ("ledger", "stock"):
            async with Database.open(name, home=address) as db:
                await db.execute("CREATE TABLE t (n bigint PRIMARY KEY)")

    asyncio.run(fill())
    return address


def listed(interlock: Interlock, home: str) -> dict[str, dict[str, object]]:
    done = interlock("databases", "--home", home, "-o", "json")
    assert (done.code, done.err) == (0, "")
    return {each["name"]: each for each in json.loads(done.out)}


def test_a_home_that_is_not_there_is_not_an_empty_one(interlock: Interlock, tmp_path: Path) -> None:
    done = interlock("databases", "--home", f"lanes://{tmp_path}/nothing")
    assert (done.code, done.out) == (4, "")
    assert f"there is no home at lanes://{tmp_path}/nothing" in done.err
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "nothing").mkdir()
    done = interlock("databases", "--home", f"lanes://{tmp_path}/nothing")
    assert done.code == 0
    assert f"No database was opened at lanes://{tmp_path}/nothing yet." in done.err


def test_a_lane_that_was_only_opened_by_its_address_is_listed(interlock: Interlock, home: str) -> None:
    async def fill() -> None:
        async with Database.open(f"{home}/orders") as db:
            await db.execute("CREATE TABLE t (n bigint PRIMARY KEY)")

    asyncio.run(fill())
    Path(home.removeprefix("lanes://"), ".hidden.lane").touch()
    assert list(listed(interlock, home)) == ["ledger", "orders", "stock"]
    assert listed(interlock, home)["orders"]["state"] == "lives"


def test_names_are_listed_with_where_they_live(interlock: Interlock, home: str) -> None:
    done = interlock("databases", "--home", home)
    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()] == [
        ["name", "what", "lives", "at", "move", "state"],
        ["ledger", "database", f"{home}/ledger"],
        ["stock", "database", f"{home}/stock"],
    ]
    assert interlock("databases", "--home", home, "-o", "ids").out.split() == ["ledger", "stock"]
    assert listed(interlock, home)["stock"] == {
        "name": "stock",
        "kind": "databases",
        "url": f"{home}/stock",
        "epoch": 0,
        "state": "lives",
        "other": "",
        "other_epoch": 0,
        "note": "",
    }


def test_a_home_in_memory_has_nothing_to_list(interlock: Interlock) -> None:
    assert interlock("databases", "--home", "memory:").code == 2


def test_what_was_moved_is_listed_where_it_lives_and_no_secret_is_shown(interlock: Interlock, home: str) -> None:
    catalog = FolderCatalog(home)
    catalog.enter("order", CatalogEntry(TARGET, 2), kind="workflows")
    catalog.enter("far", CatalogEntry("s3://bucket/far?secret_access_key=K", 3))
    found = listed(interlock, home)
    assert (found["order"]["kind"], found["order"]["epoch"], found["order"]["state"]) == ("workflows", 2, "unseen")
    assert (found["far"]["url"], found["far"]["state"]) == ("s3://bucket/far", "unseen")
    assert "secret" not in json.dumps(found)


def test_what_is_moving_is_listed(interlock: Interlock, home: str, tmp_path: Path) -> None:
    leaving = Leaving(path_of(f"{home}/stock"), clock=SystemClock(), prepare=Translators().prepare)
    leaving.watch({"t": ("n",)})
    mark(path_of(f"{home}/ledger"), Draft(4, "lanes:///elsewhere"))
    FolderCatalog(home).locate("nothing")
    found = listed(interlock, home)
    leaving.close()
    assert found["stock"]["state"] == "moving"
    assert (found["ledger"]["state"], found["ledger"]["other"], found["ledger"]["other_epoch"]) == (
        "arriving",
        "lanes:///elsewhere",
        4,
    )
    assert found["nothing"]["state"] == "absent"
    table = interlock("databases", "--home", home).out
    assert "arriving from lanes:///elsewhere (move 4)" in table
    assert "moving" in table
    assert not (tmp_path / "home" / "nothing.lane").exists()


def test_a_catalog_that_is_behind_is_told_and_corrected_by_the_next_who_opens(
    interlock: Interlock, home: str, tmp_path: Path
) -> None:
    new = f"lanes://{tmp_path}/elsewhere/stock"
    leave(f"{home}/stock", new, 1)
    assert (listed(interlock, home)["stock"]["state"], listed(interlock, home)["stock"]["other"]) == ("left", new)
    assert f"left for {new} (move 1)" in interlock("databases", "--home", home).out
    done = interlock("doctor", home)
    assert done.code == 0
    assert "[stale-catalog]" in done.out
    assert f"lives at {new} since move 1" in done.out

    async def once() -> None:
        async with Database.open("stock", home=home):
            pass

    asyncio.run(once())
    assert (listed(interlock, home)["stock"]["state"], listed(interlock, home)["stock"]["url"]) == ("lives", new)
    assert "stale" not in interlock("doctor", home).out


def test_the_doctor_of_a_lane_that_was_left_names_the_new_place(
    interlock: Interlock, home: str, tmp_path: Path
) -> None:
    leave(f"{home}/stock", f"lanes://{tmp_path}/elsewhere/stock", 1)
    done = interlock("doctor", f"{home}/stock")
    assert done.code == 0
    assert f"[moved]\n  move 1 has left: everything lives at lanes://{tmp_path}/elsewhere/stock now." in done.out


def test_the_doctor_says_of_a_lane_that_it_is_moving_or_arriving(interlock: Interlock, home: str) -> None:
    leaving = Leaving(path_of(f"{home}/stock"), clock=SystemClock(), prepare=Translators().prepare)
    leaving.watch({"t": ("n",)})
    leaving.close()
    mark(path_of(f"{home}/ledger"), Draft(4, TARGET))
    assert "[leaving]" in interlock("doctor", f"{home}/stock").out
    arriving = interlock("doctor", f"{home}/ledger").out
    assert "[arriving]" in arriving
    assert "secret" not in arriving
    report = interlock("doctor", home)
    assert report.code == 1
    assert "[place-arriving]" in report.out
    assert "[leaving]" in report.out


def test_the_doctor_of_a_home_finds_what_was_moved_to_nowhere(interlock: Interlock, home: str, tmp_path: Path) -> None:
    FolderCatalog(home).enter("stock", CatalogEntry(f"lanes://{tmp_path}/gone/stock", 1))
    done = interlock("doctor", home)
    assert done.code == 1
    assert "error [place-empty]" in done.out
    report = json.loads(interlock("doctor", home, "-o", "json").out)
    assert (report["databases"], report["moved"], report["healthy"]) == (2, 1, False)


def test_a_place_that_cannot_be_read_is_told_and_the_others_are_listed(
    interlock: Interlock, home: str, tmp_path: Path
) -> None:
    (tmp_path / "home" / "ledger.lane").write_bytes(b"no database at all" * 100)
    done = interlock("databases", "--home", home)
    assert done.code == 0
    assert "ledger could not be looked at" in done.err
    assert "stock" in done.out
    report = interlock("doctor", home)
    assert report.code == 1
    assert "[place-unseen]" in report.out


def test_a_catalog_that_cannot_be_read_is_an_error(interlock: Interlock, home: str, tmp_path: Path) -> None:
    (tmp_path / "home" / FILE).write_bytes(b"{")
    for command in (("databases", "--home", home), ("doctor", home)):
        done = interlock(*command)
        assert done.code == 1
        assert "cannot be read" in done.err


def test_a_folder_and_a_lane_of_one_name_are_told_apart(interlock: Interlock, home: str) -> None:
    """A lane is looked at itself, also when a home with its name lies beside it."""
    apsw.Connection(str(path_of(home))).close()

    async def make() -> None:
        path_of(home).unlink(missing_ok=True)
        async with Database.open(home):
            pass

    asyncio.run(make())
    assert " lane " in interlock("doctor", home).out
