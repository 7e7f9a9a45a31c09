"""Numbering of a table in a lane: SQLite's own table of sequences (see `postgres_numbering` for PostgreSQL).

A position is the last assigned number, or 0. It is read and set while writers are blocked, because they assign
numbers. At its new place a table continues after both the position and its highest number.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Mapping
from typing import cast

import apsw

from interlock.database.moving.shape import Shape, Table


def lane_positions(connection: apsw.Connection, shape: Shape) -> dict[str, int]:
    """Return the last number of each numbered table."""
    found: dict[str, int] = {}
    for table in numbered(shape):
        if table.ours:
            position = connection.execute("SELECT coalesce(max(number), 0) FROM interlock_keys").get
        else:
            position = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).get
        found[table.name] = cast("int | None", position) or 0
    return found


def set_lane_positions(connection: apsw.Connection, shape: Shape, positions: Mapping[str, int]) -> None:
    """Set the last numbers of the tables. Inside the caller's transaction."""
    for table in numbered(shape):
        if table.ours:
            continue  # It continues after its highest number by itself.
        before = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).get
        position = max(positions[table.name], cast("int | None", before) or 0)
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, position))


def numbered(shape: Shape) -> list[Table]:
    """Return the numbered tables."""
    return [table for table in shape.tables if table.numbered is not None]
