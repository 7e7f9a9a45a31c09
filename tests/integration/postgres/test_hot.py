"""D9: `interlock hot postgresql://…` samples the views, names the row, and says what they do not show."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.postgres.test_waits import run, shop
from tests.unit.cli.running import run_program


@pytest.mark.slow
def test_the_row_that_sessions_wait_for_is_shown_with_what_cannot_be_seen(postgres: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shop(postgres) as (opened, sampler):
            await opened.held("UPDATE {schema}.counter SET n = n + 1 WHERE id = 7", waiters=2)
            await opened.seen(sampler, 2)
            shown = await asyncio.to_thread(
                run_program, "hot", postgres, "--seconds", "0.2", "-o", "json", folder=tmp_path
            )
            table = await asyncio.to_thread(run_program, "hot", postgres, "--seconds", "0.2", folder=tmp_path)
            metrics = await asyncio.to_thread(
                run_program, "hot", postgres, "--seconds", "0", "-o", "metrics", folder=tmp_path
            )
        assert shown.code == 0
        rows = [row for row in json.loads(shown.out) if row["table"] == f"{opened.schema}.counter"]
        assert [(row["source"], row["key"]) for row in rows] == [("postgres", 7)]
        assert rows[0]["handoffs_per_s"] > 0
        assert "do not count serialization failures" in shown.err
        assert "rates are estimates" in shown.err
        assert f"{opened.schema}.counter" in table.out
        assert f'source="postgres",table="{opened.schema}.counter",key="7"' in metrics.out

    run(scenario)


@pytest.mark.slow
def test_a_quiet_database_has_nothing_hot_and_one_that_is_away_is_unavailable(postgres: str, tmp_path: Path) -> None:
    quiet = run_program("hot", postgres, "--seconds", "0", folder=tmp_path)
    assert quiet.code == 0
    assert "Nothing is hot" in quiet.out
    away = run_program("hot", "postgresql://nobody@127.0.0.1:1/shop?connect_timeout_s=1", folder=tmp_path)
    assert away.code == 5
