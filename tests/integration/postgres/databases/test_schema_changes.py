"""Somebody else changes the schema while statements are prepared: the next call knows, inside and outside transact."""

import asyncio
import uuid

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from tests.integration.postgres.cutting import cutting
from tests.integration.postgres.databases.naive import ADD as ADDING
from tests.integration.postgres.databases.servers import counter, value

POOLED = pytest.mark.parametrize("option", ["", "&pgbouncer=true"], ids=["direct", "pooled"])


async def reads(tx: Transaction) -> object:
    return [tuple(row) for row in await tx.query("SELECT * FROM t WHERE a = $1", 1)]


async def writes(tx: Transaction, new: object) -> int:
    return await tx.execute("UPDATE t SET b = $1 WHERE a = 1", new)


@POOLED
def test_statements_that_were_prepared_follow_a_changed_table(postgres_url: str, option: str) -> None:
    async def scenario() -> None:
        async with Database.open(postgres_url) as other, Database.open(postgres_url + option) as db:
            await other.execute("CREATE TABLE t (a integer PRIMARY KEY, b integer)")
            await other.execute("INSERT INTO t VALUES (1, 2)")
            update = "UPDATE t SET b = $1 WHERE a = 1"

            async def all_say(expected: tuple[object, ...], new: object) -> None:
                assert await db.query("SELECT * FROM t WHERE a = $1", 1) == [expected]
                assert await db.transact(reads) == [expected]
                assert await db.execute(update, new) == await db.transact(writes, new) == 1

            await all_say((1, 2), 3)
            await other.execute("ALTER TABLE t ADD c text DEFAULT 'new'")
            await all_say((1, 3, "new"), 4)
            await other.execute("ALTER TABLE t ALTER b TYPE bigint")
            await all_say((1, 4, "new"), 2**40)
            await other.execute("ALTER TABLE t ALTER b TYPE text USING b::text")
            await all_say((1, str(2**40), "new"), "five")
            await other.execute("ALTER TABLE t DROP c")
            await all_say((1, "five"), "six")
            await other.execute("ALTER TABLE t ALTER a TYPE bigint")
            await all_say((1, "six"), "seven")
            await other.execute("DROP TABLE t")
            await other.execute("CREATE TABLE t (a integer, b jsonb)")
            await other.execute("""INSERT INTO t VALUES (1, '{"x": 1}')""")
            await all_say((1, {"x": 1}), [1])

    asyncio.run(scenario())


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
def test_a_trigger_that_was_just_made_counts_at_once(postgres_url: str, inside: bool) -> None:
    """D1: the table was plain a moment ago, and what is known about it is forgotten."""

    async def scenario() -> None:
        async with counter(postgres_url) as db:
            await db.execute("CREATE TABLE hit (a integer)")
            await db.execute("INSERT INTO hit (a) VALUES (1)")
            trigger = "CREATE TRIGGER t AFTER INSERT ON hit FOR EACH ROW EXECUTE FUNCTION add()"

            async def change(tx: Transaction) -> None:
                await tx.execute(ADDING)
                await tx.execute(trigger)

            if inside:
                await db.transact(change)
            else:
                await db.execute(ADDING)
                await db.execute(trigger)
            await asyncio.gather(*[db.execute("INSERT INTO hit (a) VALUES (1)") for _ in range(64)])
            assert await value(db) == 64

    asyncio.run(scenario())


def test_a_known_statement_costs_one_round_trip(postgres_url: str) -> None:
    """What is said after the first time is Bind, Execute, Sync and nothing else."""

    async def scenario() -> None:
        async with counter(postgres_url), cutting(postgres_url) as proxy, Database.open(proxy.url) as db:
            for sql in ("UPDATE c SET n = n + 1 WHERE id = $1", "SELECT n FROM c WHERE id = $1"):
                await db.query(sql, 1)
                before = len(proxy.said)
                await db.query(sql, 1)
                assert b"".join(proxy.said[before:]) == b"BES"
            assert proxy.connections == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["order", "user", "select"])
@POOLED
def test_a_schema_may_be_named_by_a_word_of_the_language(postgres: str, name: str, option: str) -> None:
    async def scenario() -> None:
        async with Database.open(f"{postgres}&schema={name}{option}") as db:
            await db.execute("CREATE TABLE t (a integer)")
            await db.execute("INSERT INTO t VALUES (1)", key="k")
            assert await db.query(f'SELECT a FROM "{name}".t') == [(1,)]
            await db.execute(f'DROP SCHEMA "{name}" CASCADE')

    asyncio.run(scenario())


@pytest.mark.campaign
@POOLED
def test_streams_of_different_databases_and_keys_are_different_schemas(postgres: str, option: str) -> None:
    """D4: a long name, a stream of a stream and a key with a dash all have a schema of their own."""

    async def scenario() -> None:
        mine = uuid.uuid4().hex[:16]
        first, second = f"long_{mine}_{'x' * 20}_first", f"long_{mine}_{'x' * 20}_second"
        keys = ["a", "A", "a__b", "a-b", "a_b", "Ä", "x" * 60, "_a", "b"]
        async with (
            Database.open(f"{postgres}&schema={first}{option}", db_per_write_stream=True) as one,
            Database.open(f"{postgres}&schema={second}{option}", db_per_write_stream=True) as two,
        ):
            streams = [one, two] + [await db.stream(key) for db in (one, two) for key in keys]
            streams += [await (await db.stream("a")).stream("b") for db in (one, two)]
            for number, stream in enumerate(streams):
                await stream.execute("CREATE TABLE t (a integer)")
                await stream.execute("INSERT INTO t VALUES ($1)", number)
                await stream.execute("UPDATE t SET a = a + 1000 WHERE a = $1", number, key="same")
            for number, stream in enumerate(streams):
                assert await stream.query("SELECT a FROM t") == [(number + 1000,)]

    asyncio.run(scenario())


@POOLED
def test_locks_and_numbers_are_no_reads(postgres_url: str, option: str) -> None:
    """A transaction that only reads would refuse them."""

    async def scenario() -> None:
        async with Database.open(postgres_url + option) as db:
            await db.execute("CREATE SEQUENCE s")
            await db.execute("CREATE TABLE c (n integer)")
            await db.execute("CREATE VIEW v AS SELECT n FROM c")
            await db.execute("INSERT INTO c VALUES (5)")
            assert await db.query("SELECT nextval('s')") == [(1,)]
            assert await db.query("SELECT nextval('s') FROM v") == [(2,)]
            for table in ("c", "v"):
                for lock in ("SHARE", "KEY SHARE", "UPDATE", "NO KEY UPDATE"):
                    assert await db.query(f"SELECT n FROM {table} FOR {lock}") == [(5,)]
            assert len(await db.query("EXPLAIN ANALYZE UPDATE c SET n = 6")) > 1

    asyncio.run(scenario())
