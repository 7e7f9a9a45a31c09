"""The record of an arrival in the file of a lane: the number of the move, and its report.

It is written with the last transaction of the draft, so an engine that followed a tombstone can check that this is the
right lane: the same address on another host is another disk, and an empty store there would be a second copy.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

import apsw

from interlock.errors import UnavailableError
from interlock.lanes.failures import opening
from interlock.lanes.tombstone import one_snapshot, tombstone_of

_ARRIVED = "CREATE TABLE IF NOT EXISTS interlock_arrived (epoch INTEGER PRIMARY KEY)"
_REPORT = "CREATE TABLE IF NOT EXISTS interlock_report (epoch INTEGER PRIMARY KEY, report TEXT NOT NULL)"
_HAS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"


def remember(connection: apsw.Connection, epoch: int, report: str) -> None:
    """Write down what a move has brought. Inside a transaction of the caller's."""
    run = connection.cursor().execute
    run(_ARRIVED)
    run(_REPORT)
    run("INSERT OR IGNORE INTO interlock_arrived VALUES (?)", (epoch,))
    run("INSERT OR REPLACE INTO interlock_report VALUES (?, ?)", (epoch, report))


def report_of(connection: apsw.Connection, epoch: int) -> str | None:
    """Return the report of a move; None if it is unknown here."""
    run = connection.cursor().execute
    if run(_HAS, ("interlock_report",)).get is None:
        return None
    found = run("SELECT report FROM interlock_report WHERE epoch = ?", (epoch,)).get
    return None if found is None else str(found)


def arrived_at(connection: apsw.Connection) -> int:
    """The last move that ended here, or is about to; 0: none did."""
    run = connection.cursor().execute
    if run(_HAS, ("interlock_arrived",)).get is None:
        return 0
    return int(str(run("SELECT coalesce(max(epoch), 0) FROM interlock_arrived").get))


@contextlib.contextmanager
def looking(path: Path) -> Generator[apsw.Connection | None]:
    """Open the file for reading, as one snapshot for the whole block; None without a file."""
    if not path.exists():
        yield None
        return
    with opening(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA query_only = ON")
    with contextlib.closing(connection), one_snapshot(connection):
        yield connection


def refuse_another(path: Path, epoch: int) -> None:
    """Raise UnavailableError unless the file is the one that this move has ended in, or a later one has."""
    with looking(path) as connection:
        if connection is not None and (tombstone_of(connection) is not None or arrived_at(connection) >= epoch):
            return
    raise UnavailableError(
        f"move {epoch} has not arrived at {path} on host {socket.gethostname()}.",
        why="A lane is a file on one host, and this host has another one at that address, or none.",
        fix="Run the engine on the host that the workflows were moved to, or move them to PostgreSQL again.",
    )
