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
import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, cast
from weakref import WeakSet

import apsw

from interlock.clock import Clock
from interlock.errors import LaneOwned, UnavailableError

# --- Forks -----------------------------------------------------------------------------------------------------------
# Nothing that belongs to a lane may be used in the child of a fork. A child inherits the open files of its parent. All
# processes that have a lane's lock file open share its lock: a child that kept it would own the lane for as long as it
# lives. A SQLite connection that is used, or even closed, in a child damages the parent's database. So the child closes
# the lock without unlocking it, and never touches the rest: it is leaked on purpose. A lane that came through a fork
# refuses all work.


class Inherited(Protocol):
    """Something that a child must not use."""

    def forked(self) -> None:
        """Disable it. Called in the child, in its only thread; locks may be held by threads that no longer exist."""
        ...


no_fork = threading.Lock()
"""Held between opening something that a child must close, and `watch`: no fork happens meanwhile."""

_watched: WeakSet[Inherited] = WeakSet()
_inherited: set[str] = set()


def watch(thing: Inherited) -> None:
    """Call its `forked` in every child from now on."""
    _watched.add(thing)


def leak(*things: object) -> None:
    """Never destroy these, not even at the end of the process: destroying a connection would close it."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def inherit(path: Path) -> None:
    """Record in a child that its parent had this lane open."""
    _inherited.add(os.path.realpath(path))


def refuse_inherited(path: Path) -> None:
    """Raise UnavailableError for a lane that was open when this process was forked."""
    # SQLite keeps locks and shared memory per process and file; in the child they are the parent's, and wrong.
    if os.path.realpath(path) in _inherited:
        raise forked(path)


def forked(path: Path | None) -> UnavailableError:
    """The error for using, in a child, a lane that its parent has opened."""
    return UnavailableError(
        f"lane {path or 'in memory'} was open when this process was forked, and belongs to its parent.",
        why="A lane has one writer, whose thread and locks do not come through a fork.",
        fix="Open databases after the fork, or start processes afresh (multiprocessing's spawn).",
    )


def _in_child() -> None:
    no_fork.release()
    for thing in list(_watched):
        with contextlib.suppress(Exception):  # The others come first.
            thing.forked()


os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_in_child)


# --- Limit of open files ---------------------------------------------------------------------------------------------
# An idle lane holds one open file, its lock, and most systems let a process have 1,024 of them until it asks for more.
# A process with thousands of lanes asks here, once it has to, up to the hard limit that the system allows.

OpenedT = TypeVar("OpenedT")


def with_room(opens: Callable[[], OpenedT]) -> OpenedT:
    """Open something; when the process has too many open files already, raise its limit and try once more."""
    try:
        return opens()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        refused: Exception = error
    except apsw.CantOpenError as error:
        # SQLite does not say why it could not open one of its files.
        refused = error
    if not _raise_limit():
        raise UnavailableError(
            f"a file of the lane could not be opened: {refused}.",
            why=f"The file cannot be opened, or the process has its {_limits()[0]:,} open files already.",
            fix="Check the folder and its permissions, close databases, or raise the hard limit (ulimit -Hn).",
        ) from refused
    return opens()


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _raise_limit() -> bool:
    soft, hard = _limits()
    if soft in {hard, resource.RLIM_INFINITY}:
        return False
    # Without a hard limit the system still has one, which it does not report: so double the soft one, each time.
    most = 2 * soft if hard == resource.RLIM_INFINITY else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):
        return False
    return True


# --- Ownership -------------------------------------------------------------------------------------------------------

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
