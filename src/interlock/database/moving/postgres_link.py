"""Mover's connection to PostgreSQL: statements, scripts and transactions, with Interlock's errors.

A pooler in transaction mode is refused: a mover's locks and its last transaction belong to one connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from interlock.database.moving.locking import Tries, another_mover
from interlock.errors import BadUsage, InterlockError, UnavailableError
from interlock.seams import Clock
from interlock.sql.postgres.address import Address, parsed
from interlock.sql.postgres.client import PLAIN_TEXTS
from interlock.sql.postgres.failures import NotNow, state_of, told
from interlock.sql.postgres.leaving import MISSING_STATES
from interlock.sql.postgres.link import Driver, Link, Record, driver_of

SETTINGS: Final = {
    "timezone": "UTC",
    "jit": "off",
    "application_name": "interlock-route",
    "synchronous_commit": "on",  # If a crash could undo a tombstone, the database would live at two places.
    **PLAIN_TEXTS,
}
CLOSE_S: Final = 5.0
PATIENT_S: Final = 30.0
"""Seconds to wait for a restarting server whose state decides the move."""

PAUSE_S: Final = 0.1
KILLED_S: Final = 2.0
"""Seconds to wait until the server ends the connection of a killed mover."""

DROPPED_STATES: Final = (*MISSING_STATES, "42704")
"""SQLSTATEs of a missing table, schema or constraint."""

UNVALIDATED: Final = """
SELECT format('ALTER TABLE %I.%I VALIDATE CONSTRAINT %I', n.nspname, c.relname, k.conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND k.contype = 'f' AND NOT k.convalidated ORDER BY c.relname, k.conname"""


class Linked(Link):
    """One connection of a mover."""

    def __init__(self, driver: Driver, address: Address) -> None:
        super().__init__(driver, address)
        self._open = False

    async def fetch(self, sql: str, *values: object) -> list[Record]:
        """Run a statement, in the open transaction or in its own; return its rows."""
        with told(writing=False):
            return await self.driver.fetch(sql, *values)

    async def take(self, lock: str, schema: str, shown: str) -> None:
        """Become the only mover. Wait briefly, because the server may still have to end a killed mover's connection."""
        tries = Tries(KILLED_S)
        while await tries.next():
            [row] = await self.fetch(lock, schema)
            if row[0]:
                return
        raise another_mover(shown)

    async def execute(self, sql: str) -> None:
        """Run a statement or a script without values."""
        with told(writing=False):
            _ = await self.driver.execute(sql)

    async def commit(self) -> None:
        """Commit the open transaction. Raises OutcomeUnknown when the connection is lost."""
        self._open = False
        with told(writing=True):
            _ = await self.driver.execute("COMMIT")

    async def rollback(self) -> None:
        """Roll back the open transaction."""
        self._open = False
        await self.execute("ROLLBACK")

    @asynccontextmanager
    async def transaction(self, first: str = "") -> AsyncGenerator[None]:
        """Run the block as one transaction; the block may commit earlier itself."""
        await self.execute(f"BEGIN; {first}")
        self._open = True
        try:
            yield
            if self._open:
                await self.commit()
        finally:
            if self._open:
                self._open = False
                with contextlib.suppress(Exception):  # The end of the connection rolls back, too.
                    _ = await self.driver.execute("ROLLBACK")

    async def end(self, timeout_s: float = CLOSE_S) -> None:
        """End the connection."""
        await super().end(timeout_s)


class Mine:
    """Connections of a mover to one schema."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        address = parsed(url)
        if "schema=" not in url.partition("?")[2]:
            address = address._replace(schema="public")
        if address.pgbouncer:
            raise BadUsage(
                f"{address.shown} is reached through a pooler, through which no database is moved.",
                why="The seal is a lock of one connection, and a pooler gives every transaction another one.",
                fix="Name the server itself, without pgbouncer=true.",
            )
        self.address = address

    async def connected(self, *, patient: bool = False) -> Linked:
        """Open a connection. With `patient` it waits for a restarting server."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENT_S * patient
        while True:
            try:
                return Linked(await driver_of(self.address, SETTINGS), self.address)
            except (NotNow, UnavailableError):
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(PAUSE_S)


async def validate_references(link: Linked, schema: str) -> None:
    """Validate the references that a move created unvalidated, if its mover died before it could.

    The database is in use: a table or reference that was dropped meanwhile needs no validation.
    """
    for row in await link.fetch(UNVALIDATED, schema):
        try:
            await link.execute(str(row[0]))
        except InterlockError as error:
            cause = error.__cause__
            if cause is None or state_of(cause) not in DROPPED_STATES:
                raise
