"""Stores of a home's keys and audit log: in memory, in files and in a bucket, opened by the home's address.

They are stored beside the workflows, and not in their database, which has one owner: the command line can use them
while a server runs. Nothing is created before something is written. PostgreSQL has a module of its own, because its
driver is an extra.
"""

import asyncio
import fcntl
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import below
from interlock.clock import Clock
from interlock.errors import BadUsage, UnavailableError, UnusableFile
from interlock.lanes.file import sync_folder
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, ConditionFailed, Found, Unclear, answering
from interlock.redaction import redacted_text
from interlock.server.security.guard import ENTRIES_READ_MAX, Audit, AuditEntry, Trail
from interlock.server.security.keys import Document, Edit, KeyStore
from interlock.urls import (
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    redact_url,
    resolve_url,
)

# --- Keys in a file --------------------------------------------------------------------------------------------------

BYTES_MAX = 8 << 20
"""Size of a document. Interlock never writes a larger one."""

PRIVATE = 0o600
WRITABLE_BY_OTHERS = 0o022


class MemoryDocument(Document):
    """A document in memory, which ends with its process."""

    def __init__(self) -> None:
        self._content: bytes | None = None

    async def read(self) -> bytes | None:
        """Return the content."""
        return self._content

    async def change(self, edit: Edit) -> None:
        """Replace the content."""
        self._content = edit(self._content)


class FileDocument(Document):
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


class MemoryTrail(Trail):
    """A trail in memory, which ends with its process."""

    def __init__(self, entries_max: int = ENTRIES_READ_MAX) -> None:
        self._entries: list[AuditEntry] = []
        self._entries_max = entries_max

    async def append(self, entry: AuditEntry) -> None:
        """Append an entry."""
        self._entries.append(entry)
        del self._entries[: -self._entries_max]

    async def read(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries."""
        return self._entries[::-1][:limit]

    async def prune(self, before: datetime) -> None:
        """Remove entries before this time."""
        self._entries = [entry for entry in self._entries if entry.at >= before]


# --- Audit log in files ----------------------------------------------------------------------------------------------
# A full file is renamed, and FILES_KEPT renamed files are kept, so the log is bounded. A line that a crash cut short
# was never acknowledged: the next entry begins on a new line, and readers skip the broken one.

NAME: Final = "interlock-audit"
FILE_BYTES_MAX = 4 << 20
FILES_KEPT = 15
"""Renamed files beside the current one: 64 MiB at most, some hundred thousand entries."""

_ASIDE: Final = re.compile(rf"{NAME}-(\d+)\.jsonl")


class FileTrail(Trail):
    """Audit entries in files of a folder."""

    def __init__(self, folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT) -> None:
        self._folder = folder
        self._current = folder / f"{NAME}.jsonl"
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept

    async def append(self, entry: AuditEntry) -> None:
        """Write an entry; it is on the disk when this returns."""
        await asyncio.to_thread(self._append, msgspec.json.encode(entry) + b"\n")

    async def read(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        return await asyncio.to_thread(self._read, limit)

    async def prune(self, before: datetime) -> None:
        """Remove renamed files whose newest entry is older."""
        await asyncio.to_thread(self._prune, before)

    def _append(self, line: bytes) -> None:
        with usable(self._current):
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder / f"{NAME}.lock"):
                self._put_aside()
                fresh = not self._current.exists()
                descriptor = private_file(self._current, os.O_RDWR | os.O_APPEND)
                try:
                    size = os.fstat(descriptor).st_size
                    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                    _write_all(descriptor, b"\n" + line if torn else line)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if fresh:
                    sync_folder(self._folder)

    def _put_aside(self) -> None:
        if not self._current.exists() or self._current.stat().st_size < self._file_bytes_max:
            return
        aside = self._aside()
        number = aside[0][0] + 1 if aside else 1
        self._current.rename(self._folder / f"{NAME}-{number}.jsonl")
        for _, path in aside[max(self._files_kept - 1, 0) :]:
            path.unlink(missing_ok=True)

    def _aside(self) -> list[tuple[int, Path]]:
        """Return the renamed files, newest first."""
        found = ((_ASIDE.fullmatch(path.name), path) for path in self._folder.glob(f"{NAME}-*.jsonl"))
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _read(self, limit: int) -> list[AuditEntry]:
        entries: list[AuditEntry] = []
        with usable(self._current):
            for path in (self._current, *(path for _, path in self._aside())):
                if len(entries) >= limit:
                    break
                try:
                    entries += list(_entries(path.read_bytes()))[::-1]
                except FileNotFoundError:
                    continue  # It does not exist yet, or was removed meanwhile.
        return entries[:limit]

    def _prune(self, before: datetime) -> None:
        with usable(self._current), locked(self._folder / f"{NAME}.lock"):
            for _, path in self._aside():
                if all(entry.at < before for entry in _entries(path.read_bytes())):
                    path.unlink()


def _entries(data: bytes) -> Iterator[AuditEntry]:
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=AuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # Cut short by a crash.


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


# --- Keys and audit log in a bucket ----------------------------------------------------------------------------------
# Only success of a write can be trusted (see `interlock.lanes.objectlog.bucket_protocol`). After any other answer the
# object is read again, and its content decides. The condition on the tag makes a write that arrives late harmless.

ATTEMPTS_MAX = 8
ENTRIES_MAX = 10_000
"""Objects of the audit log. Each is one entry, so a listing stays short."""

DOCUMENT: Final = "keys.json"
ENTRIES: Final = "audit/"

ResultT = TypeVar("ResultT")


class BucketDocument(Document):
    """A document stored as an object."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def read(self) -> bytes | None:
        """Return the newest content."""
        found = await _call_bucket(lambda: self._bucket.get(DOCUMENT), "read the API keys")
        return None if found is None else found.data

    async def change(self, edit: Edit) -> None:
        """Replace the content; retry after concurrent changes."""
        await _call_bucket(lambda: self._change(edit), "change the API keys")

    def _change(self, edit: Edit) -> None:
        wanted: bytes | None = None
        for _ in range(ATTEMPTS_MAX):
            found = self._bucket.get(DOCUMENT)
            if wanted is not None and found is not None and found.data == wanted:
                return  # The write that seemed to fail was carried out.
            wanted = edit(None if found is None else found.data)
            if self._try_write(found, wanted):
                return
        raise UnavailableError(
            f"the API keys were changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change applies only to the newest document.",
            fix="Try again.",
        )

    def _try_write(self, found: Found | None, data: bytes) -> bool:
        try:
            if found is None:
                self._bucket.create(DOCUMENT, data)
            else:
                self._bucket.replace(DOCUMENT, data, found.tag)
        except (ConditionFailed, Unclear):
            return False
        return True


class BucketTrail(Trail):
    """Audit entries stored as objects, named by their time."""

    def __init__(self, bucket: Bucket, *, entries_max: int = ENTRIES_MAX) -> None:
        self._bucket = bucket
        self._entries_max = entries_max

    async def append(self, entry: AuditEntry) -> None:
        """Store an entry, under a unique name."""
        key = f"{ENTRIES}{_time(entry.at)}-{entry.id}.json"
        await _call_bucket(lambda: self._bucket.put(key, msgspec.json.encode(entry)), "write the audit log")

    async def read(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        return await _call_bucket(lambda: self._read(limit), "read the audit log")

    async def prune(self, before: datetime) -> None:
        """Remove entries before this time, and the oldest above the maximum."""
        await _call_bucket(lambda: self._prune(f"{ENTRIES}{_time(before)}"), "prune the audit log")

    def _read(self, limit: int) -> list[AuditEntry]:
        newest = self._bucket.keys(ENTRIES)[::-1][:limit]
        objects = self._bucket.get_many(newest)
        return [msgspec.json.decode(data, type=AuditEntry) for data in objects if data is not None]

    def _prune(self, before: str) -> None:
        keys = self._bucket.keys(ENTRIES)
        old = sum(key < before for key in keys)
        expired = keys[: max(old, len(keys) - self._entries_max)]
        if expired:
            self._bucket.delete(expired)


async def _call_bucket(call: Callable[[], ResultT], what: str) -> ResultT:
    def ask() -> ResultT:
        with answering(what):
            return call()

    return await asyncio.to_thread(ask)


def _time(at: datetime) -> str:
    return at.strftime("%Y%m%dT%H%M%S.%f")


# --- Opening by address ----------------------------------------------------------------------------------------------

FILE: Final = "interlock-keys.json"
"""File name, in the folder of a home on a disk."""

FOLDER: Final = "interlock-security"
"""Folder name, in a home in a bucket."""


class Security(NamedTuple):
    """The keys and the audit log of a home."""

    keys: KeyStore
    audit: Audit

    async def close(self) -> None:
        """Close connections."""
        await self.keys.close()
        await self.audit.close()


def security_at(home: str, *, clock: Clock) -> Security:
    """Return the keys and the audit log of a home. Raises BadUsage, without secrets, for an invalid address."""
    document, trail, address = _open_parts(resolve_url(home))
    return Security(KeyStore(document, address), Audit(trail, clock=clock))


def _open_parts(home: str) -> tuple[Document, Trail, str]:
    if home == "memory:":
        return MemoryDocument(), MemoryTrail(), home
    if is_postgres_url(home):
        # The driver of PostgreSQL is an extra, which may not be installed.
        from interlock.server.security.postgres_store import PostgresDocument, PostgresTrail  # noqa: PLC0415

        return PostgresDocument(home), PostgresTrail(home), parse_postgres_url(home).redacted_url
    if is_bucket_url(home):
        from interlock.lanes.objectlog import remote_bucket  # noqa: PLC0415 -- an extra, which may not be installed.

        address = parse_bucket_url(below(home, FOLDER))
        # Without the probe, which opening the workflows makes: it would write each time keys are listed.
        bucket = remote_bucket.open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)
        return BucketDocument(bucket), BucketTrail(bucket), redact_url(home)
    if not is_lane_url(home):
        raise BadUsage(
            f"{redacted_text(redact_url(home))!r} is not a home that can have API keys.",
            why="Keys are stored beside the workflows: in a folder, in a bucket, or in PostgreSQL.",
            fix="Write lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        )
    path = lane_path(f"{FolderCatalog(home).home}/{FILE}")
    assert path is not None, "a folder has files"
    return FileDocument(path.with_name(FILE)), FileTrail(path.parent), home
