"""D9: looking from outside finds every lane of a home, reads what owners told, and says what it cannot see."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.clock import SystemClock
from interlock.errors import BadUsage, TargetNotFound
from interlock.hotrow import contention_windows
from interlock.hotrow.contention_windows import HotRowsReading, lanes_at, look
from interlock.lanes.file import Ownership
from interlock.lanes.hot_rows import HotReport, HotRow, hot_path
from interlock.urls import lane_path

ResultT = TypeVar("ResultT")


class Stepping:
    """A clock whose monotonic hand moves when it is looked at, so that waiting for it takes no time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_s(self) -> float:
        return 1_000.0 + self.now_s

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s


def run(coroutine: Coroutine[object, object, ResultT]) -> ResultT:
    return asyncio.run(coroutine)


def lane(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def tell(path: Path, *rows: HotRow, at_s: float = 1_000.0, key_types: dict[str, tuple[str, ...]] | None = None) -> None:
    report = HotReport(
        at_s=at_s,
        pid=1,
        window_s=5.0,
        transactions_per_s=400.0,
        groups_per_s=40.0,
        latency_p99_s=0.01,
        rows_seen=9,
        flag_threshold=50.0,
        rows=list(rows),
        key_types=key_types or {},
    )
    hot_path(path).write_bytes(msgspec.msgpack.encode(report))


def row(key: object) -> HotRow:
    return HotRow(table="t", key=key, handoffs_per_s=60.0, writes_per_s=60.0, wait_s=0.001, flagged=True)


def looked(url: str, *, seconds: float = 0.0, patient: bool = False) -> HotRowsReading:
    return run(look(url, seconds, clock=Stepping(), patient=patient))


def test_a_home_is_all_of_its_databases_and_their_streams_wherever_they_live(tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"
    catalog = FolderCatalog(home)
    for name in ("stock", "workflows"):
        catalog.locate(name)
        lane(tmp_path / "shop" / f"{name}.lane")
    lane(tmp_path / "shop" / "unlisted.lane")
    lane(tmp_path / "shop" / "stock.streams" / "eu.lane")
    catalog.enter("ledger", CatalogEntry(f"lanes://{tmp_path}/elsewhere/ledger", 1))
    catalog.enter("far", CatalogEntry("s3://bucket/far", 1))
    assert [place.name for place in lanes_at(home, cache=str(tmp_path))] == [
        "stock", "stock/eu", "unlisted", "workflows", "far", "ledger",
    ]  # fmt: skip
    assert [place.name for place in lanes_at(f"{home}/stock")] == ["stock", "stock/eu"]
    assert [place.url for place in lanes_at(f"{home}/stock")] == [f"{home}/stock", f"{home}/stock.streams/eu"]


def test_the_shards_of_counters_are_looked_at_too_those_of_streams_included(tmp_path: Path) -> None:
    """D5, D9: on lanes the shards of a counter are databases of their own, and each of them can be hot."""
    url = f"lanes://{tmp_path}/stock"
    for file in ("stock", "stock.shards/0", "stock.streams/0", "stock.streams/eu", "stock.streams/eu.shards/1"):
        lane(tmp_path / f"{file}.lane")
    found = lanes_at(url)
    assert [place.name for place in found] == [
        "stock", "stock/0", "stock/eu", "stock/eu/shards/1", "stock/shards/0",
    ]  # fmt: skip
    assert found[3].url == f"{url}.streams/eu.shards/1"
    assert [lane_path(place.url) for place in found] == [place.file for place in found]


def test_an_address_without_a_database_is_not_found_and_memory_cannot_be_looked_into(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match="no database"):
        lanes_at(f"lanes://{tmp_path}/nowhere")
    with pytest.raises(BadUsage, match="memory"):
        lanes_at("memory:")
    with pytest.raises(BadUsage):
        lanes_at("http://x/y")


def test_what_an_owner_told_is_read_with_keys_as_they_were_written(tmp_path: Path) -> None:
    path = lane(tmp_path / "stock.lane")
    owner = Ownership.take(path, SystemClock())
    tell(path, row(UUID(int=7).bytes), key_types={"t": ("uuid",)})
    seen = looked(f"lanes://{tmp_path}/stock", seconds=60.0)
    owner.release()
    [window] = seen.windows
    assert seen.notes == []
    assert (window.database, window.engine, window.transactions_per_s, window.rows_seen) == ("stock", "lane", 400.0, 9)
    assert window.rows[0].key == UUID(int=7)


def test_what_nobody_owns_is_told_so_and_old_files_are_ignored(tmp_path: Path) -> None:
    path = lane(tmp_path / "stock.lane")
    tell(path, row(1))
    seen = looked(f"lanes://{tmp_path}/stock", seconds=60.0)
    assert seen.windows == []
    assert seen.notes == ["No process has stock open, so nothing is written there."]
    owner = Ownership.take(path, SystemClock())
    tell(path, row(1), at_s=500.0)
    seen = looked(f"lanes://{tmp_path}/stock")
    owner.release()
    assert seen.windows == []
    assert "too little is written" in seen.notes[0]


def test_a_patient_look_returns_every_window_that_was_told_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lane(tmp_path / "stock.lane")
    owner = Ownership.take(path, SystemClock())
    told: list[float] = []

    async def instead(_seconds: float) -> None:
        told.append(1_000.0 + len(told))
        tell(path, row(len(told)), at_s=told[-1])

    monkeypatch.setattr(asyncio, "sleep", instead)
    seen = looked(f"lanes://{tmp_path}/stock", seconds=6.0, patient=True)
    owner.release()
    assert len(seen.windows) > 2
    assert [window.at_s for window in seen.windows] == told[: len(seen.windows)]


def test_a_look_at_any_number_of_streams_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_windows, "LANES_MAX", 5)
    lane(tmp_path / "stock.lane")
    for number in range(20):
        lane(tmp_path / "stock.streams" / f"{number}.lane")
    assert len(lanes_at(f"lanes://{tmp_path}/stock")) == 5
