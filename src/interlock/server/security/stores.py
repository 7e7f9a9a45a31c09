"""Stores of a home's keys and audit log: in files and in a bucket, opened by the home's address.

They are stored beside the workflows, and not in their database, which has one owner: the command line can use them
while a server runs. Nothing is created before something is written. PostgreSQL has a module of its own, because its
driver is an extra.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from interlock.catalog.backends import FolderCatalog
from interlock.catalog.entries import below
from interlock.clock import Clock
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.objectlog.bucket import Bucket, ConditionFailed, Found, Unclear, answering
from interlock.lanes.settings import LaneSettings
from interlock.redaction import redacted_text
from interlock.server.security.audit import Audit, Entry, MemoryTrail, Trail
from interlock.server.security.keys import (
    Document,
    Edit,
    FileDocument,
    KeyStore,
    MemoryDocument,
    locked,
    private_file,
    sync_folder,
    usable,
)
from interlock.urls import is_bucket_url, is_postgres_url, lane_path, parse_bucket_url, parse_postgres_url, redact_url

# --- Audit log in files ----------------------------------------------------------------------------------------------
# A full file is renamed, and FILES_KEPT renamed files are kept, so the log is bounded. A line that a crash cut short
# was never acknowledged: the next entry begins on a new line, and readers skip the broken one.

NAME: Final = "interlock-audit"
FILE_BYTES_MAX = 4 << 20
FILES_KEPT = 15
"""Renamed files beside the current one: 64 MiB at most, some hundred thousand entries."""

_ASIDE: Final = re.compile(rf"{NAME}-(\d+)\.jsonl")


class FileTrail:
    """Audit entries in files of a folder."""

    def __init__(self, folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT) -> None:
        self._folder = folder
        self._current = folder / f"{NAME}.jsonl"
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept

    async def append(self, entry: Entry) -> None:
        """Write an entry; it is on the disk when this returns."""
        await asyncio.to_thread(self._append, msgspec.json.encode(entry) + b"\n")

    async def read(self, limit: int) -> list[Entry]:
        """Return the newest entries, newest first."""
        return await asyncio.to_thread(self._read, limit)

    async def prune(self, before: datetime) -> None:
        """Remove renamed files whose newest entry is older."""
        await asyncio.to_thread(self._prune, before)

    async def close(self) -> None:
        """Do nothing."""

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

    def _read(self, limit: int) -> list[Entry]:
        entries: list[Entry] = []
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


def _entries(data: bytes) -> Iterator[Entry]:
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # Cut short by a crash.


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


# --- Keys and audit log in a bucket ----------------------------------------------------------------------------------
# Only success of a write can be trusted (see `interlock.lanes.objectlog.bucket`). After any other answer the object
# is read again, and its content decides. The condition on the tag makes a write that arrives late harmless.

ATTEMPTS_MAX = 8
ENTRIES_MAX = 10_000
"""Objects of the audit log. Each is one entry, so a listing stays short."""

DOCUMENT: Final = "keys.json"
ENTRIES: Final = "audit/"

ResultT = TypeVar("ResultT")


class BucketDocument:
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

    async def close(self) -> None:
        """Do nothing: all databases of the bucket share its clients."""

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


class BucketTrail:
    """Audit entries stored as objects, named by their time."""

    def __init__(self, bucket: Bucket, *, entries_max: int = ENTRIES_MAX) -> None:
        self._bucket = bucket
        self._entries_max = entries_max

    async def append(self, entry: Entry) -> None:
        """Store an entry, under a unique name."""
        key = f"{ENTRIES}{_time(entry.at)}-{entry.id}.json"
        await _call_bucket(lambda: self._bucket.put(key, msgspec.json.encode(entry)), "write the audit log")

    async def read(self, limit: int) -> list[Entry]:
        """Return the newest entries, newest first."""
        return await _call_bucket(lambda: self._read(limit), "read the audit log")

    async def prune(self, before: datetime) -> None:
        """Remove entries before this time, and the oldest above the maximum."""
        await _call_bucket(lambda: self._prune(f"{ENTRIES}{_time(before)}"), "prune the audit log")

    async def close(self) -> None:
        """Do nothing: all databases of the bucket share its clients."""

    def _read(self, limit: int) -> list[Entry]:
        newest = self._bucket.keys(ENTRIES)[::-1][:limit]
        objects = self._bucket.get_many(newest)
        return [msgspec.json.decode(data, type=Entry) for data in objects if data is not None]

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
    document, trail, address = _open_parts(home)
    return Security(KeyStore(document, address), Audit(trail, clock=clock))


def _open_parts(home: str) -> tuple[Document, Trail, str]:
    if home == "memory:":
        return MemoryDocument(), MemoryTrail(), home
    if is_postgres_url(home):
        # The driver of PostgreSQL is an extra, which may not be installed.
        from interlock.server.security.postgres_store import PostgresDocument, PostgresTrail  # noqa: PLC0415

        return PostgresDocument(home), PostgresTrail(home), parse_postgres_url(home).shown
    if is_bucket_url(home):
        from interlock.lanes.objectlog import remote_bucket  # noqa: PLC0415 -- an extra, which may not be installed.

        address = parse_bucket_url(below(home, FOLDER))
        # Without the probe, which opening the workflows makes: it would write each time keys are listed.
        bucket = remote_bucket.open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)
        return BucketDocument(bucket), BucketTrail(bucket), redact_url(home)
    if not home.startswith("lanes:///"):
        raise BadUsage(
            f"{redacted_text(redact_url(home))!r} is not a home that can have API keys.",
            why="Keys are stored beside the workflows: in a folder, in a bucket, or in PostgreSQL.",
            fix="Write lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
        )
    path = lane_path(f"{FolderCatalog(home).home}/{FILE}")
    assert path is not None, "a folder has files"
    return FileDocument(path.with_name(FILE)), FileTrail(path.parent), home
