"""Protocols of a database for the code above it: statements, transactions, and parts that run in parallel.

`Database` is one, on every engine. The helpers for hot rows (counters, stock and the like) are written against this and
nothing else, so each of them is one piece of SQL that is exact wherever the database lives.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeVar

from interlock.sql.rows import Row

ResultT = TypeVar("ResultT")

EngineName = Literal["lane", "postgres"]


class Statements(Protocol):
    """A transaction under way, in which statements run."""

    def execute(self, sql: str, /, *args: object) -> Awaitable[int]:
        """Run one statement; the number of rows it changed."""
        ...

    def query(self, sql: str, /, *args: object) -> Awaitable[list[Row]]:
        """Run one statement; its rows."""
        ...


class Executor(Protocol):
    """A database, as much of it as the helpers see."""

    @property
    def url(self) -> str:
        """The address, without secrets."""
        ...

    @property
    def engine(self) -> EngineName:
        """The engine that stores the rows: a lane executes one write after the other, PostgreSQL locks row by row."""
        ...

    def execute(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[int]:
        """Run one statement as one durable transaction; the number of rows it changed."""
        ...

    def query(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[list[Row]]:
        """Run one statement; its rows."""
        ...

    def transact(
        self, function: Callable[..., Awaitable[ResultT]], /, *args: object, key: str | None = None
    ) -> Awaitable[ResultT]:
        """Run `async def function(tx, *args)` as one serialized durable transaction; what it returns."""
        ...

    def shard(self, number: int) -> "Awaitable[Executor]":
        """The database for one of several parts that should run in parallel: on a lane one of its own (D5)."""
        ...
