"""The file of a lane, and whether it is still the same one.

A lane that rests has no connection, and opens its file again when it is needed. Meanwhile somebody may have deleted the
file, or put another in its place, and SQLite would make a fresh one without a word. So every lane has an identity of
its own in its file. Only the very first opening may make a file; every later one finds the identity it expects, or is
refused. The file's number tells a copy from the original, and is looked at before every group and every read.

The odd choice is to use both: file systems give the number of a deleted file to the next one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from interlock.errors import UnavailableError
from interlock.lanes.connection import open_reader, open_writer
from interlock.lanes.descriptors import with_room
from interlock.lanes.failures import opening
from interlock.seams import Ids

UserT = TypeVar("UserT")

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS interlock_identity (id INTEGER PRIMARY KEY CHECK (id = 1), lane TEXT NOT NULL);
INSERT OR IGNORE INTO interlock_identity (id, lane) VALUES (1, '{new}');
COMMIT;
"""
_IDENTITY = "SELECT lane FROM interlock_identity"


class LaneFile:
    """Opens the file of one lane; None is a database in memory."""

    def __init__(self, path: Path | None, *, vfs: str | None, ids: Ids) -> None:
        self.path = path
        self._name = str(path)
        self._vfs = vfs
        self.sync = True
        """False when the file is only a cache of what is durable elsewhere."""
        self._ids = ids
        self._identity: str | None = None
        self._number = (0, 0)

    def open_writer(self, use: Callable[[apsw.Connection], UserT]) -> UserT:
        """Open the writing connection and give it to its user; when that fails it is closed again.

        The first time this makes the file if there is none.
        """

        def attempt() -> UserT:
            connection = self._writer()
            try:
                return use(connection)
            except BaseException:
                connection.close()
                raise

        with opening(self.path):
            return with_room(attempt)

    def open_reader(self) -> apsw.Connection:
        """Open a connection that can only read."""
        path = self.path
        assert path is not None, "a database in memory has one connection"
        with opening(path):
            return with_room(lambda: open_reader(path, check=self._check))

    def refuse_if_gone(self) -> None:
        """Raise UnavailableError when the file is not there, or another one is there in its place."""
        if self.path is None or self._identity is None:
            return
        try:
            found = os.stat(self._name)  # noqa: PTH116 -- once per group; a Path takes twice as long.
        except OSError as error:
            raise _gone(self.path, f"is not there any more ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self._number:
            raise _gone(self.path, "is another file than the one that was opened")

    def log_bytes(self) -> int:
        """How large the log is; an idle lane has none."""
        if self.path is None:
            return 0
        try:
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        except OSError:
            return 0

    def _writer(self) -> apsw.Connection:
        if self.path is None:
            return open_writer(None)
        if self._identity is not None:
            self.refuse_if_gone()
            return open_writer(self.path, vfs=self._vfs, check=self._check, sync=self.sync)
        connection = open_writer(self.path, vfs=self._vfs, sync=self.sync)
        try:
            connection.execute(_SCHEMA.format(new=self._ids.new()))
            found = self.path.stat()
            self._number = (found.st_dev, found.st_ino)
            self._identity = str(connection.execute(_IDENTITY).get)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: apsw.Connection) -> None:
        assert self.path is not None
        try:
            found = str(connection.execute(_IDENTITY).get)
        except apsw.SQLError as error:  # No such table.
            raise _gone(self.path, "is empty, or no lane") from error
        if found != self._identity:
            raise _gone(self.path, "is another lane than the one that was opened")


def _gone(path: Path, how: str) -> UnavailableError:
    return UnavailableError(
        f"the file of lane {path} {how}.",
        why="Somebody has removed or replaced it while the database was open; what was acknowledged is not in there.",
        fix="Put the file back; this did not happen. To begin with what is there now, close the database and open it.",
    )
