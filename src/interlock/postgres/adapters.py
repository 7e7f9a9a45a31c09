"""Adapters for the caller's own connection: asyncpg, psycopg 3 and SQLAlchemy 2, with and without an event loop.

The kind is recognised by the name of its class or of a base class, together with the top-level module. So no driver is
imported, and two drivers may give their classes the same names.

The invariant: a transaction that the caller has begun, or that the connection begins by itself, is the caller's to
commit. An adapter opens one only where a statement would otherwise be a transaction for itself: asyncpg outside of a
transaction, and psycopg in autocommit mode.
"""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol, cast

from interlock.errors import BadUsage

# --- Placeholders: `$1` as PostgreSQL and asyncpg have them, `%(p1)s` for psycopg ------------------------------------
# A parameter may occur in a statement twice, so it gets a name. The types stand in the statement itself
# (`$1::text[]`), so that nothing depends on what a driver makes of a list that contains only None.

STATEMENTS_MAX = 1_000
"""Cached translations: a few dozen for each schema that this process uses."""

_PLACE = re.compile(r"\$(\d+)")


@lru_cache(maxsize=STATEMENTS_MAX)
def with_named_placeholders(sql: str) -> str:
    """Return the statement for psycopg."""
    return _PLACE.sub(r"%(p\1)s", sql.replace("%", "%%"))


def named_values(values: Sequence[object]) -> dict[str, object]:
    """Return the values of such a statement."""
    return {f"p{place}": value for place, value in enumerate(values, 1)}


# --- SQLAlchemy: its driver and the owner of the commit --------------------------------------------------------------
# A connection of SQLAlchemy begins a transaction by itself and leaves it to its owner, except on the isolation level
# AUTOCOMMIT, where there is nothing to roll back with: that is refused.

DRIVERS = ("asyncpg", "psycopg")


class Dialect(Protocol):
    """The attributes of SQLAlchemy's dialect that are used here."""

    name: str
    driver: str


class HasDialect(Protocol):
    """A connection of SQLAlchemy."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection, with its driver."""
        ...


def for_driver(connection: HasDialect, sql: str, values: Sequence[object]) -> tuple[str, object]:
    """Return the statement and its values as the driver takes them. Raises BadUsage for a driver that is not known."""
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver not in DRIVERS:
        raise BadUsage(
            f"the connection of SQLAlchemy goes to {dialect.name} by {dialect.driver}.",
            why="An event is written into the tables of workflows in PostgreSQL, with asyncpg or psycopg 3.",
            fix="Make its engine with postgresql+psycopg://… or postgresql+asyncpg://…, to the store's database.",
        )
    if dialect.driver == "asyncpg":
        return sql, tuple(values)
    return with_named_placeholders(sql), named_values(values)


def refuse_autocommit(driver: object) -> None:
    """Raise BadUsage where each statement would be committed by itself."""
    if getattr(driver, "autocommit", False):
        raise BadUsage(
            "the connection of SQLAlchemy has the isolation level AUTOCOMMIT.",
            why="Each statement would be committed by itself: the event could not be rolled back with your data.",
            fix="Use a connection with a transaction: one without isolation_level='AUTOCOMMIT'.",
        )


# --- Connections without an event loop -------------------------------------------------------------------------------

Rows = Sequence[Sequence[Any]]


class SyncAdapter(Protocol):
    """A connection without an event loop."""

    def transaction(self) -> AbstractContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class Status(Protocol):
    """The attributes of psycopg's connection information that are used here."""

    @property
    def transaction_status(self) -> int:
        """Return whether it is in a transaction; 0 when it is not."""
        ...


class HasMode(Protocol):
    """A connection of psycopg, with and without an event loop."""

    @property
    def autocommit(self) -> bool:
        """Return whether it begins no transactions by itself."""
        ...

    @property
    def info(self) -> Status:
        """The driver's information about the connection."""
        ...


class _Cursor(Protocol):
    def execute(self, sql: str, values: dict[str, object], /) -> object: ...
    def fetchall(self) -> Rows: ...
    def close(self) -> None: ...


class _Psycopg(HasMode, Protocol):
    def transaction(self) -> AbstractContextManager[object]: ...


class PsycopgConnection:
    """A connection of psycopg 3."""

    def __init__(self, connection: object) -> None:
        self._connection = cast("_Psycopg", connection)
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        self._cursor = cast("Callable[..., _Cursor]", sys.modules["psycopg"].Cursor)

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction, in the autocommit mode and outside of one."""
        connection = self._connection
        return connection.transaction() if stands_alone(connection) else nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        cursor = self._cursor(self._connection, row_factory=as_tuples)
        try:
            cursor.execute(with_named_placeholders(sql), named_values(values))
            return cursor.fetchall()
        finally:
            cursor.close()


class _Result(Protocol):
    def all(self) -> Rows: ...


class _Fairy(Protocol):
    dbapi_connection: object


class _Alchemy(HasDialect, Protocol):
    connection: _Fairy

    def exec_driver_sql(self, sql: str, values: object, /) -> _Result: ...


class _Session(Protocol):
    def connection(self) -> _Alchemy: ...


class AlchemyConnection:
    """A `Connection` of SQLAlchemy, which begins a transaction by itself with its first statement."""

    def __init__(self, connection: object) -> None:
        self._lent = connection

    def transaction(self) -> AbstractContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = self._connection()
        text, converted = for_driver(connection, sql, values)
        refuse_autocommit(connection.connection.dbapi_connection)
        return connection.exec_driver_sql(text, converted).all()

    def _connection(self) -> _Alchemy:
        return cast("_Alchemy", self._lent)


class AlchemySession(AlchemyConnection):
    """A `Session` of SQLAlchemy: its connection is that of the transaction it is in."""

    def _connection(self) -> _Alchemy:
        return cast("_Session", self._lent).connection()


def stands_alone(connection: HasMode) -> bool:
    """Return whether a statement of psycopg would be a transaction for itself."""
    return connection.autocommit and connection.info.transaction_status == 0


def as_tuples(cursor: object) -> Callable[[Sequence[object]], Sequence[object]]:
    """Return psycopg's row factory for rows by place, which overrides the connection's own."""
    del cursor
    return tuple


# --- Connections in an event loop ------------------------------------------------------------------------------------


class AsyncAdapter(Protocol):
    """A connection in an event loop."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
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

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction, outside of one."""
        connection = self._connection
        return nullcontext() if connection.is_in_transaction() else connection.transaction()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        return await self._connection.fetch(sql, *values)


class _AsyncCursor(Protocol):
    async def execute(self, sql: str, values: dict[str, object], /) -> object: ...
    async def fetchall(self) -> Rows: ...
    async def close(self) -> None: ...


class _AsyncPsycopg(HasMode, Protocol):
    def transaction(self) -> AbstractAsyncContextManager[object]: ...


class AsyncPsycopgConnection:
    """A connection of psycopg 3 in an event loop."""

    def __init__(self, connection: object) -> None:
        self._connection = cast("_AsyncPsycopg", connection)
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        self._cursor = cast("Callable[..., _AsyncCursor]", sys.modules["psycopg"].AsyncCursor)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction, in the autocommit mode and outside of one."""
        connection = self._connection
        return connection.transaction() if stands_alone(connection) else nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        cursor = self._cursor(self._connection, row_factory=as_tuples)
        try:
            await cursor.execute(with_named_placeholders(sql), named_values(values))
            return await cursor.fetchall()
        finally:
            await cursor.close()


class _AsyncAlchemy(HasDialect, Protocol):
    async def get_raw_connection(self) -> _Fairy: ...
    async def exec_driver_sql(self, sql: str, values: object, /) -> _Result: ...


class _AsyncSession(Protocol):
    async def connection(self) -> _AsyncAlchemy: ...


class AsyncAlchemyConnection:
    """An `AsyncConnection` of SQLAlchemy, which begins a transaction by itself with its first statement."""

    def __init__(self, connection: object) -> None:
        self._lent = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = await self._connection()
        text, converted = for_driver(connection, sql, values)
        refuse_autocommit((await connection.get_raw_connection()).dbapi_connection)
        return (await connection.exec_driver_sql(text, converted)).all()

    async def _connection(self) -> _AsyncAlchemy:
        return cast("_AsyncAlchemy", self._lent)


class AsyncAlchemySession(AsyncAlchemyConnection):
    """An `AsyncSession` of SQLAlchemy: its connection is that of the transaction it is in."""

    async def _connection(self) -> _AsyncAlchemy:
        return await cast("_AsyncSession", self._lent).connection()


# --- Choice of the adapter -------------------------------------------------------------------------------------------

ASYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], AsyncAdapter]] = {
    ("asyncpg", "Connection"): AsyncpgConnection,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection,
    ("sqlalchemy", "AsyncConnection"): AsyncAlchemyConnection,
    ("sqlalchemy", "AsyncSession"): AsyncAlchemySession,
    ("sqlalchemy", "async_scoped_session"): AsyncAlchemySession,
}
SYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], SyncAdapter]] = {
    ("psycopg", "Connection"): PsycopgConnection,
    ("sqlalchemy", "Connection"): AlchemyConnection,
    ("sqlalchemy", "Session"): AlchemySession,
    ("sqlalchemy", "scoped_session"): AlchemySession,
}
"""By the top-level module and the name of the class."""

CONNECTION_FACTORIES = {
    "Pool",
    "ConnectionPool",
    "AsyncConnectionPool",
    "Engine",
    "AsyncEngine",
    "sessionmaker",
    "async_sessionmaker",
}
"""Classes that hand out connections, and are not one."""


def async_adapter(connection: object) -> AsyncAdapter:
    """Return the adapter for an event loop. Raises BadUsage for other objects, or one that cannot be awaited."""
    for name in _class_names(connection):
        if name in ASYNC_ADAPTERS:
            return ASYNC_ADAPTERS[name](connection)
        if name in SYNC_ADAPTERS:
            raise BadUsage(
                f"{_class_name(connection)} is a connection without an event loop, and was entered with `async with`.",
                why="Its statements block; nothing about it can be awaited.",
                fix="Write `with engine.transaction(connection) as tx`, and tx.send(…) without await.",
            )
    raise _not_a_connection(connection)


def sync_adapter(connection: object) -> SyncAdapter:
    """Return the adapter without an event loop. Raises BadUsage for other objects, or one that must be awaited."""
    for name in _class_names(connection):
        if name in SYNC_ADAPTERS:
            return SYNC_ADAPTERS[name](connection)
        if name in ASYNC_ADAPTERS:
            raise BadUsage(
                f"{_class_name(connection)} is a connection of an event loop, and was entered with `with`.",
                why="Its statements must be awaited in the event loop it was opened in.",
                fix="Write `async with engine.transaction(connection) as tx`, on an Engine, and await tx.send(…).",
            )
    raise _not_a_connection(connection)


def refuse_unknown(connection: object) -> None:
    """Raise BadUsage for an object that is not a known connection."""
    if not any(name in ASYNC_ADAPTERS or name in SYNC_ADAPTERS for name in _class_names(connection)):
        raise _not_a_connection(connection)


def _class_names(connection: object) -> list[tuple[str, str]]:
    return [(each.__module__.partition(".")[0], each.__name__) for each in type(connection).__mro__]


def _class_name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


def _not_a_connection(connection: object) -> BadUsage:
    fix = "Hand over a connection of asyncpg or psycopg 3, or a connection or session of SQLAlchemy 2."
    if type(connection).__name__ in CONNECTION_FACTORIES:
        fix = "Take a connection out of it, begin your transaction there, and hand over the connection."
    elif type(connection).__module__.startswith("psycopg2"):
        fix = "Use psycopg 3, whose module is called psycopg."
    return BadUsage(
        f"{_class_name(connection)} is not a connection that an event can be sent in.",
        why="The event is written on your own connection, inside your transaction, by the means of its driver.",
        fix=fix,
    )
