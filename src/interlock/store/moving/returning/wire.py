"""A mover's own connection to the PostgreSQL that workflows leave.

Its locks belong to a transaction, and vanish with it or with the connection. So it works through a pooler, too, where
every statement outside of one gets a transaction of its own: its round trips must reach the same server.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from interlock.errors import UnavailableError
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.failures import NotNow, told
from interlock.sql.postgres.link import Driver, Record, driver_of

SETTINGS = {"jit": "off", "enable_seqscan": "off", "application_name": "interlock-route"}
CLOSE_S = 5.0
PATIENT_S = 30.0
"""So long a server is waited for that may be restarting, when what it knows decides."""

PAUSE_S = 0.1


class Wire:
    """One connection, used by one at a time."""

    def __init__(self, driver: Driver, address: Address) -> None:
        self.address = address
        self._driver = driver
        self.inside = False
        """A transaction is open."""

    @staticmethod
    async def connected(address: Address, *, patient: bool = False) -> "Wire":
        """Connect; a patient one waits for a server that is being restarted."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENT_S * patient
        while True:
            try:
                return Wire(await driver_of(address, SETTINGS), address)
            except (NotNow, UnavailableError):
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def fetch(self, sql: str, *values: object) -> list[Record]:
        """Run a statement, in the transaction that is open or as one of its own."""
        if self.address.pgbouncer and not self.inside:
            async with self.transaction():
                return await self.fetch(sql, *values)
        with told(writing=False):
            return await self._driver.fetch(sql, *values)

    async def execute(self, sql: str) -> None:
        """Run a script."""
        with told(writing=False):
            await self._driver.execute(sql)

    async def commit(self) -> None:
        """Commit the open transaction. Raises OutcomeUnknown when its result is unknown."""
        self.inside = False
        with told(writing=True):
            await self._driver.execute("COMMIT")

    @contextlib.asynccontextmanager
    async def transaction(self, first: str = "") -> AsyncGenerator[None]:
        """Run the block in one transaction, which it may commit itself. A nested call joins the outer one."""
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
                with contextlib.suppress(Exception):  # The end of the connection is as good.
                    await self._driver.execute("ROLLBACK")

    def moment(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Read one snapshot during the block."""
        return self.transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def close(self) -> None:
        """End the connection, and with it whatever is held and not committed."""
        with contextlib.suppress(Exception):  # Whatever it says, it ends here.
            await self._driver.close(timeout=CLOSE_S)
        if not self._driver.is_closed():
            self._driver.terminate()
