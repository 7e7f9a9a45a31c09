"""The policy of a shared store: any process takes any event, and workers claim what is due.

This process decides on the rows that it wrote last, without loading them. If another process has moved the workflow
meanwhile, the store refuses the change by its revision, and it is decided again on a fresh row. When the outcome of a
group is unknown, the store settles for ever which of its changes happened, before anything is decided again (G9).

Nothing is taken up when an engine opens: claims find all due work, of this process or any other. A process that is
opened with `worker=False` only stores work, and hints at it.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum

from interlock.clock import Chance, Ids
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.owned_store_policy import Counts, PolicyParts
from interlock.engine.path.engine_commands import Late, Result, TakeUp
from interlock.engine.path.staged_group import Envelope, Staged
from interlock.engine.pauses import READ_S, PauseScope
from interlock.engine.recovery import Recovery
from interlock.engine.shared.claims import Claiming, LeaseRenewal, gap_begun_us, gap_sensitive, show_sign, show_signs
from interlock.engine.shared.shared_reads import AddCounts, Reads, UnsavedCounts, WaitPolls
from interlock.engine.views import Moved, Waiter, too_long
from interlock.errors import (
    Fenced,
    InterlockError,
    InternalError,
    MachineMismatch,
    MovedElsewhere,
    OutcomeUnknown,
    Refusal,
    UnavailableError,
    VersionConflict,
)
from interlock.redaction import logger_of
from interlock.store.protocol import Holder, SharedStore
from interlock.store.records import Change, Row

log = logger_of("interlock.operators")

SETTLE_S = 0.1
"""Seconds between two attempts to settle a group."""

IDLE_S_MAX = 2.0
"""Seconds for which a stopping engine waits for workflows that others lock, and for repeated reports."""

HINT_S = 0.01
"""Seconds for which hints are gathered: one is as good as a thousand."""


class SharedStorePolicy:
    """The answers of a store that other processes write to. Lives in one event loop."""

    memory_is_current = False
    idle_s_max = IDLE_S_MAX
    fatal: tuple[type[InterlockError], ...] = (Fenced, InternalError)

    def __init__(
        self,
        store: SharedStore,
        machines: dict[str, BoundMachine],
        settings: EngineSettings,
        chance: Chance,
        ids: Ids,
        *,
        worker: bool,
    ) -> None:
        self._store = store
        self._machines = machines
        self._settings = settings
        self._chance = chance
        self._ids = ids
        self._worker = worker
        self.groups_max = settings.groups_max
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{ids.text()[:8]}"
        self._loop = asyncio.get_running_loop()
        self._reads = Reads(store)
        self._tasks: set[asyncio.Task[None]] = set()
        """Reads and hints that are not awaited."""
        self._hint: asyncio.TimerHandle | None = None
        self._hinting: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        """Goes on while the engine waits for running attempts: without a lease others would begin them too."""

    def connect(self, parts: PolicyParts) -> None:
        """Connect the claims with the pipeline and the runner."""
        pipeline, runner, chance = parts.pipeline, parts.runner, self._chance
        self._parts, self._pipeline, self._runner = parts, pipeline, runner
        self.claiming = Claiming(
            self._store, self._machines, pipeline, runner, poll_s=self._settings.poll_s, chance=chance
        )
        self.renewal = LeaseRenewal(self._store, pipeline, runner)
        self.due, self.freed, self.give_back = self.claiming.due, self.claiming.freed, self.claiming.give_back
        self.stop, self.give_up = self.claiming.stop, self.renewal.give_up
        self.claiming.left = self.renewal.soon
        self.claiming.elsewhere = parts.elsewhere
        self.counts = UnsavedCounts(pipeline)
        self.polls = WaitPolls(self._store, parts.waiters, parts)
        parts.waiters.added = self.polls.added

    # --- the data path -----------------------------------------------------------------------------------------------

    async def write(self, changed: Sequence[Staged]) -> Sequence[str]:
        """Commit a group with the leases of the attempts that begin, and settle it if its outcome is unknown."""
        changes = [staged.change() for staged in changed]
        urgent = any(staged.live.owed.undos for staged in changed)
        holder = Holder(self.owner, self._store.lease_s, self._ids.text(), urgent)
        try:
            return await self._store.commit_as(changes, holder)
        except OutcomeUnknown as unknown:
            return await self._settle(changes, holder.envelope, unknown)

    async def _settle(self, changes: Sequence[Change], envelope: str, unknown: OutcomeUnknown) -> Sequence[str]:
        """Settle a group of unknown outcome; return the lost ids. Raises OutcomeUnknown when that takes too long."""
        deadline_s = self._loop.time() + self._settings.settle_s
        while True:
            try:
                happened = await self._store.settle(changes, envelope)
            except MovedElsewhere:
                raise unknown from None  # It cannot be settled here any more; repeating it by its key elsewhere can.
            except (UnavailableError, OutcomeUnknown):
                if self._loop.time() > deadline_s or self._pipeline.closed:
                    raise unknown from None
                await asyncio.sleep(SETTLE_S * (0.5 + self._chance.fraction()))
            else:
                return [change.row.id for change in changes if change.row.id not in happened]

    def kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        """Return the error for an event that was lost too often."""
        return VersionConflict(
            f"workflow {workflow!r} kept moving, or was locked, while this was decided, {conflicts} times.",
            why="Others write to it without a pause, or a transaction that sent it an event is still open.",
            fix="Send the event again; keep transactions that send events short.",
        )

    # --- due work ----------------------------------------------------------------------------------------------------

    async def take_up(self, notes: dict[str, str]) -> None:
        """Begin to claim, after the timers that do not count the time without a worker."""
        del notes
        parts = self._parts
        recovery = Recovery(self._store, self._machines, self._pipeline, self._runner, self._settings, self._chance)
        await recovery.rename()
        sensitive = gap_sensitive(self._machines)
        for machine in sensitive:
            since_us = await gap_begun_us(self._store, machine)
            if since_us is not None:
                await recovery.rearm(machine, since_us)
        if sensitive:
            parts.keep(show_signs(self._store, sensitive, self._settings.timers_saved_s))
        self._runner.open()
        parts.keep(self.claiming.run())
        self._renewing = self._loop.create_task(self.renewal.run())

    async def resume(self, scope: PauseScope) -> None:
        """Claim what is owed in a scope that was resumed, here and in other processes."""
        del scope
        self._runner.requeue()
        self.claiming.due(0)
        await self._send_hint()

    async def _read_pauses(self) -> None:
        """Read the pauses, which another process may have changed, until the engine closes."""
        pauses = self._pipeline.means.pauses
        while True:
            await asyncio.sleep(READ_S)
            with contextlib.suppress(UnavailableError):
                if pauses.is_old and await pauses.read(self._store):
                    self._runner.requeue()
                    self.claiming.due(0)

    def left(self) -> None:
        """Hint at an attempt elsewhere that has to end before the undo: renewal alone would take a third of a lease."""
        self._start(self._send_hint(left=True))

    # --- the listener of the pipeline --------------------------------------------------------------------------------

    def durable(self, staged: Staged) -> None:
        """Poll the workflow later: it has moved here. Hint at its due work if this process does not begin it."""
        if staged.live.row.id in self.polls.looks:
            self.polls.moved_here(staged.live.row.id)
        if not self._runner.working or self._runner.slots.free <= 0:
            self._hint_at(staged)

    def answered(self, envelope: Envelope, answer: object) -> None:
        """Release what this process cannot go on with, and end the write of counts."""
        if isinstance(envelope, AddCounts):
            self.counts.saved(envelope)
        if self._runner.reporting.get(envelope.workflow) is envelope:
            del self._runner.reporting[envelope.workflow]  # It was late, or cannot be written at all.
        if isinstance(answer, MachineMismatch) and isinstance(envelope, Result | TakeUp):
            # A process of the workflow's stored version goes on with it, without waiting for the lease.
            log.warning("what this process did for workflow %r is left to others: %s", envelope.workflow, answer.what)
            self.renewal.give_up(envelope.workflow, envelope.lease)
        if isinstance(answer, Late):
            self.renewal.check(answer.workflow)
            self._runner.leave_trace(answer.workflow)

    def _hint_at(self, staged: Staged) -> None:
        """Hint at due work that this process does not begin."""
        row, current = staged.live.row, staged.live.owed.current
        due = row.wake_us is not None and row.wake_us <= self._pipeline.means.now_us
        left = due and not staged.reserved and (current is None or not current.started)
        if (left or len(staged.effects) > len(staged.begins)) and self._hint is None:
            self._hint = self._loop.call_later(HINT_S, self._start_hint)

    def _start_hint(self) -> None:
        self._hint = None
        if self._hinting is None or self._hinting.done():
            self._hinting = self._loop.create_task(self._send_hint())

    async def _send_hint(self, *, left: bool = False) -> None:
        with contextlib.suppress(InterlockError):
            await self._store.hint(left=left)

    # --- reading and counting ----------------------------------------------------------------------------------------

    async def row(self, workflow: str) -> Row | None:
        """Return the row of a workflow from the store, in one query with others."""
        return await self._reads.row(workflow)

    async def counted(self, workflow: str, load: Callable[[], Awaitable[LoadedWorkflow]]) -> tuple[Row, Counts]:
        """Return the row of a workflow, and the counts of this process that are missing in it."""
        return await self.counts.beside(workflow, load)

    def count(self, workflow: str, answer: Moved[Enum] | InterlockError) -> None:
        """Count a duplicate, ignored or refused event; about once a second the counts are added to the row."""
        if isinstance(answer, Moved):
            self.counts.add(workflow, 0 if answer.duplicate else 1)
        elif isinstance(answer, Refusal):
            self.counts.add(workflow, 2)

    def save_counts(self) -> None:
        """Send the counts to the store."""
        self.counts.save()

    def fail_wait(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        """Fail a waiter whose timeout is over, with the workflow's state from the store."""
        if not waiter.future.done():
            self._start(self._fail_wait(workflow, waiter, timeout_s))

    async def _fail_wait(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        live = None
        with contextlib.suppress(InterlockError):
            rows = await self._store.load([workflow])
            live = self._parts.read(rows[workflow]) if workflow in rows else None
        if not waiter.future.done():
            waiter.future.set_exception(too_long(workflow, live, timeout_s))

    # --- the beginning and the end -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Poll the workflows that have waiters."""
        for workflow in self._parts.waiters.by_workflow:
            self.polls.added(workflow)
        self._parts.keep(self.polls.run())
        self._parts.keep(self._read_pauses())

    async def release(self) -> None:
        """Release unfinished work to other workers immediately."""
        if self._hint is not None:
            self._hint.cancel()
            await self._send_hint()
        if self._worker:
            await self.renewal.ended()
            await self.claiming.give_back()
            await show_sign(self._store, gap_sensitive(self._machines))

    def part(self) -> None:
        """Stop renewing leases."""
        if self._renewing is not None:
            self._renewing.cancel()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
