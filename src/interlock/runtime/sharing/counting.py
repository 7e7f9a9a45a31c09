"""Counts of events that changed nothing (B5), on a store that others count in too.

Here they are only differences. Each process adds its own to the row about once a second, so that a flood of duplicates
is not a flood of writes. A crash may lose the last second.

During such a write it is unknown whether a loaded row includes them already. A reader waits until the write has ended,
and loads the row again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from interlock.runtime.bound import Live
from interlock.runtime.pipeline import Group, Pipeline
from interlock.runtime.reports import Report
from interlock.runtime.staging import replace
from interlock.store.values import Row

SAVED_S = 1.0
"""Seconds for which counts may be in memory only."""

Counts = tuple[int, int, int]


class AddCounts(Report):
    """Counts of duplicate, ignored or refused events."""

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
            # Another object: it marks the change for the data path, also after an event of the same group.
            staged.live = Live(live.bound, replace(live.row, counts=counts), live.snapshot, live.owed)
        return self  # The answer reports the counts as written.


class Counting:
    """The counts that are not in the store yet."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()
        self._counts: dict[str, Counts] = {}
        self._saving: dict[str, list[AddCounts]] = {}
        """Counts on their way to the store, by workflow."""
        self._saves = 0
        """Number of writes that have begun."""
        self._saved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, workflow: str, which: int) -> None:
        """Count a duplicate, ignored or refused event (0, 1, 2)."""
        counts = list(self._counts.get(workflow, (0, 0, 0)))
        counts[which] += 1
        self._counts[workflow] = (counts[0], counts[1], counts[2])
        if self._timer is None:
            self._timer = self._loop.call_later(SAVED_S, self.save)

    def of(self, workflow: str) -> Counts:
        """Return the known counts of a workflow that are not in the store."""
        found = [self._counts.get(workflow, (0, 0, 0))]
        found += [saving.counts for saving in self._saving.get(workflow, ())]
        duplicate, ignored, refused = map(sum, zip(*found, strict=True))
        return duplicate, ignored, refused

    async def beside(self, workflow: str, load: Callable[[], Awaitable[Live]]) -> tuple[Row, Counts]:
        """Return the row of a workflow, and the counts missing in it. A guess if the store does not answer in time."""
        until_s = self._loop.time() + SAVED_S
        while True:
            await self._arrived(workflow, until_s)
            saves = self._saves
            row = (await load()).row
            if (saves == self._saves and workflow not in self._saving) or self._loop.time() >= until_s:
                return row, self.of(workflow)

    async def _arrived(self, workflow: str, until_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while workflow in self._saving:
                    self._saved.clear()
                    await self._saved.wait()

    def save(self) -> None:
        """Send the counts to the store."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted, self._counts = self._counts, {}
        self._saves += 1
        for workflow, counts in counted.items():
            saving = AddCounts(workflow, counts)
            self._saving.setdefault(workflow, []).append(saving)
            self._pipeline.add(saving)

    def saved(self, saving: AddCounts) -> None:
        """End a write, successful or not. Another engine may have passed it on."""
        under_way = self._saving.get(saving.workflow, [])
        if saving in under_way:
            under_way.remove(saving)
            if not under_way:
                del self._saving[saving.workflow]
            self._saved.set()
