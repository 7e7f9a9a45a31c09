"""Sequences of a lane: numbers are given once, survive what is rolled back and a new opening, and follow old tables."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import apsw
import pytest

from interlock import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError


def alone(test: Callable[[Path], Coroutine[None, None, None]]) -> Callable[[Path], None]:
    """The test, in an event loop of its own."""

    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


async def number(db: Database, sql: str = "INSERT INTO t (x) VALUES (1) RETURNING id") -> int:
    [row] = await db.query(sql)
    found = row[0]
    assert isinstance(found, int)
    return found


class TakenBack(Exception):
    """How a transaction is ended here."""


@alone
async def test_positions_are_durable_with_the_rows(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop"
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        await db.execute("CREATE SEQUENCE s INCREMENT BY 10")
        assert [await number(db), await number(db)] == [1, 2]
        await db.execute("DELETE FROM t")
        assert await number(db, "SELECT nextval('s')") == 1
    async with Database.open(url) as db:
        assert await number(db) == 3
        assert await number(db, "SELECT nextval('s')") == 11


@alone
async def test_explicit_values_do_not_move_the_sequence(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop"
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        await db.execute("INSERT INTO t (id, x) VALUES (2, 0)")
        assert await number(db) == 1
    async with Database.open(url) as db:
        with pytest.raises(ConstraintViolation):
            await number(db)
        assert await number(db) == 3


@alone
async def test_numbers_of_a_rolled_back_transaction_are_not_given_again(tmp_path: Path) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        raise TakenBack

    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        with pytest.raises(TakenBack):
            await db.transact(work)
        assert await number(db) == 2


@alone
async def test_a_restart_is_rolled_back_with_its_transaction(tmp_path: Path) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        await tx.execute("TRUNCATE t RESTART IDENTITY")
        [row] = await tx.query("INSERT INTO t (x) VALUES (1) RETURNING id")
        assert row.id == 1
        raise TakenBack

    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        # In one group: the numbers of the others are in memory alone when the restart is taken back.
        results = await asyncio.gather(
            *(number(db) for _ in range(5)), db.transact(work), *(number(db) for _ in range(5)), return_exceptions=True
        )
        assert isinstance(results[5], TakenBack)
        numbers = results[:5] + results[6:]
        assert len(set(numbers)) == len(numbers)
        assert (await db.query("SELECT count(*) AS n FROM t"))[0].n == len(numbers)


@alone
async def test_a_restart_is_rolled_back_with_its_savepoint(tmp_path: Path) -> None:
    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO t (x) VALUES (1), (2)")
            await tx.define_savepoint("before")
            await tx.execute("TRUNCATE t RESTART IDENTITY")
            await tx.execute("INSERT INTO t (x) VALUES (1)")
            await tx.rollback_to("before")
            [row] = await tx.query("INSERT INTO t (x) VALUES (3) RETURNING id")
            assert row[0] == 3
        assert await number(db) == 4


@alone
async def test_a_table_that_is_rolled_back_leaves_no_number(tmp_path: Path) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        raise TakenBack

    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        with pytest.raises(TakenBack):
            await db.transact(work)
        await db.execute("CREATE TABLE other (a integer)")
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        assert await number(db) == 1


@alone
async def test_currval_and_lastval_belong_to_the_transaction(tmp_path: Path) -> None:
    async def work(tx: Transaction) -> list[object]:
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        [row] = await tx.query("SELECT currval('t_id_seq') AS a, lastval() AS b")
        return [row.a, row.b]

    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        assert await db.transact(work) == [1, 1]
        for sql in ("SELECT currval('t_id_seq')", "SELECT lastval()"):
            with pytest.raises(DialectError, match="not defined"):
                await db.query(sql)


OLD = """
CREATE TABLE "t" ("id" INTEGER PRIMARY KEY AUTOINCREMENT DEFAULT 'bigserial'
  CONSTRAINT "interlock_type_id" CHECK (typeof("id") = 'integer'),
  "x" int4 CONSTRAINT "interlock_type_x" CHECK (typeof("x") IN ('integer', 'null')));
INSERT INTO t (x) VALUES (1), (2), (3);
DELETE FROM t WHERE id = 3;
"""
"""A table as the first preview made it: SQLite numbers its rows."""


async def old_database(folder: Path) -> str:
    url = f"lanes://{folder}/shop"
    async with Database.open(url):
        pass
    with apsw.Connection(str(folder / "shop.lane")) as connection:
        connection.execute(OLD)  # pyright: ignore[reportUnknownMemberType]
    return url


@alone
async def test_a_table_that_sqlite_numbered_goes_on_after_its_last_number(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        assert await number(db) == 4
        await db.execute("INSERT INTO t (x) SELECT 10 - n FROM generate_series(1, 3) AS n ORDER BY 1")
        assert [tuple(row) for row in await db.query("SELECT id, x FROM t WHERE id > 4 ORDER BY id")] == [
            (5, 7), (6, 8), (7, 9),
        ]  # fmt: skip
        await db.execute("INSERT INTO t DEFAULT VALUES")
        await db.execute("INSERT INTO t VALUES (DEFAULT, 1), (11, 1)")
    async with Database.open(url) as db:
        assert await number(db) == 10
        with pytest.raises(ConstraintViolation):
            await number(db)
        assert await number(db) == 12


@alone
async def test_a_value_for_an_old_key_moves_no_sequence(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        await db.execute("INSERT INTO t (id, x) VALUES (100, 1)")
        with pytest.raises(ConstraintViolation):
            await db.execute("INSERT INTO t (id, x) VALUES ($1, 1)", None)
    async with Database.open(url) as db:
        assert await number(db) == 4


@alone
async def test_an_old_table_takes_its_number_along_when_it_is_made_anew(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        await db.execute("ALTER TABLE t ALTER COLUMN x SET DEFAULT 5")
        assert await number(db) == 4
        await db.execute("TRUNCATE t RESTART IDENTITY")
        assert await number(db) == 1


@alone
async def test_an_old_table_restarts(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        await db.execute("TRUNCATE t RESTART IDENTITY")
        assert await number(db) == 1


@alone
async def test_an_old_table_keeps_its_sequence_when_it_is_renamed(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE c (t bigint REFERENCES t)")
        await db.execute("INSERT INTO c VALUES (1)")
        assert await number(db) == 4
        await db.execute("ALTER TABLE t RENAME TO u")
        [row] = await db.query("INSERT INTO u (x) VALUES (1) RETURNING id")
        assert row.id == 5
        with pytest.raises(ConstraintViolation):
            await db.execute("DELETE FROM u WHERE id = 1")
        await db.execute("ALTER TABLE u RENAME COLUMN id TO number")
        await db.execute("ALTER TABLE u RENAME TO t")
        [row] = await db.query("INSERT INTO t (x) VALUES (1) RETURNING number")
        assert row.number == 6
        [row] = await db.query("SELECT nextval('t_id_seq') AS n")
        assert row.n == 7


@alone
async def test_an_old_table_keeps_its_sequence_when_its_key_is_renamed(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    async with Database.open(url) as db:
        await db.execute("ALTER TABLE t RENAME COLUMN id TO number")
        [row] = await db.query("INSERT INTO t (x) VALUES (1) RETURNING number")
        assert row.number == 4
        await db.execute("ALTER TABLE t RENAME COLUMN number TO id")
        assert await number(db) == 5


@alone
async def test_a_definition_that_is_rolled_back_gives_no_number_of_another_sequence_again(tmp_path: Path) -> None:
    async def work(tx: Transaction) -> None:
        await tx.execute("CREATE TABLE other (id bigserial PRIMARY KEY)")
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        await tx.execute("ALTER TABLE t ALTER COLUMN x SET DEFAULT 5")
        await tx.execute("INSERT INTO t (x) VALUES (1)")
        await tx.execute("INSERT INTO other DEFAULT VALUES")
        raise TakenBack

    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        await db.execute("CREATE TABLE t (id bigserial PRIMARY KEY, x integer)")
        assert await number(db) == 1
        with pytest.raises(TakenBack):
            await db.transact(work)
        assert await number(db) == 4
        await db.execute("CREATE TABLE other (id bigserial PRIMARY KEY)")
        [row] = await db.query("INSERT INTO other DEFAULT VALUES RETURNING id")
        assert row.id == 1
    async with Database.open(f"lanes://{tmp_path}/shop") as db:
        assert await number(db) == 5


@alone
async def test_an_identity_of_an_old_table_is_one(tmp_path: Path) -> None:
    url = await old_database(tmp_path)
    with apsw.Connection(str(tmp_path / "shop.lane")) as connection:
        connection.execute(  # pyright: ignore[reportUnknownMemberType]
            "CREATE TABLE IF NOT EXISTS interlock_definitions "
            "(number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)"
        )
        for sql in (
            "CREATE TABLE u (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x integer)",
            "ALTER TABLE u RENAME COLUMN key TO id",
            "ALTER TABLE u RENAME TO t",
        ):
            connection.execute(  # pyright: ignore[reportUnknownMemberType]
                "INSERT INTO interlock_definitions (sql) VALUES (?)", (sql,)
            )
    async with Database.open(url) as db:
        for _ in range(2):
            with pytest.raises(TransactionError, match="GENERATED ALWAYS"):
                await db.execute("INSERT INTO t (id, x) VALUES (100, 1)")
            await db.execute("ALTER TABLE t ALTER COLUMN x SET DEFAULT 5")
        assert await number(db) == 4
        await db.execute("INSERT INTO t (id, x) OVERRIDING SYSTEM VALUE VALUES (100, 1)")
