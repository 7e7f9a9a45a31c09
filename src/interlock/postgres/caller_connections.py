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
from functools import lru_cache, partial
from typing import Any, Protocol

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


def for_driver(dialect: Dialect, sql: str, values: Sequence[object]) -> tuple[str, object]:
    """Return the statement and its values as the driver takes them. Raises BadUsage for a driver that is not known."""
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
# No driver is imported, so the adapters see connections as Any; tests/integration/postgres/transactions runs each.

Rows = Sequence[Sequence[Any]]


class SyncAdapter(Protocol):
    """A connection without an event loop."""

    def transaction(self) -> AbstractContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class PsycopgConnection:
    """A connection of psycopg 3."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractContextManager[object]:
        """Return a transaction, in the autocommit mode and outside of one."""
        return self._connection.transaction() if _stands_alone(self._connection) else nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        with sys.modules["psycopg"].Cursor(self._connection, row_factory=_as_tuples) as cursor:
            cursor.execute(with_named_placeholders(sql), named_values(values))
            rows: Rows = cursor.fetchall()
            return rows


class AlchemyConnection:
    """A `Connection` of SQLAlchemy, which begins a transaction by itself with its first statement.

    A `Session` is used by the connection of the transaction it is in.
    """

    def __init__(self, lent: object, *, session: bool = False) -> None:
        self._lent: Any = lent
        self._session = session

    def transaction(self) -> AbstractContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = self._lent.connection() if self._session else self._lent
        text, converted = for_driver(connection.dialect, sql, values)
        refuse_autocommit(connection.connection.dbapi_connection)
        rows: Rows = connection.exec_driver_sql(text, converted).all()
        return rows


def _stands_alone(connection: Any) -> bool:  # noqa: ANN401
    """Return whether a statement of psycopg would be a transaction for itself."""
    return bool(connection.autocommit and connection.info.transaction_status == 0)


def _as_tuples(cursor: object) -> Callable[[Sequence[object]], Sequence[object]]:
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


class AsyncpgConnection:
    """A connection of asyncpg, on its own or out of a pool."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Return a transaction, outside of one."""
        return nullcontext() if self._connection.is_in_transaction() else self._connection.transaction()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        rows: Rows = await self._connection.fetch(sql, *values)
        return rows


class AsyncPsycopgConnection:
    """A connection of psycopg 3 in an event loop."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Return a transaction, in the autocommit mode and outside of one."""
        return self._connection.transaction() if _stands_alone(self._connection) else nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        async with sys.modules["psycopg"].AsyncCursor(self._connection, row_factory=_as_tuples) as cursor:
            await cursor.execute(with_named_placeholders(sql), named_values(values))
            rows: Rows = await cursor.fetchall()
            return rows


class AsyncAlchemyConnection:
    """An `AsyncConnection` of SQLAlchemy, or an `AsyncSession`: as `AlchemyConnection`."""

    def __init__(self, lent: object, *, session: bool = False) -> None:
        self._lent: Any = lent
        self._session = session

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = await self._lent.connection() if self._session else self._lent
        text, converted = for_driver(connection.dialect, sql, values)
        refuse_autocommit((await connection.get_raw_connection()).dbapi_connection)
        rows: Rows = (await connection.exec_driver_sql(text, converted)).all()
        return rows


# --- Choice of the adapter -------------------------------------------------------------------------------------------

ASYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], AsyncAdapter]] = {
    ("asyncpg", "Connection"): AsyncpgConnection,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection,
    ("sqlalchemy", "AsyncConnection"): AsyncAlchemyConnection,
    ("sqlalchemy", "AsyncSession"): partial(AsyncAlchemyConnection, session=True),
    ("sqlalchemy", "async_scoped_session"): partial(AsyncAlchemyConnection, session=True),
}
SYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], SyncAdapter]] = {
    ("psycopg", "Connection"): PsycopgConnection,
    ("sqlalchemy", "Connection"): AlchemyConnection,
    ("sqlalchemy", "Session"): partial(AlchemyConnection, session=True),
    ("sqlalchemy", "scoped_session"): partial(AlchemyConnection, session=True),
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
