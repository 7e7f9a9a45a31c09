"""A shared store in memory, which loses, fails and is unsure when it is told to, and engines on it in virtual time.

It is written as plainly as `interlock.store.memory`, and is what PostgreSQL does as far as an engine can see: leases
with tokens, claims that change the revision, outcomes that are settled for ever. Any number of engines may be opened on
one of them, so what another process does is done by another engine.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

import msgspec
import pytest

from interlock import Dependency, Engine
from interlock.clock import Chance, SeededIds
from interlock.engine import open_engine as engine_open
from interlock.engine.internals import EngineParts
from interlock.engine.shared.shared_store_policy import SharedStorePolicy
from interlock.errors import OutcomeUnknown
from interlock.signals import Observer
from interlock.store.memory import MemoryStore
from interlock.store.protocol import DueWork, Holder, Stored
from interlock.store.records import HOLD, KEEP, STAYS, Change, OwedEffect, Row
from interlock.testing.virtual_time import VirtualLoop
from tests.conformance.engine.places import AnyMachine
from tests.conformance.engine.shop import Order, OrderMachine

replace = msgspec.structs.replace

LEASE_S = 9.0

PATIENCE_S = 3_000.0
"""Virtual seconds after which a scenario hangs: it fails instead."""


class Luck:
    """Luck that always says the same."""

    def __init__(self, fraction: float = 0.0) -> None:
        self._fraction = fraction

    def fraction(self) -> float:
        return self._fraction


class Lease(NamedTuple):
    """Who looks after something, and until when."""

    owner: str
    until_us: int


Fate = Exception | Literal["done", "gone", "lost"] | None
"""What becomes of a commit: an error; an unknown outcome, after it has happened or not; lost; or what should."""


class SharedMemory(MemoryStore):
    """Workflows in dictionaries that several engines share."""

    shared = True

    def __init__(self, lease_s: float = LEASE_S) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        super().__init__(loop.clock)
        self.lease_s = lease_s
        self.held: dict[str, Lease] = {}
        self.held_effects: dict[str, Lease] = {}
        self.envelopes: dict[tuple[str, int], str] = {}
        self.fates: list[Fate] = []
        """What becomes of the next commits."""
        self.down: dict[str, Exception] = {}
        """Calls that fail, by name, and how."""
        self.gates: dict[str, asyncio.Event] = {}
        """Calls that wait, by name, and for what."""
        self.asked: list[str] = []
        """The calls that arrived, by name."""
        self.commits: list[list[str]] = []
        """The workflows of each group that arrived."""
        self.loads: list[list[str]] = []
        self.hints = asyncio.Event()
        self.hints_said = 0
        self.hints_left = False
        self.wrote: dict[str, tuple[str, int]] = {}
        """By which group a workflow was written last, and the revision that it had then."""

    def calls(self, name: str) -> int:
        """How often it was asked for something."""
        return self.asked.count(name)

    async def _called(self, name: str) -> None:
        self.asked.append(name)
        gate = self.gates.get(name)
        if gate is not None:
            await gate.wait()
        if name in self.down:
            raise self.down[name]

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        self.loads.append(list(ids))
        await self._called("load")
        return {each: self._shown(row) for each, row in (await super().load(ids)).items()}

    async def note(self, name: str, text: str) -> None:
        await self._called("note")
        await super().note(name, text)

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        return await self.commit_as(changes, Holder("", 0.0, "nobody"))

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        self.commits.append([change.row.id for change in changes])
        await self._called("commit")
        fate = self.fates.pop(0) if self.fates else None
        if isinstance(fate, Exception):
            raise fate
        if fate == "gone":
            raise OutcomeUnknown("the connection was lost before it was written.")
        if fate == "lost":
            return [change.row.id for change in changes]
        before = {change.row.id: self._kept.rows.get(change.row.id) for change in changes}
        lost = await super().commit(changes)
        for change in changes:
            if change.row.id not in lost:
                self._leased(change, before[change.row.id], holder)
        if fate == "done":
            raise OutcomeUnknown("the connection was lost after it was written.")
        return lost

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        await self._called("settle")
        rows, happened = self._kept.rows, set[str]()
        for change in changes:
            row = rows.get(change.row.id)
            if row is not None and row.revision == change.expected:
                rows[row.id] = replace(row, revision=row.revision + 1)  # The first try can never come any more.
            elif (row is not None and self.wrote.get(row.id) == (envelope, row.revision)) or (
                change.history and self.envelopes.get((change.row.id, change.history[-1].version)) == envelope
            ):
                happened.add(change.row.id)
        return happened

    async def due(self, machines: Sequence[str]) -> DueWork:
        await self._called("due")
        times: dict[str, int] = {}
        for row in self._kept.rows.values():
            if row.machine in machines and row.wake_us is not None:
                due_us = max(row.wake_us, self._until_us(row.id))
                times[row.machine] = min(due_us, times.get(row.machine, due_us))
        effects = [each.wake_us for each in self._kept.effects.values() if self._free(each.id)]
        return DueWork(self.now_us(), times, min(effects, default=None))

    async def claim(
        self,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Collection[Stored] = (),
    ) -> list[Row]:
        await self._called("claim")
        now_us = self.now_us()
        due = [
            row
            for row in self._kept.rows.values()
            if row.machine == machine and row.wake_us is not None
            if max(0 if row.id in ids else row.wake_us, self._until_us(row.id)) <= now_us
            if not ids or row.id in ids
            if not timers or (row.timer_us is not None and row.timer_us <= now_us)
            if not states or row.state in states
            if not any(each.matches(row) for each in refused)
        ]
        return [self._claimed(row, owner, lease_s) for row in sorted(due, key=lambda row: row.wake_us or 0)[:limit]]

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        await self._called("claim_effects")
        owed = [
            each
            for each in self._kept.effects.values()
            if each.wake_us <= self.now_us()
            and self._free(each.id)
            and (row := self._kept.rows[each.workflow]).machine in machines
            and not any(each.matches(row) for each in refused)
        ][:limit]
        for each in owed:
            self.held_effects[each.id] = Lease(owner, self._end_us(lease_s))
        return owed

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        await self._called("renew")
        lost: set[str] = set()
        for workflow, token in leases.items():
            row, lease = self._kept.rows.get(workflow), self.held.get(workflow)
            if row is None or lease is None or (row.lease, lease.owner) != (token, owner):
                lost.add(workflow)
            else:
                self.held[workflow] = Lease(owner, self._end_us(lease_s))
        return lost

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        await self._called("renew_effects")
        for each in effects:
            lease = self.held_effects.get(each)
            if lease is not None and lease.owner == owner:
                self.held_effects[each] = Lease(owner, self._end_us(lease_s))

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        await self._called("release")
        lost = await self.renew(leases, owner=owner, lease_s=0.0)
        for each in set(leases) - lost:
            del self.held[each]
        return lost

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        await self._called("release_effects")
        for each in effects:
            lease = self.held_effects.get(each)
            if lease is not None and lease.owner == owner:
                del self.held_effects[each]

    async def hint(self, *, left: bool = False) -> None:
        await self._called("hint")
        self.hints_said += 1
        self.hints_left = self.hints_left or left
        self.hints.set()

    async def hinted(self) -> bool:
        await self._called("hinted")
        await self.hints.wait()
        self.hints.clear()
        left, self.hints_left = self.hints_left, False
        return left

    async def close(self) -> None:
        """Others use it still."""

    # --- what a test does to it --------------------------------------------------------------------------------------

    def row(self, workflow: str) -> Row:
        """The row as it is."""
        return self._kept.rows[workflow]

    def touched_by_others(self, workflow: str) -> None:
        """Somebody else has written the row, which stays as it was in everything else."""
        row = self.row(workflow)
        self._kept.rows[workflow] = replace(row, revision=row.revision + 1)

    def over(self, *workflows: str) -> None:
        """The leases on these end now."""
        for each in workflows:
            self.held[each] = self.held[each]._replace(until_us=self.now_us())

    def _shown(self, row: Row) -> Row:
        return replace(row, holder=self.held[row.id].owner if self._until_us(row.id) > self.now_us() else "")

    def _until_us(self, workflow: str) -> int:
        return self.held[workflow].until_us if workflow in self.held else 0

    def _free(self, effect: str) -> bool:
        return effect not in self.held_effects or self.held_effects[effect].until_us <= self.now_us()

    def _end_us(self, lease_s: float) -> int:
        return self.now_us() + int(lease_s * 1_000_000)

    def _claimed(self, row: Row, owner: str, lease_s: float) -> Row:
        self.held[row.id] = Lease(owner, self._end_us(lease_s))
        row = self._kept.rows[row.id] = replace(row, lease=row.lease + 1, revision=row.revision + 1, holder=owner)
        return row

    def _leased(self, change: Change, before: Row | None, holder: Holder) -> None:
        row = change.row
        self.wrote[row.id] = (holder.envelope, row.revision)
        for each in change.history:
            self.envelopes[row.id, each.version] = holder.envelope
        mine = Lease(holder.owner, self._end_us(holder.lease_s))
        stays = change.hold == STAYS and before is not None and before.visit == row.visit
        if change.hold == HOLD:
            self.held[row.id] = mine
        elif not stays and change.hold != KEEP:
            self.held.pop(row.id, None)
        for effect in (*change.effects, *(effect for effect, _ in change.effects_again)):
            self.held_effects.pop(effect.id, None)
            if effect.id in change.effects_held:
                self.held_effects[effect.id] = mine


@asynccontextmanager
async def engine_on(
    store: SharedMemory,
    *machines: AnyMachine,
    worker: bool = True,
    chance: Chance | None = None,
    observers: Iterable[Observer] = (),
    dependencies: Sequence[Dependency] = (),
    seed: int = 1,
    **settings: float,
) -> AsyncIterator[Engine]:
    """One process with this store. Nothing looks for stalled workflows, and a stop waits for no step, unless asked."""

    async def given(_url: str, **_options: object) -> SharedMemory:
        return store

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_open, "open_store", given)
        engine = await Engine.open(
            "memory:",
            machines=machines,
            worker=worker,
            clock=loop.clock,
            chance=chance or Luck(),
            ids=SeededIds(seed),
            observers=observers,
            dependencies=dependencies,
            **{"drain_s": 0.0, "stall_check_s": 0.0, **settings},  # type: ignore[arg-type]  # Nothing but settings.
        )
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def two_engines(store: SharedMemory, order: OrderMachine) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two processes with this store, which run no steps."""
    async with engine_on(store, order, worker=False) as here, engine_on(store, order, worker=False, seed=2) as there:
        yield here, there


async def started(engine: Engine, order: OrderMachine, *workflows: str) -> None:
    """Start these workflows, or "o-1"."""
    for workflow in workflows or ("o-1",):
        await engine.start(order, workflow, Order())


def inside(engine: Engine) -> EngineParts:
    """The parts of an engine."""
    return engine._inside


def policy_of(engine: Engine) -> SharedStorePolicy:
    """The policy of a shared store."""
    policy = engine._inside.policy
    assert isinstance(policy, SharedStorePolicy)
    return policy


def owner_of(engine: Engine) -> str:
    """Under which name it leases."""
    return inside(engine).pipeline.means.owner


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario in virtual time."""
    loop = VirtualLoop()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    try:
        loop.run(main())
    finally:
        loop.leave()


async def passed(seconds: float) -> None:
    """Let virtual time pass."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def now_s() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()
