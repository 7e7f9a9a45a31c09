"""Children are started, counted and joined exactly once by processes that are killed at any moment (E1, E2)."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Engine
from tests.conformance.engine.families import OrderState, orders, parcels
from tests.conformance.engine.places import run
from tests.integration.postgres.test_restarts import OwnServer, own_server

__all__ = ["own_server"]

COUNT = 200 * int(os.environ.get("INTERLOCK_CRASHES", "1"))
"""Children of the order. `INTERLOCK_CRASHES=500` means 100,000."""

KILLS = 6


def _run_and_kill(url: str, lines: int | None, crash: Callable[[], None] | None = None) -> list[str]:
    """Run the program, kill it after so many lines, and return what it printed; None lets it end.

    `crash` is called after the first half of the lines: the program goes on.
    """
    command = [sys.executable, "-m", "tests.crash.families_killed", url, str(COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        seen: list[str] = []
        for line in program.stdout:
            seen.append(line.strip())
            if crash is not None and lines is not None and len(seen) == (lines + 1) // 2:
                crash()
            if lines is not None and len(seen) >= lines:
                break
        if lines is not None:
            program.kill()
    return seen


async def _check(url: str) -> None:
    """Every child was started, has ended and was counted once."""
    parcel = parcels()
    order = orders(parcel)
    async with Engine.open(url, machines=[order, parcel], worker=False) as engine:
        view = await engine.get("o")
        assert view.state is OrderState.SHIPPED
        assert [row.event for row in await engine.history("o")] == ["STARTED", "PAY", "CHILDREN_JOINED"]
        children = set[str]()
        cursor: str | None = None
        while True:
            page = await engine.children("o", limit=1_000, cursor=cursor)
            assert {each.version for each in page.items} <= {2}
            assert children.isdisjoint(each.id for each in page.items)
            children |= {each.id for each in page.items}
            cursor = page.cursor
            if cursor is None:
                break
        assert children == {f"o.s{number}" for number in range(COUNT)}
        assert await engine.dead_letters() == []


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["lane", "postgres"])
@pytest.mark.parametrize("seed", [1, 2])
def test_an_order_survives_kills_of_its_process(
    kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"lanes://{tmp_path}/home" if kind == "lane" else str(request.getfixturevalue("postgres_url"))
    chance = random.Random(seed)
    for _ in range(KILLS):
        _run_and_kill(url, chance.randint(1, 10))
    assert _run_and_kill(url, None)[-1] == f"joined {COUNT}"
    run(lambda: _check(url))


@pytest.mark.slow
def test_an_order_survives_kills_of_its_process_and_crashes_of_its_server(own_server: OwnServer) -> None:
    chance = random.Random(1)
    for _ in range(KILLS):
        _run_and_kill(own_server.url, chance.randint(2, 10), lambda: own_server.restart("immediate"))
    assert _run_and_kill(own_server.url, None)[-1] == f"joined {COUNT}"
    run(lambda: _check(own_server.url))
