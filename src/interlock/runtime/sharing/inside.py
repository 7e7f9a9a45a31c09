"""The inside of an engine whose store is shared: any process takes any event, workers claim what is due.

Nothing is taken up when it opens: claims find all due work, of this process or any other. A process that is opened with
`worker=False` only stores work, and hints at it.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

from interlock.errors import InterlockError, LeaseHeld, MachineMismatch, Refusal
from interlock.redaction import logger_of
from interlock.runtime.attempts import Judge
from interlock.runtime.bound import Bound, Live
from interlock.runtime.envelopes import Send
from interlock.runtime.given import Given
from interlock.runtime.inside import Inside
from interlock.runtime.leases import Leasing
from interlock.runtime.means import Means
from interlock.runtime.pipeline import Envelope
from interlock.runtime.recovery import Recovery
from interlock.runtime.reports import Late, Result
from interlock.runtime.resilience.outlets import Change
from interlock.runtime.sharing.alive import gap_begun_us, minding, show_sign, show_signs
from interlock.runtime.sharing.claiming import Claiming, Keeping
from interlock.runtime.sharing.counting import AddCounts, Counting
from interlock.runtime.sharing.pipeline import SharedPipeline
from interlock.runtime.sharing.reading import Reads
from interlock.runtime.sharing.runner import SharedRunner
from interlock.runtime.sharing.taking import TakeUp
from interlock.runtime.sharing.waiting import WaitPolls
from interlock.runtime.staging import Staged
from interlock.runtime.stalls import StallDetector
from interlock.runtime.views import Moved
from interlock.runtime.waiters import Waiter, too_long
from interlock.store.shared import SharedStore
from interlock.store.values import Row

log = logger_of("interlock.operators")

STALLS = "interlock.stalls"
"""The lease of the worker that looks for stalled workflows and dead letters."""

STALLS_S_MIN = 5.0

HINT_S = 0.01
"""Seconds for which hints are gathered: one is as good as a thousand."""


class SharedInside(Inside):
    """The parts of one engine on a shared store."""

    store: SharedStore
    pipeline: SharedPipeline
    runner: SharedRunner

    def __init__(self, store: SharedStore, machines: dict[str, Bound], given: Given) -> None:
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
        means = Means(ids, self.places, owner, self.tracing)
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

    def supposed(self, workflow: str) -> Live | None:
        """Return the remembered workflow. It may be stale: the next poll of the store corrects it."""
        return self.pipeline.supposed(workflow)

    async def row(self, workflow: str) -> Row | None:
        """Return the row of a workflow from the store, in one query with others."""
        return await self._reads.row(workflow)

    async def counted(self, workflow: str, load: Callable[[], Awaitable[Live]]) -> tuple[Row, tuple[int, int, int]]:
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
