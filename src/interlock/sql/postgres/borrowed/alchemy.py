"""Parts that SQLAlchemy shares with and without an event loop: its driver's notation, and the owner of the commit.

A connection of SQLAlchemy begins a transaction by itself and leaves it to its owner, except on the isolation level
AUTOCOMMIT, where there is nothing to roll back with: that is refused.
"""

from collections.abc import Sequence
from typing import Protocol

from interlock.errors import BadUsage
from interlock.sql.postgres.borrowed.placeholders import by_name, named

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
