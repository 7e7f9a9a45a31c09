"""Sixteen writers go on while their database moves into a bucket, and while movers are killed: exact all the same."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import Database
from interlock.relocate.route_by_name import find_route, move_along
from tests.integration.objects.moving.buckets import without_key
from tests.integration.objects.servers import Moto
from tests.integration.postgres.moving.places import CLOCK
from tests.integration.postgres.moving.writers import Writers

KILLED = """
import asyncio, os, signal, sys
from interlock.relocate.route_by_name import find_route, move_along
from interlock.clock import SystemClock

name, home, target, last = sys.argv[1:]

def at(point):
    if point == last:
        os.kill(os.getpid(), signal.SIGKILL)

async def move():
    route = await find_route(name, target, home=home, clock=SystemClock())
    await move_along(route, clock=SystemClock(), at=at)

asyncio.run(move())
"""


@pytest.mark.campaign
@pytest.mark.parametrize("point", ["", "copy/index", "verify", "leave"])
def test_nothing_is_lost_or_doubled(point: str, moto: Moto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a point, a mover of another process is killed there first, and the next one goes on."""
    target = without_key(moto, monkeypatch, str(tmp_path / "cache"))
    home = f"lanes://{tmp_path}"

    async def scenario() -> None:
        await Writers.prepared(f"{home}/shop")
        async with Database.open("shop", home=home) as db:
            writers = Writers(db)

            async def move() -> None:
                if point:
                    words = ["-c", KILLED, "shop", home, target, point]
                    process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=subprocess.PIPE)
                    _, said = await process.communicate()
                    assert process.returncode == -9, said.decode()
                    await writers.more(100)
                route = await find_route("shop", target, home=home, clock=CLOCK)
                done = await move_along(route, clock=CLOCK)
                if point == "leave":  # Those who followed have ended the move, and told the catalog.
                    assert route.is_there
                    assert (done.resumed, done.epoch) == (True, 1)
                await writers.more(100)
                assert db.url.startswith("s3://")

            await writers.run(move)
            await writers.check(db)
        async with Database.open("shop", home=home) as again:
            assert again.url.startswith("s3://")
            await writers.check(again)

    asyncio.run(scenario())
