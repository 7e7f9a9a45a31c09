"""Evidence of databases that are in use: what owners tell beside their lanes, streams together with their database."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from interlock import Database
from interlock.clock import Clock, SystemClock
from interlock.errors import TargetNotFound
from interlock.hotrow import placement_advice
from interlock.hotrow.contention_windows import HotRowsReading, Window
from interlock.hotrow.placement_advice import Choice, Evidence, advise, as_evidence, gather
from interlock.lanes.hot_rows import HotReport, hot_path
from tests.unit.hotrow.placement_advice.windows import a_tool, row


def told(
    database: str = "stock",
    *,
    at_s: float = 100.0,
    p99_s: float | None = 0.01,
    handoffs: float = 10.0,
    writes: float = 50,
) -> Window:
    return Window(
        database=database,
        url=f"lanes:///var/shop/{database.replace('/', '.streams/')}",
        engine="lane",
        at_s=at_s,
        seconds=5.0,
        transactions_per_s=writes,
        latency_p99_s=p99_s,
        rows_seen=3,
        flag_threshold=80.0,
        rows=[row(handoffs, key=database)],
    )


def test_a_window_of_a_lane_is_a_window_of_evidence() -> None:
    [found] = as_evidence([told()])
    assert (found.database, found.engine, found.seconds, found.at_s) == ("stock", "lane", 5.0, 100.0)
    assert (found.writes_per_s, found.distinct_rows, found.p99_s, found.streams) == (50, 3, 0.01, 1)
    assert (found.flag_threshold, found.url) == (80.0, "lanes:///var/shop/stock")
    assert found.rows == (row(10, key="stock"),)


def test_every_window_of_one_lane_counts_oldest_first() -> None:
    found = as_evidence([told(at_s=105.0, writes=2), told(at_s=100.0, writes=1), told(at_s=101.0, writes=3)])
    assert [each.writes_per_s for each in found] == [1, 3, 2]


def test_a_database_and_its_streams_are_one_workload() -> None:
    windows = [
        told("stock/a", at_s=100.5, handoffs=1, p99_s=0.03),
        told("stock/b", at_s=101.0, handoffs=90, p99_s=None),
        told("stock/a", at_s=104.9, handoffs=2, p99_s=0.02),
        told("stock", at_s=104.0, handoffs=5),
        told("stock/b", at_s=106.0, handoffs=4),
        told("other", at_s=103.0),
    ]
    other, first, second = as_evidence(windows)
    assert (first.database, first.streams, first.writes_per_s, first.distinct_rows) == ("stock", 3, 150, 9)
    assert [each.key for each in first.rows] == ["stock/b", "stock", "stock/a"]
    assert [each.handoffs_per_s for each in first.rows] == [90, 5, 2]
    assert (first.p99_s, first.url) == (0.02, "lanes:///var/shop/stock")
    assert (second.streams, second.writes_per_s, second.at_s) == (3, 50, 106.0)
    assert (other.database, other.streams) == ("other", 1)


def test_a_database_that_only_its_shards_have_told_of_is_named_by_its_own_address() -> None:
    """D10: the address in a command that a person runs is the database's, never a shard's."""
    shard = msgspec.structs.replace(told("stock/shards/3"), url="lanes:///var/shop/stock.shards/3")
    nested = msgspec.structs.replace(told("stock/eu/shards/3"), url="lanes:///var/shop/stock.streams/eu.shards/3")
    for windows in ([shard], [nested]):
        [found] = as_evidence(windows)
        assert (found.database, found.url) == ("stock", "lanes:///var/shop/stock")


def test_the_rows_of_a_window_are_bounded() -> None:
    many = msgspec.structs.replace(told(), rows=[row(number, key=number) for number in range(500)])
    [found] = as_evidence([many])
    assert [each.key for each in found.rows[:2]] == [499, 498]
    assert len(found.rows) == 20


def test_what_an_owner_has_told_is_gathered(tmp_path: Path) -> None:
    clock = SystemClock()
    url = f"lanes://{tmp_path}/stock"

    async def run() -> None:
        async with Database.open(url):
            report = HotReport(
                at_s=clock.wall_s(),
                pid=os.getpid(),
                window_s=5.0,
                transactions_per_s=400.0,
                groups_per_s=20.0,
                latency_p99_s=0.03,
                rows_seen=1,
                flag_threshold=50.0,
                rows=[row(380)],
                key_types={},
            )
            hot_path(tmp_path / "stock.lane").write_bytes(msgspec.msgpack.encode(report))
            seen = await gather(url, 0, clock=clock)
            assert [each.p99_s for each in seen.windows] == [0.03]
            assert seen.windows[0].rows == (row(380),)
            assert seen.notes == []
        assert (await gather(url, 0, clock=clock)).windows == []

    asyncio.run(run())


def test_where_nobody_has_told_anything_that_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with Database.open(f"lanes://{tmp_path}/stock") as db:
            await db.execute("CREATE TABLE t (a integer)")
        seen = await gather(f"lanes://{tmp_path}/stock", 0, clock=SystemClock())
        assert seen.windows == []
        assert "No process has stock open" in seen.notes[0]
        with pytest.raises(TargetNotFound):
            await gather(f"lanes://{tmp_path}/nowhere", 0, clock=SystemClock())

    asyncio.run(run())


@pytest.mark.slow
def test_a_healthy_counter_in_a_real_lane_stays_whatever_its_budget(tmp_path: Path) -> None:
    """Spread over shards such a counter fell from 20,000 adds per second to 2,800."""
    url = f"lanes://{tmp_path}/likes"

    async def adding(db: Database, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await db.counter("views", kind="exact").add(1)

    async def scenario() -> list[Evidence]:
        stop = asyncio.Event()
        async with Database.open(url) as db, asyncio.TaskGroup() as writers:
            for _ in range(64):
                writers.create_task(adding(db, stop))
            windows: list[Evidence] = []
            while not windows:
                windows = (await gather(url, 1.0, clock=SystemClock())).windows
            stop.set()
        return windows

    window = asyncio.run(scenario())[-1]
    assert window.rows[0].table == "hotrow_counter"
    assert window.rows[0].flagged
    assert window.p99_s is not None
    needs = a_tool(shardable=True, budget_s=1.5 * window.p99_s, rate=window.writes_per_s / 2)
    assert advise(needs, window).choice == Choice("stay")
    late = msgspec.structs.replace(needs, write_latency_budget=window.p99_s / 3)
    told = advise(late, window)
    assert (told.action, any(line.startswith("The groups of its lane have room") for line in told.evidence)) == (
        "stay",
        True,
    )


def test_sessions_of_postgresql_report_their_commits_late_and_each_window_has_the_rate_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter([0.0, 6_000.0, 0.0, 0.0, 6_000.0, 0.0])  # As seen with windows of half a second.

    async def look(_url: str, seconds: float, *, clock: Clock) -> HotRowsReading:
        window = Window(
            database="shop", url="postgresql://db/shop", engine="postgres", at_s=clock.wall_s(), seconds=seconds,
            transactions_per_s=next(rates), flag_threshold=50.0, rows=[],
        )  # fmt: skip
        return HotRowsReading(windows=[window], notes=[])

    monkeypatch.setattr(placement_advice, "look", look)
    seen = asyncio.run(placement_advice.gather("postgresql://db/shop", 3.0, clock=SystemClock()))
    assert [each.writes_per_s for each in seen.windows] == [2_000.0] * 6
