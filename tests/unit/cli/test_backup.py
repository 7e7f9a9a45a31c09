"""`interlock backup`: what was acknowledged is in the copy, beside the owner too; what it prints and exits with."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock import Database, Engine
from interlock.backup import lane_copies as copying
from interlock.cli import main
from interlock.errors import LaneOwned
from interlock.lanes.objectlog.bucket_protocol import silent
from tests.unit.cli import shop
from tests.unit.cli.running import Interlock
from tests.unit.database.stored import in_memory


async def filled(url: str, rows: int = 3) -> None:
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE ledger (id integer PRIMARY KEY, text text NOT NULL)")
        for number in range(rows):
            await db.execute("INSERT INTO ledger (id, text) VALUES ($1, $2)", number, "x" * 50)


async def counted(url: str) -> int:
    async with Database.open(url) as db:
        [(rows,)] = await db.query("SELECT count(*) FROM ledger")
        assert isinstance(rows, int)
        return rows


def test_a_copy_of_a_closed_lane_opens(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(filled(url))
    done = interlock("backup", url, str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert f"It opens as lanes://{tmp_path}/copy" in done.out
    assert asyncio.run(counted(f"lanes://{tmp_path}/copy")) == 3
    assert interlock("doctor", f"lanes://{tmp_path}/copy").code == 0
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".copy")) == []


def test_everything_acknowledged_is_in_the_copy_beside_a_writing_owner(tmp_path: Path) -> None:
    """D12: the owner writes before, during and after; the copy has all of before, and one instant of the rest."""
    url = f"lanes://{tmp_path}/shop/stock"

    async def run() -> list[tuple[int, int, int]]:
        seen: list[tuple[int, int, int]] = []
        async with Database.open(url) as db:
            await db.execute("CREATE TABLE ledger (id integer PRIMARY KEY, text text NOT NULL)")
            written = 0
            stop = asyncio.Event()
            grown = asyncio.Event()

            async def write() -> None:
                nonlocal written
                while not stop.is_set():
                    await db.execute("INSERT INTO ledger (id, text) VALUES ($1, $2)", written, "x" * 500)
                    written += 1
                    if not written % 20:
                        grown.set()

            writing = asyncio.create_task(write())
            for turn in range(4):
                grown.clear()
                await grown.wait()
                before = written
                code = await asyncio.to_thread(main, ["backup", url, str(tmp_path / f"copy-{turn}.lane")])
                seen.append((code, before, written))
            stop.set()
            await writing
        return seen

    for turn, (code, before, after) in enumerate(asyncio.run(run())):
        assert code == 0
        assert before <= asyncio.run(counted(f"lanes://{tmp_path}/copy-{turn}")) <= after + 1


def test_the_home_of_workflows_is_copied(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"

    async def run() -> int:
        async with Engine.open(home, machines=[shop.order], worker=False) as engine:
            await engine.start(shop.order, "o-1", shop.Order())
            # The folder of the copy is a home of its own.
            (tmp_path / "other").mkdir()
            return await asyncio.to_thread(main, ["backup", home, str(tmp_path / "other" / "workflows.lane")])

    assert asyncio.run(run()) == 0
    catalog = json.loads((tmp_path / "home" / "interlock-catalog.json").read_text())
    (tmp_path / "other" / "interlock-catalog.json").write_text(json.dumps(catalog))
    assert interlock("show", "o-1", "-o", "ids", "--home", f"lanes://{tmp_path}/other").out == "o-1\n"


def test_a_home_with_several_databases_asks_which(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"

    async def run() -> None:
        for name in ("stock", "views"):
            async with Database.open(name, home=home):
                pass

    asyncio.run(run())
    done = interlock("backup", home, str(tmp_path / "copy.lane"))
    assert done.code == 4
    assert "stock, views" in done.err
    assert interlock("backup", f"{home}/stock", str(tmp_path / "copy.lane")).code == 0


def test_a_lane_whose_owner_was_killed_is_copied_with_its_log(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"

    async def run() -> None:
        async with Database.open(url) as db:
            await db.execute("CREATE TABLE ledger (id integer PRIMARY KEY, text text NOT NULL)")
            await db.execute("INSERT INTO ledger (id, text) VALUES (1, 'kept')")
            for suffix in ("", "-wal"):
                file = tmp_path / "shop" / f"stock.lane{suffix}"
                (tmp_path / "shop" / f"left.lane{suffix}").write_bytes(file.read_bytes())

    asyncio.run(run())
    done = interlock("backup", f"lanes://{tmp_path}/shop/left", str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert asyncio.run(counted(f"lanes://{tmp_path}/copy")) == 1


def test_nothing_is_overwritten_unless_it_is_asked_for(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(filled(url))
    copy = tmp_path / "copy.lane"
    copy.write_text("mine")
    done = interlock("backup", url, str(copy))
    assert (done.code, copy.read_text()) == (1, "mine")
    assert "--force" in done.err
    assert interlock("backup", url, str(copy), "--force").code == 0
    itself = interlock("backup", url, str(tmp_path / "shop" / "stock.lane"), "--force")
    assert itself.code == 1
    assert "is the lane itself" in itself.err


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("lanes:///no/such/lane", 4, "there is no lane"),
        ("memory:", 2, "in memory"),
        ("postgresql://shop@127.0.0.1:1/shop", 5, "PostgreSQL"),
        ("stock", 2, "is not the address"),
    ],
)
def test_what_cannot_be_copied_is_told(interlock: Interlock, tmp_path: Path, url: str, code: int, told: str) -> None:
    done = interlock("backup", url, str(tmp_path / "copy.lane"))
    assert done.code == code
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_damaged_lane_leaves_no_copy(interlock: Interlock, tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(filled(url, rows=200))
    lane = tmp_path / "shop" / "stock.lane"
    pages = bytearray(lane.read_bytes())
    pages[8192:12288] = b"\xff" * 4096
    lane.write_bytes(pages)
    done = interlock("backup", url, str(tmp_path / "copy.lane"))
    assert done.code == 1
    assert "interlock doctor" in done.err
    assert not (tmp_path / "copy.lane").exists()
    assert interlock("backup", f"lanes://{tmp_path}/shop/none", str(tmp_path / "copy.lane")).code == 4


def test_a_lane_that_changes_at_every_look_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"lanes://{tmp_path}/shop/stock"
    asyncio.run(filled(url))
    looks = iter(range(100))
    monkeypatch.setattr(copying, "traces", lambda _path: (next(looks), 0, 0))
    with pytest.raises(LaneOwned):
        copying.copy_lane(tmp_path / "shop" / "stock.lane", tmp_path / "copy.lane", force=False, watch=silent)
    assert list(tmp_path.glob(".copy*")) == []


def test_a_database_in_a_bucket_is_copied_from_its_log(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory(monkeypatch)
    monkeypatch.setenv("INTERLOCK_CACHE", str(tmp_path / "cache"))
    asyncio.run(filled("s3://bucket/shop/stock"))
    done = interlock("backup", "s3://bucket/shop/stock", str(tmp_path / "copy.lane"))
    assert done.code == 0, done.err
    assert asyncio.run(counted(f"lanes://{tmp_path}/copy")) == 3
