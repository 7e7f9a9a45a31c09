"""Keys and audit log of a home in a bucket: one object replaced by its tag, and one object per entry.

Only success of a write can be trusted (see `interlock.lanes.objects.bucket`). After any other answer the object is
read again, and its content decides. The condition on the tag makes a write that arrives late harmless.
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
