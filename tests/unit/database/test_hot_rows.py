"""D9: a hot row is told by its key as it was written, whatever SQLite makes of it."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from interlock.database.database import Database
from interlock.hotrow.contention_windows import as_written
from interlock.lanes.hot_rows import TABLES_KNOWN_MAX, Contention
from interlock.lanes.lane_settings import LaneSettings
from tests.unit.lanes.lanes import opened, run, sql

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
KEYS: dict[str, object] = {
    "smallint": 7,
    "integer": 7,
    "bigint": 2**60,
    "text": "a",
    "varchar(9)": "a",
    "boolean": True,
    "numeric": Decimal("1.50"),
    "numeric(9,2)": Decimal("1.50"),
    "double precision": 0.5,
    "bytea": b"\x00" * 16,
    "uuid": UUID(int=7),
    "timestamptz": MOMENT,
}


async def heat(db: Database, statement: str, *args: object) -> None:
    for _ in range(20):
        await asyncio.gather(*(db.execute(statement, *args) for _ in range(4)))


@pytest.mark.parametrize("kind", KEYS)
def test_the_key_is_what_was_written(kind: str) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            await db.execute(f"CREATE TABLE t (n integer NOT NULL, id {kind} PRIMARY KEY)")
            await db.execute("INSERT INTO t (n, id) VALUES (0, $1)", KEYS[kind])
            await heat(db, "UPDATE t SET n = n + 1 WHERE id = $1", KEYS[kind])
            [hot] = await db.contention()
            assert (hot.table, hot.key) == ("t", KEYS[kind])
            assert type(hot.key) is type(KEYS[kind])

    asyncio.run(scenario())


def test_a_key_of_several_columns_is_a_tuple_and_a_row_without_a_key_is_its_number() -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            await db.execute("CREATE TABLE pair (at timestamptz, id uuid, n integer, PRIMARY KEY (id, at))")
            await db.execute("INSERT INTO pair VALUES ($1, $2, 0)", MOMENT, UUID(int=1))
            await db.execute("CREATE TABLE bare (n integer)")
            await db.execute("INSERT INTO bare VALUES (0)")
            await heat(db, "UPDATE pair SET n = n + 1")
            await heat(db, "UPDATE bare SET n = n + 1")
            assert {(hot.table, hot.key) for hot in await db.contention()} == {
                ("pair", (UUID(int=1), MOMENT)),
                ("bare", 1),
            }

    asyncio.run(scenario())


def test_a_numbered_key_is_a_number() -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, n integer)")
            await db.execute("INSERT INTO t (n) VALUES (0)")
            await heat(db, "UPDATE t SET n = n + 1")
            [hot] = await db.contention()
            assert hot.key == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("stored", "declared", "key"),
    [
        ('{"a": 1}', ("jsonb",), {"a": 1}),
        (None, ("uuid",), None),
        (7, (), 7),
        ((7, 8), ("boolean",), (7, 8)),
        ((7, 8), ("bigint", "bigint", "bigint"), (7, 8)),
        (b"short", ("uuid",), b"short"),
        ("text", ("uuid",), "text"),
        ("text", ("numeric text",), "text"),
        ("text", ("jsonb",), "text"),
        (2**62, ("timestamptz",), 2**62),
        (7, ("something else",), 7),
    ],
)
def test_a_key_that_its_type_does_not_explain_is_shown_as_it_is(
    stored: object, declared: tuple[str, ...], key: object
) -> None:
    assert as_written(stored, declared) == key


def test_what_is_known_of_tables_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal = Contention(LaneSettings(contention_rows_max=2))
    signal.wrote([("kept", 1)], waiting_since_s=0.0, now_s=1.0)
    signal.learn_key_types({"kept": ("uuid",), "a": ("uuid",), "b": ("uuid",)})
    signal.learn_key_types({"c": ("text",)})
    assert [signal.key_types(table) for table in ("kept", "a", "b", "c")] == [("uuid",), (), (), ("text",)]

    assert TABLES_KNOWN_MAX == 10_000
    monkeypatch.setattr("interlock.lanes.hot_rows.TABLES_KNOWN_MAX", 3)

    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            for number in range(10):
                await lane.run(sql(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY)"))
                await lane.run(sql(f"INSERT INTO t{number} VALUES (1)"))
                assert lane._writer is not None
                assert len(lane._writer._rows._keys) <= 4

    run(scenario)
