"""D19: hot rows of every database in the process, and hot workflows, reach observers and alerts."""

import asyncio
import gc

import pytest

from interlock import AlertRaised, Database, Engine
from interlock.engine.internals import HOT_ALERTS_MAX
from interlock.examples.order import order
from interlock.lanes.hot_rows import OPEN_SOURCES, Contention, HotRow, database_name
from interlock.lanes.lane_settings import LaneSettings
from interlock.observe.metrics import (
    HOT_ROWS,
    KEY_CHARACTERS_MAX,
    ROW_HANDOFFS,
    ROW_WAIT,
    ROWS_SHOWN_MAX,
    EngineMetrics,
)
from interlock.signals import Signal


def hot(key: object, *, flagged: bool = True) -> HotRow:
    return HotRow(table="stock", key=key, handoffs_per_s=80.0, writes_per_s=90.0, wait_s=0.25, flagged=flagged)


class HotDatabase:
    """A database whose contention the test sets."""

    url = "lanes:///var/shop/stock"

    def __init__(self) -> None:
        self.rows: list[HotRow] = []

    def hot_rows(self) -> list[HotRow]:
        return self.rows


class AlertList:
    """An observer that a test can wait for."""

    def __init__(self) -> None:
        self.alerts: asyncio.Queue[AlertRaised] = asyncio.Queue()

    def __call__(self, signal: Signal) -> None:
        if isinstance(signal, AlertRaised) and signal.kind == "hot_row":
            self.alerts.put_nowait(signal)


def test_a_flagged_row_raises_one_alert_which_is_resolved_when_it_is_cold() -> None:
    async def scenario() -> None:
        database, observer = HotDatabase(), AlertList()
        OPEN_SOURCES.add(database)
        async with Engine.open("memory:", machines=[order], observers=[observer], stall_check_s=0.01):
            database.rows = [hot("sku-1"), hot("sku-2", flagged=False)]
            raised = await observer.alerts.get()
            assert (raised.subject, raised.resolved) == ("stock stock sku-1", False)
            assert "80 hand-offs a second" in raised.summary
            database.rows = [hot("sku-2", flagged=False)]
            resolved = await observer.alerts.get()
            assert (resolved.subject, resolved.resolved) == ("stock stock sku-1", True)
            assert observer.alerts.empty()

    asyncio.run(scenario())


def test_an_engine_that_closes_resolves_its_alerts() -> None:
    async def scenario() -> None:
        database, observer = HotDatabase(), AlertList()
        OPEN_SOURCES.add(database)
        async with Engine.open("memory:", machines=[order], observers=[observer], stall_check_s=0.01):
            database.rows = [hot(("a", 1))]
            assert not (await observer.alerts.get()).resolved
        assert observer.alerts.get_nowait().resolved

    asyncio.run(scenario())


def test_rows_beyond_the_bound_take_no_alert_from_those_that_have_one() -> None:
    async def scenario() -> None:
        database, observer = HotDatabase(), AlertList()
        OPEN_SOURCES.add(database)
        async with Engine.open("memory:", machines=[order], observers=[observer], stall_check_s=0.01):
            database.rows = [hot(number) for number in range(HOT_ALERTS_MAX + 5)]
            first = [await observer.alerts.get() for _ in range(HOT_ALERTS_MAX)]
            database.rows = [*reversed(database.rows[1:])]
            over, raised = await observer.alerts.get(), await observer.alerts.get()
            assert not any(alert.resolved for alert in first)
            assert (over.subject, over.resolved) == ("stock stock 0", True)
            assert (raised.subject, raised.resolved) == (f"stock stock {HOT_ALERTS_MAX + 4}", False)
            assert observer.alerts.empty()

    asyncio.run(scenario())


def test_the_metrics_have_the_worst_rows_of_all_databases_with_bounded_labels() -> None:
    async def scenario() -> list[tuple[str, tuple[str, ...], float]]:
        database, counts = HotDatabase(), EngineMetrics()
        OPEN_SOURCES.add(database)
        async with Engine.open("memory:", machines=[order], observers=[counts]):
            database.rows = [hot("x" * 500), *(hot(number) for number in range(100))]
            return [(metric.flat, labels, value) for metric, labels, value in counts.gauges()]

    values = asyncio.run(scenario())
    assert (HOT_ROWS.flat, ("stock",), 101) in values
    assert (HOT_ROWS.flat, ("workflows",), 0) in values
    assert (ROW_HANDOFFS.flat, ("stock", "lane", "stock", "x" * KEY_CHARACTERS_MAX), 80.0) in values
    assert (ROW_WAIT.flat, ("stock", "lane", "stock", "0"), 0.25) in values
    assert len([name for name, _, _ in values if name == ROW_WAIT.flat]) == ROWS_SHOWN_MAX


def test_an_open_database_is_known_to_the_process_until_it_is_closed() -> None:
    async def scenario() -> None:
        database = await Database.open("memory:", contention_flag_threshold=0)
        await database.execute("CREATE TABLE stock (sku text PRIMARY KEY, n bigint)")
        await database.execute("INSERT INTO stock VALUES ('a', 0)")
        update = "UPDATE stock SET n = n + 1 WHERE sku = 'a'"
        await asyncio.gather(*(database.execute(update) for _ in range(50)))
        # The first transaction that meets a table only learns its key.
        await asyncio.gather(*(database.execute(update) for _ in range(50)))
        found = [(name, row) for name, row in OPEN_SOURCES.rows() if row.key == "a"]
        assert [(name, row.table, row.flagged) for name, row in found] == [("memory:", "stock", True)]
        await database.close()
        assert not [row for _, row in OPEN_SOURCES.rows() if row.key == "a"]

    gc.collect()
    asyncio.run(scenario())


@pytest.mark.parametrize(("wait_s", "flagged"), [(0.0, False), (0.2, True), (0.3, False)])
def test_a_row_is_flagged_by_its_mean_wait_where_that_is_declared(wait_s: float, flagged: bool) -> None:
    table = Contention(LaneSettings(contention_flag_threshold=1_000.0, contention_flag_wait_s=wait_s))
    table.took_turns(("stock", "a"), writes=4, handoffs=4, wait_s=1.0, now_s=1.0)
    [row] = table.worst(1.0)
    assert row.wait_s == pytest.approx(0.25)
    assert row.flagged is flagged


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("lanes:///var/shop/stock", "stock"),
        ("memory:", "memory:"),
        ("s3://bucket/shop/stock?region=eu", "stock"),
        ("postgresql://host/shop?schema=stock", "stock"),
        ("postgresql://host/shop", "shop"),
    ],
)
def test_a_database_is_named_by_the_last_part_of_its_address_or_by_its_schema(url: str, name: str) -> None:
    assert database_name(url) == name
