"""Find the adapter for a connection of the caller.

The kind is recognised by the name of its class or of a base class, together with the top-level module. So no driver is
imported, and two drivers may give their classes the same names.
"""

from collections.abc import Callable

from interlock.errors import BadUsage
from interlock.sql.postgres.borrowed.awaited import (
    AsyncAlchemyConnection,
    AsyncAlchemySession,
    AsyncpgConnection,
    AsyncPsycopgConnection,
    Awaited,
)
from interlock.sql.postgres.borrowed.direct import AlchemyConnection, AlchemySession, Direct, PsycopgConnection

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
