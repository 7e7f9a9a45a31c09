"""Named fault points of a group's way through the engine, and of opening, closing and switching an engine.

They share the listener of the lane's points (`interlock.lanes.points`), which is not set in production. A point is one
call per group, per page of a recovery or per closing, never per workflow. `tests/crash/engine` kills the process with
kill -9 at each of these points.
"""

from interlock.lanes.points import reach

__all__ = ["FOLLOWING_POINTS", "POINTS", "reach"]

GROUP_POINTS = ("engine.decided", "engine.committed", "engine.dispatched", "engine.told")
"""Decided, not written; durable, not acted on; attempts begun, callers not answered; all callers answered."""

RECOVERY_POINTS = ("recovery.taken", "recovery.rearmed", "recovery.done")
"""A page is recovered, not durable; it is durable, with its timers; everything is recovered."""

CLOSING_POINTS = ("closing.begun", "closing.drained", "closing.settled")
"""Nothing more is claimed; nothing runs any more; interruptions are durable, and the store is not closed yet."""

FOLLOWING_POINTS = (
    "leaving.begun",
    "leaving.settled",
    "following.made",
    "following.reported",
    "following.handed_over",
)
"""The tombstone was found; nothing runs any more; the new place is open; it has the attempts' reports; callers are
there. Reached only by an engine whose workflows are moved."""

POINTS = (*GROUP_POINTS, *RECOVERY_POINTS, *CLOSING_POINTS)
