"""Fault points: named points on the way of a group to the disk or the bucket, where a test can stop or kill it.

Nothing listens in production: reaching a point is one call per group, never per transaction. `tests/crash` listens
in a process of its own and kills it, kill -9, at each of these names in turn.
"""

from collections.abc import Callable

POINTS = ("group.begun", "group.executed", "group.committed", "group.durable", "log.folded", "group.acknowledged")

BUCKET_POINTS = (
    "epoch.taken",
    "fence.stored",
    "lease.renewed",
    "snapshot.stored",
    "groups.deleted",
    "manifest.changed",
)
"""The further points of a lane on a bucket: while it is opened, and in its upkeep."""

SEAL_POINT = "seal.met"
"""The writer has met the lock of another process, and begins to wait for it."""

Listener = Callable[[str], None]

_listener: Listener | None = None


def reach(point: str) -> None:
    """Report that the lane has come to this point."""
    if _listener is not None:
        _listener(point)


def listen(listener: Listener | None) -> None:
    """Call the listener at every point from now on, in the thread that comes to it; None stops it."""
    global _listener  # noqa: PLW0603 -- one per process, as a kill is.
    _listener = listener
