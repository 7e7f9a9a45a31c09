"""Saving of counts of events that changed nothing (B5), kept in memory first; see also `sharing.counting`."""

from interlock.runtime.pipeline import Group
from interlock.runtime.reports import Report

COUNTS_SAVED_S = 1.0
"""How long counts of duplicate, ignored and refused events may be in memory only."""


class SaveCounts(Report):
    """Saves the counts of a workflow that has not changed otherwise."""

    __slots__ = ()

    def decide(self, group: Group) -> object:
        """Write the row with its counts."""
        staged = group.stage(self.workflow)
        if staged is not None:
            staged.touch()
        return None
