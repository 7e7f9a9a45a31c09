"""A correct bucket in memory, for tests that are not about the bucket.

Conditions hold, a read sees the last write, and a listing is never stale. Several views of one bucket (`below`) share
their objects, as several databases and processes share a real one.
"""

import threading
from collections.abc import Sequence

from interlock.lanes.objectlog.bucket_protocol import ConditionFailed, Found


class MemoryBucket:
    """Implements `Bucket`; safe to use from several threads."""

    def __init__(self) -> None:
        self._objects: dict[str, Found] = {}
        self._lock = threading.Lock()
        self._prefix = ""

    def below(self, prefix: str) -> "MemoryBucket":
        """The same bucket, with keys relative to the prefix."""
        view = MemoryBucket()
        view._objects, view._lock = self._objects, self._lock
        view._prefix = f"{self._prefix}{prefix}/"
        return view

    def get(self, key: str) -> Found | None:
        """The object, or None."""
        with self._lock:
            return self._objects.get(self._prefix + key)

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Several objects, or their first bytes."""
        found = [self.get(key) for key in keys]
        return [None if one is None else one.data[:bytes_max] for one in found]

    def create(self, key: str, data: bytes) -> object:
        """Store it unless the key is taken."""
        with self._lock:
            if self._prefix + key in self._objects:
                raise ConditionFailed(f"{key} exists already")
            return self._store(key, data)

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store it if the object still has that tag."""
        with self._lock:
            found = self._objects.get(self._prefix + key)
            if found is None or found.tag is not tag:
                raise ConditionFailed(f"{key} has changed")
            return self._store(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Store it."""
        with self._lock:
            self._store(key, data)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects."""
        with self._lock:
            for key in keys:
                self._objects.pop(self._prefix + key, None)

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so."""
        with self._lock:
            found = [key for key in self._objects if key.startswith(self._prefix + prefix)]
        return sorted(key.removeprefix(self._prefix) for key in found)

    def _store(self, key: str, data: bytes) -> object:
        tag = object()
        self._objects[self._prefix + key] = Found(data, tag)
        return tag
