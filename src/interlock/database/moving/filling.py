"""What is done to a lane while a move fills it, on a connection: the same for a lane on a disk and for one in a bucket.

Each function runs inside a transaction of the caller's, with foreign keys off: rows come in the order of their tables,
and a row that is about to be replaced is removed first, which must take none of those that refer to it along.
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
    """What the draft is to be, and its tables."""
    remember(connection, draft)
    make_in_lane(connection, shape)


def copy_in(connection: apsw.Connection, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
    """Rows, and how far it is with them."""
    to_lane(connection, table, rows)
    remember(connection, draft)


def put_in(connection: apsw.Connection, shape: Shape, pending: Pending) -> None:
    """All keys are removed first, so that no row is in another's way."""
    for name, keys in pending.keys.items():
        delete_in_lane(connection, shape.table(name), keys)
    for name, rows in pending.rows.items():
        to_lane(connection, shape.table(name), rows)


def replace_in(connection: apsw.Connection, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
    """Put these rows in the place of all, or add them."""
    if first:
        empty_in_lane(connection, table)
    to_lane(connection, table, rows)


def index_in(connection: apsw.Connection, shape: Shape, draft: Draft) -> None:
    """Indexes are made over the rows."""
    index_in_lane(connection, shape)
    remember(connection, draft)


def complete_in(connection: apsw.Connection, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
    """Numbering, and what was verified."""
    set_lane_positions(connection, shape, positions)
    remember(connection, draft)


def arrive_in(connection: apsw.Connection, epoch: int, what: object) -> None:
    """Take the mark away: the draft is the database now."""
    admit(connection, Arrived(epoch), what)
    forget_draft(connection)


def tables_in(connection: apsw.Connection) -> list[str]:
    """What somebody has made or used there: tables of users, and keys."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'interlock_*' "
    names = [str(name) for (name,) in connection.execute(sql + "AND name NOT GLOB 'sqlite_*'")]
    if not names and has_table(connection, KEYS) and connection.execute(f"SELECT 1 FROM {KEYS} LIMIT 1").get:  # noqa: S608 -- ours.
        names = [KEYS]
    return names


def taken(shown: str, names: Sequence[str]) -> BadUsage:
    """The error for a place where a database lives."""
    named = f": {', '.join(names[:NAMED_MAX])}" if names else ""
    return BadUsage(
        f"there is something at {shown} already{named}.",
        why="A move brings a whole database, and mixes it with nothing.",
        fix="Name a place that nobody has used.",
    )
