"""The bucket protocol of a lane: seven calls, and three ways in which a call can fail.

Only success can be trusted, no other answer to a write. A lost response to a stored object comes back as "exists
already", and so does a conflict without a rival; a hang is an error although the object is there. So a writer reads
(`get`) before it believes, and these three classes say no more than what is certain.

Every call blocks. Implementations: obstore in production, a fake with scripted faults in the simulator.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class BucketError(Exception):
    """A call did not succeed. Never leaves the layer: users see the classes of `interlock.errors`."""


class ConditionFailed(BucketError):
    """The server reported that the object exists, or has changed. It may have met our own earlier write."""


class Unclear(BucketError):
    """The answer is missing or means nothing: the call may have happened, or not, or may happen yet."""


class Denied(BucketError):
    """The server refused for good: credentials, permissions, no such bucket. A retry changes nothing."""


class Found(NamedTuple):
    """An object as it was read."""

    data: bytes
    tag: object
    """The version, for `replace`; only the bucket that gave it understands it."""


class Bucket(Protocol):
    """A place for objects, below one prefix. Keys are relative to it. Safe to use from several threads."""

    def get(self, key: str) -> Found | None:
        """Return the object, or None when it is certainly not there now. Raises Unclear or Denied."""
        ...

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Return several objects, fetched concurrently, or their first bytes, in the order of the keys.

        Raises Unclear or Denied when one of them cannot be read.
        """
        ...

    def create(self, key: str, data: bytes) -> object:
        """Store the object unless the key is taken; return its tag. Sent once, never repeated inside.

        Raises ConditionFailed, Unclear or Denied.
        """
        ...

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store the object if the stored one still has that tag; return the new tag. Otherwise as `create`."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store the object under a key that no other writer uses; may be repeated inside. Raises Unclear or Denied."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects; a missing one is not an error. Raises Unclear or Denied."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix, in order. A hint only: a listing may be outdated."""
        ...
