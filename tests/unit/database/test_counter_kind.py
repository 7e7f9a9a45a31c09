"""What a counter is that is opened without a kind: a setting, which code that names one does not follow (D16)."""

import asyncio
from pathlib import Path

import pytest

from interlock import Database, DefinitionError
from interlock.settings import lane_settings


def test_a_setting_says_what_counters_are_that_name_no_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interlock.toml").write_text('[tools.views]\ncounter_kind = "sharded"\ncounter_shard_count = 3\n')

    async def look() -> None:
        async with Database.open(f"lanes://{tmp_path}/views") as db:
            views = db.counter("video:42")
            assert (views.kind, db.counter("video:43", kind="exact").kind) == ("sharded", "exact")
            await views.add(5)
            assert (await views.shards()).total == 5
        async with Database.open(f"lanes://{tmp_path}/other") as db:
            assert db.counter("video:42").kind == "exact"

    asyncio.run(look())


def test_another_word_is_refused() -> None:
    with pytest.raises(DefinitionError, match="one of auto, exact, sharded, event_log"):
        lane_settings({"counter_kind": "spread"})  # type: ignore[dict-item]
