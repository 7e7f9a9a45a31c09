"""Named points on the way of a group through the engine, and where an engine begins and ends.

Like those of the lane (`interlock.lanes.points`), and told to the same listener: nobody listens in production, and a
point is one call per group, per page of a recovery or per closing, never per workflow. `tests/crash/engine` kills the
process, kill -9, at each of these names in turn.
"""

from interlock.lanes.points import reach

__all__ = ["FOLLOWING_POINTS", "POINTS", "reach"]

GROUP_POINTS = ("engine.decided", "engine.committed", "engine.dispatched", "engine.told")
"""Decided and nothing written; durable and nobody acts; attempts are begun and nobody is told; all are told."""

RECOVERY_POINTS = ("recovery.taken", "recovery.rearmed", "recovery.done")
"""A page is taken up and nothing of that is durable; it is durable, with its timers; everything is taken up."""

CLOSING_POINTS = ("closing.begun", "closing.drained", "closing.settled")
"""Nothing more is claimed; nothing runs any more; what was interrupted is durable, and the store is still ours."""

FOLLOWING_POINTS = (
    "leaving.begun",
    "leaving.settled",
    "following.made",
    "following.reported",
    "following.handed_over",
)
"""The tombstone was found; nothing runs any more; the new place is open; it has what attempts had said; callers are
there. Reached only by an engine whose workflows are moved."""

POINTS = (*GROUP_POINTS, *RECOVERY_POINTS, *CLOSING_POINTS)
