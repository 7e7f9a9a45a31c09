"""Reads of a store that other processes write to: rows in batches, polls for waiters, counts beside their rows.

`get`, `allowed` and `wait` never answer from memory on a shared store: they query the database. This module makes few
queries of many calls. Counts of events that changed nothing are written once a second, and read beside the row.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from interlock.engine.bound_machine import LoadedWorkflow
from interlock.engine.owned_store_policy import Counts, PolicyParts
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import Report
from interlock.engine.path.staged_group import Group, Staged, replace
from interlock.engine.views import Waiters
from interlock.errors import MovedElsewhere, UnavailableError
from interlock.redaction import logger_of
from interlock.store.protocol import SharedStore
from interlock.store.records import Row

log = logger_of("interlock.operators")

# --- Batched reads of single workflows: reads that arrive during a query share the next one --------------------------
# `get` and `wait` never answer from memory on a shared store, so each of them queries the database. One by one they
# would take a connection each; together they are a few queries, for any number of callers.

BATCH_MAX = 1_000
"""Workflows in one query."""


class Reads:
    """Batches the reads of rows."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.Future[Row | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def row(self, workflow: str) -> Row | None:
        """Return the row as it is in the store at some moment after this call."""
        future = self._pending.get(workflow)
        if future is None:
            future = self._pending[workflow] = self._loop.create_future()
            if self._task is None:
                self._task = self._loop.create_task(self._run())
        return await asyncio.shield(future)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # The reads of this turn of the event loop are one query.
            while self._pending:
                names = list(self._pending)[:BATCH_MAX]
                batch = {each: self._pending.pop(each) for each in names}
                try:
                    rows = await self._store.load(names)
                except BaseException as error:
                    _fail(batch, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    for workflow, future in batch.items():
                        future.set_result(rows.get(workflow))
        finally:
            self._task = None


def _fail(batch: dict[str, "asyncio.Future[Row | None]"], error: BaseException) -> None:
    for future in batch.values():
        if isinstance(error, Exception):
            future.set_exception(error)
            future.exception()  # The caller may have gone.
        else:
            future.cancel()


# --- Polls for workflows with waiters that another process may move --------------------------------------------------
# A workflow that moves here wakes its waiters immediately. The others are polled together, soon after the wait began
# and then less and less often.

FIRST_S = 0.05
EVERY_S_MAX = 1.0
"""Seconds until the first look, and the longest time between two looks."""

MOVED_HERE_S = 0.5
"""Seconds until a workflow that this process has just moved is polled: it mostly goes on moving here."""

PAGE = 1_000


class WaitPolls:
    """Polls the workflows that have waiters."""

    def __init__(self, store: SharedStore, waiters: Waiters, parts: PolicyParts) -> None:
        self._store = store
        self._waiters = waiters
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self.looks: dict[str, tuple[float, float]] = {}
        """By workflow: when to look next, and the interval after that."""
        self._added = asyncio.Event()

    def added(self, workflow: str) -> None:
        """Poll a workflow that has a new waiter."""
        when_s = self._loop.time() + FIRST_S
        self.looks[workflow] = (min(when_s, self.looks.get(workflow, (when_s, 0.0))[0]), FIRST_S)
        self._added.set()

    def moved_here(self, workflow: str) -> None:
        """Poll later a workflow that this process has moved: its waiters are awake."""
        self.looks[workflow] = (self._loop.time() + MOVED_HERE_S, MOVED_HERE_S)

    async def run(self) -> None:
        """Look until the engine closes."""
        while True:
            self.looks = {each: look for each, look in self.looks.items() if each in self._waiters.by_workflow}
            if not self.looks:
                self._added.clear()
                await self._added.wait()
            await asyncio.sleep(FIRST_S)  # New waiters may come at any time, and are polled soon.
            try:
                await self._look()
            except MovedElsewhere as error:
                self._parts.elsewhere(error)
            except UnavailableError as error:
                log.debug("workflows that are waited for could not be looked at: %s", error)
            except Exception:
                log.exception("workflows that are waited for could not be looked at; it is tried again.")

    async def _look(self) -> None:
        now_s = self._loop.time()
        wanted = [
            each for each, (when_s, _) in self.looks.items() if when_s <= now_s and each in self._waiters.by_workflow
        ]
        for workflow in wanted:
            every_s = min(EVERY_S_MAX, 2 * self.looks[workflow][1])
            self.looks[workflow] = (now_s + every_s, every_s)
        for begin in range(0, len(wanted), PAGE):
            for row in (await self._store.load(wanted[begin : begin + PAGE])).values():
                try:
                    self._waiters.moved(self._parts.read(row))
                except Exception as error:  # noqa: BLE001 -- whatever is wrong with one, the others are woken.
                    log.error("workflow %r is waited for and cannot be read: %s", row.id, error)  # noqa: TRY400


# --- Counts of events that changed nothing (B5), on a store that others count in too ---------------------------------
# Here they are only differences. Each process adds its own to the row about once a second, so that a flood of
# duplicates is not a flood of writes. A crash may lose the last second.
#
# During such a write it is unknown whether a loaded row includes them already. A reader waits until the write has
# ended, and loads the row again.

SAVED_S = 1.0
"""Seconds for which counts may be in memory only."""


@dataclass(slots=True, eq=False, repr=False)
class AddCounts(Report):
    """Counts of duplicate, ignored or refused events."""

    counts: Counts

    def decide(self, group: Group) -> object:
        """Add them to the row, if it is there. The answer reports the counts as written."""
        Report.decide(self, group)
        return self

    def apply(self, staged: Staged, group: Group) -> None:
        """Add them to the staged row."""
        del group
        staged.touch()
        live = staged.live
        duplicate, ignored, refused = live.row.counts
        mine = self.counts
        counts = (duplicate + mine[0], ignored + mine[1], refused + mine[2])
        # Another object: it marks the change for the data path, also after an event of the same group.
        staged.live = LoadedWorkflow(live.bound, replace(live.row, counts=counts), live.snapshot, live.owed)


class UnsavedCounts:
    """The counts that are not in the store yet."""

    def __init__(self, pipeline: CommitPipeline) -> None:
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

    async def beside(self, workflow: str, load: Callable[[], Awaitable[LoadedWorkflow]]) -> tuple[Row, Counts]:
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
