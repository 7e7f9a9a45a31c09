"""Counters of a lane since it was opened."""

from collections.abc import Sequence

import msgspec

from interlock.lanes.work import Work


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a lane since it was opened."""

    groups: int
    transactions: int
    failed: int
    waiting: int
    largest_group: int
    log_bytes: int
    folds_failed: int
    """How often the log could not be folded into the database file; it grows until that works again."""
    upkeep_failed: int = 0
    """On a bucket: how often a snapshot or a collection failed; it is tried again after a while."""


class Counts:
    """The counters of a lane's groups, counted by its driver."""

    def __init__(self) -> None:
        self.groups = self.transactions = self.failed = self.largest = 0

    def count(self, group: Sequence[Work]) -> None:
        """Count one more durable group."""
        self.groups += 1
        self.transactions += len(group)
        self.failed += sum(work.error is not None for work in group)
        self.largest = max(self.largest, len(group))
