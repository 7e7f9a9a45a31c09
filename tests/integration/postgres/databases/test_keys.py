"""Keys on PostgreSQL: a call with a key happens once, whatever is cut, and says so (G2, G9)."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from interlock.database import postgres_transactions
from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, KeyReused, OutcomeUnknown, TransactionError
from interlock.postgres.statements import StatementLink
from interlock.sql.stored_values import Answer
from tests.integration.postgres.cutting import Cut, cutting
from tests.integration.postgres.databases.servers import counter, value

HERE = {"PYTHONPATH": str(Path(__file__).parents[4] / "src")}
ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
READ_ADD = "UPDATE c SET n = (SELECT n FROM c WHERE id = 1) + 1 WHERE id = 1 RETURNING n"


async def add(tx: Transaction, amount: int) -> object:
    [(n,)] = await tx.query("SELECT n FROM c WHERE id = 1")
    assert isinstance(n, int)
    await tx.execute("UPDATE c SET n = $1 WHERE id = 1", n + amount)
    return {"n": n + amount}


def test_one_key_from_many_tasks_happens_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(postgres_url) as other:
            for number, each in enumerate([ADD, READ_ADD], start=1):
                calls = [at.execute(each, key=f"e{number}") for at in (db, other) for _ in range(16)]
                assert await asyncio.gather(*calls) == [1] * 32
                assert await value(db) == number
            calls2 = [at.transact(add, 5, key="t") for at in (db, other) for _ in range(16)]
            assert await asyncio.gather(*calls2) == [{"n": 7}] * 32
            assert await db.query(READ_ADD, key="q") == await other.query(READ_ADD, key="q") == [(8,)]

    asyncio.run(scenario())


PROCESS = """
import asyncio, sys
from interlock.database.database import Database

async def main():
    async with Database.open(sys.argv[1]) as db:
        rows = await asyncio.gather(*[db.query(sys.argv[2], key="k") for _ in range(16)])
        print(sorted({n for [(n,)] in rows}))

asyncio.run(main())
"""


def test_one_key_from_two_processes_happens_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db:
            words = [sys.executable, "-c", PROCESS, postgres_url, READ_ADD]

            def other() -> str:
                return subprocess.run(words, stdout=subprocess.PIPE, text=True, env=HERE, check=True).stdout

            said = await asyncio.gather(asyncio.to_thread(other), asyncio.to_thread(other))
            assert list(said) == ["[1]\n"] * 2
            assert await value(db) == 1

    asyncio.run(scenario())


def test_a_key_for_something_else_is_refused_and_a_failure_leaves_it_free(postgres_url: str) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db:
            await db.execute(ADD, key="k")
            for call in (db.execute(READ_ADD, key="k"), db.query(ADD, key="k"), db.transact(add, 1, key="k")):
                with pytest.raises(KeyReused):
                    await call
            with pytest.raises(TransactionError, match="zero"):
                await db.execute("UPDATE c SET n = 1 / 0 WHERE id = 1", key="free")
            with pytest.raises(ConstraintViolation):
                await db.execute("INSERT INTO c VALUES (1, 1)", key="free")
            assert await db.execute(ADD, key="free") == 1
            assert await value(db) == 2

    asyncio.run(scenario())


UPSERT = "INSERT INTO c VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n"


def test_an_upsert_with_a_key_is_one_statement_and_happens_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else it might be (a repetition, an error, no row) changes nothing and is run as a transaction."""
    texts: list[str] = []
    run = StatementLink.run

    async def noted(link: StatementLink, sql: str, args: Sequence[object], *, schema: str, writing: bool) -> Answer:
        texts.append(sql)
        return await run(link, sql, args, schema=schema, writing=writing)

    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(postgres_url) as other:
            assert await db.execute(UPSERT, 1, key="warm") == 1
            monkeypatch.setattr(StatementLink, "run", noted)
            assert await db.execute(UPSERT, 1, key="k") == 1
            assert len(texts) == 1
            assert (
                await asyncio.gather(*[at.execute(UPSERT, 1, key="k") for at in (db, other) for _ in range(8)])
                == [1] * 16
            )
            assert await value(db) == 2
            for call in (db.execute(UPSERT, 2, key="k"), db.query(UPSERT, 1, key="k"), db.execute(ADD, key="k")):
                with pytest.raises(KeyReused):
                    await call
            with pytest.raises(ConstraintViolation):
                await db.execute("INSERT INTO c VALUES (1, 1)", key="free")
            nothing = "INSERT INTO c VALUES (1, 1) ON CONFLICT DO NOTHING"
            assert [await db.execute(nothing, key="free") for _ in range(2)] == [0, 0]
            assert await db.execute("INSERT INTO c VALUES (8, 1), (9, 1)", key="two") == 2
            assert await db.execute("INSERT INTO c VALUES (7, 1) -- mine", key="note") == 1
            assert await db.execute("INSERT INTO c VALUES (6, 1);", key="end") == 1
            await db.execute("CREATE VIEW v AS SELECT * FROM c")
            assert await db.execute("INSERT INTO v VALUES (5, 1)", key="view") == 1
            assert [await db.query("SELECT sum(id), sum(n) FROM c")] == [[(36, 7)]]

    asyncio.run(scenario())


@pytest.mark.parametrize("delivered", [True, False], ids=["committed", "not committed"])
def test_a_cut_of_an_upsert_is_resolved_by_the_key(postgres_url: str, delivered: bool) -> None:
    """G9: whether it has happened is asked with the same key."""

    async def scenario() -> None:
        async with counter(postgres_url) as direct, cutting(postgres_url) as proxy:
            async with Database.open(proxy.url) as db:
                assert await db.execute(UPSERT, 1, key="first") == 1
                proxy.cut = Cut(b"B", delivered=delivered)
                assert await db.execute(UPSERT, 1, key="k") == 1
                assert proxy.cuts == 1
            assert await value(direct) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("delivered", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("what", ["one statement", "a transaction"])
def test_a_cut_in_the_commit_is_resolved_by_the_key(postgres_url: str, what: str, delivered: bool) -> None:
    """G9: the same key is asked again, and what has happened is not done twice."""

    async def scenario() -> None:
        async with counter(postgres_url) as direct, cutting(postgres_url) as proxy:
            async with Database.open(proxy.url) as db:
                assert await db.transact(add, 1) == {"n": 1}
                proxy.cut = Cut(b"Q", b"COMMIT", delivered=delivered)
                if what == "one statement":
                    assert await db.execute(ADD, key="k") == 1
                else:
                    assert await db.transact(add, 1, key="k") == {"n": 2}
                assert proxy.cuts == 1
            assert await value(direct) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("delivered", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("what", ["one statement", "a transaction"])
def test_without_a_key_a_cut_in_the_commit_is_an_unknown_outcome(postgres_url: str, what: str, delivered: bool) -> None:
    """G9: it is said honestly, and never done a second time."""

    async def scenario() -> None:
        async with counter(postgres_url) as direct, cutting(postgres_url) as proxy:
            async with Database.open(proxy.url) as db:
                assert await db.execute(ADD) == 1
                # A statement that is known costs a Bind, a whole transaction ends with COMMIT.
                proxy.cut = (
                    Cut(b"B", delivered=delivered) if what == "one statement" else Cut(b"Q", b"COMMIT", delivered)
                )
                with pytest.raises(OutcomeUnknown):
                    await (db.execute(ADD) if what == "one statement" else db.transact(add, 1))
                assert proxy.cuts == 1
            assert await value(direct) == 1 + delivered

    asyncio.run(scenario())


def test_keys_are_removed_by_age_and_by_number(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_transactions, "REMOVE_EVERY", 5)

    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(postgres_url, keys_max=3) as few:
            for number in range(10):
                await few.execute(ADD, key=f"few-{number}")
            kept = await db.query("SELECT key FROM interlock_keys ORDER BY number")
            assert kept == [("few-7",), ("few-8",), ("few-9",)]
            await db.execute("UPDATE interlock_keys SET at = now() - interval '8 days'")
            for number in range(5):
                await db.execute(ADD, key=f"new-{number}")
            assert await db.query("SELECT count(*) FROM interlock_keys WHERE key LIKE 'few-%'") == [(0,)]

    asyncio.run(scenario())


def test_an_error_while_old_keys_are_removed_is_not_the_callers(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for has been committed, so the call must not say that it failed (G9)."""
    monkeypatch.setattr(postgres_transactions, "REMOVE_EVERY", 1)
    monkeypatch.setattr(postgres_transactions, "REMOVE", "SELECT 1 / 0, $1::float8, $2::bigint, $3::bigint")

    async def scenario() -> None:
        async with counter(postgres_url) as db:
            assert await db.execute(ADD, key="k") == 1

    asyncio.run(scenario())


def test_a_user_without_rights_has_turns_and_is_told_about_keys(postgres_url: str) -> None:
    """Only keys need a table of their own; a transaction that met another one works without the gate."""

    async def scenario() -> None:
        user, schema = f"u{uuid.uuid4().hex[:12]}", postgres_url.rpartition("=")[2]
        async with counter(postgres_url) as db:
            await db.execute("DROP TABLE interlock_gate")
            await db.execute("DROP TABLE interlock_keys")
            await db.execute(f"CREATE ROLE {user} LOGIN")
            await db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
            await db.execute(f"GRANT ALL ON c TO {user}")
            try:
                async with Database.open(postgres_url.replace("postgres:", f"{user}:", 1)) as theirs:
                    assert await theirs.query("SELECT current_user::text") == [(user,)]
                    results = await asyncio.gather(*[theirs.query(READ_ADD) for _ in range(32)])
                    assert sorted(results) == [[(n,)] for n in range(1, 33)]
                    with pytest.raises(TransactionError, match="GRANT"):
                        await theirs.execute(ADD, key="k")
            finally:
                await db.execute(f"DROP OWNED BY {user}")
                await db.execute(f"DROP ROLE {user}")

    asyncio.run(scenario())


def test_a_missing_argument_is_never_the_key(postgres_url: str) -> None:
    """The statement's own parameters are its arguments, also where a key is claimed in the same statement."""

    async def scenario() -> None:
        async with counter(postgres_url) as db:
            await db.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, first TEXT, second BYTEA, third TEXT)")
            for sql in (
                "INSERT INTO notes (id, first) VALUES ($1, $2)",
                "INSERT INTO notes (id, second) VALUES ($1, $3)",
                "INSERT INTO notes (id, first, second) VALUES ($1, $2, $3)",
            ):
                with pytest.raises(TransactionError):
                    await db.execute(sql, 1, key="secret")
            with pytest.raises(TransactionError):
                await db.execute("INSERT INTO notes (id) VALUES ($1)", 1, "more", key="secret")
            assert await db.query("SELECT * FROM notes") == []
            assert await db.execute("INSERT INTO notes (id) VALUES ($1)", 1, key="secret") == 1

    asyncio.run(scenario())
