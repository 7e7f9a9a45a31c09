"""Foreign application that takes every connection of a PostgreSQL, as one without a bound on its pool does.

The driver is imported by name: no other module of the package talks to PostgreSQL without an engine.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from importlib import import_module
from typing import Protocol, cast

NAME = "foreign-application"
RETRY_S = 0.1
RETRIES_MAX = 300
"""How often the administrator retries to connect, half a minute in all."""
OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND application_name <> $2"


class Connection(Protocol):
    """The methods of an asyncpg connection that are used here."""

    def terminate(self) -> None:
        """Close the socket without a message to the server."""
        ...

    def fetch(self, sql: str, *values: str) -> Awaitable[Sequence[object]]:
        """Run a query and return its rows."""
        ...


class Driver(Protocol):
    """The functions of asyncpg that are used here."""

    TooManyConnectionsError: type[Exception]

    def connect(self, url: str, *, server_settings: dict[str, str]) -> Awaitable[Connection]:
        """Open a connection."""
        ...


class Crowd:
    """All connections that the foreign application holds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._driver = cast("Driver", import_module("asyncpg"))
        self._connections: list[Connection] = []

    def __len__(self) -> int:
        """Return the number of held connections."""
        return len(self._connections)

    async def take(self) -> None:
        """Take all connections that are left."""
        with contextlib.suppress(self._driver.TooManyConnectionsError):
            while True:
                self._connections.append(
                    await self._driver.connect(self._url, server_settings={"application_name": NAME})
                )

    async def push_out(self, administrator: str, user: str) -> int:
        """End all other connections of that user; return their number."""
        connection = await self._connect(administrator)
        try:
            return len(await connection.fetch(OURS, user, NAME))
        finally:
            connection.terminate()

    async def _connect(self, administrator: str) -> Connection:
        """Connect as the administrator, for whom PostgreSQL reserves connections.

        Attempts that are about to be refused hold the reserved ones too until they are, so the first try can fail.
        """
        for _ in range(RETRIES_MAX):
            with contextlib.suppress(self._driver.TooManyConnectionsError):
                return await self._driver.connect(administrator, server_settings={"application_name": NAME})
            await asyncio.sleep(RETRY_S)
        return await self._driver.connect(administrator, server_settings={"application_name": NAME})

    def leave(self) -> None:
        """Close all of them."""
        for connection in self._connections:
            connection.terminate()
        self._connections.clear()
