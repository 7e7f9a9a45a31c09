"""The data path: `admit → load → decide → commit → acknowledge → dispatch`.

Envelopes gather while a group is being written; the next group is what has gathered (natural batching). A workflow is
in at most one group, and several of its events are decided there one after the other. Nobody is told anything before
the group is durable: a refusal and a duplicate are reads of the staged state, and are held like all the rest (G7).

A delivery key is looked up only where it matters: before a refusal is told, and when the store says that the key was
used. The id of a new workflow likewise. What applies pays for nothing but the store's own check.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from interlock.errors import (
    Fenced,
    InterlockError,
    InternalError,
    MovedElsewhere,
    OutcomeUnknown,
    UnavailableError,
    VersionConflict,
)
from interlock.runtime.bound import Bound, Live, NotCompared
from interlock.runtime.contended import Contended
from interlock.runtime.current import outside
from interlock.runtime.definitions import compare_version
from interlock.runtime.means import Means, uncount
from interlock.runtime.points import reach
from interlock.runtime.presence import confirm, is_here
from interlock.runtime.settings import EngineSettings
from interlock.runtime.staging import Staged
from interlock.runtime.stopping import stopped, unknown_machine
from interlock.store.protocol import Store
from interlock.store.values import Delivered, Row

AGAIN_S = 0.25
"""How long a report waits before it is brought again to a store that could not take it."""


class Envelope(Protocol):
    """Something that wants to move a workflow."""

    workflow: str
    key: str | None
    future: "asyncio.Future[object] | None"
    conflicts: int
    look: bool
    """Its key, or its id, must be looked up before it is decided."""

    @property
    def admitted(self) -> bool:
        """It came from outside, through the gate."""
        ...

    @property
    def since_s(self) -> float:
        """When it came, by the event loop's clock; infinite for what nobody sent."""
        ...

    @property
    def begins(self) -> bool:
        """It starts a workflow: unless it must look, it is decided as if there were none; the store knows better."""
        ...

    def decide(self, group: "Group") -> object:
        """Decide on the staged state; what it returns or raises is told when the group is durable."""
        ...


class LookFirst(Exception):
    """The envelope would be refused, but its key has not been looked up."""


class Group:
    """What an envelope may look at while it decides."""

    __slots__ = ("broken", "deferred", "delivered", "fresh", "live", "means", "now_us", "staged")

    def __init__(self, means: Means, live: dict[str, Live], delivered: dict[tuple[str, str], Delivered]) -> None:
        self.means = means
        self.now_us = means.now_us
        self.live = live
        self.broken: dict[str, Exception] = {}
        """Why a workflow that is there cannot be read. It is the answer to its own events, and harms no other."""
        self.delivered = delivered
        self.deferred: set[str] = set()
        """Workflows of which an event must look first: those behind it wait for it, so that none overtakes another."""
        self.fresh: frozenset[str] = frozenset()
        """Workflows that were loaded for this group, where memory may be behind the store."""
        self.staged: dict[str, Staged] = {}

    def stage(self, workflow: str) -> Staged | None:
        """The workflow as this group has it, or None when there is no such workflow."""
        staged = self.staged.get(workflow)
        if staged is None:
            live = self.live.get(workflow)
            if live is None:
                if workflow in self.broken:
                    raise self.broken[workflow]
                return None
            staged = self.staged[workflow] = Staged(live, live.row.revision, live.owed, live.row.counts)
        return staged


class Listener(Protocol):
    """Who acts on what has become durable, and on what was said."""

    def durable(self, staged: Staged) -> None:
        """The workflow has changed, and nothing can take that back."""
        ...

    def answered(self, envelope: Envelope, answer: object) -> None:
        """An answer that changed nothing, or an error, is told to somebody."""
        ...

    def grouped(self) -> None:
        """All of a group was acted on."""
        ...

    def measured_s(self) -> float:
        """A clock for what takes less than a millisecond, which is all that some event loops tell."""
        ...

    def elsewhere(self, error: UnavailableError) -> bool:
        """The workflows are not here any more, and nothing of the group has happened; whether somebody follows."""
        ...


class Pipeline:
    """The data path of one engine. Lives in one event loop."""

    FATAL: ClassVar[tuple[type[InterlockError], ...]] = (OutcomeUnknown, Fenced, InternalError)
    """What a store says when nobody can go on with it."""

    def __init__(
        self,
        store: Store,
        machines: dict[str, Bound],
        means: Means,
        settings: EngineSettings,
        listener: Listener,
        contended: Contended,
    ) -> None:
        self.store = store
        self.means = means
        self.contended = contended
        self.dead: BaseException | None = None
        """Why nothing can be taken any more: the outcome of a group is unknown, or something is wrong with us."""
        self.group_begun_s = 0.0
        """When the group that is being told began, by the listener's clock."""
        self._machines = machines
        self._settings = settings
        self._listener = listener
        self._waiting: list[Envelope] = []
        self._live: dict[str, Live] = {}
        self._suspects: frozenset[str] = frozenset()
        """Workflows of which the last group was lost: whoever brings a key for them looks it up first."""
        self._closed = False
        self.left: list[Envelope] | None = None
        """What came when the workflows were elsewhere already: none of it has happened. None while they are here."""
        self.heir: Callable[[Envelope], None]
        """Takes what comes then."""
        self._later: set[Envelope] = set()
        """Reports that wait before they are brought again."""
        self.counted: dict[str, None] = {}
        """Those whose counts are in memory only: they stay there until their next change is durable."""
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._outside = outside()

    def admit(self, envelope: Envelope) -> "asyncio.Future[object]":
        """Let the envelope join the next group; the future is its answer."""
        future = envelope.future = self._loop.create_future()
        self.add(envelope)
        return future

    def add(self, envelope: Envelope) -> None:
        """The same for one whose answer nobody waits for."""
        self._waiting.append(envelope)
        if self._task is None:
            self._begin()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run(), context=self._outside.copy())

    def leave(self) -> None:
        """The workflows are elsewhere: what comes from now on is kept for whoever follows them, in its order."""
        if self.left is None:
            self.left, self._later = [*self._later], set()
            self.heir = self.left.append
            self._live, self.counted = {}, {}

    def refuse(self, error: InterlockError) -> None:
        """Whoever waits for a place where the workflows are waits no longer; reports, which nobody can repeat, do."""
        left = self.left or []
        waiting = [envelope for envelope in left if envelope.future is not None]
        left[:] = [envelope for envelope in left if envelope.future is None]
        for envelope in waiting:
            self._tell(envelope, error)

    async def idle(self) -> None:
        """Wait until nothing waits."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    def known(self, workflow: str) -> Live | None:
        """The workflow as it is durable, if it is in memory and nobody else writes to the store."""
        return None if self.store.shared else self._live.get(workflow)

    def let_go(self, workflow: str) -> None:
        """It waits, and may wait for long: it is read again when its turn comes."""
        if workflow not in self.counted:
            self._live.pop(workflow, None)

    def forget(self, workflows: Iterable[str]) -> None:
        """These are gone from the store: what is in memory of them is not true any more."""
        for workflow in workflows:
            self._live.pop(workflow, None)
            self.counted.pop(workflow, None)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # Whatever this turn of the event loop has to say is in one group.
            most = self._settings.group_max
            while self._waiting:
                taken, self._waiting = self._waiting[:most], self._waiting[most:]
                try:
                    await self._pass(taken)
                except BaseException as error:
                    # A bug of ours behind the commit, or the end of the program: nobody may wait for ever.
                    self._give_up(taken, None, error)
                    if not isinstance(error, Exception):
                        raise
        finally:
            self._task = None

    async def _pass(self, envelopes: Sequence[Envelope]) -> None:
        group: Group | None = None
        if self.left is not None:
            self._pass_on(envelopes)
            return
        if self.dead is not None:
            self._give_up(envelopes, group, stopped(self.dead))
            return
        try:
            begun_s = self._listener.measured_s()
            group = await self._load(envelopes)
            answers = [self._decided(envelope, group) for envelope in envelopes]
            changed = [staged for staged in group.staged.values() if staged.touched]
            decided_s = self._loop.time()
            reach("engine.decided")
            lost = await self._write(changed) if changed else ()
            if not (changed or is_here(self.store)):
                await confirm(self.store)
        except Exception as error:  # noqa: BLE001 -- whatever it is, everybody who waits is told.
            self._give_up(envelopes, group, error)
            return
        reach("engine.committed")
        if changed:
            now_s = self._loop.time()
            self.contended.passed(envelopes, changed, decided_s=decided_s, now_s=now_s, lost=lost, fresh=group.fresh)
        self._suspects = frozenset(lost)
        self.group_begun_s = begun_s  # Of this one: several may be under way.
        self._keep(changed, lost)
        self._listener.grouped()
        reach("engine.dispatched")
        again: list[Envelope] = []
        for envelope, answer in zip(envelopes, answers, strict=True):
            if lost and envelope.workflow in lost:
                self._again(envelope, again)
            elif answer is not None or envelope.future is not None:
                self._tell(envelope, answer, again)
        if again:
            self._retry(again, group, lost)
        reach("engine.told")

    def _decided(self, envelope: Envelope, group: Group) -> object:
        if group.deferred and envelope.workflow in group.deferred:
            return LookFirst()
        try:
            return envelope.decide(group)
        except LookFirst as first:
            group.deferred.add(envelope.workflow)
            return first
        except Exception as error:  # noqa: BLE001 -- a refusal, or a bug in the user's code: it is this envelope's answer.
            return error

    async def _write(self, changed: Sequence[Staged]) -> Sequence[str]:
        return await self.store.commit([staged.change() for staged in changed])

    def _retry(self, again: list[Envelope], group: Group, lost: Sequence[str]) -> None:
        del group, lost
        self._waiting[:0] = again

    async def _load(self, envelopes: Sequence[Envelope]) -> Group:
        live = {} if self.store.shared else self._live
        missing = [each.workflow for each in envelopes if each.workflow not in live and (each.look or not each.begins)]
        rows = await self.store.load(list(dict.fromkeys(missing))) if missing else {}
        suspects = self._suspects
        keys = [
            (each.workflow, each.key)
            for each in envelopes
            if each.key is not None and (each.look or each.workflow in suspects)
        ]
        delivered = await self.store.delivered(keys) if keys else {}
        self.means.now_us = self.store.now_us()
        group = Group(self.means, live, delivered)
        await self._read_into(group, rows.values())
        return group

    async def _read_into(self, group: Group, rows: Iterable[Row]) -> None:
        other: list[Row] = []
        for row in rows:
            try:
                group.live[row.id] = self._read(row)
            except NotCompared:
                other.append(row)
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with it: see `broken`.
                group.broken[row.id] = error
        if other:
            await self.compare(other)
            await self._read_into(group, other)

    async def compare(self, rows: Iterable[Row]) -> None:
        """Compare the machines with the versions that have stored these rows, if that was not done before."""
        noted: dict[str, str] | None = None
        for row in rows:
            bound = self._machines.get(row.machine)
            if bound is None or bound.is_compared(row):
                continue
            if noted is None:
                noted = await self.store.noted()
            compare_version(bound, row.machine_version, row.state, noted)

    def _read(self, row: Row) -> Live:
        bound = self._machines.get(row.machine)
        if bound is None:
            raise unknown_machine(row)
        return bound.decidable(row)

    def _keep(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        """What is durable is what memory shows; then act on it. What has ended is not kept: nothing moves it again."""
        live = self._live
        for staged in changed:
            workflow = staged.live.row.id
            if lost and workflow in lost:
                # Where nobody else writes it was a key, and memory is right; what waits there to be written stays.
                staged.give_up()
                uncount(live.get(workflow), staged.counts, self.means)
                continue
            live.pop(workflow, None)
            if not staged.ended:
                live[workflow] = staged.live
            self._listener.durable(staged)
        while len(live) > self._settings.snapshots_max + len(self.counted):
            oldest = next(iter(live))
            kept = live.pop(oldest)
            if oldest in self.counted:
                live[oldest] = kept

    def _again(self, envelope: Envelope, again: list[Envelope]) -> None:
        # B2: decided again on the new state, a bounded number of times. A report is the only memory of what has
        # happened outside, and is never dropped.
        if envelope.look:
            envelope.conflicts += 1
        envelope.look = True
        if envelope.conflicts <= self._settings.conflicts_max or envelope.future is None:
            again.append(envelope)
        else:
            self._tell(envelope, self._kept_moving(envelope.workflow, envelope.conflicts))

    def _kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        return VersionConflict(f"workflow {workflow!r} kept moving while this was decided, {conflicts} times.")

    def close(self) -> None:
        """Nothing is brought again: the store is given up."""
        self._closed = True

    def _give_up(self, envelopes: Sequence[Envelope], group: Group | None, error: BaseException) -> None:
        """Nothing was committed, or nobody knows: forget what was staged, tell whoever waits."""
        if group is not None:
            for staged in group.staged.values():
                staged.give_up()
                self._live.pop(staged.live.row.id, None)
        if isinstance(error, MovedElsewhere | Fenced) and self._listener.elsewhere(error):
            self._pass_on(envelopes)  # Both say for certain that nothing of the group has happened.
            return
        fatal = isinstance(error, self.FATAL) or not isinstance(error, InterlockError)
        if fatal and self.dead is None:
            self.dead = error
        for envelope in envelopes:
            if envelope.future is None and self.dead is None and not self._closed:
                self._later.add(envelope)
                self._loop.call_later(AGAIN_S, self._bring, envelope)
            else:
                self._tell(envelope, error)

    def _pass_on(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self.heir(envelope)

    def _bring(self, envelope: Envelope) -> None:
        if not self._closed and envelope in self._later:
            self._later.discard(envelope)
            self.add(envelope)

    def _tell(self, envelope: Envelope, answer: object, again: list[Envelope] | None = None) -> None:
        if isinstance(answer, LookFirst) and again is not None:
            self._again(envelope, again)
            return
        self._listener.answered(envelope, answer)
        future = envelope.future
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif isinstance(answer, BaseException):
            future.cancel()
        else:
            future.set_result(answer)
