"""The policy of a store with one owner (memory, a lane), which has no other writer.

Memory is current, due work is recovered when the engine opens, and its times are kept in memory. A shared store
(PostgreSQL) has writers in other processes: see `shared.shared_store_policy`, which answers
the same questions, and some more.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import Enum
from typing import Protocol

from interlock.clock import Chance
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, decode_owed
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.path.engine_commands import COUNTS_SAVED_S, WriteRow
from interlock.engine.pauses import PauseScope
from interlock.engine.recovery import ALIVE, PAGE, Recovery, held_s
from interlock.engine.steps.runner import Runner
from interlock.engine.views import Moved, Waiter, Waiters, too_long
from interlock.errors import Fenced, InterlockError, InternalError, OutcomeUnknown, UnavailableError, VersionConflict
from interlock.store.protocol import Store
from interlock.store.records import Row

Counts = tuple[int, int, int]
"""Duplicate, ignored and refused events."""


class PolicyParts(Protocol):
    """The parts of an engine that a policy works with."""

    pipeline: CommitPipeline
    runner: Runner
    waiters: Waiters
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


class OwnedStorePolicy:
    """The answers of a store with one owner. Lives in one event loop."""

    memory_is_current = True
    groups_max = 1
    idle_s_max = 0.0
    fatal: tuple[type[InterlockError], ...] = (OutcomeUnknown, Fenced, InternalError)
    owner = ""
    write = None

    def __init__(
        self, store: Store, machines: dict[str, BoundMachine], settings: EngineSettings, chance: Chance
    ) -> None:
        self._store = store
        self._machines = machines
        self._settings = settings
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._saving: asyncio.TimerHandle | None = None
        self._parts: PolicyParts

    def connect(self, parts: PolicyParts) -> None:
        """Connect the policy with the pipeline and the runner."""
        self._parts = parts

    def kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        """Return the error for an event that was lost too often."""
        return VersionConflict(f"workflow {workflow!r} kept moving while this was decided, {conflicts} times.")

    async def take_up(self, notes: dict[str, str]) -> None:
        """Recover what earlier engines left owed, and begin."""
        alive_us = int(notes.get(ALIVE, "0"))  # No note: no engine was open before, and no time has counted yet.
        parts = self._parts
        recovery = Recovery(self._store, self._machines, parts.pipeline, parts.runner, self._settings, self._chance)
        await recovery.run(alive_us, notes)
        parts.runner.open(held_s(notes, self._store.now_us()))
        if self._saves_time():
            parts.keep(self._save_time())

    async def resume(self, scope: PauseScope) -> None:
        """Take up what is owed in a scope that was resumed. What moves meanwhile goes on by itself."""
        runner = self._parts.runner
        runner.requeue()
        if scope.workflow:
            self._resume_rows((await self._store.load([scope.workflow])).values())
            return
        bound = self._machines.get(scope.machine)
        states = () if bound is None else (scope.state,) if scope.state else tuple(bound.stored)
        for state in states:
            cursor: str | None = None
            while True:
                found = await self._store.find(scope.machine, state, after=cursor, limit=PAGE)
                self._resume_rows(found.rows)
                cursor = found.cursor
                if cursor is None:
                    break

    def _resume_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            bound = self._machines.get(row.machine)
            if bound is not None and row.owed:
                self._parts.runner.resume(bound, row, decode_owed(row.owed))

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
            pipeline.add(WriteRow(workflow))

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
            await asyncio.sleep(self._settings.timers_saved_s)
