"""What a lane has done since it was opened, as numbers."""

from collections.abc import Sequence

import msgspec

from interlock.lanes.work import Work


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane has done since it was opened."""

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
    """What the groups of a lane were, counted by its driver."""

    def __init__(self) -> None:
        self.groups = self.transactions = self.failed = self.largest = 0

    def count(self, group: Sequence[Work]) -> None:
        """One more group is durable."""
        self.groups += 1
        self.transactions += len(group)
        self.failed += sum(work.error is not None for work in group)
        self.largest = max(self.largest, len(group))
