"""Stores at one schema, and a connection of somebody else beside them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg

from interlock.clock import SystemClock
from interlock.store.postgres.store import PostgresStore, open_postgres
from interlock.urls import parse_postgres_url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store, closed at the end."""
    store = await open_postgres(url, clock=SystemClock())
    assert isinstance(store, PostgresStore)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def several(url: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    """Stores of as many processes, each with connections of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url)) for _ in range(count)]


@asynccontextmanager
async def somebody(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the user's own program, which looks at the schema by its plain names."""
    address = parse_postgres_url(url)
    connection = await asyncpg.connect(address.url)
    try:
        await connection.execute(f"SET search_path TO {address.schema}")
        yield connection
    finally:
        await connection.close()


async def emptied(url: str) -> None:
    """Make the schema new: much quicker than another one, where a property is tried many times."""
    schema = parse_postgres_url(url).schema
    async with opened(url) as store:
        tables = ("workflows", "workflow_events", "workflow_effects", "dead_letters", "leases", "notes")
        await store._pool.write(f"TRUNCATE {', '.join(f'{schema}.{each}' for each in tables)}", ())
