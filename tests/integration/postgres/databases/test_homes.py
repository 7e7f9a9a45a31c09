"""A home in PostgreSQL: its catalog is a table beside the workflows, and names are schemas of the same server."""

import asyncio
from collections.abc import Callable

import pytest

from interlock import Database
from interlock.catalog.catalog import TABLE, Catalog
from interlock.catalog.catalog_entries import CatalogEntry, below
from interlock.urls import parse_postgres_url
from tests.unit.catalog.contract import Contract


def run(url: str, *statements: str) -> None:
    """As somebody with psql would."""

    async def execute() -> None:
        async with Database.open(url) as db:
            for sql in statements:
                await db.execute(sql)

    asyncio.run(execute())


class TestInPostgres(Contract):
    @pytest.fixture
    def home(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.fixture
    def spoil(self, postgres_url: str) -> Callable[[], object]:
        return lambda: run(
            postgres_url,
            f"ALTER TABLE {TABLE} ALTER url DROP NOT NULL",
            f"UPDATE {TABLE} SET url = NULL, epoch = 5",
        )


def test_a_name_at_a_home_in_postgresql_is_a_schema_of_its_own(postgres_url: str) -> None:
    async def use() -> tuple[str, list[object]]:
        for _ in range(2):
            async with Database.open("stock", home=postgres_url) as db:
                await db.execute("CREATE TABLE IF NOT EXISTS t (n bigint)")
                await db.execute("INSERT INTO t VALUES (1)")
        async with Database.open(below(postgres_url, "stock")) as db:
            return db.url, [row[0] for row in await db.query("SELECT n FROM t")]

    url, rows = asyncio.run(use())
    assert rows == [1, 1]
    assert parse_postgres_url(url).schema == "stock"
    assert asyncio.run(Catalog(postgres_url).names()) == {"stock": CatalogEntry()}
    run(below(postgres_url, "stock"), "DROP TABLE t")


def test_a_name_that_was_moved_is_opened_where_it_lives(postgres_url: str) -> None:
    async def use() -> str:
        elsewhere = below(postgres_url, f"moved_{parse_postgres_url(postgres_url).schema[5:15]}")
        await Catalog(postgres_url).enter("ledger", elsewhere, 1)
        async with Database.open("ledger", home=postgres_url) as db:
            return db.url

    assert parse_postgres_url(asyncio.run(use())).schema.startswith("moved_")


def test_opening_a_home_that_nobody_may_write_to_opens_the_name_all_the_same(postgres_url: str) -> None:
    """The catalog is a short cut: a user who may not make its table finds names where they always are."""
    schema = parse_postgres_url(postgres_url).schema
    reader = f"reader_{schema[5:15]}"
    run(
        postgres_url,
        f"CREATE ROLE {reader} LOGIN",
        "CREATE TABLE t (n bigint)",
        f"GRANT USAGE ON SCHEMA {schema} TO {reader}",
    )
    as_reader = postgres_url.replace("://postgres", f"://{reader}", 1)
    assert as_reader != postgres_url
    assert asyncio.run(Catalog(as_reader).locate("stock")) == below(as_reader, "stock")
    assert asyncio.run(Catalog(postgres_url).names()) == {}
