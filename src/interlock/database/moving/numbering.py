"""Where the numbering of a table goes on: SQLite's own table in a lane, a sequence on PostgreSQL (see there).

A position is the last number that was given, 0 if none was. It is read and set while nobody writes; until then numbers
are given. At its new place a table goes on behind both the position and the highest number that is there.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Mapping
from typing import cast

import apsw

from interlock.database.moving.shape import Shape, Table


def lane_positions(connection: apsw.Connection, shape: Shape) -> dict[str, int]:
    """The last number of each table that is numbered."""
    found: dict[str, int] = {}
    for table in numbered(shape):
        if table.ours:
            position = connection.execute("SELECT coalesce(max(number), 0) FROM interlock_keys").get
        else:
            position = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).get
        found[table.name] = cast("int | None", position) or 0
    return found


def set_lane_positions(connection: apsw.Connection, shape: Shape, positions: Mapping[str, int]) -> None:
    """Go on behind these. Inside a transaction of the caller's."""
    for table in numbered(shape):
        if table.ours:
            continue  # It goes on behind its highest number by itself.
        before = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).get
        position = max(positions[table.name], cast("int | None", before) or 0)
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, position))


def numbered(shape: Shape) -> list[Table]:
    """The tables that give numbers."""
    return [table for table in shape.tables if table.numbered is not None]
