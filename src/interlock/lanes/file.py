"""The file of a lane, and the check that it is still the same file.

A lane that rests has no connection, and opens its file again when needed. Meanwhile another program may have deleted
the file or replaced it, and SQLite would make a fresh one without a word. So every lane has an identity of its own in
its file. Only the very first opening may make a file; every later one finds the identity it expects, or is refused. The
file's number tells a copy from the original, and is compared before every group and every read. Both are needed: file
systems give the number of a deleted file to the next one.

The log has a number, too, while a writer is open. A commit into a log that has lost its name is gone with the process,
so the number is compared before every group (one `stat`). If the log was removed, the open connection still has it:
everything in it is folded into the database file. The lane stops, because its readers share an index of the old log.

A finished copy or restore gets its name as the last step (`put_in_place`).

Sections: ownership by a lock file, the lane's file, placement of a finished file.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import fcntl
import json
import os
import socket
import stat
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar, cast

import apsw

from interlock.clock import Clock, Ids
from interlock.errors import LaneOwned, UnavailableError, UnusableFile
from interlock.lanes.forks import no_fork, watch
from interlock.lanes.handover import Draft, Permission, Tombstone, admit, draft_of, left_for, moved_error
from interlock.lanes.sqlite_connection import open_beside, open_reader, open_writer, opening, with_room

# --- Ownership -------------------------------------------------------------------------------------------------------
# A lock file beside the database, held for as long as the lane is open. A second process gets `LaneOwned`, which names
# the owner. The lock is the kernel's (`flock`), so it is gone the moment its holder is, however it died; what stands in
# the file is only for people. The owner of a lane in a bucket needs a lease as well (`objectlog`).
#
# Two names must not make two owners. A symbolic link is followed first, so there is one lock file for what it points
# to. A file with hard links is refused: SQLite's log lies beside one of its names and is missing beside the other. And
# the lock is on a file, not on its name: the process that takes it checks that the file still has that name. The owner
# checks again before every group (one `fstat`, one or two microseconds), because after `rm x.lock` the next process
# would lock a file of its own. Until that check, SQLite's own locks keep the two apart.
#
# Why a second file: if this process opens and closes the database file outside SQLite, the system drops the POSIX locks
# that SQLite holds on it. SQLite's exclusive mode would keep readers out.

TAKES_MAX = 100
"""How often the lock file may vanish while it is being taken."""


class Ownership:
    """The exclusive right to write one lane."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, database: Path, clock: Clock) -> "Ownership":
        """Become the owner, or raise LaneOwned with the owner's process, host and since when."""
        path = lock_path(database)
        for _ in range(TAKES_MAX):
            ownership = cls._locked(path, database)
            if ownership._holds(database, clock):  # noqa: SLF001 -- one of its own.
                return ownership
        raise _lost(path)

    @classmethod
    def _locked(cls, path: Path, database: Path) -> "Ownership":
        with no_fork:
            descriptor = with_room(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            ownership = cls(path, descriptor)
            watch(ownership)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ownership.forked()
            raise _owned(database) from None
        except BaseException:
            ownership.forked()
            raise
        return ownership

    def refuse_if_lost(self) -> None:
        """Raise UnavailableError when the lock file was removed: another process may own the lane by now."""
        if self._descriptor is None or not os.fstat(self._descriptor).st_nlink:
            raise _lost(self.path)

    def release(self) -> None:
        """Release the lane; a second call does nothing. The file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            self._write_record(None)
            self.forked()

    def forked(self) -> None:
        """Close the file without unlocking it: in the child of a fork the lock is still the parent's."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _holds(self, database: Path, clock: Clock) -> bool:
        """Whether the lock is valid: its file still has its name. Otherwise release it."""
        assert self._descriptor is not None
        try:
            _refuse_other_names(database)
            if os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
                self._write_record({"pid": os.getpid(), "host": socket.gethostname(), "since_s": clock.wall_s()})
                return True
        except FileNotFoundError:
            pass
        except BaseException:
            self.forked()
            raise
        self.forked()
        return False

    def _write_record(self, record: dict[str, object] | None) -> None:
        # For people only: a full disk must not keep a process from owning a lane, nor from releasing it.
        assert self._descriptor is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            if record is not None:
                os.pwrite(self._descriptor, json.dumps(record).encode(), 0)


def lock_path(database: Path) -> Path:
    """Return the lock file of a lane: beside the file itself, whatever name it was opened by."""
    return Path(f"{os.path.realpath(database)}.lock")


def owner_of(database: Path) -> dict[str, object] | None:
    """Return what the owner wrote about itself, or None when no process owns the lane."""
    try:
        descriptor = os.open(lock_path(database), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _parsed_record(os.pread(descriptor, 4_096, 0))
    else:
        return None
    finally:
        os.close(descriptor)


def _refuse_other_names(database: Path) -> None:
    try:
        found = database.stat()
    except FileNotFoundError:
        return
    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
        raise UnavailableError(
            f"the file of lane {database} has {found.st_nlink} names (hard links); it cannot be opened.",
            why="The log of a lane lies beside one name of its file. Opened by another one, what is in the log would "
            "be missing, and two owners would not see each other.",
            fix="Remove the other names (find -samefile), or give the lane a file of its own: cp, then mv over it.",
        )


def _lost(path: Path) -> UnavailableError:
    return UnavailableError(
        f"the lock file {path} was removed while the database was open.",
        why="Another process may own the lane by now, so this one stops.",
        fix="Leave lock files alone: a lock is gone with its owner, its file stays. This did not happen; open the "
        "database again and repeat it.",
    )


def _owned(database: Path) -> LaneOwned:
    owner = owner_of(database) or {}
    pid, host = owner.get("pid", "unknown"), owner.get("host", "unknown")
    here = " (this very process)" if pid == os.getpid() and host == socket.gethostname() else ""
    return LaneOwned(
        f"lane {database} is owned by process {pid}{here} on host {host}.",
        fix="Use the Database or Engine that is open already, or close it first."
        if here
        else "Stop that process, or send the request to it.",
    )


def _parsed_record(data: bytes) -> dict[str, object]:
    try:
        record: object = json.loads(data or b"{}")
    except ValueError:  # The owner is just writing it.
        return {}
    return cast("dict[str, object]", record) if isinstance(record, dict) else {}


# --- File ------------------------------------------------------------------------------------------------------------

UserT = TypeVar("UserT")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS interlock_identity (id INTEGER PRIMARY KEY CHECK (id = 1), lane TEXT NOT NULL);
INSERT OR IGNORE INTO interlock_identity (id, lane) VALUES (1, '{new}');
"""
_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_identity'"
_IDENTITY = "SELECT lane FROM interlock_identity"


class LaneFile:
    """Opens the file of one lane; None is a database in memory."""

    def __init__(self, path: Path | None, *, vfs: str | None, ids: Ids, permission: Permission = None) -> None:
        self.path = path
        self._permission: Permission = permission
        self._name = str(path)
        self._vfs = vfs
        self.sync = True
        """False when the file is only a cache of a durable log elsewhere."""
        self._ids = ids
        self._identity: str | None = None
        self._number = (0, 0)
        self._log_name = ""
        self._log_number = (0, 0)
        self.ownership: Ownership | None = None
        self.frames = 0
        """SQLite's frame count after the writes of the first opening; 0 when it wrote nothing."""

    def own(self, clock: Clock) -> Ownership:
        """Become the owner. Raises LaneOwned, or MovedElsewhere when the file that is owned has a tombstone."""
        assert self.path is not None, "a database in memory has no other owner"
        try:
            self.ownership = Ownership.take(self.path, clock)
        except LaneOwned:
            _refuse_left(self.path, self._permission)
            raise
        return self.ownership

    def open_writer(self, use: Callable[[apsw.Connection], UserT]) -> UserT:
        """Open the writing connection and pass it to `use`; if that fails, close it again.

        The first call makes the file if it does not exist.
        """

        def attempt() -> UserT:
            connection = self._writer()
            try:
                used = use(connection)
                self._remember_log()
            except BaseException:
                connection.close()
                raise
            return used

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
            raise _file_lost(self.path, f"is not there any more ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self._number:
            raise _file_lost(self.path, "is another file than the one that was opened")

    def refuse_if_lost(self, writing: apsw.Connection | None) -> None:
        """Raise UnavailableError when the lane must stop: its lock, or the log of its writer, was taken away."""
        if self.path is None:
            return
        if self.ownership is not None:
            self.ownership.refuse_if_lost()
        if writing is None:
            return
        try:
            found = os.stat(self._log_name)  # noqa: PTH116 -- as above.
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._log_number:
            raise _log_gone(self._log_name, saved=_folded(writing))

    def log_bytes(self) -> int:
        """Return the size of the log; 0 for an idle lane."""
        try:
            return Path(self._log_name).stat().st_size if self._log_name else 0
        except OSError:
            return 0

    def _remember_log(self) -> None:
        if self.path is not None:
            self._log_name = f"{os.path.realpath(self.path)}-wal"  # SQLite follows symbolic links as well.
            found = Path(self._log_name).stat()
            self._log_number = (found.st_dev, found.st_ino)

    def _writer(self) -> apsw.Connection:
        if self.path is None:
            return open_writer(None)
        if self._identity is not None:
            self.refuse_if_gone()
            return open_writer(self.path, vfs=self._vfs, check=self._check, sync=self.sync)
        connection = open_writer(self.path, vfs=self._vfs, sync=self.sync)
        try:
            self._enter(connection, self.path)
            found = self.path.stat()
            self._number = (found.st_dev, found.st_ino)
            self._identity = str(connection.execute(_IDENTITY).get)
        except BaseException:
            connection.close()
            raise
        return connection

    def _enter(self, connection: apsw.Connection, path: Path) -> None:
        """Check the lane at its first opening. Raises MovedElsewhere if it was left, UnavailableError if it is a draft.

        It writes only what is not there yet: a lane can be opened while a mover holds its lock.
        """
        stone = left_for(connection, self._permission)
        if stone is not None:
            raise moved_error(stone)
        known = connection.execute(_EXISTS).get is not None and connection.execute(_IDENTITY).get is not None
        if known and draft_of(connection) is None and not isinstance(self._permission, Draft):
            return
        connection.set_wal_hook(self._logged)
        connection.execute("BEGIN IMMEDIATE")
        try:
            admit(connection, self._permission, f"lane {path}")
            connection.execute(_SCHEMA.format(new=self._ids.new()))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _logged(self, _connection: apsw.Connection, _database: str, frames: int) -> int:
        self.frames = frames
        return apsw.SQLITE_OK

    def _check(self, connection: apsw.Connection) -> None:
        assert self.path is not None
        try:
            found = str(connection.execute(_IDENTITY).get)
        except apsw.SQLError as error:  # No such table.
            raise _file_lost(self.path, "is empty, or not a lane") from error
        if found != self._identity:
            raise _file_lost(self.path, "is another lane than the one that was opened")


def _refuse_left(path: Path, permission: Permission) -> None:
    """Raise MovedElsewhere for a file with a tombstone, looked at beside its owner."""
    stone: Tombstone | None = None
    with contextlib.suppress(apsw.Error):
        connection = open_beside(path)
        try:
            stone = left_for(connection, permission)
        finally:
            connection.close()
    if stone is not None:
        raise moved_error(stone)


def _file_lost(path: Path, how: str) -> UnavailableError:
    return UnavailableError(
        f"the file of lane {path} {how}.",
        why="Another program removed or replaced it while the database was open; it lacks what was acknowledged.",
        fix="Put the file back; this did not happen. To begin with what is there now, close the database and open it.",
    )


def _folded(connection: apsw.Connection) -> bool:
    """Fold all of the log into the database file, waiting for reads that need it; return False when that failed."""
    with contextlib.suppress(apsw.Error):
        frames, folded = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        return frames == folded
    return False


def _log_gone(log: str, *, saved: bool) -> UnavailableError:
    return UnavailableError(
        f"the log {log} was removed or replaced while the database was open.",
        why="What is committed into it would be gone with this process, so the lane stops. What it has acknowledged "
        + ("was saved into the database file." if saved else "could NOT be saved into the database file."),
        fix="This did not happen: open the database again and repeat it."
        if saved
        else "Open the database again, and check what it holds: the last transactions may be missing. Repeat those "
        "with their keys.",
    )


# --- Placement of a finished file ------------------------------------------------------------------------------------
# The target is checked before anything is made. Until the last step the file is a temporary one beside it. So a file
# of that name is whole, and an error leaves no file.


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, or that must not be. Raises UnusableFile."""
    if not path.parent.is_dir():
        raise UnusableFile(
            f"the folder {path.parent} does not exist.",
            why="A folder that is made because of a misspelt name hides the file.",
            fix="Make the folder, or name another one.",
        )
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise UnusableFile(f"{path} is not a file.", why="A database is one file.")
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            raise UnusableFile(
                f"{beside} is there, the log of another database of that name.",
                why="SQLite would play it into the new file, and destroy it.",
                fix="Choose another name; or close whatever uses the file, and remove both.",
            )
    if path.exists() and not force:
        raise UnusableFile(
            f"{path} exists.",
            why="What it holds would be gone.",
            fix="Name another file, or say --force to replace it.",
        )


@contextlib.contextmanager
def own_target(path: Path, clock: Clock) -> Generator[None]:
    """Own the lane while its file is replaced, so that no process opens it. Raises LaneOwned when one has it open."""
    if not lock_path(path).exists():
        yield
        return
    ownership = Ownership.take(path, clock)
    try:
        yield
    finally:
        ownership.release()


def put_in_place(temporary: Path, path: Path, *, force: bool) -> None:
    """Give a finished file its name, durably. Raises FileExistsError unless `force`."""
    sync_file(temporary)
    if force:
        temporary.replace(path)
    else:
        # A link, because renaming would silently replace a file that has come into being meanwhile.
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:  # A file system without links.
            temporary.rename(path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make the folder and make its name durable: SQLite syncs the folder of its files, not the folders above."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the new, changed and removed names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
