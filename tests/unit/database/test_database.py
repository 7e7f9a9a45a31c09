"""`Database`: keys, statements with rows, two event loops, opening and closing."""

import asyncio
import threading
from pathlib import Path

import pytest

from interlock.catalog.open_lane import Place
from interlock.database.database import Database, Opening
from interlock.database.lane_engine import OnLane, opened_here
from interlock.errors import LaneOwned
from interlock.lanes.handover import Arrived
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from tests.unit.lanes.lanes import SetClock


def test_a_cancelled_opening_leaves_nobody_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, closed = threading.Event(), threading.Event(), threading.Event()
    close = Lane.close

    def slow(_opening: Opening, place: Place, url: str, permission: Arrived | None = None) -> OnLane:
        begun.set()
        go.wait()
        return opened_here(place, url=url, settings=LaneSettings(), clock=SetClock(), permission=permission)

    def closing(lane: Lane) -> None:
        close(lane)
        closed.set()

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Opening, "_lane", slow)
            patch.setattr(Lane, "close", closing)
            opening = asyncio.ensure_future(_open(tmp_path))
            await asyncio.to_thread(begun.wait)
            opening.cancel()
            await asyncio.wait({opening})
            assert opening.cancelled()
            go.set()
            await asyncio.to_thread(closed.wait)
        async with Database.open(f"lanes://{tmp_path}/x"):
            pass

    asyncio.run(scenario())


async def _open(folder: Path) -> Database:
    return await Database.open(f"lanes://{folder}/x")


def test_an_opening_that_fails_after_it_was_cancelled_is_nobodys_concern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, failed = threading.Event(), threading.Event(), threading.Event()

    def slow(_opening: object, _place: object, _url: object, _permission: object = None) -> object:
        begun.set()
        go.wait()
        failed.set()
        raise LaneOwned("somebody else's")

    monkeypatch.setattr(Opening, "_lane", slow)

    async def scenario() -> None:
        opening = asyncio.ensure_future(_open(tmp_path))
        await asyncio.to_thread(begun.wait)
        opening.cancel()
        await asyncio.wait({opening})
        go.set()
        await asyncio.to_thread(failed.wait)

    asyncio.run(scenario())
