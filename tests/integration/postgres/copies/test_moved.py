"""A database that has moved is copied from where it lives; a move that would leave something behind is refused."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import Database, Engine
from interlock.backup.backup import back_up_database, put_back
from interlock.clock import SystemClock
from interlock.relocate.route_by_name import find_route, find_workflows, move_along, move_workflows_along
from tests.unit.cli import shop
from tests.unit.cli.running import plain_environment


async def moved(source: str, target: str) -> None:
    clock = SystemClock()
    await move_along(await find_route(source, target, home=None, clock=clock), clock=clock)


async def fill(url: str) -> None:
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE t (n integer PRIMARY KEY)")
        await db.execute("INSERT INTO t VALUES (7)")


async def held_at(url: str) -> object:
    async with Database.open(url) as db:
        return await db.query("SELECT n FROM t")


def test_a_backup_follows_a_move_there_and_back(postgres_url: str, tmp_path: Path) -> None:
    lane = f"lanes://{tmp_path}/shop"
    asyncio.run(fill(lane))
    asyncio.run(moved(lane, postgres_url))
    told: list[str] = []
    done = back_up_database(lane, tmp_path / "copy.lane", watch=lambda what, _done, _of: told.append(what))
    assert done.source == postgres_url
    assert any(each.startswith("it has moved: following it to postgresql://") for each in told)
    assert asyncio.run(held_at(f"lanes://{tmp_path}/copy")) == [(7,)]
    asyncio.run(moved(postgres_url, f"lanes://{tmp_path}/back"))
    again = back_up_database(lane, tmp_path / "again.lane")
    assert again.source == f"lanes://{tmp_path}/back"
    assert asyncio.run(held_at(f"lanes://{tmp_path}/again")) == [(7,)]


@pytest.mark.campaign
@pytest.mark.parametrize("place", ["lane", "postgres"])
@pytest.mark.parametrize("what", ["counter", "stream"])
def test_what_is_beside_a_database_comes_along(what: str, place: str, postgres_url: str, tmp_path: Path) -> None:
    lane = f"lanes://{tmp_path}/shop"
    source, target = (lane, postgres_url) if place == "lane" else (postgres_url, lane)

    async def run() -> None:
        async with Database.open(source, db_per_write_stream=True) as db:
            if what == "counter":
                await db.counter("views", kind="sharded").add(5)
            else:
                await (await db.stream("alpha")).execute("CREATE TABLE t (n integer PRIMARY KEY)")
        await moved(source, target)
        async with Database.open(source, db_per_write_stream=True) as db:
            if what == "stream":
                assert await (await db.stream("alpha")).query("SELECT n FROM t") == []
            assert await db.counter("views").value() == (5 if what == "counter" else 0)

    asyncio.run(run())


def test_workflows_that_have_moved_are_copied_from_where_they_live(postgres_url: str, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"

    async def begin() -> None:
        async with Engine.open(home, machines=[shop.order], worker=False) as engine:
            await engine.start(shop.order, "o-1", shop.Order())

    async def go_on(url: str) -> None:
        async with Engine.open(url, machines=[shop.order], worker=False) as engine:
            assert (await engine.get("o-1")).state is shop.State.DRAFT

    asyncio.run(begin())
    clock = SystemClock()
    found = asyncio.run(find_workflows("order", postgres_url, home=home, clock=clock))
    assert found is not None
    asyncio.run(move_workflows_along(found, clock=clock, watch=lambda *_: None))
    done = back_up_database(f"{home}/workflows", tmp_path / "shop.archive")
    assert done.source == postgres_url
    put_back(tmp_path / "shop.archive", f"{postgres_url}_there")
    asyncio.run(go_on(f"{postgres_url}_there"))


KILLED = """
import os, signal, sys
from pathlib import Path
from interlock.backup.backup import back_up_database
from interlock.backup.backup import put_back

def watch(what, done, of):
    if what.startswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

{"backup": lambda one, other: back_up_database(one, Path(other), watch=watch),
 "restore": lambda one, other: put_back(Path(one), other, watch=watch)}[sys.argv[1]](sys.argv[2], sys.argv[3])
"""


def killed(*words: str) -> int:
    return subprocess.run([sys.executable, "-c", KILLED, *words], env=plain_environment(), check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy.lane", "copy.archive"])
def test_whoever_is_killed_leaves_nothing_behind(name: str, postgres_url: str, tmp_path: Path) -> None:
    asyncio.run(fill(postgres_url))
    copy, there = tmp_path / name, f"{postgres_url}_there"
    assert killed("backup", postgres_url, str(copy), "copying tables") == -signal.SIGKILL
    assert not copy.exists()
    back_up_database(postgres_url, copy)
    assert killed("restore", str(copy), there, "restoring tables") == -signal.SIGKILL
    put_back(copy, there)  # The server has taken everything back: nothing is in the way.
    assert asyncio.run(held_at(there)) == [(7,)]
