"""Counts of events that changed nothing (B5), on a store that others count in too.

Here they are only differences. They are added to the row about once a second, by whichever process has seen the events,
so that a flood of duplicates is not a flood of writes. A crash may lose the last second.
"""

import asyncio

from interlock.runtime.bound import Live
from interlock.runtime.pipeline import Group, Pipeline
from interlock.runtime.reports import Report
from interlock.runtime.staging import replace

SAVED_S = 1.0
"""How long counts may be in memory only."""

Counts = tuple[int, int, int]


class AddCounts(Report):
    """Events that were duplicate, ignored or refused."""

    __slots__ = ("counts",)

    def __init__(self, workflow: str, counts: Counts) -> None:
        super().__init__(workflow)
        self.counts = counts

    def decide(self, group: Group) -> object:
        """Add them to the row."""
        staged = group.stage(self.workflow)
        if staged is not None:
            staged.touch()
            live = staged.live
            duplicate, ignored, refused = live.row.counts
            mine = self.counts
            counts = (duplicate + mine[0], ignored + mine[1], refused + mine[2])
            # Another object: by it the data path sees that this changes something, also behind an event of its group.
            staged.live = Live(live.bound, replace(live.row, counts=counts), live.snapshot, live.owed)
        return None


class Counting:
    """The counts that are not in the store yet."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()
        self._counts: dict[str, Counts] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, workflow: str, which: int) -> None:
        """One more duplicate, ignored or refused event (0, 1, 2)."""
        counts = list(self._counts.get(workflow, (0, 0, 0)))
        counts[which] += 1
        self._counts[workflow] = (counts[0], counts[1], counts[2])
        if self._timer is None:
            self._timer = self._loop.call_later(SAVED_S, self.save)

    def of(self, workflow: str) -> Counts:
        """What is not in the store yet of a workflow."""
        return self._counts.get(workflow, (0, 0, 0))

    def save(self) -> None:
        """Bring them to the store."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted, self._counts = self._counts, {}
        for workflow, counts in counted.items():
            self._pipeline.add(AddCounts(workflow, counts))
