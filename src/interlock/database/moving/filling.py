"""Writes of a move into a lane on a connection, for a lane on a disk and for one in a bucket.

Each function runs inside the caller's transaction, with foreign keys off: rows come in the order of their tables, and
a replaced row is removed first, which must not cascade to rows that refer to it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Mapping, Sequence

import apsw

from interlock.database.moving.ends import Draft, Pending
from interlock.database.moving.lane_marks import forget_draft, has_table, remember
from interlock.database.moving.lane_rows import delete_in_lane, empty_in_lane, to_lane
from interlock.database.moving.making import index_in_lane, make_in_lane
from interlock.database.moving.numbering import set_lane_positions
from interlock.database.moving.shape import KEYS, Shape, Table
from interlock.database.moving.values import StoredRow
from interlock.errors import BadUsage
from interlock.lanes.arriving import Arrived, admit

NAMED_MAX = 5


def begin_in(connection: apsw.Connection, draft: Draft, shape: Shape) -> None:
    """Record the draft, and create its tables."""
    remember(connection, draft)
    make_in_lane(connection, shape)


def copy_in(connection: apsw.Connection, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
    """Write rows, and record the position."""
    to_lane(connection, table, rows)
    remember(connection, draft)


def put_in(connection: apsw.Connection, shape: Shape, pending: Pending) -> None:
    """Write pending rows. All their keys are removed first, so that unique values cannot collide."""
    for name, keys in pending.keys.items():
        delete_in_lane(connection, shape.table(name), keys)
    for name, rows in pending.rows.items():
        to_lane(connection, shape.table(name), rows)


def replace_in(connection: apsw.Connection, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
    """Replace all rows with these if `first`, else add them."""
    if first:
        empty_in_lane(connection, table)
    to_lane(connection, table, rows)


def index_in(connection: apsw.Connection, shape: Shape, draft: Draft) -> None:
    """Create the indexes, after the rows."""
    index_in_lane(connection, shape)
    remember(connection, draft)


def complete_in(connection: apsw.Connection, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
    """Set the numbering, and record the verified checksum."""
    set_lane_positions(connection, shape, positions)
    remember(connection, draft)


def arrive_in(connection: apsw.Connection, epoch: int, what: object) -> None:
    """Remove the mark: the draft becomes the database."""
    admit(connection, Arrived(epoch), what)
    forget_draft(connection)


def tables_in(connection: apsw.Connection) -> list[str]:
    """Return the user tables, and the table of keys if it has rows."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'interlock_*' "
    names = [str(name) for (name,) in connection.execute(sql + "AND name NOT GLOB 'sqlite_*'")]
    if not names and has_table(connection, KEYS) and connection.execute(f"SELECT 1 FROM {KEYS} LIMIT 1").get:  # noqa: S608 -- ours.
        names = [KEYS]
    return names


def taken(shown: str, names: Sequence[str]) -> BadUsage:
    """Return the error for a place where a database lives."""
    named = f": {', '.join(names[:NAMED_MAX])}" if names else ""
    return BadUsage(
        f"there is something at {shown} already{named}.",
        why="A move brings a whole database, and mixes it with nothing.",
        fix="Name an unused place.",
    )
