"""Lanes for tests: a database of SQLite with the functions of the dialect, after some definitions."""

import apsw

from interlock.clock import RandomIds, SystemChance
from interlock.database.lane_engine import Translator, register
from interlock.relocate.local_lane import make_in_lane
from interlock.relocate.shape import Shape


def empty_lane() -> apsw.Connection:
    """Nothing in it, and references that nobody looks at."""
    connection = apsw.Connection(":memory:")
    register(connection, lambda: 1_000_000, chance=SystemChance(), ids=RandomIds())
    connection.execute("PRAGMA foreign_keys = OFF")
    make_in_lane(connection, Shape(()))
    return connection


def defined(*statements: str, noted: bool = True) -> apsw.Connection:
    """A lane after these definitions."""
    connection = empty_lane()
    for sql in statements:
        connection.execute(Translator(connection).statement(sql).text)
        if noted:
            connection.execute("INSERT INTO interlock_definitions (sql) VALUES (?)", (sql,))
    return connection
