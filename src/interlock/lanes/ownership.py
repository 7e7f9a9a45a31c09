"""The ownership of a lane: a lock file beside the database, held for as long as the lane is open.

A second process gets `LaneOwned`, which names the owner. The lock is the kernel's (`flock`), so it is gone the moment
its holder is, however it died; what stands in the file is only for people.

Two names must not make two owners. A symbolic link is followed first, so there is one lock file for what it points to.
A file with hard links is refused: SQLite's log lies beside one of its names and is missing beside the other. And the
lock is on a file, not on its name: the process that takes it checks that the file still has that name. The owner checks
again before every group (one `fstat`, one or two microseconds), because after `rm x.lock` the next process would lock a
file of its own. Until that check, SQLite's own locks keep the two apart.

The odd choice is a file of its own. Opening and closing the database file outside SQLite drops the POSIX locks SQLite
holds on it for the whole process, and SQLite's exclusive mode would keep readers out.
"""

import contextlib
import fcntl
import json
import os
import socket
import stat
from pathlib import Path
from typing import cast

from interlock.errors import LaneOwned, UnavailableError
from interlock.lanes import forks
from interlock.lanes.descriptors import with_room
from interlock.seams import Clock

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
        with forks.no_fork:
            descriptor = with_room(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            ownership = cls(path, descriptor)
            forks.watch(ownership)
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
