"""One connection, which prepares each statement once; after that a statement costs one round trip.

Through PgBouncer in transaction mode two round trips may reach two servers, so nothing is prepared: each statement
runs inside a transaction of its own, which keeps its round trips together. A prepared statement is named after its
text, so a client that uses a pooler without the option gets an error, and never the rows of another statement.

Settings make the planner plan once and use indexes: at the start of a connection, or of each transaction where a pooler
refuses that. A group is an array of unknown length, and a plan made while the tables were empty would read all of them
for each row of a group, until the statistics catch up.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from interlock.postgres.errors import (
    LostConnection,
    asyncpg,
    can_fail_to_connect,
    is_stale,
    not_reached,
    translate_errors,
)
from interlock.urls import PostgresAddress

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
PLANNING_HERE = "".join(f"; SET LOCAL {name} = {value}" for name, value in PLANNING.items())
"""For one transaction. It goes with BEGIN and costs no round trip of its own."""

NAME = "interlock"


class Record(Protocol):
    """A row of an answer."""

    def __iter__(self) -> Iterator[Any]:
        """The values."""
        ...

    def __getitem__(self, place: int, /) -> Any:  # noqa: ANN401 -- as PostgreSQL has it; the reader gives it its type.
        """The value at a place."""
        ...


class Prepared(Protocol):
    """A statement that the server knows."""

    async def fetch(self, *values: object, timeout: float) -> list[Record]:  # noqa: ASYNC109 -- the driver's.
        """Run it."""
        ...


class Driver(Protocol):
    """As much of the driver's connection as is used here."""

    async def prepare(self, sql: str, /, *, name: str, timeout: float | None = None) -> Prepared:  # noqa: ASYNC109
        """Make a statement known to the server."""
        ...

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[Record]:  # noqa: ASYNC109 -- the driver's.
        """Run a statement."""
        ...

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        """Run a script."""
        ...

    def is_closed(self) -> bool:
        """Return whether the connection is closed."""
        ...

    def terminate(self) -> None:
        """Close the connection immediately."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        """End it politely; a statement that is under way is cancelled on the server."""
        ...


class Link:
    """A connection, used by one at a time."""

    def __init__(self, driver: Driver, address: PostgresAddress) -> None:
        self.driver = driver
        self.idle_since_s = 0.0
        """By the event loop's clock; kept by the pool."""
        self.spent = False
        """True after a user left it in the middle of a statement: the pool has to close it."""
        self._pooled = address.pgbouncer
        self._timeout_s = address.statement_timeout_s
        self._prepared: dict[str, Prepared] = {}
        self._generation = 0

    @property
    def usable(self) -> bool:
        """Return whether it is connected, as far as the driver knows, and no statement is under way on it."""
        return not self.spent and not self.driver.is_closed()

    async def read(self, sql: str, values: Sequence[object]) -> list[Record]:
        """Run a statement that changes nothing."""
        with translate_errors(writing=False):
            if self._pooled:
                return await self._run_in_transaction("BEGIN READ ONLY", sql, values, end="ROLLBACK")
            try:
                return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)
            except Exception as failure:
                if not is_stale(failure):
                    raise
                self._forget()
            return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)

    async def write(self, sql: str, values: Sequence[object]) -> list[Record]:
        """Run a statement that is a whole transaction.

        Raises OutcomeUnknown when it may have been committed, and LostConnection when it cannot have been: another
        connection may run it then.
        """
        if self._pooled:
            with translate_errors(writing=False):
                rows = await self._run_in_transaction("BEGIN", sql, values)
            with translate_errors(writing=True):
                await self.driver.execute("COMMIT", timeout=self._timeout_s)
            return rows
        try:
            return await self._write(sql, values)
        except Exception as failure:
            if failure.__cause__ is None or not is_stale(failure.__cause__):
                raise
            self._forget()
        return await self._write(sql, values)

    async def script(self, sql: str) -> None:
        """Run several statements as one transaction."""
        with translate_errors(writing=True):
            await self.driver.execute(sql)

    async def end(self, timeout_s: float) -> None:
        """End it, and what may be under way on it: the server alone would find out when that has run to its end."""
        self.spent = True
        try:
            with contextlib.suppress(Exception):  # Whatever it says, it ends here.
                await self.driver.close(timeout=timeout_s)
        finally:
            if not self.driver.is_closed():
                self.driver.terminate()

    async def _write(self, sql: str, values: Sequence[object]) -> list[Record]:
        with translate_errors(writing=False):
            # To prepare a statement is not to run it: what breaks here has changed nothing.
            prepared = await self._statement(sql)
        if self.driver.is_closed():
            # The driver would say the same as for a connection that breaks later. From here to where it sends nothing
            # else runs, so a connection that is open now gets the statement.
            raise LostConnection(
                "the connection to PostgreSQL was lost before a commit was sent.", why="The server ended it."
            )
        with translate_errors(writing=True):
            return await prepared.fetch(*values, timeout=self._timeout_s)

    async def _run_in_transaction(
        self, begin: str, sql: str, values: Sequence[object], *, end: str = ""
    ) -> list[Record]:
        """Run in a transaction; nothing happens before COMMIT. Without an `end` the transaction stays open."""
        try:
            await self.driver.execute(begin + PLANNING_HERE, timeout=self._timeout_s)
            rows = await self.driver.fetch(sql, *values, timeout=self._timeout_s)
            if end:
                await self.driver.execute(end, timeout=self._timeout_s)
        except BaseException as failure:
            # After a cancellation or a timeout, do not wait for a ROLLBACK: closing the connection rolls back.
            if isinstance(failure, TimeoutError) or not isinstance(failure, Exception):
                self.spent = True
            elif not self.driver.is_closed():
                await self.driver.execute("ROLLBACK", timeout=self._timeout_s)
            raise
        return rows

    async def _statement(self, sql: str) -> Prepared:
        prepared = self._prepared.get(sql)
        if prepared is None:
            name = f"interlock_{hashlib.sha256(sql.encode()).hexdigest()[:32]}_{self._generation}"
            prepared = await self.driver.prepare(sql, name=name, timeout=self._timeout_s)
            self._prepared[sql] = prepared
        return prepared

    def _forget(self) -> None:
        # The driver takes the old ones away when it likes; until then their names are taken.
        self._prepared.clear()
        self._generation += 1


async def connected(address: PostgresAddress) -> Link:
    """Open a connection. Raises UnavailableError when the server cannot be reached, NotNow when it may be soon."""
    return Link(await driver_of(address, PLANNING), address)


async def driver_of(address: PostgresAddress, settings: Mapping[str, str]) -> Driver:
    """The driver's connection with these settings of the server; a pooler takes none of them."""
    chosen = {"application_name": NAME} | ({} if address.pgbouncer else dict(settings))
    if "application_name=" in address.url:
        del chosen["application_name"]
    try:
        driver: object = await asyncpg.connect(
            address.url,
            timeout=address.connect_timeout_s,  # pyright: ignore[reportArgumentType] -- guessed from its default.
            statement_cache_size=0,
            server_settings=chosen,
        )
    except Exception as failure:
        if can_fail_to_connect(failure):
            raise not_reached(failure, address.shown) from failure
        raise
    return cast("Driver", driver)
