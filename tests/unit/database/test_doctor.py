"""The doctor for a database's address: it finds the file, and reads a schema that calls functions of the dialect."""

import asyncio
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.database.doctor import examine_database
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.lane_doctor import LaneReport


async def fill(url: str) -> LaneReport:
    """Make a lane; returns what the doctor says while it is open."""
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE entry (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), n numeric)")
        await db.execute("INSERT INTO entry (id, n) VALUES (1, 1.50)", key="k")
        return await asyncio.to_thread(examine_database, url)


def test_a_lane_is_found_by_its_address(tmp_path: Path) -> None:
    while_open = asyncio.run(fill(f"lanes://{tmp_path}/stock"))
    report = examine_database(f"lanes://{tmp_path}/stock")
    assert (report.healthy, report.tables, report.keys) == (True, 1, 1)
    assert report.path.endswith("stock.lane")
    assert report.owner is None
    assert while_open.owner is not None


def test_what_is_not_there_or_in_memory_is_told(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound):
        _ = examine_database(f"lanes://{tmp_path}/nothing")
    with pytest.raises(BadUsage, match="in memory") as caught:
        _ = examine_database("memory:")
    assert "only inside the process" in caught.value.why
