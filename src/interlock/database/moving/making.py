"""Creation of a shape in a lane: its tables before the rows, its indexes after them, and a check of its references.

Each statement is run as a user's would be, through the dialect, and noted as one (`noted`), so that the next move finds
it again as it was written. The connection is the mover's own, with foreign keys off.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from typing import Final, cast

import apsw

from interlock.database.moving.shape import Shape
from interlock.database.translation import Translator
from interlock.lanes.keys import SCHEMA as KEYS

DEFINITIONS: Final = """
CREATE TABLE IF NOT EXISTS interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)"""
NOTE: Final = "INSERT INTO interlock_definitions (sql) VALUES (?)"
BROKEN_MAX: Final = 5


def make_in_lane(connection: apsw.Connection, shape: Shape) -> None:
    """Create the tables. Inside the caller's transaction."""
    connection.execute(DEFINITIONS)
    for table in shape.tables:
        if table.ours:
            connection.execute(KEYS)
        else:
            _define(connection, table.create)


def index_in_lane(connection: apsw.Connection, shape: Shape) -> None:
    """Create the indexes. Inside the caller's transaction."""
    for table in shape.tables:
        for text in table.indexing:
            _define(connection, text)


def broken_references(connection: apsw.Connection) -> list[str]:
    """Describe rows that refer to a missing row; empty if the rows are those that the source had accepted."""
    found = connection.execute('SELECT "table", "parent", count(*) FROM pragma_foreign_key_check GROUP BY 1, 2')
    rows = cast("list[tuple[str, str, int]]", found.fetchall())
    return [f"{count} of {table} refer to no row of {parent}" for table, parent, count in rows[:BROKEN_MAX]]


def _define(connection: apsw.Connection, sql: str) -> None:
    connection.execute(Translator(connection).statement(sql).text)
    connection.execute(NOTE, (sql,))
