"""Keys and audit of a home in a bucket: an object that is swapped by its tag, and one object per entry.

The answer to a write cannot be trusted, only success can (see `interlock.lanes.objects.bucket`): after any other answer
the object is read again, and what it holds decides. The condition on the tag makes a write that arrives late harmless.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from interlock.errors import UnavailableError
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket, ConditionFailed, Found, Unclear
from interlock.server.security.audit import Entry
from interlock.server.security.documents import Edit

ATTEMPTS_MAX = 8
ENTRIES_MAX = 10_000
"""Objects of the audit log. Each is one entry, so a listing stays short."""

DOCUMENT: Final = "keys.json"
ENTRIES: Final = "audit/"

ResultT = TypeVar("ResultT")


class BucketDocument:
    """A document that is an object."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def read(self) -> bytes | None:
        """The newest content."""
        found = await _asked(lambda: self._bucket.get(DOCUMENT), "read the API keys")
        return None if found is None else found.data

    async def change(self, edit: Edit) -> None:
        """Replace the content, as often as somebody else was faster."""
        await _asked(lambda: self._change(edit), "change the API keys")

    async def close(self) -> None:
        """Clients are shared by all databases of the bucket."""

    def _change(self, edit: Edit) -> None:
        wanted: bytes | None = None
        for _ in range(ATTEMPTS_MAX):
            found = self._bucket.get(DOCUMENT)
            if wanted is not None and found is not None and found.data == wanted:
                return  # The write that seemed to have failed has been carried out.
            wanted = edit(None if found is None else found.data)
            if self._written(found, wanted):
                return
        raise UnavailableError(
            f"the API keys were changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change is made only upon the newest document.",
            fix="Try again.",
        )

    def _written(self, found: Found | None, data: bytes) -> bool:
        try:
            if found is None:
                self._bucket.create(DOCUMENT, data)
            else:
                self._bucket.replace(DOCUMENT, data, found.tag)
        except (ConditionFailed, Unclear):
            return False
        return True


class BucketTrail:
    """Entries as objects, named by their time."""

    def __init__(self, bucket: Bucket, *, entries_max: int = ENTRIES_MAX) -> None:
        self._bucket = bucket
        self._entries_max = entries_max

    async def append(self, entry: Entry) -> None:
        """Store an entry, under a name that nobody else uses."""
        key = f"{ENTRIES}{_time(entry.at)}-{entry.id}.json"
        await _asked(lambda: self._bucket.put(key, msgspec.json.encode(entry)), "write the audit log")

    async def read(self, limit: int) -> list[Entry]:
        """The newest entries, the newest first."""
        return await _asked(lambda: self._read(limit), "read the audit log")

    async def prune(self, before: datetime) -> None:
        """Remove what is older, and what is too much."""
        await _asked(lambda: self._prune(f"{ENTRIES}{_time(before)}"), "prune the audit log")

    async def close(self) -> None:
        """Clients are shared by all databases of the bucket."""

    def _read(self, limit: int) -> list[Entry]:
        newest = self._bucket.keys(ENTRIES)[::-1][:limit]
        objects = self._bucket.get_many(newest)
        return [msgspec.json.decode(data, type=Entry) for data in objects if data is not None]

    def _prune(self, before: str) -> None:
        keys = self._bucket.keys(ENTRIES)
        old = sum(key < before for key in keys)
        gone = keys[: max(old, len(keys) - self._entries_max)]
        if gone:
            self._bucket.delete(gone)


async def _asked(call: Callable[[], ResultT], what: str) -> ResultT:
    def ask() -> ResultT:
        with answering(what):
            return call()

    return await asyncio.to_thread(ask)


def _time(at: datetime) -> str:
    return at.strftime("%Y%m%dT%H%M%S.%f")
