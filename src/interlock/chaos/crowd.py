"""Somebody else who takes every connection of a PostgreSQL, as an application without a bound on its pool does.

The driver is asked for by name: this is the only part of the package that speaks to a server beside an engine.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from importlib import import_module
from typing import Protocol, cast

NAME = "somebody-else"
RETRY_S = 0.1
RETRIES_MAX = 300
"""How often the administrator asks again for a connection, half a minute in all."""
OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND application_name <> $2"


class Connection(Protocol):
    """What is used of a connection of asyncpg."""

    def terminate(self) -> None:
        """End it without a word."""
        ...

    def fetch(self, sql: str, *values: str) -> Awaitable[Sequence[object]]:
        """Ask for rows."""
        ...


class Driver(Protocol):
    """What is used of asyncpg."""

    TooManyConnectionsError: type[Exception]

    def connect(self, url: str, *, server_settings: dict[str, str]) -> Awaitable[Connection]:
        """Open a connection."""
        ...


class Crowd:
    """Connections that are held for no good reason."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._driver = cast("Driver", import_module("asyncpg"))
        self._held: list[Connection] = []

    def __len__(self) -> int:
        """How many it has."""
        return len(self._held)

    async def take(self) -> None:
        """Take all that are left."""
        with contextlib.suppress(self._driver.TooManyConnectionsError):
            while True:
                self._held.append(await self._driver.connect(self._url, server_settings={"application_name": NAME}))

    async def push_out(self, administrator: str, user: str) -> int:
        """End the connections of everybody else of that user; returns how many there were."""
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
        """Give all of them back."""
        for connection in self._held:
            connection.terminate()
        self._held.clear()
