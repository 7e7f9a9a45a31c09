"""Connections that live in an event loop: asyncpg's, psycopg's, and SQLAlchemy's.

The same rule as in `direct`: a transaction is opened here only where the connection has none and begins none, which is
asyncpg's way, and psycopg's in its autocommit mode.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol, cast

from interlock.sql.postgres.borrowed.alchemy import HasDialect, prepared, refuse_autocommit
from interlock.sql.postgres.borrowed.direct import HasMode, Rows, as_tuples, stands_alone
from interlock.sql.postgres.borrowed.placeholders import by_name, named


class Awaited(Protocol):
    """A connection in an event loop."""

    def whole(self) -> AbstractAsyncContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...
    async def fetch(self, sql: str, /, *values: object) -> Rows: ...


class AsyncpgConnection:
    """A connection of asyncpg, on its own or out of a pool."""

    def __init__(self, connection: object) -> None:
        self._connection = cast("_Asyncpg", connection)

    def whole(self) -> AbstractAsyncContextManager[object]:
        """A transaction, outside of one."""
        connection = self._connection
        return nullcontext() if connection.is_in_transaction() else connection.transaction()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        return await self._connection.fetch(sql, *values)


class _Cursor(Protocol):
    async def execute(self, sql: str, values: dict[str, object], /) -> object: ...
    async def fetchall(self) -> Rows: ...
    async def close(self) -> None: ...


class _Psycopg(HasMode, Protocol):
    def transaction(self) -> AbstractAsyncContextManager[object]: ...


class AsyncPsycopgConnection:
    """A connection of psycopg 3 in an event loop."""

    def __init__(self, connection: object) -> None:
        self._connection = cast("_Psycopg", connection)
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        self._cursor = cast("Callable[..., _Cursor]", sys.modules["psycopg"].AsyncCursor)

    def whole(self) -> AbstractAsyncContextManager[object]:
        """A transaction, in the autocommit mode and outside of one."""
        connection = self._connection
        return connection.transaction() if stands_alone(connection) else nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        cursor = self._cursor(self._connection, row_factory=as_tuples)
        try:
            await cursor.execute(named(sql), by_name(values))
            return await cursor.fetchall()
        finally:
            await cursor.close()


class _Result(Protocol):
    def all(self) -> Rows: ...


class _Fairy(Protocol):
    dbapi_connection: object


class _Alchemy(HasDialect, Protocol):
    async def get_raw_connection(self) -> _Fairy: ...
    async def exec_driver_sql(self, sql: str, values: object, /) -> _Result: ...


class _Session(Protocol):
    async def connection(self) -> _Alchemy: ...


class AsyncAlchemyConnection:
    """An `AsyncConnection` of SQLAlchemy, which begins a transaction by itself with its first statement."""

    def __init__(self, connection: object) -> None:
        self._lent = connection

    def whole(self) -> AbstractAsyncContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = await self._connection()
        text, given = prepared(connection, sql, values)
        refuse_autocommit((await connection.get_raw_connection()).dbapi_connection)
        return (await connection.exec_driver_sql(text, given)).all()

    async def _connection(self) -> _Alchemy:
        return cast("_Alchemy", self._lent)


class AsyncAlchemySession(AsyncAlchemyConnection):
    """An `AsyncSession` of SQLAlchemy: its connection is that of the transaction it is in."""

    async def _connection(self) -> _Alchemy:
        return await cast("_Session", self._lent).connection()
