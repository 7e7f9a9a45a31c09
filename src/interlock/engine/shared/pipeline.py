"""The data path on a store that others write to: `admit → load → decide → commit → acknowledge → dispatch`.

This process decides on the rows that it wrote last, without loading them. If another process has moved the workflow
meanwhile, the store refuses the change by its revision, and it is decided again on a fresh row. A cached row may be
stale. So a refusal, duplicate or late result is decided again on a fresh row before the caller gets it. A change that
is lost on a fresh row means that others write to the workflow, or lock it in an open transaction. It is parked for a
short random while, with everything that arrives for it, so that nothing overtakes.

Several groups run concurrently: the database writes one while this process decides the next. A workflow is in at most
one of them (G1). When the outcome of a group is unknown, the store settles for each change whether it happened, for
ever, before anything is decided again (G9).
"""

import asyncio
import math
from collections.abc import Sequence
from typing import ClassVar

from interlock.clock import Chance
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow
from interlock.engine.path.contention import Contended
from interlock.engine.path.pipeline import Envelope, Group, Listener, LookFirst, Pipeline
from interlock.engine.path.staging import DecisionContext, Staged
from interlock.engine.settings import EngineSettings
from interlock.errors import (
    Fenced,
    InterlockError,
    InternalError,
    MovedElsewhere,
    OutcomeUnknown,
    UnavailableError,
    VersionConflict,
)
from interlock.store.protocol import Holder, SharedStore
from interlock.store.values import Change, Row

PARKED_S_MIN = 0.005
PARKED_S_MAX = 0.2
"""Seconds for which a workflow that others write to is left alone: more each time, up to this."""

GROUP_MIN = 32
"""Fewer envelopes than this are not split into groups: each group has its price."""

SETTLE_S = 0.1
"""Seconds between two attempts to settle a group."""

IDLE_S_MAX = 2.0
"""Seconds for which a stopping engine waits for workflows that others lock, and for repeated reports."""


class SharedPipeline(Pipeline):
    """The data path of one engine on a shared store."""

    FATAL: ClassVar[tuple[type[InterlockError], ...]] = (Fenced, InternalError)

    def __init__(
        self,
        store: SharedStore,
        machines: dict[str, BoundMachine],
        means: DecisionContext,
        settings: EngineSettings,
        listener: Listener,
        contended: Contended,
        chance: Chance,
    ) -> None:
        super().__init__(store, machines, means, settings, listener, contended)
        self._shared = store
        self._chance = chance
        self._groups: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        """Workflows of the groups that are under way."""
        self._parked: dict[str, list[Envelope]] = {}
        self._stirred = asyncio.Event()

    def add(self, envelope: Envelope) -> None:
        """Queue the envelope for the next group."""
        super().add(envelope)
        self._stirred.set()

    def learn(self, row: Row) -> None:
        """Remember a row that was just read. Raises CorruptionError when its machine cannot read it."""
        if row.id not in self._busy:
            self._live[row.id] = self._read(row)

    def supposed(self, workflow: str) -> LoadedWorkflow | None:
        """Return the workflow as this process last wrote or read it."""
        return self._live.get(workflow)

    async def idle(self) -> None:
        """Wait until the queue is empty; up to `IDLE_S_MAX` for workflows that others lock and repeated reports."""
        deadline_s = self._loop.time() + IDLE_S_MAX
        while self._task is not None or ((self._parked or self._later) and self._loop.time() < deadline_s):
            if self._task is not None:
                await asyncio.wait([self._task])
            else:
                await asyncio.sleep(PARKED_S_MIN)

    def close(self) -> None:
        """Stop, and fail the envelopes of workflows that others lock."""
        super().close()
        for workflow, parked in self._parked.items():
            self._give_up(parked, None, _locked_to_the_end(workflow))

    def leave(self) -> None:
        """Leave the store, and pass on the envelopes of parked workflows."""
        super().leave()
        for parked in self._parked.values():
            self._pass_on(parked)
            parked.clear()

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # The envelopes of this turn of the event loop are one group.
            while self._waiting or self._groups:
                self._stirred.clear()
                if len(self._groups) < self._settings.groups_max and (taken := self._gathered()):
                    self._busy.update([envelope.workflow for envelope in taken])
                    group = self._loop.create_task(self._group(taken))
                    self._groups.add(group)
                else:
                    await self._stirred.wait()
                # Callers that just got an answer may send more, and attempts that begin may end immediately.
                await asyncio.sleep(0)
        finally:
            self._task = None

    def _gathered(self) -> list[Envelope]:
        """Return up to a group of waiting envelopes, in order; none of a busy or parked workflow."""
        busy, parked = self._busy, self._parked
        most = min(self._settings.group_max, self._share())
        if not busy and not parked:
            first, self._waiting = self._waiting[:most], self._waiting[most:]
            return first
        taken: list[Envelope] = []
        left: list[Envelope] = []
        for envelope in self._waiting:
            workflow = envelope.workflow
            if workflow in parked:
                parked[workflow].append(envelope)
            elif workflow in busy or len(taken) >= most:
                left.append(envelope)
            else:
                taken.append(envelope)
        self._waiting = left
        return taken

    def _share(self) -> int:
        """Return the number of waiting envelopes that one group should take.

        A group that took all would leave nothing to decide while the database writes it. But envelopes of few workflows
        cannot be split: a workflow is in one group at a time.
        """
        count = len(self._waiting)
        if count <= GROUP_MIN or 2 * len({envelope.workflow for envelope in self._waiting}) < count:
            return count
        return max(GROUP_MIN, math.ceil(count / (self._settings.groups_max - len(self._groups))))

    async def _group(self, taken: list[Envelope]) -> None:
        try:
            await self._pass(taken)
        except BaseException as error:
            # An internal error after the commit, or the end of the program: no caller may wait for ever.
            self._give_up(taken, None, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._busy.difference_update([envelope.workflow for envelope in taken])
            task = asyncio.current_task()
            assert task is not None
            self._groups.discard(task)
            self._stirred.set()

    async def _load(self, envelopes: Sequence[Envelope]) -> Group:
        looked = {each.workflow for each in envelopes if each.look}
        known: dict[str, LoadedWorkflow] = {}
        wanted: dict[str, None] = {}
        for each in envelopes:
            workflow = each.workflow
            live = None if workflow in looked else self._live.get(workflow)
            if live is not None:
                known[workflow] = live  # Kept here: the cache may drop it while others are loaded.
            elif each.look or not each.begins:
                wanted[workflow] = None
        rows = await self._shared.load(list(wanted)) if wanted else {}
        keys = [(each.workflow, each.key) for each in envelopes if each.key is not None and each.workflow in looked]
        delivered = await self._shared.delivered(keys) if keys else {}
        self.means.now_us = self._shared.now_us()
        group = Group(self.means, known, delivered)
        group.fresh = frozenset(wanted)
        await self._read_into(group, rows.values())
        return group

    def _decided(self, envelope: Envelope, group: Group) -> object:
        workflow = envelope.workflow
        if workflow in group.fresh or workflow in group.deferred:
            return super()._decided(envelope, group)
        before = _mark(group.staged.get(workflow))
        answer = super()._decided(envelope, group)
        if _same(before, _mark(group.staged.get(workflow))):
            # It changes nothing on the cached row.
            group.deferred.add(workflow)
            return LookFirst()
        return answer

    async def _write(self, changed: Sequence[Staged]) -> Sequence[str]:
        changes = [staged.change() for staged in changed]
        urgent = any(staged.live.owed.undos for staged in changed)
        holder = Holder(self.means.owner, self._shared.lease_s, self.means.ids.text(), urgent)
        try:
            return await self._shared.commit_as(changes, holder)
        except OutcomeUnknown as unknown:
            return await self._settled(changes, holder.envelope, unknown)

    async def _settled(self, changes: Sequence[Change], envelope: str, unknown: OutcomeUnknown) -> Sequence[str]:
        """Settle a group of unknown outcome; return the lost ids. Raises OutcomeUnknown when that takes too long."""
        deadline_s = self._loop.time() + self._settings.settle_s
        while True:
            try:
                happened = await self._shared.settle(changes, envelope)
            except MovedElsewhere:
                raise unknown from None  # It cannot be settled here any more; repeating it by its key elsewhere can.
            except (UnavailableError, OutcomeUnknown):
                if self._loop.time() > deadline_s or self._closed:
                    raise unknown from None
                await asyncio.sleep(SETTLE_S * (0.5 + self._chance.fraction()))
            else:
                return [change.row.id for change in changes if change.row.id not in happened]

    def _keep(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        if lost:
            for workflow in lost:
                self._live.pop(workflow, None)
        super()._keep(changed, lost)

    def _retry(self, again: list[Envelope], group: Group, lost: Sequence[str]) -> None:
        """Decide again immediately after a stale row, and later for workflows that others write to."""
        contended = group.fresh.intersection(lost)
        immediate = [envelope for envelope in again if envelope.workflow not in contended]
        self._waiting[:0] = immediate
        for envelope in again:
            workflow = envelope.workflow
            if workflow in contended:
                if workflow not in self._parked:
                    self._parked[workflow] = []
                    wait_s = min(PARKED_S_MAX, PARKED_S_MIN * 2.0**envelope.conflicts)
                    self._loop.call_later(wait_s * (0.5 + self._chance.fraction()), self._unpark, workflow)
                self._parked[workflow].append(envelope)

    def _unpark(self, workflow: str) -> None:
        parked = self._parked.pop(workflow)
        if self._closed:
            return
        self._waiting[:0] = parked
        if self._task is None:
            self._begin()
        self._stirred.set()

    def _kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        return VersionConflict(
            f"workflow {workflow!r} kept moving, or was locked, while this was decided, {conflicts} times.",
            why="Others write to it without a pause, or a transaction that sent it an event is still open.",
            fix="Send the event again; keep transactions that send events short.",
        )


def _locked_to_the_end(workflow: str) -> UnavailableError:
    return UnavailableError(
        f"the engine is closed; until then others wrote to workflow {workflow!r}, or had it locked.",
        why="What was sent was decided again and again, and nothing of it was written.",
        fix="Send it to another engine; keep transactions that send events short.",
    )


def _mark(staged: Staged | None) -> tuple[LoadedWorkflow, tuple[int, ...]] | None:
    """Return a mark that differs after any change by a decision."""
    if staged is None or not staged.touched:
        return None
    sizes = (
        len(staged.effects),
        len(staged.effects_again),
        len(staged.effects_done),
        len(staged.effects_dead),
        len(staged.letters),
        len(staged.letters_gone),
    )
    return staged.live, sizes


def _same(
    before: tuple[LoadedWorkflow, tuple[int, ...]] | None, after: tuple[LoadedWorkflow, tuple[int, ...]] | None
) -> bool:
    """Whether nothing has changed. Compares identity; both objects are referenced, so no id is reused."""
    if before is None or after is None:
        return before is after
    return before[0] is after[0] and before[1] == after[1]
