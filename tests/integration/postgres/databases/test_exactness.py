"""D1 on PostgreSQL: whatever SQL is written, every acknowledged update is there, in one process and in several.

The same storm with everything under READ COMMITTED loses some of them, which shows that the test can see it.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.database.postgres_engine import OnPostgres
from interlock.database.transactions import Transaction
from interlock.postgres.isolation import StatementPlan
from interlock.postgres.statements import opened as connected
from interlock.urls import parse_postgres_url
from tests.integration.postgres.databases.naive import CASES, COUNTER, Case, prepare, storm

TASKS = 32
TIMES = 6
PROCESSES = 3
STORMS_MAX = 50
"""Whether two statements meet is up to the machine: nearly always they do in the first storm."""

ROOT = Path(__file__).parents[4]


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Database]:
    """A database with one connection for each task. Its schema is taken away: an operator is seen by everybody."""
    async with Database.open(f"{url}&connections_max={TASKS}") as db:
        try:
            yield db
        finally:
            schema = url.rpartition("schema=")[2]
            await db.execute(f"DROP SCHEMA {schema} CASCADE")


async def result(db: Database, case: Case) -> object:
    [(value,)] = await db.query(case.result)
    return value


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_every_acknowledged_update_is_there(postgres_url: str, name: str) -> None:
    case = CASES[name]

    async def scenario() -> None:
        async with opened(postgres_url) as db:
            await prepare(db, case)
            done = await storm(db, case, TASKS, TIMES)
            assert done == min(TASKS * TIMES, case.at_most)
            assert await result(db, case) == done

    asyncio.run(scenario())


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_under_read_committed_the_same_storm_loses_updates(
    postgres_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule that D1 stands on storms like the one above do find lost updates, sooner or later."""

    async def never(self: OnPostgres, plan: StatementPlan) -> bool:
        return False

    monkeypatch.setattr(OnPostgres, "_is_serializable", never)
    case = CASES[name]

    async def exact() -> bool:
        async with opened(postgres_url) as db:
            await prepare(db, case)
            done = await storm(db, case, TASKS, TIMES)
            return (await result(db, case), done) == (min(TASKS * TIMES, case.at_most),) * 2

    assert not all(asyncio.run(exact()) for _ in range(STORMS_MAX))


@pytest.mark.campaign
@pytest.mark.parametrize(
    "name",
    ["subquery in SET", "upsert with a subquery", "INSERT SELECT max", "trigger", "function like a column", "transact"],
)
def test_several_processes_lose_nothing_together(postgres_url: str, name: str) -> None:
    case = CASES[name]

    async def scenario() -> None:
        async with opened(postgres_url) as db:
            await prepare(db, case)
            words = [sys.executable, "-m", "tests.integration.postgres.databases.naive", postgres_url, name, "8", "8"]
            said = await asyncio.gather(*[asyncio.to_thread(_said, words) for _ in range(PROCESSES)])
            assert said == [64] * PROCESSES
            assert await result(db, case) == sum(said)

    asyncio.run(scenario())


def _said(words: list[str]) -> int:
    """What another process has been told, in the end."""
    environment = {"PYTHONPATH": f"{ROOT}/src"}
    return int(subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=True).stdout)


async def replace(tx: Transaction) -> None:
    [(n,)] = await tx.query("SELECT n FROM c WHERE id = 1")
    assert isinstance(n, int)
    await tx.execute("DELETE FROM c WHERE id = 1")
    await tx.execute("INSERT INTO c (id, n) VALUES (1, $1)", n + 1)


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
@pytest.mark.parametrize("pooled", ["", "&pgbouncer=true"], ids=["direct", "pooled"])
def test_an_update_finds_a_row_that_was_replaced_while_it_waited(postgres_url: str, pooled: str, keyed: bool) -> None:
    """There was a row with this key at any time, so an update that finds none has missed it."""

    async def scenario() -> None:
        async with opened(postgres_url) as db, Database.open(postgres_url + pooled) as other:
            for sql in COUNTER:
                await db.execute(sql)
            replaced, asked = asyncio.Event(), asyncio.Event()
            hold = await _holding(postgres_url, replaced, asked)
            await replaced.wait()
            add = asyncio.ensure_future(
                other.execute("UPDATE c SET n = n + 1 WHERE id = 1", key="add" if keyed else None)
            )
            await _waits(db)
            asked.set()
            await hold
            assert await add == 1
            assert await db.query("SELECT n FROM c") == [(11,)]
            await asyncio.gather(*[db.transact(replace) for _ in range(8)])
            assert await db.query("SELECT n FROM c") == [(19,)]

    asyncio.run(scenario())


async def _holding(url: str, replaced: asyncio.Event, go: asyncio.Event) -> "asyncio.Task[None]":
    """A transaction that has replaced the row by one with 10, and is not committed yet."""

    async def hold() -> None:
        client = await connected(parse_postgres_url(url))
        await client.begin("READ COMMITTED")
        await client.run("DELETE FROM c WHERE id = 1", (), schema="", writing=False)
        await client.run("INSERT INTO c VALUES (1, 10)", (), schema="", writing=False)
        replaced.set()
        await go.wait()
        await client.commit()
        await client.end(5.0)

    return asyncio.ensure_future(hold())


async def _waits(db: Database) -> None:
    """Until somebody waits for a lock on the server."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE c SET n = n%'"
    )
    while await db.query(waiting) == [(0,)]:
        pass
