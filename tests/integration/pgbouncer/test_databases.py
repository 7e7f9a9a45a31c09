"""A database through a real PgBouncer in transaction mode: the same promises as without one (C15, D1, D4)."""

import asyncio

import pytest

from interlock.database.database import Database
from tests.integration.postgres.databases.naive import CASES, prepare, storm
from tests.integration.postgres.databases.servers import counter, value
from tests.integration.postgres.databases.test_schema_changes import reads, writes

ADD = "UPDATE c SET n = n + 1 WHERE id = 1"


@pytest.mark.parametrize(
    "name", ["subquery in SET", "trigger", "function like a column", "INSERT SELECT max", "transact"]
)
def test_every_acknowledged_update_is_there(postgres_url: str, name: str) -> None:
    case = CASES[name]

    async def scenario() -> None:
        async with Database.open(postgres_url) as db:
            await prepare(db, case)
            assert await storm(db, case, 16, 6) == 96
            assert await db.query(case.result) == [(96,)]
            await db.execute(f"DROP SCHEMA {postgres_url.partition('schema=')[2].partition('&')[0]} CASCADE")

    asyncio.run(scenario())


def test_statements_of_many_schemas_share_connections_and_never_meet(postgres_url: str) -> None:
    """D4: the same text means another table in each stream, and a key belongs to its stream."""

    async def scenario() -> None:
        async with Database.open(postgres_url, db_per_write_stream=True) as db:
            streams = [await db.stream(f"s{number}") for number in range(12)]

            async def use(number: int, stream: Database) -> None:
                kind = ("integer", "bigint", "numeric")[number % 3]
                await stream.execute(f"CREATE TABLE c (id integer PRIMARY KEY, n {kind} NOT NULL)")
                await stream.execute("INSERT INTO c VALUES (1, $1)", number * 1_000)
                for _ in range(5):
                    await stream.execute(ADD)
                    await stream.execute("UPDATE c SET n = (SELECT n FROM c) + 1 WHERE id = 1", key="same")
                assert await stream.query("SELECT n FROM c WHERE id = $1", 1) == [(number * 1_000 + 6,)]

            await asyncio.gather(*[use(number, stream) for number, stream in enumerate(streams)])

    asyncio.run(scenario())


def test_one_key_from_many_tasks_happens_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(postgres_url) as other:
            calls = [at.execute(ADD, key="k") for at in (db, other) for _ in range(16)]
            assert await asyncio.gather(*calls) == [1] * 32
            assert await value(db) == 1

    asyncio.run(scenario())


def test_a_changed_table_is_known_at_once(postgres_url: str, direct_url: str) -> None:
    async def scenario() -> None:
        async with Database.open(postgres_url) as db, Database.open(direct_url) as other:
            await db.execute("CREATE TABLE t (a integer PRIMARY KEY, b integer)")
            await db.execute("INSERT INTO t VALUES (1, 2)")
            for kind, before, new in (("bigint", 2, 2**40), ("text", 2**40, "x"), ("real", None, 1.5)):
                assert await db.transact(reads) == [(1, before)]
                await other.execute(
                    f"ALTER TABLE t ALTER b TYPE {kind} USING {'NULL' if kind == 'real' else f'b::{kind}'}"
                )
                assert await db.transact(writes, new) == 1
                if kind == "text":
                    await db.execute("UPDATE t SET b = NULL WHERE a = 1")
            assert await db.query("SELECT * FROM t WHERE a = $1", 1) == [(1, 1.5)]

    asyncio.run(scenario())
