"""Fault points: named points in lanes and engines, where a test can stop or kill the process.

Nothing listens in production. Reaching a point is one call per group, per page of a recovery or per closing, never per
transaction or workflow. `tests/crash` kills a process of its own with kill -9 at each of these names in turn.
"""

from collections.abc import Callable

LANE_POINTS = ("group.begun", "group.executed", "group.committed", "group.durable", "log.folded", "group.acknowledged")
"""On the way of a group to the disk or the bucket."""

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

GROUP_POINTS = ("engine.decided", "engine.committed", "engine.dispatched", "engine.told")
"""Decided, not written; durable, not acted on; attempts begun, callers not answered; all callers answered."""

RECOVERY_POINTS = ("recovery.taken", "recovery.rearmed", "recovery.done")
"""A page is recovered, not durable; it is durable, with its timers; everything is recovered."""

CLOSING_POINTS = ("closing.begun", "closing.drained", "closing.settled")
"""Nothing more is claimed; nothing runs any more; interruptions are durable, and the store is not closed yet."""

FOLLOWING_POINTS = ("leaving.begun", "leaving.settled", "following.made", "following.reported", "following.handed_over")
"""The tombstone was found; nothing runs any more; the new place is open; it has the attempts' reports; callers are
there. Reached only by an engine whose workflows are moved."""

Listener = Callable[[str], None]

_listener: Listener | None = None


def reach(point: str) -> None:
    """Report that the caller has come to this point."""
    if _listener is not None:
        _listener(point)


def listen(listener: Listener | None) -> None:
    """Call the listener at every point from now on, in the thread that comes to it; None stops it."""
    global _listener  # noqa: PLW0603 -- one per process, as a kill is.
    _listener = listener
