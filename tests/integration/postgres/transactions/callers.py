"""The user's own program, with each kind of connection: all of them look the same to a test.

Those without an event loop are used in a thread that has none.
"""

# ruff: noqa: ANN401 -- connections of any kind look the same here.

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from interlock import BlockingTransaction, Engine, Event, Moved, Transaction, View
from interlock.engine.bound_machine import AnyMachine
from interlock.urls import parse_postgres_url
from tests.integration.postgres.transactions.machine import Order, State, order


class Sends(Protocol):
    """A transaction as a test uses it."""

    async def send(
        self, workflow: str, event: Event, *, key: str | None = None, if_allowed: bool = False,
        expect_version: int | None = None, start: tuple[AnyMachine, object] | None = None, by: str | None = None,
    ) -> Moved[Any]: ...  # fmt: skip

    async def start(self, workflow: str, context: Order) -> View[State, Order]: ...


class Awaits:
    """One in an event loop."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx

    async def send(self, workflow: str, event: Event, **options: Any) -> Moved[Any]:
        return await self.tx.send(workflow, event, **options)

    async def start(self, workflow: str, context: Order) -> View[State, Order]:
        return await self.tx.start(order, workflow, context)


class Blocks:
    """One without an event loop, in another thread."""

    def __init__(self, tx: BlockingTransaction) -> None:
        self.tx = tx

    async def send(self, workflow: str, event: Event, **options: Any) -> Moved[Any]:
        return await asyncio.to_thread(self.tx.send, workflow, event, **options)

    async def start(self, workflow: str, context: Order) -> View[State, Order]:
        return await asyncio.to_thread(self.tx.start, order, workflow, context)


class Caller(Protocol):
    """A connection of the user, in the schema of the workflows."""

    connection: Any

    async def begin(self) -> None:
        """Open a transaction, where the first statement does not do so."""

    async def execute(self, sql: str) -> Sequence[Any]: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class Asyncpg:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def begin(self) -> None:
        self.transaction = self.connection.transaction()
        await self.transaction.start()

    async def execute(self, sql: str) -> Sequence[Any]:
        rows: Sequence[Any] = await self.connection.fetch(sql)
        return rows

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()


class Awaited:
    """psycopg and SQLAlchemy in an event loop."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def begin(self) -> None: ...

    async def execute(self, sql: str) -> Sequence[Any]:
        if isinstance(self.connection, psycopg.AsyncConnection):
            cursor = await self.connection.execute(sql.encode())
            return await cursor.fetchall() if cursor.description else ()
        result = await self.connection.execute(sqlalchemy.text(sql))
        return list(result.all()) if result.returns_rows else ()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


class Direct:
    """psycopg and SQLAlchemy without an event loop."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def begin(self) -> None: ...

    async def execute(self, sql: str) -> Sequence[Any]:
        return await asyncio.to_thread(self._execute, sql)

    def _execute(self, sql: str) -> Sequence[Any]:
        if isinstance(self.connection, psycopg.Connection):
            cursor = self.connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else ()
        result = self.connection.execute(sqlalchemy.text(sql))
        return list(result.all()) if result.returns_rows else ()

    async def commit(self) -> None:
        await asyncio.to_thread(self.connection.commit)

    async def rollback(self) -> None:
        await asyncio.to_thread(self.connection.rollback)


@asynccontextmanager
async def lent(engine: Engine, caller: Caller) -> AsyncIterator[Sends]:
    """`engine.transaction`, as the connection is entered."""
    block = engine.transaction(caller.connection)
    if not isinstance(caller, Direct):
        async with block as tx:
            yield Awaits(tx)
        return
    yielded = await asyncio.to_thread(block.__enter__)
    try:
        yield Blocks(yielded)
    except BaseException as error:
        if not await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(block.__exit__, None, None, None)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    yield Asyncpg(connection)
    await connection.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield Asyncpg(connection)


@asynccontextmanager
async def _psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Awaited(connection)


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Direct(connection)


def _alchemy_async(driver: str, kind: type[AsyncConnection | AsyncSession]) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        connect = asyncpg.connect if driver == "asyncpg" else psycopg.AsyncConnection.connect
        engine = create_async_engine(f"postgresql+{driver}://", async_creator=lambda: connect(url), poolclass=NullPool)
        async with engine.connect() if kind is AsyncConnection else AsyncSession(engine) as connection:
            yield Awaited(connection)
        await engine.dispose()

    return opened


def _alchemy(kind: type[sqlalchemy.Connection | Session]) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool
        )
        with engine.connect() if kind is sqlalchemy.Connection else Session(engine) as connection:
            yield Direct(connection)
        engine.dispose()

    return opened


KINDS: dict[str, Callable[[str], Any]] = {
    "asyncpg": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
    "psycopg-async": _psycopg_async,
    "psycopg": _psycopg,
    "alchemy-connection": _alchemy(sqlalchemy.Connection),
    "alchemy-session": _alchemy(Session),
    "alchemy-asyncpg-connection": _alchemy_async("asyncpg", AsyncConnection),
    "alchemy-asyncpg-session": _alchemy_async("asyncpg", AsyncSession),
    "alchemy-psycopg-connection": _alchemy_async("psycopg", AsyncConnection),
    "alchemy-psycopg-session": _alchemy_async("psycopg", AsyncSession),
}


@asynccontextmanager
async def called(kind: str, url: str) -> AsyncIterator[Caller]:
    """A connection of this kind, outside of a transaction."""
    async with KINDS[kind](parse_postgres_url(url).url) as caller:
        yield caller


@asynccontextmanager
async def shop(url: str) -> AsyncIterator[Engine]:
    """An engine that runs no steps, beside a table of the user's own."""
    schema = parse_postgres_url(url).schema
    async with Engine.open(url, machines=[order], worker=False) as engine:
        connection = await asyncpg.connect(parse_postgres_url(url).url)
        await connection.execute(f"CREATE TABLE {schema}.purchases (id text PRIMARY KEY)")
        await connection.close()
        yield engine


async def buy(caller: Caller, url: str, purchase: str) -> None:
    """A row of the user's own."""
    await caller.execute(f"INSERT INTO {parse_postgres_url(url).schema}.purchases VALUES ('{purchase}')")


async def bought(url: str) -> list[str]:
    """The user's own rows, as everybody else sees them."""
    connection = await asyncpg.connect(parse_postgres_url(url).url)
    try:
        rows = await connection.fetch(f"SELECT id FROM {parse_postgres_url(url).schema}.purchases ORDER BY id")
        return [row[0] for row in rows]
    finally:
        await connection.close()
