"""Protocols of the engines of a `Database`: a lane or PostgreSQL, each with its own serialization of writes.

The façade checks arguments; each method is one call on one engine. Neither knows helpers or settings of the other.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from interlock.clock import Clock
from interlock.errors import UnavailableError
from interlock.lanes.contention import HotRow
from interlock.lanes.settings import LaneSettings
from interlock.lanes.transaction import LaneStats
from interlock.sql.values import EngineName, Row


class DatabaseEngine(Protocol):
    """An engine with one open database."""

    @property
    def name(self) -> EngineName:
        """Kind of the engine."""
        ...

    @property
    def url(self) -> str:
        """The address, without its secrets."""
        ...

    @property
    def settings(self) -> LaneSettings:
        """The settings that it was opened with."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the database."""
        ...

    def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> Coroutine[object, object, int]:
        """Run one statement as one durable transaction."""
        ...

    def query(self, sql: str, args: tuple[object, ...], key: str | None) -> Coroutine[object, object, list[Row]]:
        """Run one statement; return its rows."""
        ...

    def transact(
        self, function: Callable[..., object], args: tuple[object, ...], key: str | None
    ) -> Coroutine[object, object, object]:
        """Run a function as one serialized durable transaction."""
        ...

    async def contention(self) -> list[HotRow]:
        """Return the rows with the most contention between writers, worst first."""
        ...

    def stats(self) -> LaneStats:
        """Return the statistics since it was opened."""
        ...


Follow = Callable[[DatabaseEngine, UnavailableError], Awaitable[DatabaseEngine]]
"""Return the engine for a call that this engine refused with this error. Raises the error when there is no other."""


class FollowedEngine(DatabaseEngine, Protocol):
    """An engine that repeats a call at the current place of its database."""

    follow: Follow | None
    """Finds the current place; None if there is no other."""

    @property
    def inside(self) -> object:
        """The identity by which its transactions recognize it."""
        ...
