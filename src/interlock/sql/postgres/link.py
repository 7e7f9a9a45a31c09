"""One connection: statements are prepared once and cost one round trip after that.

Behind PgBouncer in transaction mode two round trips may reach two servers, so there nothing is prepared: each statement
runs inside a transaction of its own, which keeps its round trips together. That is the whole price of the option.

The planner is told at the start of a connection to plan once and to use indexes. A group is an array whose length it
cannot know, and a plan made while the tables were empty would read all of them for each row of a group, until the
statistics catch up. It is a matter of speed alone: where a pooler drops these settings everything is still right.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from interlock.sql.postgres.address import Address
from interlock.sql.postgres.extra import asyncpg
from interlock.sql.postgres.failures import can_fail_to_connect, is_stale, not_reached, told

CONNECT_TIMEOUT_S = 10
PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
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

    async def prepare(self, sql: str, /) -> Prepared:
        """Make a statement known to the server."""
        ...

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[Record]:  # noqa: ASYNC109 -- the driver's.
        """Run a statement."""
        ...

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        """Run a script."""
        ...

    def is_closed(self) -> bool:
        """Whether it can not be used any more."""
        ...

    def terminate(self) -> None:
        """End it at once."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        """End it politely."""
        ...


class Link:
    """A connection, used by one at a time."""

    def __init__(self, driver: Driver, address: Address) -> None:
        self.driver = driver
        self._pooled = address.pgbouncer
        self._timeout_s = address.statement_timeout_s
        self._prepared: dict[str, Prepared] = {}

    @property
    def usable(self) -> bool:
        """Whether it is still connected, as far as anybody knows."""
        return not self.driver.is_closed()

    async def read(self, sql: str, values: Sequence[object]) -> list[Record]:
        """Run a statement that changes nothing."""
        with told(writing=False):
            return await self._run(sql, values)

    async def write(self, sql: str, values: Sequence[object]) -> list[Record]:
        """Run a statement that is a whole transaction. Raises OutcomeUnknown when it may have been committed."""
        if self._pooled:
            return await self._write_in_transaction(sql, values)
        with told(writing=False):
            # To prepare a statement is not to run it: what breaks here has changed nothing.
            prepared = await self._statement(sql)
        try:
            with told(writing=True):
                return await prepared.fetch(*values, timeout=self._timeout_s)
        except Exception as failure:
            if failure.__cause__ is None or not is_stale(failure.__cause__):
                raise
            self._prepared.clear()
        return await self.write(sql, values)

    async def script(self, sql: str) -> None:
        """Run several statements as one transaction."""
        with told(writing=True):
            await self.driver.execute(sql)

    async def _run(self, sql: str, values: Sequence[object]) -> list[Record]:
        if self._pooled:
            await self.driver.execute("BEGIN READ ONLY", timeout=self._timeout_s)
            try:
                return await self.driver.fetch(sql, *values, timeout=self._timeout_s)
            finally:
                if not self.driver.is_closed():
                    await self.driver.execute("ROLLBACK", timeout=self._timeout_s)
        try:
            return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)
        except Exception as failure:
            if not is_stale(failure):
                raise
            self._prepared.clear()
        return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)

    async def _write_in_transaction(self, sql: str, values: Sequence[object]) -> list[Record]:
        with told(writing=False):
            await self.driver.execute("BEGIN", timeout=self._timeout_s)
            try:
                rows = await self.driver.fetch(sql, *values, timeout=self._timeout_s)
            except BaseException:
                if not self.driver.is_closed():
                    await self.driver.execute("ROLLBACK", timeout=self._timeout_s)
                raise
        with told(writing=True):
            await self.driver.execute("COMMIT", timeout=self._timeout_s)
        return rows

    async def _statement(self, sql: str) -> Prepared:
        prepared = self._prepared.get(sql)
        if prepared is None:
            prepared = self._prepared[sql] = await self.driver.prepare(sql)
        return prepared


async def connected(address: Address) -> Link:
    """Open a connection. Raises UnavailableError when the server cannot be reached."""
    settings = {} if address.pgbouncer else PLANNING
    if "application_name=" not in address.url:
        settings = {**settings, "application_name": NAME}
    try:
        driver: object = await asyncpg.connect(
            address.url, timeout=CONNECT_TIMEOUT_S, statement_cache_size=0, server_settings=settings
        )
    except Exception as failure:
        if can_fail_to_connect(failure):
            raise not_reached(failure, address.shown) from failure
        raise
    return Link(cast("Driver", driver), address)
