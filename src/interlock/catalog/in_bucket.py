"""The catalog of a home in a bucket: one small object beside the databases, swapped by its tag.

Only a successful answer to a write is certain: after any other answer the object is read again, and its content
decides. Entries only ever go to higher epochs, so no content comes twice, and a write that arrives late finds
another tag. Every call blocks, in a thread of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from interlock.catalog.defaults import below
from interlock.catalog.entries import Entry, Kind, Written, decoded, encoded
from interlock.catalog.folder import FILE
from interlock.catalog.opening import opening_thread
from interlock.catalog.secrets import shown
from interlock.errors import UnavailableError
from interlock.lanes.objects.addresses import parse
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket, ConditionFailed, Found, Unclear
from interlock.lanes.settings import LaneSettings
from interlock.seams import SystemClock

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
        self._shown = shown(home)
        self._open = open_folder or opens(home)

    async def names(self, kind: Kind) -> dict[str, Entry]:
        """Return all entries of one kind."""
        return dict(sorted((await _in_thread(self._read, "read the catalog")).of(kind).items()))

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        """Return the entry of a name; None without one."""
        return (await _in_thread(self._read, "read the catalog")).of(kind).get(name)

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        return await _in_thread(lambda: self._enter(name, entry, kind), "change the catalog")

    def _read(self) -> Written:
        return self._decoded(self._open(writing=False).get(FILE))

    def _enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        bucket = self._open(writing=True)
        for _ in range(ATTEMPTS_MAX):
            found = bucket.get(FILE)
            before = self._decoded(found)
            after = before.after(kind, name, entry)
            if after is before or _is_written(bucket, found, encoded(after)):
                return after.of(kind)[name]
        raise UnavailableError(
            f"the catalog of {self._shown} was changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change is made only upon the newest catalog.",
            fix="Try again.",
        )

    def _decoded(self, found: Found | None) -> Written:
        return decoded(None if found is None else found.data, f"of {self._shown}")


def _is_written(bucket: Bucket, found: Found | None, data: bytes) -> bool:
    try:
        _ = bucket.create(FILE, data) if found is None else bucket.replace(FILE, data, found.tag)
    except (ConditionFailed, Unclear):
        return False
    return True


def opens(home: str) -> Buckets:
    """Return the function that opens the folder of a home."""
    address = parse(below(home, FILE))
    from interlock.lanes.objects import door  # noqa: PLC0415 -- an extra, which may not be installed.

    def opened(*, writing: bool) -> Bucket:
        if writing:  # Asked once per process and folder, as by every database there.
            _ = door.proven_bucket_of(address, settings=LaneSettings(), clock=SystemClock())
        return door.folder_of(address)

    return opened


async def _in_thread(call: Callable[[], ResultT], what: str) -> ResultT:
    def ask() -> ResultT:
        with answering(what):
            return call()

    return await asyncio.wrap_future(opening_thread(ask))
