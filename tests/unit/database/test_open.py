"""Opening: URLs, names at a home, settings from everywhere, streams of their own."""

import asyncio
from pathlib import Path

import pytest

from interlock.database.database import Database, Opening
from interlock.errors import BadUsage, DefinitionError, InvalidPayload, LaneOwned

TABLE = "CREATE TABLE IF NOT EXISTS counter (id bigint PRIMARY KEY, n bigint NOT NULL)"


NO_ADDRESSES = [
    "",
    "stock",
    "lanes://",
    "lanes:///",
    "lanes://host/x",
    "lanes:///x?y=1",
    "lanes:///x#y",
    "lanes:///x/../y",
    "lanes:///x%00y",
    "redis://x",
    "memory:x",
]


def url(path: Path) -> str:
    return f"lanes://{path}/stock"


def test_a_database_in_memory_is_gone_when_it_is_closed() -> None:
    async def scenario() -> None:
        for _ in range(2):
            async with Database.open("memory:") as db:
                await db.execute("CREATE TABLE counter (id bigint PRIMARY KEY)")
                assert await db.query("SELECT count(*) FROM counter") == [(0,)]

    asyncio.run(scenario())


def test_a_name_at_a_home_is_the_database_below_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open("stock", home=f"lanes://{tmp_path}") as db:
            await db.execute(TABLE)
        async with Database.open(url(tmp_path)) as db:
            assert await db.query("SELECT count(*) FROM counter") == [(0,)]

    asyncio.run(scenario())


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(url(tmp_path)):
            with pytest.raises(LaneOwned) as caught:
                await Database.open(url(tmp_path))
            assert "this very process" in caught.value.what

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [*NO_ADDRESSES])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(BadUsage):
        _ = Database.open(wrong)


def test_settings_are_checked_when_it_is_opened() -> None:
    with pytest.raises(DefinitionError) as caught:
        _ = Database.open("memory:", group_comit_window=1.0)
    assert "group_commit_window" in caught.value.what
    with pytest.raises(DefinitionError, match="counter_shard_count is 257; it must be a whole number from 1 to 256"):
        _ = Database.open("memory:", counter_shard_count=257)
    with pytest.raises(DefinitionError, match="queue_max is 0; it must be a whole number from 1 to 4,000,000,000"):
        _ = Database.open("memory:", queue_max=0)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("db_per_write_stream", "no", "True or False"),
        ("db_per_write_stream", 1, "True or False"),
        ("queue_max", 1.5, "a whole number"),
        ("queue_max", 2.0, "a whole number"),
        ("queue_max", True, "a whole number"),
        ("queue_max", "7", "a whole number"),
        ("idle_s", True, "a number"),
        ("idle_s", None, "a number"),
        ("idle_s", float("nan"), "a number"),
        ("idle_s", float("inf"), "a number"),
        ("idle_s", -1, "a number"),
    ],
)
def test_a_setting_is_of_its_kind_and_in_its_range(setting: str, value: float, allowed: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        _ = Database.open("memory:", **{setting: value})  # type: ignore[arg-type]
    assert caught.value.what.startswith(f"{setting} is {value!r}; it must be {allowed}")


def test_a_setting_without_anything_like_it_is_refused_with_the_list() -> None:
    with pytest.raises(DefinitionError) as caught:
        _ = Database.open("memory:", zzz=1)
    assert "Did you mean" not in caught.value.what
    assert "queue_max" in caught.value.fix


def test_a_switch_from_the_environment_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            assert await db.stream("a") is not db

    monkeypatch.setenv("INTERLOCK_DB_PER_WRITE_STREAM", "true")
    asyncio.run(scenario())


def test_settings_come_from_the_file_for_that_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interlock.toml").write_text("[databases.stock]\ngroup_commit_max_batch = 2\n")

    async def largest_group(opening: Opening) -> int:
        async with opening as db:
            await db.execute(TABLE)
            await db.execute("DELETE FROM counter")
            await asyncio.gather(*(db.execute("INSERT INTO counter VALUES ($1, 0)", n) for n in range(6)))
            return db.stats().largest_group

    assert asyncio.run(largest_group(Database.open(url(tmp_path)))) == 2
    assert asyncio.run(largest_group(Database.open(url(tmp_path), group_commit_max_batch=3))) == 3


def test_without_streams_the_stream_is_the_database_itself() -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            assert await db.stream("sku-1") is db

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["../other", "..", ".", "a/b", "%2e%2e%2fx", "Ünï", "x" * 300, "A"])
def test_no_key_of_a_stream_leads_out_of_its_folder(tmp_path: Path, key: str) -> None:
    async def scenario() -> None:
        async with Database.open(f"lanes://{tmp_path}/inside/stock", db_per_write_stream=True) as db:
            stream = await db.stream(key)
            await stream.execute(TABLE)

    asyncio.run(scenario())
    outside = [path for path in tmp_path.rglob("*.lane") if "stock.lane.streams" not in str(path)]
    assert [path.name for path in outside if "stock.streams" not in str(path)] == ["stock.lane"]


@pytest.mark.parametrize("key", ["", "a\x00b", "\ud800", "x" * 5000])
def test_what_is_no_key_of_a_stream_is_refused(key: str) -> None:
    async def scenario() -> None:
        async with Database.open("memory:", db_per_write_stream=True) as db:
            await db.stream(key)

    with pytest.raises(InvalidPayload):
        asyncio.run(scenario())


def test_what_is_no_tool_is_refused_in_words() -> None:
    """D16."""
    with pytest.raises(BadUsage, match="'stock' is not a Tool: it is str") as caught:
        _ = Database.open("memory:", tool="stock")  # type: ignore[arg-type]  # The mistake under test.
    assert "write_latency_budget" in caught.value.fix
