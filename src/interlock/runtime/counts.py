"""Counts of events that changed nothing (B5), which memory has before the store; see also `sharing.counting`."""

from interlock.runtime.pipeline import Group
from interlock.runtime.reports import Report

COUNTS_SAVED_S = 1.0
"""How long counts of duplicate, ignored and refused events may be in memory only."""


class SaveCounts(Report):
    """Counts that have changed without the workflow having moved."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Write the row as it is."""
        staged = group.stage(self.workflow)
        if staged is not None:
            staged.touch()
        return None
