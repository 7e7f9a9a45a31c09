"""Definitions of several statements on a lane: all of it happens, or nothing, and no row is lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from interlock import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError

TABLES = (
    "CREATE TABLE p (id bigint PRIMARY KEY, n integer)",
    "CREATE TABLE c (id bigserial PRIMARY KEY, p bigint REFERENCES p ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)",
    "INSERT INTO p VALUES (1, 1), (2, 1)",
    "INSERT INTO c (p) VALUES (1), (2)",
)


def alone(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """The test, in an event loop of its own."""

    def run() -> None:
        asyncio.run(test())

    return run


@asynccontextmanager
async def opened() -> AsyncGenerator[Database]:
    """A database in memory with two tables."""
    async with Database.open("memory:") as db:
        for sql in TABLES:
            await db.execute(sql)
        yield db


@alone
async def test_rows_that_refer_to_a_new_table_are_kept() -> None:
    async with opened() as db:
        await db.execute("ALTER TABLE p ALTER COLUMN n SET NOT NULL")
        assert [row.p for row in await db.query("SELECT p FROM c ORDER BY id")] == [1, 2]
        await db.execute("DELETE FROM p WHERE id = 1")
        assert [row.p for row in await db.query("SELECT p FROM c ORDER BY id")] == [2]


@alone
async def test_explain_gives_the_plan_as_text_and_runs_nothing() -> None:
    async with opened() as db:
        rows = await db.query("EXPLAIN SELECT n FROM p WHERE id = $1", 1)
        assert rows[0]._fields == ("QUERY PLAN",)
        assert "SEARCH p USING PRIMARY KEY" in str(rows[0][0])
        await db.query("EXPLAIN DELETE FROM p")
        assert (await db.query("SELECT count(*) AS n FROM p"))[0].n == 2
        with pytest.raises(DialectError):
            await db.query("EXPLAIN CREATE TABLE q (a integer)")


@alone
async def test_explain_of_a_query_runs_in_a_read_only_transaction() -> None:
    async with opened() as db, db.transaction(read_only=True) as tx:
        [row] = await tx.query("EXPLAIN SELECT id FROM p")
        assert "SCAN p" in str(row[0])


@alone
async def test_words_of_other_drivers_are_refused_with_the_remedy() -> None:
    async with opened() as db:
        for sql in (
            "SELECT n FROM p WHERE id = %s",
            "UPDATE p SET n = ? WHERE id = ?",
            "SELECT n FROM p WHERE id = :id",
        ):
            with pytest.raises(DialectError, match=r"\$1"):
                await db.query(sql)
        for sql in ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "START TRANSACTION"):
            with pytest.raises(DialectError, match=r"transact\(\)"):
                await db.query(sql)


@alone
async def test_a_definition_that_fails_changes_nothing() -> None:
    async with opened() as db:
        with pytest.raises(ConstraintViolation):
            await db.execute("ALTER TABLE p ADD COLUMN x integer, ADD CONSTRAINT once UNIQUE (n)")

        async def work(tx: Transaction) -> None:
            with pytest.raises(ConstraintViolation):
                await tx.execute("ALTER TABLE p ADD CONSTRAINT once UNIQUE (n)")
            await tx.execute("INSERT INTO p VALUES (3, 1)")

        with pytest.raises(ConstraintViolation):
            await db.transact(work)
        assert await db.query("SELECT * FROM p ORDER BY id") == [(1, 1), (2, 1)]
        assert len(await db.query("SELECT * FROM c")) == 2


@alone
async def test_numbers_go_on_after_a_change_of_the_table() -> None:
    async with opened() as db:
        await db.execute("DELETE FROM c")
        await db.execute("ALTER TABLE c ADD CHECK (p > 0)")
        [row] = await db.query("INSERT INTO c (p) VALUES (1) RETURNING id")
        assert row.id == 3


@alone
async def test_a_deferred_reference_is_checked_at_the_end() -> None:
    async with opened() as db:

        async def work(tx: Transaction, parents: int) -> None:
            await tx.execute("INSERT INTO c (p) VALUES (9)")
            for _ in range(parents):
                await tx.execute("INSERT INTO p VALUES (9, 9)")

        with pytest.raises(ConstraintViolation):
            await db.transact(work, 0)
        with pytest.raises(ConstraintViolation):
            await db.execute("INSERT INTO c (p) VALUES (9)")
        await db.transact(work, 1)
        assert len(await db.query("SELECT * FROM c")) == 3


@alone
async def test_a_table_does_not_change_under_a_violated_reference() -> None:
    async with opened() as db:

        async def work(tx: Transaction) -> None:
            await tx.execute("INSERT INTO c (p) VALUES (9)")
            await tx.execute("ALTER TABLE c ADD CHECK (p > 0)")

        with pytest.raises(DialectError, match="deferred"):
            await db.transact(work)


@alone
async def test_an_index_is_created_concurrently_by_a_statement_alone() -> None:
    async with opened() as db:
        await db.execute("CREATE INDEX CONCURRENTLY by_n ON p (n)")
        await db.execute("DROP INDEX CONCURRENTLY by_n")


@alone
async def test_a_statement_of_several_parts_happens_wholly_or_not_at_all() -> None:
    moved = "WITH gone AS (DELETE FROM p WHERE id = $1 RETURNING id) INSERT INTO q SELECT id, id / $2 FROM gone"
    async with opened() as db:
        await db.execute("CREATE TABLE q (id bigint PRIMARY KEY, n bigint)")
        with pytest.raises(TransactionError):
            await db.execute(moved, 1, 0)

        async def work(tx: Transaction) -> int:
            with pytest.raises(TransactionError):
                await tx.execute(moved, 1, 0)
            return await tx.execute(moved, 2, 1)

        with pytest.raises(TransactionError):
            await db.transact(work)
        assert [row.id for row in await db.query("SELECT id FROM p ORDER BY id")] == [1, 2]
        assert await db.execute(moved, 2, 1, key="once") == await db.execute(moved, 2, 1, key="once") == 1
        assert [row.id for row in await db.query("SELECT id FROM q")] == [2]
