"""What keeps the rows of a `Database`: a lane or PostgreSQL, each with its own way of making one write follow another.

The façade checks and hands over; everything here is one call on one of them. Neither knows of helpers or settings of
the other.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from interlock.errors import UnavailableError
from interlock.lanes.contention import HotRow
from interlock.lanes.settings import LaneSettings
from interlock.lanes.stats import LaneStats
from interlock.seams import Clock
from interlock.sql.executor import EngineName
from interlock.sql.rows import Row


class DatabaseEngine(Protocol):
    """An engine with one open database."""

    @property
    def name(self) -> EngineName:
        """Which one it is."""
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
        """What time it is."""
        ...

    def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> Coroutine[object, object, int]:
        """Run one statement as one durable transaction."""
        ...

    def query(self, sql: str, args: tuple[object, ...], key: str | None) -> Coroutine[object, object, list[Row]]:
        """Run one statement; its rows."""
        ...

    def transact(
        self, function: Callable[..., object], args: tuple[object, ...], key: str | None
    ) -> Coroutine[object, object, object]:
        """Run a function as one serialized durable transaction."""
        ...

    async def contention(self) -> list[HotRow]:
        """The rows that writers wait for each other on, worst first."""
        ...

    def stats(self) -> LaneStats:
        """What it has done since it was opened."""
        ...


Follow = Callable[[DatabaseEngine, UnavailableError], Awaitable[DatabaseEngine]]
"""Told which engine could not do a call, and why: the engine that can. Raises the error when there is no other."""


class FollowedEngine(DatabaseEngine, Protocol):
    """An engine that makes a call again where its database lives now."""

    follow: Follow | None
    """What is asked for that; without it there is no other place."""

    @property
    def inside(self) -> object:
        """What its own transactions know it by."""
        ...
