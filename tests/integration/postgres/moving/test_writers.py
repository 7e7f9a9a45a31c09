"""Sixteen writers go on while their database moves to PostgreSQL and back: exact, and with retryable errors alone."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from interlock import Database
from interlock.relocate.route_by_name import find_route, move_along
from tests.integration.postgres.moving.places import CLOCK, pair
from tests.integration.postgres.moving.writers import Writers


async def _here(home: str, target: str) -> None:
    route = await find_route("shop", target, home=home, clock=CLOCK)
    moved = await move_along(route, clock=CLOCK)
    assert moved.checksum


async def _beside(home: str, target: str) -> None:
    """By the command, in a process of its own."""
    words = ["-m", "interlock", "route", "shop", "--to", target, "--home", home]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"Moved shop to " in said, said.decode()


def _engine(db: Database) -> str:
    return db.engine


@pytest.mark.slow
@pytest.mark.parametrize("how", [_here, _beside], ids=["in this process", "in another process"])
def test_nothing_is_lost_or_doubled_on_the_way_there_and_back(
    how: Callable[[str, str], Awaitable[None]], postgres: str, tmp_path: Path
) -> None:
    places = pair("lane-to-postgres", postgres, tmp_path)
    home = f"lanes://{tmp_path}"

    async def main() -> None:
        await Writers.prepared(f"{home}/shop")
        async with Database.open("shop", home=home) as db:
            writers = Writers(db)

            async def there_and_back() -> None:
                await how(home, places.target)
                await writers.more(200)
                assert _engine(db) == "postgres"
                await how(home, f"{home}/shop")
                await writers.more(200)
                assert _engine(db) == "lane"

            await writers.run(there_and_back)
            await writers.check(db)
        async with Database.open("shop", home=home) as again:
            await writers.check(again)

    asyncio.run(main())
