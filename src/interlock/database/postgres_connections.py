"""Connections of a database on PostgreSQL: one pool per event loop, because a connection belongs to its loop.

Opening creates what is missing on the server: the schema, the table of keys and the gate. A user without the right to
create tables can still run statements; only calls with a key raise an error.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple, cast
from weakref import WeakKeyDictionary

from interlock.database.postgres_transactions import Contended
from interlock.database.remembering import SCHEMA as KEYS
from interlock.errors import ConstraintViolation, InterlockError, TransactionError
from interlock.lanes import forks
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.client import DENIED, Client, Conflict, opened
from interlock.sql.postgres.failures import closed, state_of
from interlock.sql.postgres.leaving import arrive, marks_of, refuse_marked
from interlock.sql.postgres.pool import Pool
from interlock.sql.postgres.turns import GATE

MAKE_ATTEMPTS: Final = 5
MISSING: Final = "SELECT to_regnamespace($1) IS NULL, to_regclass($2) IS NULL OR to_regclass($3) IS NULL"


class Connections:
    """All connections to one address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = False
        forks.watch(self)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        """Acquire a connection for the duration of the block."""
        pool = self._pool() or await self._open_pool()
        async with pool.link() as link:
            yield cast("Client", link)

    async def pause(self, seconds: float) -> None:
        """Sleep before the next attempt; raises if the connections were closed meanwhile."""
        if self._closed:
            raise closed()
        await asyncio.sleep(seconds)

    async def make(self, schema: str, *, local: str, tombstone_epoch: int = 0) -> None:
        """Create what is missing, unless the database has moved or is arriving. Processes may do so concurrently."""
        async with self.client() as client:
            marks = await marks_of(client.read, schema)
            if marks.arriving and marks.arriving == tombstone_epoch:
                await _complete_arrival(client, schema, tombstone_epoch)
                marks = await marks_of(client.read, schema)
            refuse_marked(marks, self.address.shown)
        for attempt in range(1, MAKE_ATTEMPTS + 1):
            try:
                async with self.client() as client:
                    if await self._create_missing(client, schema, local):
                        # A move may have left, or begun to arrive, since the first check.
                        refuse_marked(await marks_of(client.read, schema), self.address.shown)
            except (ConstraintViolation, TransactionError, Conflict) as error:
                cause = error.__cause__
                if cause is not None and state_of(cause) == DENIED:
                    return  # Calls with a key will raise; everything else works without these tables.
                if attempt == MAKE_ATTEMPTS:
                    raise (Contended(attempt) if isinstance(error, Conflict) else error) from cause
                await self.pause(0.01 * attempt)
            else:
                return

    async def close(self) -> None:
        """Close all pools; each in its own event loop, if that still runs."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.items())
        here = asyncio.get_running_loop()
        for loop, kept in pools:
            if loop is here:
                await kept.guard.aclose()
            elif loop.is_running():
                _ = asyncio.run_coroutine_threadsafe(kept.pool.close(), loop)

    def forked(self) -> None:
        """Drop the connections in the child of a fork: they belong to the parent."""
        self._lock = threading.Lock()
        self._closed = True
        self._pools = WeakKeyDictionary()

    def _pool(self) -> Pool | None:
        if self._closed:
            raise closed()
        kept = self._pools.get(asyncio.get_running_loop())
        return None if kept is None else kept.pool

    async def _open_pool(self) -> Pool:
        pool = Pool(self.address, opened)
        guard = _closed_with_loop(pool)
        with self._lock:
            if self._closed:
                raise closed()
            # Nothing is awaited since the lookup, so each loop gets one pool.
            self._pools[asyncio.get_running_loop()] = _Kept(pool, guard)
        await anext(guard)
        return pool

    async def _create_missing(self, client: Client, schema: str, local: str) -> bool:
        names = (schema, f"{schema}.interlock_keys", f"{schema}.{GATE}")
        await client.begin("READ COMMITTED")
        try:
            [(no_schema, no_tables)] = (await client.run(MISSING, names, schema=local, writing=False)).rows
            wanted = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"'] if no_schema else []
            if no_tables:
                wanted += [f'SET LOCAL search_path = "{schema}"', KEYS, f"CREATE TABLE IF NOT EXISTS {GATE} ()"]
            for sql in wanted:
                _ = await client.run(sql, (), schema=local, writing=False)
        except (InterlockError, Conflict):
            await client.rollback()
            raise
        await client.commit()
        return bool(wanted)


async def _complete_arrival(client: Client, schema: str, epoch: int) -> None:
    await client.begin("READ COMMITTED")
    try:
        arrived = await arrive(client, schema, epoch)
    except BaseException:
        await client.rollback()
        raise
    await (client.commit() if arrived else client.rollback())


class _Kept(NamedTuple):
    pool: Pool
    guard: AsyncGenerator[None]


async def _closed_with_loop(pool: Pool) -> AsyncGenerator[None]:
    """Close the pool when its event loop shuts down its asynchronous generators."""
    try:
        yield
    finally:
        await pool.close()
