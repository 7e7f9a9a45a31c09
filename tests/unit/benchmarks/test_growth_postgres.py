"""Growth and the profile on PostgreSQL, on sizes that say nothing about speed: they fill, ask, weigh and end."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import growth_postgres, postgres_profile
from benchmarks.postgres import server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own folder: its sessions close that to other users, and as root the server is run by one."""
    with tempfile.TemporaryDirectory(prefix="interlock-benchmarks-") as name:
        yield Path(name)


@pytest.mark.slow
def test_copies_are_found_as_if_the_engine_had_written_them(folder: Path) -> None:
    with server(folder) as on:
        found = asyncio.run(growth_postgres.measure(on, (100, 200, 1_000), seconds=0.01, rounds=3))
    assert list(found.ratios) == ["postgres_throughput_1e3_vs_2e2"]
    assert len(found.figures) == 3
    assert found.extra["postgres_waiting_1e3_rss_mb"] > 0
    assert found.extra["postgres_waiting_1e3_rows_read_by_opening"] >= 0
    assert found.extra["postgres_stalled_ms_1e3"] > 0


@pytest.mark.slow
def test_the_profile_writes_the_groups_of_an_engine_and_explains_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(folder) as on, asyncio.Runner() as runner:
        pattern = runner.run(postgres_profile.pattern_of(on))
        postgres_profile.store_alone(runner, on, pattern, 0.05)
        lines = runner.run(postgres_profile.plan(on, pattern))
        runner.run(postgres_profile.engine_profile(on, 0.05))
    assert any("workflows" in line for line in lines)
    assert "Execution Time" in lines[-1]
    told = capsys.readouterr().out
    assert "groups of 256" in told
    assert "own time by module" in told
