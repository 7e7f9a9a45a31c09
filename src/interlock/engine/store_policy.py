"""The store policy: what an engine asks about its store, and the answers of a store with one owner.

There are two kinds of store. A store with one owner (memory, a lane) has no other writer: memory is current, due work
is recovered when the engine opens, and its times are kept in memory. A shared store (PostgreSQL) has writers in other
processes: see `shared.policy`. The data path and the runner ask `PathPolicy`; the parts of the engine ask the rest.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Protocol

from interlock.engine.alerts.stall_detector import StallDetector
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow
from interlock.engine.config import EngineConfig
from interlock.engine.leases import LeaseBook
from interlock.engine.path.pipeline import Claims, Envelope, PathPolicy, Pipeline
from interlock.engine.path.reports import COUNTS_SAVED_S, SaveCounts
from interlock.engine.path.staging import Staged
from interlock.engine.recovery import ALIVE, Recovery, held_s
from interlock.engine.steps.runner import Runner
from interlock.engine.views import Moved
from interlock.engine.waiters import Waiter, Waiters, too_long
from interlock.errors import (
    Fenced,
    InterlockError,
    InternalError,
    OutcomeUnknown,
    UnavailableError,
    VersionConflict,
)
from interlock.store.protocol import Store
from interlock.store.values import Row

Counts = tuple[int, int, int]
"""Duplicate, ignored and refused events."""


class Parts(Protocol):
    """The parts of an engine that a policy works with."""

    pipeline: Pipeline
    runner: Runner
    waiters: Waiters
    own_leases: LeaseBook
    closed: bool

    def keep(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a background task until the engine closes."""
        ...

    def read(self, row: Row) -> LoadedWorkflow:
        """Decode the workflow in a row."""
        ...

    def elsewhere(self, error: UnavailableError) -> bool:
        """Handle an error of moved workflows; return whether the engine follows them."""
        ...


class Sharing(Claims, Protocol):
    """The duties of an engine that only a shared store has."""

    def begin(self) -> None:
        """Begin to look for changes that other processes make."""
        ...

    def durable(self, staged: Staged) -> None:
        """Handle a durable change of a workflow, after the runner has acted on it."""
        ...

    def answered(self, envelope: Envelope, answer: object) -> None:
        """Handle an answer that changed nothing, or an error, before the sender gets it."""
        ...

    def stop(self) -> None:
        """Begin no more claims: the engine closes."""
        ...


class StorePolicy(PathPolicy, Protocol):
    """Everything that an engine asks about its store."""

    owner: str
    """The lease owner of attempts that begin here; empty on a store with one owner."""

    @property
    def claims(self) -> Sharing | None:
        """The duties on a shared store; None on a store with one owner."""
        ...

    def connect(self, parts: Parts) -> None:
        """Connect the policy with the pipeline and the runner, which were made with it."""
        ...

    async def take_up(self, notes: dict[str, str]) -> None:
        """Take up due work, and begin attempts. Only in workers."""
        ...

    async def watch(self, detector: StallDetector) -> None:
        """Run the stall detector until the engine closes."""
        ...

    async def row(self, workflow: str) -> Row | None:
        """Load the row of a workflow from the store."""
        ...

    async def counted(self, workflow: str, load: Callable[[], Awaitable[LoadedWorkflow]]) -> tuple[Row, Counts]:
        """Return the row of a workflow, and counts that are not in it yet."""
        ...

    def count(self, workflow: str, answer: Moved[Enum] | InterlockError) -> None:
        """Count a duplicate, ignored or refused event."""
        ...

    def save_counts(self) -> None:
        """Send the counts to the store."""
        ...

    def fail_wait(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        """Fail a waiter whose timeout is over, with the state of its workflow."""
        ...

    async def release(self) -> None:
        """Leave the store to the next worker, after everything is durable and before the store is closed."""
        ...

    def part(self) -> None:
        """End what goes on while the engine waits for running attempts: the store is about to be closed."""
        ...


class OwnedStorePolicy:
    """The answers of a store with one owner. Lives in one event loop."""

    memory_is_current = True
    groups_max = 1
    idle_s_max = 0.0
    fatal: tuple[type[InterlockError], ...] = (OutcomeUnknown, Fenced, InternalError)
    owner = ""
    claims = None
    write = None

    def __init__(self, store: Store, machines: dict[str, BoundMachine], config: EngineConfig) -> None:
        self._store = store
        self._machines = machines
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._saving: asyncio.TimerHandle | None = None
        self._parts: Parts

    def connect(self, parts: Parts) -> None:
        """Connect the policy with the pipeline and the runner."""
        self._parts = parts

    def kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        """Return the error for an event that was lost too often."""
        return VersionConflict(f"workflow {workflow!r} kept moving while this was decided, {conflicts} times.")

    async def take_up(self, notes: dict[str, str]) -> None:
        """Recover what earlier engines left owed, and begin."""
        alive_us = int(notes.get(ALIVE, "0"))  # No note: no engine was open before, and no time has counted yet.
        parts = self._parts
        recovery = Recovery(
            self._store,
            self._machines,
            parts.pipeline,
            parts.runner,
            undo_attempts=self._config.settings.undo_attempts,
            chance=self._config.chance,
        )
        await recovery.run(alive_us, notes)
        parts.runner.open(held_s(notes, self._store.now_us()))
        if self._saves_time():
            parts.keep(self._save_time())

    async def watch(self, detector: StallDetector) -> None:
        """Run the stall detector until the engine closes."""
        await detector.run()

    async def row(self, workflow: str) -> Row | None:
        """Load the row of a workflow from the store."""
        return (await self._store.load([workflow])).get(workflow)

    async def counted(self, workflow: str, load: Callable[[], Awaitable[LoadedWorkflow]]) -> tuple[Row, Counts]:
        """Return the row of a workflow. Its counts are in memory, with the workflow."""
        del workflow
        return (await load()).row, (0, 0, 0)

    def count(self, workflow: str, answer: Moved[Enum] | InterlockError) -> None:
        """Save the counts of the workflow soon: the decision has counted the event in memory."""
        del answer
        pipeline = self._parts.pipeline
        if pipeline.known(workflow) is None:
            return
        pipeline.counted[workflow] = None
        if self._saving is None and not self._parts.closed:
            self._saving = self._loop.call_later(COUNTS_SAVED_S, self.save_counts)

    def save_counts(self) -> None:
        """Send the counts to the store."""
        self._saving = None
        pipeline = self._parts.pipeline
        counted, pipeline.counted = pipeline.counted, {}
        for workflow in counted:
            pipeline.add(SaveCounts(workflow))

    def fail_wait(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        """Fail a waiter whose timeout is over, with the state in memory."""
        if not waiter.future.done():
            waiter.future.set_exception(too_long(workflow, self._parts.pipeline.known(workflow), timeout_s))

    async def release(self) -> None:
        """Note the time of closing, for timers that do not count the time without an engine."""
        if self._saves_time():
            with contextlib.suppress(UnavailableError):
                await self._store.note(ALIVE, str(self._store.now_us()))

    def part(self) -> None:
        """Cancel the timer of the counts."""
        if self._saving is not None:
            self._saving.cancel()

    def _saves_time(self) -> bool:
        return any(timer.policy == "remaining" for bound in self._machines.values() for timer in bound.timers)

    async def _save_time(self) -> None:
        """Save the time every few seconds, for timers with the policy "remaining"."""
        while True:
            with contextlib.suppress(UnavailableError):
                await self._store.note(ALIVE, str(self._store.now_us()))
            await asyncio.sleep(self._config.settings.timers_saved_s)
