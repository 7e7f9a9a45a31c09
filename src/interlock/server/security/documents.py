"""A small document that several processes read and change: it stores the API keys.

A lane has one owner, so the command line could not change a database of the home while a server runs. A document is
read whole, and replaced whole unless another process has replaced it meanwhile. Readers see the old or the new content.
There is one for each kind of home: a file here, an object in `in_bucket`, a row in `in_postgres`. One suite of tests
covers all of them.
"""

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from interlock.errors import UnusableFile

BYTES_MAX = 8 << 20
"""Size of a document. Interlock never writes a larger one."""

PRIVATE = 0o600
WRITABLE_BY_OTHERS = 0o022

Edit = Callable[[bytes | None], bytes]
"""Maps the current content, or None without a document, to the new content. May run more than once."""


class Document(Protocol):
    """A document in some store."""

    async def read(self) -> bytes | None:
        """Return the newest content; None without a document. Raises UnavailableError when it cannot be read."""
        ...

    async def change(self, edit: Edit) -> None:
        """Replace the content by the result of `edit`, durably; if `edit` raises, nothing changes."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class MemoryDocument:
    """A document in memory, which ends with its process."""

    def __init__(self) -> None:
        self._content: bytes | None = None

    async def read(self) -> bytes | None:
        """Return the content."""
        return self._content

    async def change(self, edit: Edit) -> None:
        """Replace the content."""
        self._content = edit(self._content)

    async def close(self) -> None:
        """Do nothing."""


class FileDocument:
    """A document in a file that only its owner can read: locked while it is changed, and replaced by a rename.

    It is read whole each time, without a check of its modification time first. Two changes within one tick of the file
    system's clock can have the same time, inode and size, and a revoked key would stay valid. Reading costs less than
    a request.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> bytes | None:
        """Return the newest content. Raises UnusableFile for a file that others can write."""
        with usable(self._path):
            return private_content(self._path)

    async def change(self, edit: Edit) -> None:
        """Replace the content; waits for a change by another process."""
        await asyncio.to_thread(self._change, edit)

    async def close(self) -> None:
        """Do nothing."""

    def _change(self, edit: Edit) -> None:
        with usable(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path.with_name(self._path.name + ".lock")):
                replace_durably(self._path, edit(private_content(self._path)))


@contextmanager
def usable(path: Path) -> Generator[None]:
    """Translate errors of the file system into UnusableFile."""
    try:
        yield
    except OSError as error:
        raise UnusableFile(
            f"{path} cannot be used: {error.strerror or error}.",
            why="API keys and the audit log are kept in private files of the home.",
            fix="Check that the home is a folder on a disk with room, and that this user owns the file.",
        ) from error


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a file; the system releases it when the process dies."""
    descriptor = private_file(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def private_file(path: Path, flags: int) -> int:
    """Open a file that only its owner can read, and create it if needed. A symbolic link is not followed."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
    if os.geteuid() == 0:
        # Created by root for a service that runs as another user, which must be able to read it.
        folder = path.parent.stat()
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def private_content(path: Path) -> bytes | None:
    """Return the content of the file; None if it does not exist. Raises UnusableFile for one that others can write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & WRITABLE_BY_OTHERS:
            raise UnusableFile(
                f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o}).",
                why="A user who can write it can create an API key.",
                fix=f"Look at what is in it, then run: chmod 600 {path}",
            )
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise UnusableFile(f"{path} has more than {BYTES_MAX:,} bytes.", fix="Restore it from a backup.")
    return content


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file as a whole: sync the content, rename the file, sync the folder."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # Left by a process that died; this one holds the lock.
    with os.fdopen(private_file(new, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
