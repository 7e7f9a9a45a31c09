"""What a lane has done since it was opened, as numbers."""

import msgspec


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
