"""The catalog of a home on a disk or in a bucket: one small document, replaced as a whole.

On a disk it is a file, replaced under a lock. Readers see the old one or the new one, and need no lock. All calls are
short and block, so that a caller with the address of a folder can locate a name without awaiting. In a bucket it is an
object, swapped by its tag; every call blocks, in a thread of its own.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote

from interlock.catalog.entries import CatalogDocument, Entry, Kind, below, check_name, decode_document, encode_document
from interlock.catalog.open_lane import opening_thread
from interlock.clock import SystemClock
from interlock.errors import BadUsage, UnavailableError, UnusableFile
from interlock.lanes.file import sync_folder
from interlock.lanes.objectlog.bucket import Bucket, ConditionFailed, Found, Unclear, answering
from interlock.lanes.settings import LaneSettings
from interlock.urls import parse_bucket_url, redact_secrets, without_secrets

FILE: Final = "interlock-catalog.json"


class FolderCatalog:
    """The catalog in the folder of a home."""

    def __init__(self, home: str) -> None:
        self.folder = _folder_of(home)
        self.home = home.rstrip("/")

    def names(self, kind: Kind = "databases") -> dict[str, Entry]:
        """Return every name that was ever opened or placed here, with its entry."""
        return dict(sorted(self._read().of(kind).items()))

    def entry(self, name: str, *, kind: Kind = "databases") -> Entry | None:
        """Return the entry of a name; None without one."""
        check_name(name)
        return self._read().of(kind).get(name)

    def locate(self, name: str) -> str:
        """Return the address of the database of that name; a new name is written to the catalog."""
        entry = self.entry(name) or self.enter(name, Entry())
        return entry.url or below(self.home, name)

    def enter(self, name: str, entry: Entry, *, kind: Kind = "databases") -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        check_name(name)
        entry = Entry(without_secrets(entry.url), entry.epoch)
        path = self.folder / FILE
        with _usable(path), _locked(self.folder):
            before = self._read()
            after = before.after(kind, name, entry)
            if after is not before:
                _replace(path, encode_document(after))
        return after.of(kind)[name]

    def _read(self) -> CatalogDocument:
        path = self.folder / FILE
        with _usable(path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = None
        return decode_document(data, str(path))


def _folder_of(home: object) -> Path:
    if isinstance(home, str) and home.startswith("lanes:///") and not {"?", "#"} & set(home):
        path = unquote(home.removeprefix("lanes://"))
        if path.strip("/") and path.isprintable() and ".." not in Path(path).parts:
            return Path(path)
    raise BadUsage(
        f"{redact_secrets(str(home))!r} is not a home; lanes:///folder, s3://bucket/folder, postgresql://host/database "
        "and memory: are.",
        why="The catalog is kept there, beside the databases.",
        fix="Write three slashes and an absolute path: lanes:///var/shop.",
    )


@contextmanager
def _usable(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableFile(
            f"the catalog {path} cannot be used: {error.strerror}.",
            fix="Check that the home is a folder on a disk with room, and its permissions.",
        ) from error


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / (FILE + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably: the content first, then the name."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


# --- Buckets ---------------------------------------------------------------------------------------------------------
# Only a successful answer to a write is certain: after any other answer the object is read again, and its content
# decides. Entries only ever go to higher epochs, so no content comes twice, and a write that arrives late finds
# another tag.

ATTEMPTS_MAX: Final = 20

ResultT = TypeVar("ResultT")


class Buckets(Protocol):
    """The folder of a home, opened when it is needed."""

    def __call__(self, *, writing: bool) -> Bucket:
        """Open the folder; for writing, first prove that the bucket swaps objects atomically."""
        ...


class BucketCatalog:
    """The catalog in the folder of a bucket."""

    def __init__(self, home: str, open_folder: Buckets | None = None) -> None:
        self._shown = redact_secrets(home)
        self._open = open_folder or folder_opener(home)

    async def names(self, kind: Kind) -> dict[str, Entry]:
        """Return all entries of one kind."""
        return dict(sorted((await _in_thread(self._read, "read the catalog")).of(kind).items()))

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        """Return the entry of a name; None without one."""
        return (await _in_thread(self._read, "read the catalog")).of(kind).get(name)

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        return await _in_thread(lambda: self._enter(name, entry, kind), "change the catalog")

    def _read(self) -> CatalogDocument:
        return self._decoded(self._open(writing=False).get(FILE))

    def _enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        bucket = self._open(writing=True)
        for _ in range(ATTEMPTS_MAX):
            found = bucket.get(FILE)
            before = self._decoded(found)
            after = before.after(kind, name, entry)
            if after is before or _is_written(bucket, found, encode_document(after)):
                return after.of(kind)[name]
        raise UnavailableError(
            f"the catalog of {self._shown} was changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change is made only upon the newest catalog.",
            fix="Try again.",
        )

    def _decoded(self, found: Found | None) -> CatalogDocument:
        return decode_document(None if found is None else found.data, f"of {self._shown}")


def _is_written(bucket: Bucket, found: Found | None, data: bytes) -> bool:
    try:
        _ = bucket.create(FILE, data) if found is None else bucket.replace(FILE, data, found.tag)
    except (ConditionFailed, Unclear):
        return False
    return True


def folder_opener(home: str) -> Buckets:
    """Return the function that opens the folder of a home."""
    address = parse_bucket_url(below(home, FILE))
    from interlock.lanes.objectlog import open as objectlog_open  # noqa: PLC0415 -- an extra, which may not be installed.

    def opened(*, writing: bool) -> Bucket:
        if writing:  # Asked once per process and folder, as by every database there.
            _ = objectlog_open.proven_bucket_of(address, settings=LaneSettings(), clock=SystemClock())
        return objectlog_open.folder_of(address)

    return opened


async def _in_thread(call: Callable[[], ResultT], what: str) -> ResultT:
    def ask() -> ResultT:
        with answering(what):
            return call()

    return await asyncio.wrap_future(opening_thread(ask))
