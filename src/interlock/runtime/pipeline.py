"""The data path: `admit → load → decide → commit → acknowledge → dispatch`.

Envelopes gather while a group is being written; the next group is what has gathered (natural batching). A workflow is
in at most one group, and several of its events are decided there one after the other. Nobody is told anything before
the group is durable: a refusal and a duplicate are reads of the staged state, and are held like all the rest (G7).
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from interlock.errors import CorruptionError, InterlockError, OutcomeUnknown, VersionConflict
from interlock.runtime.bound import Bound, Live
from interlock.runtime.staging import Slots, Staged
from interlock.seams import Ids
from interlock.store.protocol import Store
from interlock.store.values import Delivered

GROUP_MAX = 1_000
"""Envelopes in one group."""

LIVE_MAX = 20_000
"""Workflows kept in memory; the one that was used longest ago goes first."""

CONFLICTS_MAX = 10
"""How often an envelope is decided again because its workflow had moved (B2)."""


class Envelope(Protocol):
    """Something that wants to move a workflow."""

    workflow: str
    key: str | None
    future: "asyncio.Future[object] | None"
    conflicts: int

    def decide(self, group: "Group") -> object:
        """Decide on the staged state; what it returns or raises is told when the group is durable."""
        ...


class Group:
    """What an envelope may look at while it decides."""

    __slots__ = ("delivered", "ids", "live", "now_us", "pipeline", "slots", "staged")

    def __init__(
        self, pipeline: "Pipeline", live: dict[str, Live], delivered: dict[tuple[str, str], Delivered]
    ) -> None:
        self.pipeline = pipeline
        self.ids = pipeline.ids
        self.slots = pipeline.slots
        self.now_us = pipeline.store.now_us()
        self.live = live
        self.delivered = delivered
        self.staged: dict[str, Staged] = {}

    def stage(self, workflow: str) -> Staged | None:
        """The workflow as this group has it, or None when there is no such workflow."""
        staged = self.staged.get(workflow)
        if staged is None:
            live = self.live.get(workflow)
            if live is None:
                return None
            staged = self.staged[workflow] = Staged(live, live.row.revision)
        return staged


class Listener(Protocol):
    """Who acts on what has become durable."""

    def durable(self, staged: Staged, before: Live | None) -> None:
        """The workflow has changed, and nothing can take that back."""
        ...


class Pipeline:
    """The data path of one engine. Lives in one event loop."""

    def __init__(self, store: Store, machines: dict[str, Bound], *, ids: Ids, slots: Slots) -> None:
        self.store = store
        self.machines = machines
        self.ids = ids
        self.slots = slots
        self.listener: Listener | None = None
        self._waiting: list[Envelope] = []
        self._live: dict[str, Live] = {}
        self._task: asyncio.Task[None] | None = None
        self.dead: InterlockError | None = None

    def admit(self, envelope: Envelope) -> "asyncio.Future[object]":
        """Let the envelope join the next group; the future is its answer."""
        future = envelope.future = asyncio.get_running_loop().create_future()
        self.add(envelope)
        return future

    def add(self, envelope: Envelope) -> None:
        """The same for one whose answer nobody waits for."""
        self._waiting.append(envelope)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def idle(self) -> None:
        """Wait until nothing waits."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    def known(self, workflow: str) -> Live | None:
        """The workflow as it is durable, if it is in memory."""
        return self._live.get(workflow)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # Whatever this turn of the event loop has to say is in one group.
            while self._waiting:
                taken, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                await self._pass(taken)
        finally:
            self._task = None

    async def _pass(self, envelopes: Sequence[Envelope]) -> None:
        group: Group | None = None
        try:
            group = await self._load(envelopes)
            answers = [_decided(envelope, group) for envelope in envelopes]
            changed = [staged for staged in group.staged.values() if staged.touched]
            lost = await self.store.commit([staged.change() for staged in changed]) if changed else []
        except Exception as error:  # noqa: BLE001 -- whatever it is, everybody who waits is told.
            self._give_up(envelopes, group, error)
            return
        self._keep(changed, lost)
        for envelope, answer in zip(envelopes, answers, strict=True):
            if envelope.workflow in lost:
                self._again(envelope)
            else:
                _tell(envelope, answer)

    async def _load(self, envelopes: Sequence[Envelope]) -> Group:
        live = self._live
        if self.store.shared:
            live = {}
        missing = list({each.workflow for each in envelopes if each.workflow not in live})
        if missing:
            for row in (await self.store.load(missing)).values():
                bound = self.machines.get(row.machine)
                if bound is not None:
                    live[row.id] = bound.live(row)
        keys = [(each.workflow, each.key) for each in envelopes if each.key is not None]
        return Group(self, live, await self.store.delivered(keys) if keys else {})

    def _keep(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        """What is durable is what memory shows; then act on it."""
        live = self._live
        for staged in changed:
            workflow = staged.live.row.id
            before = live.pop(workflow, None)
            if workflow in lost:
                self._release(staged)
                continue
            live[workflow] = staged.live
            if self.listener is not None:
                self.listener.durable(staged, before)
        while len(live) > LIVE_MAX:
            del live[next(iter(live))]

    def _again(self, envelope: Envelope) -> None:
        # B2: decided again on the new state, a bounded number of times.
        envelope.conflicts += 1
        if envelope.conflicts <= CONFLICTS_MAX:
            self._waiting.append(envelope)
        else:
            _tell(envelope, VersionConflict(f"workflow {envelope.workflow!r} kept moving while this was decided."))

    def _give_up(self, envelopes: Sequence[Envelope], group: Group | None, error: Exception) -> None:
        for staged in [] if group is None else group.staged.values():
            self._release(staged)
            self._live.pop(staged.live.row.id, None)
        if isinstance(error, OutcomeUnknown | CorruptionError):
            self._live.clear()
        for envelope in envelopes:
            _tell(envelope, error)

    def _release(self, staged: Staged) -> None:
        if staged.reserved:
            self.slots.release()


def _decided(envelope: Envelope, group: Group) -> object:
    try:
        return envelope.decide(group)
    except Exception as error:  # noqa: BLE001 -- a refusal, or a bug in the user's code: it is this envelope's answer.
        return error


def _tell(envelope: Envelope, answer: object) -> None:
    future = envelope.future
    if future is None or future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
