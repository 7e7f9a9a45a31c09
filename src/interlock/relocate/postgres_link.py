"""A mover's connection to PostgreSQL: one transaction at a time, and locks for which it waits only briefly.

Its table locks belong to a transaction, and the lock against other movers to the connection: all of them vanish with
the connection. A move of workflows works through a pooler, too, where every statement outside of a transaction gets one
of its own: its round trips must reach the same server. A move of a database needs the connection itself
(`postgres_rows.MoverConnections`).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from interlock.errors import UnavailableError
from interlock.postgres.pool import Driver, Link, PostgresRow, driver_of
from interlock.postgres.translate_errors import Blocked, NotNow, translate_errors
from interlock.relocate.source_and_target import another_mover
from interlock.urls import PostgresAddress

CLOSE_S: Final = 5.0
PATIENT_S: Final = 30.0
"""Seconds to wait for a restarting server whose state decides the move."""

PATIENT_PAUSE_S: Final = 0.1
KILLED_S: Final = 2.0
"""Seconds to wait until the server ends the connection of a killed mover."""

PAUSE_S: Final = 0.02
LOCKS_S: Final = 30.0
"""Seconds for which locks are retried: a waiting mover blocks other clients in the lock queue, so it lets them pass."""

LOCK_MS: Final = 300
"""Timeout of a lock, after which waiting clients go first. The server looks for deadlocks after a second."""

CATALOGS_MS: Final = 10_000
"""Timeout with all tables locked: only a vacuum of the catalogs can block, and the server ends an automatic one."""


class MoverLink(Link):
    """One connection of a mover."""

    def __init__(self, driver: Driver, address: PostgresAddress) -> None:
        super().__init__(driver, address)
        self.address = address
        self.inside = False
        """Whether a transaction is open."""

    @classmethod
    async def opened(
        cls, address: PostgresAddress, settings: Mapping[str, str], *, patient: bool = False
    ) -> "MoverLink":
        """Open a connection. With `patient` it waits for a restarting server."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENT_S * patient
        while True:
            try:
                return cls(await driver_of(address, settings), address)
            except (NotNow, UnavailableError):
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(PATIENT_PAUSE_S)

    async def fetch(self, sql: str, *values: object) -> list[PostgresRow]:
        """Run a statement, in the open transaction or in its own; return its rows."""
        if self.address.pgbouncer and not self.inside:
            async with self.transaction():
                return await self.fetch(sql, *values)
        with translate_errors(writing=False):
            return await self.driver.fetch(sql, *values)

    async def execute(self, sql: str) -> None:
        """Run a statement or a script without values."""
        with translate_errors(writing=False):
            _ = await self.driver.execute(sql)

    async def commit(self) -> None:
        """Commit the open transaction. Raises OutcomeUnknown when the connection is lost."""
        self.inside = False
        with translate_errors(writing=True):
            _ = await self.driver.execute("COMMIT")

    async def rollback(self) -> None:
        """Roll back the open transaction."""
        self.inside = False
        await self.execute("ROLLBACK")

    @asynccontextmanager
    async def transaction(self, first: str = "") -> AsyncGenerator[None]:
        """Run the block as one transaction, which it may end earlier itself. A nested call joins the outer one."""
        if self.inside:
            yield
            return
        await self.execute(f"BEGIN; {first}")
        self.inside = True
        try:
            yield
            if self.inside:
                await self.commit()
        finally:
            if self.inside:
                self.inside = False
                with contextlib.suppress(Exception):  # The end of the connection rolls back, too.
                    _ = await self.driver.execute("ROLLBACK")

    def snapshot(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Read one snapshot during the block."""
        return self.transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @asynccontextmanager
    async def locked(
        self, lock: Callable[[], Awaitable[None]], location: str, wait_s: float = LOCKS_S
    ) -> AsyncGenerator[None]:
        """Run the block as one transaction with locks, which `lock` acquires; it is called again after a timeout."""
        tries = Tries(wait_s)
        while await tries.next():
            async with contextlib.AsyncExitStack() as locks:
                try:
                    await locks.enter_async_context(self.transaction(f"SET LOCAL lock_timeout = {LOCK_MS}"))
                    await lock()
                    await self.execute(f"SET LOCAL lock_timeout = {CATALOGS_MS}")
                except Blocked:
                    continue
                yield
                return
        raise no_lock(location)

    async def take(self, lock: str, schema: str, location: str) -> None:
        """Become the only mover. Wait briefly, because the server may still have to end a killed mover's connection."""
        tries = Tries(KILLED_S)
        while await tries.next():
            [row] = await self.fetch(lock, schema)
            if row[0]:
                return
        raise another_mover(location)

    async def end(self, timeout_s: float = CLOSE_S) -> None:
        """End the connection, and with it whatever is not committed."""
        await super().end(timeout_s)


class Tries:
    """Attempts with a pause in between, for a limited time."""

    def __init__(self, wait_s: float) -> None:
        self._until_s = asyncio.get_running_loop().time() + wait_s
        self._first = True

    async def next(self) -> bool:
        """Return whether to try again, after a pause."""
        if not self._first:
            await asyncio.sleep(PAUSE_S)
        self._first = False
        return asyncio.get_running_loop().time() < self._until_s


def no_lock(location: str) -> UnavailableError:
    """Return the error for locks that could not be acquired."""
    return UnavailableError(
        f"the tables of {location} could not be locked: another client holds one of them all the time.",
        why="A mover waits only a moment for each lock, so that it does not block other clients. Nothing has moved.",
        fix="Look for long transactions in pg_stat_activity, and run the command again: it goes on where it ended.",
    )
