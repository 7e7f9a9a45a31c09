"""The tombstone of a lane: the place where everything that was in its file lives now.

It is one row in a table of its own, written by the last transaction that the file ever has. From then on no process
writes or reads there, under this epoch, for ever. Because it makes a table, SQLite's schema version moves with it. So
every user of the file compares that number inside its own transaction, for about half a microsecond, and looks for the
table only when the number has moved: inside a transaction nothing can come between the look and the commit.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
from collections.abc import Callable, Generator
from typing import NamedTuple

import apsw

from interlock.errors import MovedElsewhere
from interlock.lanes.redaction import redacted

_VERSION = "PRAGMA schema_version"
_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_moved'"
_FIND = "SELECT url, epoch, time_us FROM interlock_moved"
_MAKE = """
CREATE TABLE interlock_moved (
    id INTEGER PRIMARY KEY CHECK (id = 1), url TEXT NOT NULL, epoch INTEGER NOT NULL, time_us INTEGER NOT NULL
)
"""
_WRITE = "INSERT INTO interlock_moved (id, url, epoch, time_us) VALUES (1, ?1, ?2, ?3)"

Run = Callable[..., apsw.Cursor]
"""Runs one of our own statements on a connection."""


class Tombstone(NamedTuple):
    """The tombstone at a place that was left."""

    url: str
    """The new place."""
    epoch: int
    """The number of the move that left."""
    time_us: int
    """When that was, by the clock of the mover; for people."""


def tombstone_of(connection: apsw.Connection) -> Tombstone | None:
    """Return the tombstone in the file of this connection; None when everything still lives there."""
    with one_snapshot(connection):
        return _found(connection.cursor().execute)


@contextlib.contextmanager
def one_snapshot(connection: apsw.Connection) -> Generator[None]:
    """Let all reads of the block see one state of the file, whether or not a transaction is open.

    A mark is a table: between the look at the schema and the read of it, an arrival could commit and drop it.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def write_tombstone(run: Run, stone: Tombstone) -> None:
    """Write the tombstone inside the caller's transaction, whose commit decides."""
    run(_MAKE)
    run(_WRITE, stone)


def moved(stone: Tombstone) -> MovedElsewhere:
    """Return the error for a process that comes to the old place."""
    return MovedElsewhere(
        f"it lives at {redacted(stone.url)} since move {stone.epoch}; this did not happen.",
        url=stone.url,
        epoch=stone.epoch,
    )


class Lookout:
    """Detects a tombstone. Belongs to one connection."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._version_seen: object = None

    def look(self) -> None:
        """Raise MovedElsewhere when there is a tombstone. Called inside a transaction, with the wall down."""
        version = self._run(_VERSION).get
        if version != self._version_seen:
            stone = _found(self._run)
            if stone is not None:
                raise moved(stone)
            self._version_seen = version


def _found(run: Run) -> Tombstone | None:
    if run(_EXISTS).get is None:
        return None
    for url, epoch, time_us in run(_FIND):
        return Tombstone(str(url), int(str(epoch)), int(str(time_us)))
    return None
