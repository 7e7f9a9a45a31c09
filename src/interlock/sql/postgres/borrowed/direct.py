"""Connections that are used without an event loop: psycopg's, and SQLAlchemy's.

A connection that begins transactions by itself is its owner's to commit. Only where a statement outside of a
transaction would be one for itself, a transaction is opened here: psycopg in its autocommit mode.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

from interlock.sql.postgres.borrowed.alchemy import HasDialect, prepared, refuse_autocommit
from interlock.sql.postgres.borrowed.placeholders import by_name, named

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
