"""Counts of events that changed nothing (B5), on a store that others count in too.

Here they are only differences. They are added to the row about once a second, by whichever process has seen the events,
so that a flood of duplicates is not a flood of writes. A crash may lose the last second.

While they are on their way nobody can tell whether a row that is read has them already. Whoever wants to know waits
until they have arrived, and reads again what was read meanwhile.
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
        return self  # So that it is told when they are in the store.


class Counting:
    """The counts that are not in the store yet."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()
        self._counts: dict[str, Counts] = {}
        self._saving: dict[str, list[AddCounts]] = {}
        """On their way to the store, by workflow."""
        self._saves = 0
        """How often that has begun."""
        self._saved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, workflow: str, which: int) -> None:
        """One more duplicate, ignored or refused event (0, 1, 2)."""
        counts = list(self._counts.get(workflow, (0, 0, 0)))
        counts[which] += 1
        self._counts[workflow] = (counts[0], counts[1], counts[2])
        if self._timer is None:
            self._timer = self._loop.call_later(SAVED_S, self.save)

    def of(self, workflow: str) -> Counts:
        """What is not in the store of a workflow, as far as is known."""
        found = [self._counts.get(workflow, (0, 0, 0))]
        found += [saving.counts for saving in self._saving.get(workflow, ())]
        duplicate, ignored, refused = map(sum, zip(*found, strict=True))
        return duplicate, ignored, refused

    async def beside(self, workflow: str, load: Callable[[], Awaitable[Live]]) -> tuple[Row, Counts]:
        """The row of a workflow, and what is not in it. Of a store that does not answer in time it is a guess."""
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
        """Bring them to the store."""
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
        """They are in the store, or never will be. Another engine may have passed them on."""
        under_way = self._saving.get(saving.workflow, [])
        if saving in under_way:
            under_way.remove(saving)
            if not under_way:
                del self._saving[saving.workflow]
            self._saved.set()
