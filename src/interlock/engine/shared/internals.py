"""The inside of an engine whose store is shared: any process takes any event, workers claim what is due.

Nothing is taken up when it opens: claims find all due work, of this process or any other. A process that is opened with
`worker=False` only stores work, and hints at it.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from interlock.engine.alerts.stall_detector import StallDetector
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow
from interlock.engine.config import EngineConfig
from interlock.engine.dependencies.dependency import Change
from interlock.engine.internals import EngineParts
from interlock.engine.leases import Leasing
from interlock.engine.path.commands import Send
from interlock.engine.path.pipeline import Envelope, Group, Pipeline
from interlock.engine.path.reports import Late, Report, Result
from interlock.engine.path.staging import DecisionContext, Staged, replace
from interlock.engine.recovery import ALIVE, Recovery
from interlock.engine.shared.claims import Claiming, Keeping
from interlock.engine.shared.pipeline import SharedPipeline
from interlock.engine.shared.runner import SharedRunner, TakeUp
from interlock.engine.steps.attempt import Judge
from interlock.engine.views import Moved
from interlock.engine.waiters import Waiter, Waiters, too_long
from interlock.errors import (
    InterlockError,
    LeaseHeld,
    MachineMismatch,
    MovedElsewhere,
    OutcomeUnknown,
    Refusal,
    UnavailableError,
)
from interlock.redaction import logger_of
from interlock.store.protocol import SharedStore
from interlock.store.values import Row

# --- Signs of life of workers in the store, which the policies of timers depend on (B9) ------------------------------
# "remaining" does not count the time without a worker, and "restart" begins anew after it. With several workers that
# is the time between the last sign of life of any of them and the first worker that comes back. The sign is one
# small note per machine, written by every worker of a machine that has such timers. A worker that opens and finds a
# fresh sign waits until it changes: then another worker is alive. If it grows older than `SILENT_S`, none is.

operator_log = logger_of("interlock.steps")

SIGN_S = 0.4
"""Seconds between two signs of a worker."""

SILENT_S = 1.6
"""Seconds of silence after which no worker is alive."""

LOOK_S = 0.1


def sign_of(machine: str) -> str:
    """Return the name of the note with a machine's signs of life."""
    return f"{ALIVE}/{machine}"


def minding(machines: dict[str, BoundMachine]) -> list[str]:
    """Return the machines with a timer for which the time without a worker matters."""
    return [name for name, bound in machines.items() if any(timer.policy != "deadline" for timer in bound.timers)]


async def gap_begun_us(store: SharedStore, machine: str) -> int | None:
    """Return when a machine's last worker was alive; None if one is alive now."""
    sign = sign_of(machine)
    notes = await store.noted()
    first = notes.get(sign, "0")
    left_s = SILENT_S - (store.now_us() - int(first)) / 1_000_000
    while left_s > 0:
        await asyncio.sleep(LOOK_S)
        left_s -= LOOK_S
        if (await store.noted()).get(sign, "0") != first:
            return None
    # A store that was moved here has the mark of its only engine there.
    return max(int(first), int(notes.get(ALIVE, "0")))


async def show_sign(store: SharedStore, machines: Iterable[str]) -> None:
    """Write the sign of life of this worker for these machines."""
    for machine in machines:
        try:
            await store.note(sign_of(machine), str(store.now_us()))
        except (UnavailableError, OutcomeUnknown) as error:
            operator_log.debug("this worker could not show that it is alive: %s", error)
        except Exception:  # noqa: BLE001 -- a sign of life that fails must not end the worker.
            operator_log.exception("this worker could not show that it is alive; it is tried again.")


async def show_signs(store: SharedStore, machines: Sequence[str], every_s: float) -> None:
    """Write the sign of life repeatedly, until the engine closes."""
    while True:
        await show_sign(store, machines)
        await asyncio.sleep(min(SIGN_S, every_s))


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

log = logger_of("interlock.operators")

FIRST_S = 0.05
EVERY_S_MAX = 1.0
"""Seconds until the first look, and the longest time between two looks."""

MOVED_HERE_S = 0.5
"""Seconds until a workflow that this process has just moved is polled: it mostly goes on moving here."""

PAGE = 1_000


class WaitPolls:
    """Polls the workflows that have waiters."""

    def __init__(self, store: SharedStore, waiters: Waiters, inside: EngineParts) -> None:
        self._store = store
        self._waiters = waiters
        self._inside = inside
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, tuple[float, float]] = {}
        """By workflow: when to look next, and the interval after that."""
        self._added = asyncio.Event()

    def added(self, workflow: str) -> None:
        """Poll a workflow that has a new waiter."""
        when_s = self._loop.time() + FIRST_S
        self._looks[workflow] = (min(when_s, self._looks.get(workflow, (when_s, 0.0))[0]), FIRST_S)
        self._added.set()

    def moved_here(self, workflow: str) -> None:
        """Poll later a workflow that this process has moved: its waiters are awake."""
        if workflow in self._looks:
            self._looks[workflow] = (self._loop.time() + MOVED_HERE_S, MOVED_HERE_S)

    async def run(self) -> None:
        """Look until the engine closes."""
        while True:
            self._looks = {each: look for each, look in self._looks.items() if self._waiters.waits_for(each)}
            if not self._looks:
                self._added.clear()
                await self._added.wait()
            await asyncio.sleep(FIRST_S)  # New waiters may come at any time, and are polled soon.
            try:
                await self._look()
            except MovedElsewhere as error:
                self._inside.elsewhere(error)
            except UnavailableError as error:
                log.debug("workflows that are waited for could not be looked at: %s", error)
            except Exception:
                log.exception("workflows that are waited for could not be looked at; it is tried again.")

    async def _look(self) -> None:
        now_s = self._loop.time()
        wanted = [
            each for each, (when_s, _) in self._looks.items() if when_s <= now_s and self._waiters.waits_for(each)
        ]
        for workflow in wanted:
            every_s = min(EVERY_S_MAX, 2 * self._looks[workflow][1])
            self._looks[workflow] = (now_s + every_s, every_s)
        for begin in range(0, len(wanted), PAGE):
            for row in (await self._store.load(wanted[begin : begin + PAGE])).values():
                try:
                    self._waiters.moved(self._inside.read(row))
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
            staged.live = LoadedWorkflow(live.bound, replace(live.row, counts=counts), live.snapshot, live.owed)
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


# --- The module itself -----------------------------------------------------------------------------------------------

STALLS = "interlock.stalls"
"""The lease of the worker that looks for stalled workflows and dead letters."""

STALLS_S_MIN = 5.0

HINT_S = 0.01
"""Seconds for which hints are gathered: one is as good as a thousand."""


class SharedEngineParts(EngineParts):
    """The parts of one engine on a shared store."""

    store: SharedStore
    pipeline: SharedPipeline
    runner: SharedRunner

    def __init__(self, store: SharedStore, machines: dict[str, BoundMachine], given: EngineConfig) -> None:
        self._chance = given.chance
        self._shared = store
        super().__init__(store, machines, given)
        self._counting = Counting(self.pipeline)
        self._polls = WaitPolls(store, self.waiters, self)
        self.waiters.added = self._polls.added
        self._reads = Reads(store)
        self._asking: set[asyncio.Task[None]] = set()
        self._hint: asyncio.TimerHandle | None = None
        self._hinting: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        """Goes on while the engine waits for running attempts: without a lease others would begin them too."""

    def _wired(self, judge: Judge) -> tuple[SharedPipeline, SharedRunner]:
        settings, ids = self._settings, self._given.ids
        owner = f"{socket.gethostname()}:{os.getpid()}:{ids.text()[:8]}"
        means = DecisionContext(ids, self.places, owner, self.tracing)
        pipeline = SharedPipeline(
            self._shared, self.machines, means, settings, self, self._given.contended, self._chance
        )
        runner = SharedRunner(
            pipeline, self.wakes, judge=judge, teller=self.teller, settings=settings, working=self._worker
        )
        self._claiming = Claiming(
            self._shared, self.machines, pipeline, runner, poll_s=settings.poll_s, chance=self._chance
        )
        self._keeping = Keeping(self._shared, pipeline, runner)
        self._claiming.left = self._keeping.soon
        self._claiming.elsewhere = self.elsewhere
        runner.attach(
            due=self._claiming.due,
            freed=self._claiming.freed,
            give_up=self._keeping.give_up,
            left=self._left,
            give_back=self._claiming.give_back,
        )
        return pipeline, runner

    async def _take_up(self, noted: dict[str, str]) -> None:
        """Begin to claim, after the timers that do not count the time without a worker."""
        del noted
        recovery = Recovery(
            self.store,
            self.machines,
            self.pipeline,
            self.runner,
            undo_attempts=self._settings.undo_attempts,
            chance=self._given.chance,
        )
        await recovery.rename()
        minded = minding(self.machines)
        for machine in minded:
            since_us = await gap_begun_us(self._shared, machine)
            if since_us is not None:
                await recovery.rearm(machine, since_us)
        if minded:
            self.keep(show_signs(self._shared, minded, self._settings.timers_saved_s))
        self.runner.open()
        self.keep(self._claiming.run())
        self._renewing = self._loop.create_task(self._keeping.run())

    async def _watched(self, detector: StallDetector) -> None:
        """Look for stalls on one worker at a time, so that each alert is raised once."""
        every_s = self._settings.stall_check_s
        while True:
            try:
                async with Leasing(self.own_leases, STALLS, wait_s=0, lease_s=max(STALLS_S_MIN, 2 * every_s)) as lease:
                    while not lease.lost:
                        await detector.run(once=True)
            except LeaseHeld:
                await asyncio.sleep(every_s)
            except Exception:
                log.exception("the look for stalled workflows could not be arranged, and is tried again.")
                await asyncio.sleep(every_s)

    async def begin(self, *, accept_changes: bool) -> None:
        """Begin as every engine, and poll the workflows that have waiters."""
        await super().begin(accept_changes=accept_changes)
        self._recovered = True  # A process that only takes events has something to release as well: a pending hint.
        for workflow in self.waiters.workflows:
            self._polls.added(workflow)
        self.keep(self._polls.run())

    def breaker_changed(self, change: Change) -> None:
        """Publish the change as every engine, and take up parked workflows."""
        super().breaker_changed(change)
        if change.after == "closed":
            self._claiming.freed()

    def durable(self, staged: Staged) -> None:
        """Handle a durable change of a workflow."""
        super().durable(staged)
        self._polls.moved_here(staged.live.row.id)
        if not self.runner.working or self.runner.slots.free <= 0:
            self._leave(staged)

    def answered(self, envelope: Envelope, answer: object) -> None:
        """Count the events that changed nothing."""
        super().answered(envelope, answer)
        if isinstance(envelope, AddCounts):
            self._counting.saved(envelope)
        if self.runner.reporting.get(envelope.workflow) is envelope:
            del self.runner.reporting[envelope.workflow]  # It was late, or cannot be written at all.
        if isinstance(answer, MachineMismatch) and isinstance(envelope, Result | TakeUp):
            # A process of the workflow's stored version goes on with it, without waiting for the lease.
            log.warning("what this process did for workflow %r is left to others: %s", envelope.workflow, answer.what)
            self._keeping.give_up(envelope.workflow, envelope.lease)
        if isinstance(answer, Late):
            self._keeping.check(answer.workflow)
            self.runner.leave_trace(answer.workflow)
        if isinstance(answer, Moved):
            if answer.duplicate:
                self._counting.add(envelope.workflow, 0)
            elif answer.ignored:
                self._counting.add(envelope.workflow, 1)
        elif isinstance(answer, Refusal) and isinstance(envelope, Send):
            self._counting.add(envelope.workflow, 2)

    def over(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        """End a wait that timed out, with the workflow's state from the store."""
        if not waiter.future.done():
            asking = self._loop.create_task(self._fail_wait(workflow, waiter, timeout_s))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _fail_wait(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        live = None
        with contextlib.suppress(InterlockError):
            rows = await self._shared.load([workflow])
            live = self.read(rows[workflow]) if workflow in rows else None
        if not waiter.future.done():
            waiter.future.set_exception(too_long(workflow, live, timeout_s))

    def supposed(self, workflow: str) -> LoadedWorkflow | None:
        """Return the remembered workflow. It may be stale: the next poll of the store corrects it."""
        return self.pipeline.supposed(workflow)

    async def row(self, workflow: str) -> Row | None:
        """Return the row of a workflow from the store, in one query with others."""
        return await self._reads.row(workflow)

    async def counted(
        self, workflow: str, load: Callable[[], Awaitable[LoadedWorkflow]]
    ) -> tuple[Row, tuple[int, int, int]]:
        """Return the row of a workflow, and the counts of this process that are missing in it."""
        return await self._counting.beside(workflow, load)

    def _count(self, workflow: str) -> None:
        """Counted above."""

    def _save_counts(self) -> None:
        self._counting.save()

    def _leave(self, staged: Staged) -> None:
        """Hint at due work that this process does not begin."""
        row, current = staged.live.row, staged.live.owed.current
        due = row.wake_us is not None and row.wake_us <= self.pipeline.means.now_us
        left = due and not staged.reserved and (current is None or not current.started)
        if (left or len(staged.effects) > len(staged.begins)) and self._hint is None:
            self._hint = self._loop.call_later(HINT_S, self._start_hint)

    def _left(self) -> None:
        """Hint at an attempt elsewhere that has to end before the undo: renewal alone would take a third of a lease."""
        asking = self._loop.create_task(self._send_hint(left=True))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def _start_hint(self) -> None:
        self._hint = None
        if self._hinting is None or self._hinting.done():
            self._hinting = self._loop.create_task(self._send_hint())

    async def _send_hint(self, *, left: bool = False) -> None:
        with contextlib.suppress(InterlockError):
            await self._shared.hint(left=left)

    async def _end(self) -> None:
        self._claiming.stop()
        await super()._end()

    async def _parted(self, *, elsewhere: bool = False) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await super()._parted(elsewhere=elsewhere)

    async def _given_up(self) -> None:
        """Release unfinished work to other workers immediately."""
        if self._hint is not None:
            self._hint.cancel()
            await self._send_hint()
        if self._worker:
            await self._keeping.ended()
            await self._claiming.give_back()
            await show_sign(self._shared, minding(self.machines))
