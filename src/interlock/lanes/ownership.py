"""Who owns a lane: a lock file beside the database, held for as long as the lane is open.

A second process gets `LaneOwned`, which names the owner. The lock is the kernel's (`flock`), so it is gone the moment
its holder is, however it died; what stands in the file is only for people.

The odd choice is a file of its own. Opening and closing the database file outside SQLite drops the POSIX locks SQLite
holds on it for the whole process, and SQLite's exclusive mode would keep readers out.
"""

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import cast

from interlock.errors import LaneOwned
from interlock.lanes import forks
from interlock.lanes.descriptors import with_room
from interlock.seams import Clock


class Ownership:
    """The exclusive right to write one lane."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, database: Path, clock: Clock) -> "Ownership":
        """Become the owner, or raise LaneOwned with the owner's process, host and since when."""
        path = lock_path(database)
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
        ownership._tell({"pid": os.getpid(), "host": socket.gethostname(), "since_s": clock.wall_s()})
        return ownership

    def release(self) -> None:
        """Give the lane up; a second time does nothing. The file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            self._tell(None)
            self.forked()

    def forked(self) -> None:
        """Let go of the file without unlocking it: in the child of a fork the lock is still the parent's."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _tell(self, told: dict[str, object] | None) -> None:
        # For people only: a disk that is full keeps nobody from owning a lane, nor from giving it up.
        assert self._descriptor is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            if told is not None:
                os.pwrite(self._descriptor, json.dumps(told).encode(), 0)


def lock_path(database: Path) -> Path:
    """The lock file of a lane."""
    return database.with_name(database.name + ".lock")


def owner_of(database: Path) -> dict[str, object] | None:
    """What the owner wrote about itself, or None when nobody owns the lane."""
    try:
        descriptor = os.open(lock_path(database), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _told(os.pread(descriptor, 4_096, 0))
    else:
        return None
    finally:
        os.close(descriptor)


def _owned(database: Path) -> LaneOwned:
    owner = owner_of(database) or {}
    pid, host = owner.get("pid", "unknown"), owner.get("host", "unknown")
    here = " (this very process)" if pid == os.getpid() and host == socket.gethostname() else ""
    return LaneOwned(
        f"lane {database} is owned by process {pid}{here} on host {host}.",
        fix="Use the Database that is open already, or close it first."
        if here
        else "Stop that process, or send the request to it.",
    )


def _told(data: bytes) -> dict[str, object]:
    try:
        told: object = json.loads(data or b"{}")
    except ValueError:  # The owner is just writing it.
        return {}
    return cast("dict[str, object]", told) if isinstance(told, dict) else {}
