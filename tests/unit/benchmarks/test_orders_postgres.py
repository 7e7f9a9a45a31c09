"""The benchmark of orders on PostgreSQL, on sizes that say nothing about speed: it counts right and compares right."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from benchmarks import hot_workflow, orders, postgres_processes
from benchmarks.metering import BY_HAND, Meter, metered_table
from benchmarks.postgres import server
from benchmarks.report import Figure, Round
from tests.unit.benchmarks.test_orders import SMALL, figure


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own folder: its sessions close that to other users, and as root the server is run by one."""
    with tempfile.TemporaryDirectory(prefix="interlock-benchmarks-") as name:
        yield Path(name)


@pytest.mark.slow
def test_the_engine_on_postgresql_is_compared_and_the_server_s_work_is_counted(folder: Path) -> None:
    figures, notes = orders.run(folder, SMALL, ("postgres", "hot"), folder / "peers")
    names = [f"{orders.POSTGRES_STEPS}, 1", f"{orders.POSTGRES_STEPS}, 4", f"{orders.POSTGRES_EVENTS}, 4"]
    names += [hot_workflow.hot_name(count, hot_workflow.POSTGRES) for count in hot_workflow.SENDERS]
    assert [name for name in figures if "PostgreSQL" in name] == names
    for name in names:
        found = figures[name]
        assert len(found.rounds) == 3
        assert all((found.each(count) or 0) > 0 for count in ("server_cpu_ms", "wal_bytes", "transactions"))
    counted = notes["statements_each"]
    assert isinstance(counted, dict)
    assert set(counted) == set(names[1:])
    assert all(value > 0 for value in counted.values())


def test_ratios_on_postgresql_are_of_the_best_and_of_one_run() -> None:
    figures = {
        f"{orders.POSTGRES_STEPS}, 256": figure(60),
        f"{orders.BY_TRANSACTIONS}, 256": figure(10),
        f"{orders.BY_STATEMENTS}, 256": figure(30),
        hot_workflow.hot_name(64, hot_workflow.POSTGRES): figure(50),
        hot_workflow.hot_name(256, hot_workflow.POSTGRES): figure(80),
        hot_workflow.HOT_BY_HAND: figure(4),
        "1 process on PostgreSQL, 256": figure(30),
        "1 process on PostgreSQL, 512": figure(40),
        "2 processes on PostgreSQL, 512": figure(50),
    }
    assert orders.ratios_of(figures) == {
        "postgres_256_vs_handwritten": 6.0,
        "postgres_256_vs_handwritten_in_cpu": 6.0,
        "postgres_256_vs_onestatement": 2.0,
        "postgres_256_vs_onestatement_in_cpu": 2.0,
        "hot_workflow_postgres_per_s": 80.0,
        "hot_workflow_postgres_vs_handwritten": 20.0,
        "postgres_2_processes_vs_1": 1.25,
    }
    best = postgres_processes.best(figures)
    assert {name: each.per_second for name, each in best.items()} == {
        "postgres_1_process": 40.0,
        "postgres_2_processes": 50.0,
    }


@pytest.mark.slow
def test_one_and_two_processes_feed_the_same_server_and_lose_nothing(folder: Path) -> None:
    figures = postgres_processes.run(folder / "processes", rounds=3, seconds=0.01, in_flight=2)
    assert list(figures) == [
        "1 process on PostgreSQL, 2",
        "1 process on PostgreSQL, 4",
        "2 processes on PostgreSQL, 4",
    ]
    assert all(len(each.rounds) == 3 and (each.each("transactions") or 0) > 0 for each in figures.values())


@pytest.mark.slow
def test_a_meter_counts_statements_and_transactions_as_the_server_does(folder: Path) -> None:
    with server(folder) as running, asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(running.url))
        runner.run(connection.execute("CREATE TABLE counted (n bigint)"))
        meter = Meter(runner, running)

        async def twice() -> Round:
            async with connection.transaction():
                await connection.execute("INSERT INTO counted VALUES ($1)", 1)
            await connection.fetch("SELECT n FROM counted")
            return Round(2, 1.0, 1.0)

        counted = meter.metered(lambda: runner.run(twice()))()
        # BEGIN, INSERT, COMMIT and SELECT.
        assert meter.statements_each(lambda: runner.run(twice()), BY_HAND) == pytest.approx(2.0)
        meter.close()
        runner.run(connection.close())
    assert counted.counts["transactions"] == 1
    assert counted.counts["wal_bytes"] > 0
    assert metered_table({"by hand": Figure([counted])}, {"by hand": 2.0}).row_count == 1
