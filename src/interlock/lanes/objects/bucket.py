"""What a lane needs of a bucket: seven calls, and three ways in which one of them can fail.

The answer to a write cannot be trusted, only success can: a lost response to a stored object comes back as "exists
already", a conflict with nobody as "exists already" too, a hang as an error although the object is there. So whoever
writes looks (`get`) before it believes, and these three classes say no more than what is certain.

Every call blocks. Implementations: obstore in production, a fake with scripted faults in the simulator.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class BucketError(Exception):
    """A call did not succeed. Never leaves the layer: users see the classes of `interlock.errors`."""


class ConditionFailed(BucketError):
    """The server said that the object exists, or has changed. It may be our own write that it has met."""


class Unclear(BucketError):
    """No answer that means anything: it may have happened, may not, and may yet."""


class Denied(BucketError):
    """The server refused for good: credentials, permissions, no such bucket. Trying again changes nothing."""


class Found(NamedTuple):
    """An object as it was read."""

    data: bytes
    tag: object
    """What `replace` needs to be told which version it replaces; only the bucket that gave it understands it."""


class Bucket(Protocol):
    """A place for objects, below one prefix. Keys are relative to it. Safe to use from several threads."""

    def get(self, key: str) -> Found | None:
        """The object, or None when it is certainly not there now. Raises Unclear or Denied."""
        ...

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Several objects at once, or their first bytes, in the order asked for.

        Raises Unclear or Denied when one of them cannot be read.
        """
        ...

    def create(self, key: str, data: bytes) -> object:
        """Store it unless the key is taken; returns its tag. Sent once, never repeated inside.

        Raises ConditionFailed, Unclear or Denied.
        """
        ...

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store it if the object is still the one with that tag; returns the new tag. Otherwise as `create`."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store it under a key that nobody else uses; may be repeated inside. Raises Unclear or Denied."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects; those that are not there are no error. Raises Unclear or Denied."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, in order. A hint only: a listing may be old."""
        ...
