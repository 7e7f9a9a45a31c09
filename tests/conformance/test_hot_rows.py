"""D9 on every engine: writers of one row stand at the top of the table, and volume on many rows flags nothing."""

import asyncio
from pathlib import Path

import pytest

from interlock import Database
from tests.conformance.engine.places import run

ROWS = 32


@pytest.fixture(params=["memory", "lane", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory:"
        case "lane":
            return f"lanes://{tmp_path}/stock"
        case _:
            return str(request.getfixturevalue("postgres_url"))


def test_two_writers_of_one_row_are_seen_and_many_of_distinct_rows_are_not(url: str) -> None:
    async def scenario() -> None:
        async with Database.open(url, contention_flag_threshold=0.0) as db:
            await db.execute("CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL)")
            for number in range(ROWS):
                await db.execute("INSERT INTO counter VALUES ($1, 0)", number)

            async def write(row: int) -> None:
                await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", row)

            for _ in range(10):
                await asyncio.gather(*(write(row) for row in range(ROWS)))
            assert [row for row in await db.contention() if row.flagged] == []
            for _ in range(40):
                await asyncio.gather(write(7), write(7))
            hot = (await db.contention())[0]
            assert (hot.table, hot.key, hot.flagged) == ("counter", 7, True)
            assert hot.source == ("postgres" if url.startswith("postgres") else "lane")
            assert hot.handoffs_per_s > 0
            [(n,)] = await db.query("SELECT n FROM counter WHERE id = 7")
            assert n == 90, "nothing is lost while it is looked at"

    run(scenario)


def test_the_table_is_bounded_whatever_is_written(url: str) -> None:
    async def scenario() -> None:
        async with Database.open(url, contention_rows_max=10) as db:
            await db.execute("CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL)")
            for number in range(ROWS):
                await db.execute("INSERT INTO counter VALUES ($1, 0)", number)
            for row in range(ROWS):
                await asyncio.gather(*(db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", row) for _ in range(3)))
            assert len(await db.contention()) <= 10

    run(scenario)
