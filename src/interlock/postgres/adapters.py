"""Find the adapter for a connection of the caller.

The kind is recognised by the name of its class or of a base class, together with the top-level module. So no driver is
imported, and two drivers may give their classes the same names.
"""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol, cast

from interlock.errors import BadUsage

# --- Convert placeholders from `$1`, as PostgreSQL and asyncpg have them, to psycopg's notation ----------------------
# The same parameter may stand in a statement twice, so it gets a name. The types stand in the statement itself
# (`$1::text[]`), so that nothing depends on what a driver makes of a list of nothing but None.

STATEMENTS_MAX = 1_000
"""Translations that are kept: a few dozen for each schema that this process has to do with."""

_PLACE = re.compile(r"\$(\d+)")


@lru_cache(maxsize=STATEMENTS_MAX)
def named(sql: str) -> str:
    """The statement for psycopg."""
    return _PLACE.sub(r"%(p\1)s", sql.replace("%", "%%"))


def by_name(values: Sequence[object]) -> dict[str, object]:
    """The values of such a statement."""
    return {f"p{place}": value for place, value in enumerate(values, 1)}


# --- alchemy ---------------------------------------------------------------------------------------------------------
# Parts that SQLAlchemy shares with and without an event loop: its driver's notation, and the owner of the commit.
#
# A connection of SQLAlchemy begins a transaction by itself and leaves it to its owner, except on the isolation level
# AUTOCOMMIT, where there is nothing to roll back with: that is refused.

DRIVERS = ("asyncpg", "psycopg")


class Dialect(Protocol):
    """As much as is used here of what SQLAlchemy knows of a database."""

    name: str
    driver: str


class HasDialect(Protocol):
    """A connection of SQLAlchemy."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection, with its driver."""
        ...


def prepared(connection: HasDialect, sql: str, values: Sequence[object]) -> tuple[str, object]:
    """The statement and its values as the driver below takes them. Raises BadUsage for a driver that is not known."""
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver not in DRIVERS:
        raise BadUsage(
            f"the connection of SQLAlchemy goes to {dialect.name} by {dialect.driver}.",
            why="An event is written into the tables of workflows in PostgreSQL, with asyncpg or psycopg 3.",
            fix="Make its engine with postgresql+psycopg://… or postgresql+asyncpg://…, to the store's database.",
        )
    if dialect.driver == "asyncpg":
        return sql, tuple(values)
    return named(sql), by_name(values)


def refuse_autocommit(driver: object) -> None:
    """Raise BadUsage where each statement would be committed by itself."""
    if getattr(driver, "autocommit", False):
        raise BadUsage(
            "the connection of SQLAlchemy has the isolation level AUTOCOMMIT.",
            why="Each statement would be committed by itself: the event could not be rolled back with your data.",
            fix="Use a connection with a transaction: one without isolation_level='AUTOCOMMIT'.",
        )


# --- Connections that are used without an event loop: psycopg's, and SQLAlchemy's ------------------------------------
# A connection that begins transactions by itself is its owner's to commit. Only where a statement outside of a
# transaction would be one for itself, a transaction is opened here: psycopg in its autocommit mode.

Rows = Sequence[Sequence[Any]]


class Direct(Protocol):
    """A connection without an event loop."""

    def whole(self) -> AbstractContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class Status(Protocol):
    """As much as is used here of what psycopg knows of a connection."""

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

    def whole(self) -> AbstractContextManager[object]:
        """A transaction, in the autocommit mode and outside of one."""
        connection = self._connection
        return connection.transaction() if stands_alone(connection) else nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        cursor = self._cursor(self._connection, row_factory=as_tuples)
        try:
            cursor.execute(named(sql), by_name(values))
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

    def whole(self) -> AbstractContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = self._connection()
        text, given = prepared(connection, sql, values)
        refuse_autocommit(connection.connection.dbapi_connection)
        return connection.exec_driver_sql(text, given).all()

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
    """Rows by place, whatever the connection's own rows are."""
    del cursor
    return tuple


# --- Connections that live in an event loop: asyncpg's, psycopg's, and SQLAlchemy's ----------------------------------
# The same rule as in `direct`: a transaction is opened here only where the connection has none and begins none,
# which is asyncpg's way, and psycopg's in its autocommit mode.


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


class _AsyncAlchemy(HasDialect, Protocol):
    async def get_raw_connection(self) -> _Fairy: ...
    async def exec_driver_sql(self, sql: str, values: object, /) -> _Result: ...


class _AsyncSession(Protocol):
    async def connection(self) -> _AsyncAlchemy: ...


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

    async def _connection(self) -> _AsyncAlchemy:
        return cast("_AsyncAlchemy", self._lent)


class AsyncAlchemySession(AsyncAlchemyConnection):
    """An `AsyncSession` of SQLAlchemy: its connection is that of the transaction it is in."""

    async def _connection(self) -> _AsyncAlchemy:
        return await cast("_AsyncSession", self._lent).connection()


# --- The module itself -----------------------------------------------------------------------------------------------

AWAITED: dict[tuple[str, str], Callable[[object], Awaited]] = {
    ("asyncpg", "Connection"): AsyncpgConnection,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection,
    ("sqlalchemy", "AsyncConnection"): AsyncAlchemyConnection,
    ("sqlalchemy", "AsyncSession"): AsyncAlchemySession,
    ("sqlalchemy", "async_scoped_session"): AsyncAlchemySession,
}
DIRECT: dict[tuple[str, str], Callable[[object], Direct]] = {
    ("psycopg", "Connection"): PsycopgConnection,
    ("sqlalchemy", "Connection"): AlchemyConnection,
    ("sqlalchemy", "Session"): AlchemySession,
    ("sqlalchemy", "scoped_session"): AlchemySession,
}
"""By the top of the module and the name of the class."""

WHOLES = {
    "Pool",
    "ConnectionPool",
    "AsyncConnectionPool",
    "Engine",
    "AsyncEngine",
    "sessionmaker",
    "async_sessionmaker",
}
"""What hands out connections, and is not one."""


def awaited(connection: object) -> Awaited:
    """The connection, for an event loop. Raises BadUsage when it is not one, or one without an event loop."""
    for name in _names(connection):
        if name in AWAITED:
            return AWAITED[name](connection)
        if name in DIRECT:
            raise BadUsage(
                f"{_shown(connection)} is a connection without an event loop, and was entered with `async with`.",
                why="Its statements block; nothing about it can be awaited.",
                fix="Write `with engine.transaction(connection) as tx`, and tx.send(…) without await.",
            )
    raise _unknown(connection)


def direct(connection: object) -> Direct:
    """The connection, without an event loop. Raises BadUsage when it is not one, or one that must be awaited."""
    for name in _names(connection):
        if name in DIRECT:
            return DIRECT[name](connection)
        if name in AWAITED:
            raise BadUsage(
                f"{_shown(connection)} is a connection of an event loop, and was entered with `with`.",
                why="Its statements must be awaited in the event loop it was opened in.",
                fix="Write `async with engine.transaction(connection) as tx`, on an Engine, and await tx.send(…).",
            )
    raise _unknown(connection)


def refuse_unknown(connection: object) -> None:
    """Raise BadUsage for an object that is not a known connection."""
    if not any(name in AWAITED or name in DIRECT for name in _names(connection)):
        raise _unknown(connection)


def _names(connection: object) -> list[tuple[str, str]]:
    return [(each.__module__.partition(".")[0], each.__name__) for each in type(connection).__mro__]


def _shown(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


def _unknown(connection: object) -> BadUsage:
    fix = "Hand over a connection of asyncpg or psycopg 3, or a connection or session of SQLAlchemy 2."
    if type(connection).__name__ in WHOLES:
        fix = "Take a connection out of it, begin your transaction there, and hand over the connection."
    elif type(connection).__module__.startswith("psycopg2"):
        fix = "Use psycopg 3, whose module is called psycopg."
    return BadUsage(
        f"{_shown(connection)} is not a connection that an event can be sent in.",
        why="The event is written on your own connection, inside your transaction, by the means of its driver.",
        fix=fix,
    )
