"""Marks of a move in the file of its target lane: the draft, and later its arrival."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from typing import Final, cast

import apsw
import msgspec

from interlock.database.moving.ends import Draft

STATE: Final = "interlock_draft"
ARRIVED: Final = "interlock_arrived"
ARRIVING: Final = "interlock_arriving"


def has_table(connection: apsw.Connection, name: str) -> bool:
    """Return whether the file has a table of that name."""
    sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).get is not None


def arrived_at(connection: apsw.Connection) -> int:
    """Return the epoch of the last move that ended here; 0 without one."""
    if not has_table(connection, ARRIVED):
        return 0
    return cast("int | None", connection.execute(f"SELECT max(epoch) FROM {ARRIVED}").get) or 0  # noqa: S608 -- ours.


def draft_in(connection: apsw.Connection) -> Draft | None:
    """Return the state of the draft; None after the arrival."""
    if not has_table(connection, ARRIVING) or not has_table(connection, STATE):
        return None
    state = connection.execute(f"SELECT state FROM {STATE}").get  # noqa: S608 -- ours.
    return None if state is None else msgspec.msgpack.decode(cast("bytes", state), type=Draft)


def remember(connection: apsw.Connection, draft: Draft) -> None:
    """Store the state of the draft. Inside the caller's transaction."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {STATE} (id INTEGER PRIMARY KEY CHECK (id = 1), state BLOB)")
    sql = f"INSERT OR REPLACE INTO {STATE} VALUES (1, ?)"  # noqa: S608 -- ours.
    connection.execute(sql, (msgspec.msgpack.encode(draft),))


def forget_draft(connection: apsw.Connection) -> None:
    """Remove the state of the draft. Inside the caller's transaction."""
    connection.execute(f"DROP TABLE IF EXISTS {STATE}")
