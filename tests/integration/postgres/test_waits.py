"""D9 on a real PostgreSQL: who waits for whom is seen in its views, with the key of the row, by any user."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from uuid import uuid4

import asyncpg
import pytest

from interlock.postgres import lock_waits
from interlock.postgres.lock_waits import Sampler, WaitedRow, sample
from interlock.postgres.pool import connected
from interlock.urls import parse_postgres_url

TABLES = """
CREATE TABLE {schema}.counter (id bigint PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE {schema}.seat (hall text, number int, taken bool NOT NULL, PRIMARY KEY (hall, number));
CREATE TABLE {schema}.bare (n int);
CREATE TABLE {schema}.path (steps int[] PRIMARY KEY, n int);
INSERT INTO {schema}.path VALUES ('{{1,2}}', 0);
INSERT INTO {schema}.counter SELECT number, 0 FROM generate_series(1, 200) AS number;
INSERT INTO {schema}.seat VALUES ('a', 1, false);
INSERT INTO {schema}.bare VALUES (0)"""


class Shop:
    """A schema with tables, and sessions that hold rows or wait for them."""

    def __init__(self, url: str, schema: str, sessions: list[asyncpg.Connection]) -> None:
        self.url = url
        self.schema = schema
        self._sessions = sessions
        self._waiting: list[asyncio.Task[str]] = []

    async def session(self) -> asyncpg.Connection:
        connection: asyncpg.Connection = await asyncpg.connect(self.url)
        self._sessions.append(connection)
        await connection.execute("BEGIN")
        return connection

    async def held(self, sql: str, *, waiters: int) -> asyncpg.Connection:
        """A session that has run this and not committed, and others that wait to do the same."""
        first = await self.session()
        await first.execute(sql.format(schema=self.schema))
        for _ in range(waiters):
            other = await self.session()
            self._waiting.append(asyncio.ensure_future(other.execute(sql.format(schema=self.schema))))
        return first

    async def seen(self, sampler: Sampler, waiting: int) -> list[WaitedRow]:
        """Look until so many sessions wait."""
        while len(sampler._known) < waiting:
            await sampler.look()
        return sampler.rows(1.0)

    async def let_go(self) -> None:
        for each in self._sessions:
            each.terminate()
        await asyncio.gather(*self._waiting, return_exceptions=True)


@contextlib.asynccontextmanager
async def shop(url: str) -> AsyncGenerator[tuple[Shop, Sampler]]:
    address = parse_postgres_url(url)
    schema = f"waits_{uuid4().hex}"
    owner = await asyncpg.connect(address.url)
    await owner.execute(f"CREATE SCHEMA {schema}")
    await owner.execute(TABLES.format(schema=schema))
    link = await connected(address)
    opened = Shop(address.url, schema, [])
    try:
        yield opened, Sampler(link)
    finally:
        await opened.let_go()
        await link.end(5.0)
        await owner.execute(f"DROP SCHEMA {schema} CASCADE")
        await owner.close()


def run(scenario: Callable[[], Coroutine[object, object, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


@pytest.mark.parametrize(
    ("sql", "table", "key"),
    [
        ("UPDATE {schema}.counter SET n = n + 1 WHERE id = 7", "counter", 7),
        ("SELECT * FROM {schema}.counter WHERE id = 9 FOR UPDATE", "counter", 9),
        ("DELETE FROM {schema}.seat WHERE number = 1", "seat", ("a", 1)),
        ("UPDATE {schema}.path SET n = n + 1", "path", "[1, 2]"),
        ("UPDATE {schema}.bare SET n = n + 1", "bare", None),
        ("INSERT INTO {schema}.counter VALUES (999, 0) ON CONFLICT (id) DO NOTHING", "counter", None),
        ("LOCK TABLE {schema}.counter IN EXCLUSIVE MODE", "counter", None),
    ],
    ids=["update", "for update", "delete by two columns", "an array", "no key", "unique key", "whole table"],
)
@pytest.mark.parametrize("waiters", [1, 3])
def test_sessions_that_wait_are_seen_with_the_row_they_wait_for(
    postgres: str, sql: str, table: str, key: object, waiters: int
) -> None:
    async def scenario() -> None:
        async with shop(postgres) as (opened, sampler):
            await opened.held(sql, waiters=waiters)
            [row] = await opened.seen(sampler, waiters)
            assert (row.table, row.key) == (f"{opened.schema}.{table}", key)
            assert row.waits_per_s > 0
            assert row.wait_s > 0

    run(scenario)


def test_the_worst_row_comes_first_and_sessions_that_do_not_wait_are_not_seen(postgres: str) -> None:
    async def scenario() -> None:
        async with shop(postgres) as (opened, sampler):
            await opened.held("UPDATE {schema}.counter SET n = n + 1 WHERE id = 1", waiters=1)
            await opened.held("UPDATE {schema}.counter SET n = n + 1 WHERE id = 2", waiters=4)
            for number in range(10, 30):
                await opened.held(f"UPDATE {{schema}}.counter SET n = n + 1 WHERE id = {number}", waiters=0)
            rows = await opened.seen(sampler, 5)
            assert [row.key for row in rows] == [2, 1]

    run(scenario)


def test_a_user_without_rights_sees_who_waits_and_is_told_that_keys_are_not_his(postgres: str) -> None:
    async def scenario() -> None:
        async with shop(postgres) as (opened, _):
            role = f"nobody_{uuid4().hex}"
            owner = await asyncpg.connect(opened.url)
            await owner.execute(f"CREATE ROLE {role}")
            link = await connected(parse_postgres_url(postgres))
            await link.driver.execute(f"SET ROLE {role}")
            sampler = Sampler(link)
            try:
                await opened.held("UPDATE {schema}.counter SET n = n + 1 WHERE id = 7", waiters=1)
                [row] = await opened.seen(sampler, 1)
                assert (row.table, row.key) == (f"{opened.schema}.counter", None)
                assert sampler.unreadable == {f"{opened.schema}.counter"}
                assert sampler.hidden
            finally:
                await link.end(5.0)
                await owner.execute(f"DROP ROLE {role}")
                await owner.close()

    run(scenario)


@pytest.mark.slow
def test_writers_on_distinct_rows_are_volume_and_on_one_row_they_are_seen(postgres: str) -> None:
    async def scenario() -> None:
        async with shop(postgres) as (opened, _):

            async def write(row: int, done: asyncio.Event) -> None:
                connection = await asyncpg.connect(opened.url)
                try:
                    while not done.is_set():
                        await connection.execute(f"UPDATE {opened.schema}.counter SET n = n + 1 WHERE id = {row}")
                finally:
                    await connection.close()

            async def sampled(rows: list[int], enough: Callable[[lock_waits.LockWaits], bool]) -> lock_waits.LockWaits:
                done = asyncio.Event()
                writers = [asyncio.ensure_future(write(row, done)) for row in rows]
                link = await connected(parse_postgres_url(postgres))
                # How much is seen in a second says something about the machine.
                while not enough(found := await sample(link, 1.0, 0.01)):
                    pass
                done.set()
                await asyncio.gather(*writers)
                await link.end(5.0)
                return found

            many = await sampled(list(range(1, 9)), lambda found: bool(found.rows) or found.samples > 1)
            assert many.rows == []
            one = await sampled([7] * 8, lambda found: any(row.key is not None for row in found.rows))
            keys = [row.key for row in one.rows if row.key is not None]
            assert keys == [7]

    run(scenario)


def test_what_is_remembered_is_bounded(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_waits, "ROWS_MAX", 2)

    async def scenario() -> None:
        async with shop(postgres) as (opened, sampler):
            for number in range(1, 6):
                await opened.held(f"UPDATE {{schema}}.counter SET n = n + 1 WHERE id = {number}", waiters=1)
            rows = await opened.seen(sampler, 5)
            assert len(rows) == 2

    run(scenario)
