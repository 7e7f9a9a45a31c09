"""Databases through Python's DB-API (PEP 249): `interlock.dbapi.connect("lanes:///var/shop/stock")`.

For tools that drive a database statement by statement, such as SQLAlchemy and Django. Statements are PostgreSQL's
dialect with `$1` parameters. All connections of a process to one address share one open database, because a lane has
one owner.
"""

from typing import Final

from interlock.dbapi.connections import Connection, Cursor, connect
from interlock.dbapi.pep249 import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,  # noqa: A004 -- PEP 249's name.
)

apilevel: Final = "2.0"
threadsafety: Final = 2
"""Threads may share the module and connections."""
paramstyle: Final = "numeric_dollar"
"""`$1`, with the values as a sequence: PostgreSQL's own form, which PEP 249 does not list."""

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
