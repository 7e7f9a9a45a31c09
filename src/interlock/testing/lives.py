"""Lives of an engine on a store that outlives them: how tests and simulations kill an engine and open the next.

A `Life` wraps the store for one engine. When the life ends, its pending and later calls never return: committed
changes stay, uncommitted ones are lost, and no caller gets an answer. The next life finds the store as the last one
left it. `pending` asks the store what is left to do, and `SteppedLane` runs a lane's writer step by step.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from interlock.clock import Chance, Clock, Ids
from interlock.core.policies import Dependency
from interlock.core.table import Node
from interlock.engine.alerts.alarms import Alarms
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.config import EngineConfig
from interlock.engine.engine import Engine
from interlock.engine.internals import EngineParts
from interlock.engine.settings import Admission, EngineSettings
from interlock.engine.views import view_of
from interlock.lanes.connection import make_folder, open_writer
from interlock.lanes.contention import Contention
from interlock.lanes.settings import LaneSettings
from interlock.lanes.transaction import LaneTime, Work
from interlock.lanes.writer import Writer
from interlock.signals import Observer, Subscribers
from interlock.store.protocol import Batch, Granted, Held, Old, Store
from interlock.store.values import Change, Cursor, Delivered, Found, HistoryRecord, Letter, OwedEffect, Row
from interlock.testing.virtual import VirtualLoop

# --- Lives -----------------------------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


class Life:
    """A store whose calls return only until this life ends."""

    def __init__(self, store: Store, loop: VirtualLoop, *, keep: bool) -> None:
        self.store = store
        self.shared = store.shared
        self.dead = False
        self._loop = loop
        self._keep = keep
        """The store is in memory: closing it would lose it, and no thread works for it."""
        self.leases = _Leases(self)
        self.pruning = _Pruning(self)

    def end(self) -> None:
        """Kill the life: its calls never return from now on."""
        self.dead = True
        if self._loop.is_running():
            self._loop.stop()

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """As the store."""
        return await self.call_store(lambda: self.store.load(ids))

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """As the store."""
        return await self.call_store(lambda: self.store.commit(changes))

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """As the store."""
        return await self.call_store(lambda: self.store.delivered(keys))

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[HistoryRecord]:
        """As the store."""
        return await self.call_store(lambda: self.store.history(workflow, after=after, limit=limit))

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """As the store."""
        return await self.call_store(lambda: self.store.find(machine, state, after=after, limit=limit))

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """As the store."""
        return await self.call_store(lambda: self.store.stalled(machine, before_us, limit=limit))

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """As the store."""
        return await self.call_store(lambda: self.store.effects(after=after, limit=limit))

    async def letters(
        self, kind: str | None = None, *, after: Letter | None = None, limit: int = 1_000
    ) -> list[Letter]:
        """As the store."""
        return await self.call_store(lambda: self.store.letters(kind, after=after, limit=limit))

    async def living(self) -> dict[tuple[str, int, str], int]:
        """As the store."""
        return await self.call_store(self.store.living)

    async def note(self, name: str, text: str) -> None:
        """As the store."""
        await self.call_store(lambda: self.store.note(name, text))

    async def noted(self) -> dict[str, str]:
        """As the store."""
        return await self.call_store(self.store.noted)

    def now_us(self) -> int:
        """As the store."""
        return self.store.now_us()

    async def close(self) -> None:
        """Close the store; a store in memory is kept for the next life."""
        if not self._keep:
            await self.call_store(self.store.close)

    async def call_store(self, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await a call of the store; never return if this life has ended."""
        if self.dead:
            await never()
        # A store with threads answers in its own time, and no virtual time passes meanwhile.
        with contextlib.nullcontext() if self._keep else self._loop.holding():
            answer = await ask()
        if self.dead:
            await never()
        return answer


class _Leases:
    """The store's leases, as one life sees them."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """As the store."""
        return await self._life.call_store(lambda: self._life.store.leases.acquire(name, owner, lease_s))

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """As the store."""
        return await self._life.call_store(lambda: self._life.store.leases.renew(name, token, lease_s))

    async def release(self, name: str, token: int) -> bool:
        """As the store."""
        return await self._life.call_store(lambda: self._life.store.leases.release(name, token))


class _Pruning:
    """The store's pruning, as one life sees it."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def batch(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """As the store."""
        return await self._life.call_store(
            lambda: self._life.store.pruning.batch(old, after=after, limit=limit, dry_run=dry_run)
        )


async def never() -> None:
    """Wait for ever."""
    await asyncio.get_running_loop().create_future()


async def open_on(
    store: Store,
    machines: Mapping[str, BoundMachine],
    *,
    clock: Clock,
    chance: Chance,
    ids: Ids,
    settings: EngineSettings | None = None,
    admission: Admission | None = None,
    observers: Iterable[Observer] = (),
    worker: bool = True,
    dependencies: Iterable[Dependency] = (),
) -> tuple[Engine, EngineParts]:
    """Open an engine on an open store, as `Engine.open` does on a URL."""
    subscribers = Subscribers()
    for observer in observers:
        subscribers.subscribe(observer)
    config = EngineConfig(
        settings=settings or EngineSettings(),
        admission=admission or Admission(),
        clock=clock,
        chance=chance,
        ids=ids,
        subscribers=subscribers,
        alarms=Alarms(subscribers, clock=clock, chance=chance),
        worker=worker,
        dependencies=tuple(dependencies),
    )
    inside = EngineParts(store, dict(machines), config)
    # A virtual clock is never set back, so a long wait is one wait, and a year takes a few turns of the event loop.
    inside.wakes.look_at_least_every_s = float("inf")
    engine = Engine(inside)
    try:
        await inside.begin(accept_changes=False)
    except Exception:
        await inside.close()
        raise
    return engine, inside


# --- Pending work ----------------------------------------------------------------------------------------------------
# It asks the store, not the engine's memory: work that is only in memory would be lost with the next crash.

SHOWN_MAX = 10


class Pending(msgspec.Struct, frozen=True):
    """The work that is left to do."""

    running: int
    """Attempts that are under way."""
    workflows: tuple[str, ...]
    """Workflows with a step or an undo to run, each with its state and version."""
    effects: tuple[OwedEffect, ...]

    def __str__(self) -> str:
        lines = [f"  {each}" for each in self.workflows[:SHOWN_MAX]]
        lines += [f"  {each.workflow}: effect {each.name!r} after {each.attempts} attempts" for each in self.effects]
        more = len(self.workflows) - SHOWN_MAX
        lines += [f"  and {more} more"] if more > 0 else []
        return "\n".join([*lines, f"  attempts under way: {self.running}"])


async def pending(store: Store, inside: EngineParts, machines: Mapping[str, BoundMachine]) -> Pending | None:
    """Return the pending work without timers of the machines and dead letters; None when there is nothing to do."""
    workflows: list[str] = []
    for bound in machines.values():
        for node in bound.table.nodes.values():
            for row in await inside.all_in(bound, node) if _has_work(node) else ():
                live = bound.live(row)
                if live.owed.current is not None:
                    waiting = view_of(live).waiting or "its step is under way"
                    workflows.append(f"{row.id}: in {row.state!r} at version {row.version}: {waiting}")
    effects = tuple(await store.effects(limit=SHOWN_MAX))
    running = inside.runner.under_way
    if not workflows and not effects and not running:
        return None
    return Pending(running, tuple(workflows), effects)


def _has_work(node: Node) -> bool:
    return node.step is not None or node.unwinds_to is not None


# --- Lane without a thread -------------------------------------------------------------------------------------------
# In production a thread drives the writer; this is the other driver. It runs the same writer, step by step, in the
# test's own thread, so that a seed decides every interleaving: the members of each group, and the instant of a power
# cut. A client gets no answer before the step that acknowledges it.


class SteppedLane:
    """The writer of a lane, and the works that wait for it."""

    def __init__(
        self, path: Path | None, *, clock: Clock, ids: Ids, settings: LaneSettings | None = None, vfs: str | None = None
    ) -> None:
        self.settings = settings or LaneSettings()
        self.waiting: list[Work] = []
        self.group: list[Work] = []
        if path is not None:
            make_folder(path.parent)
        self._writer = Writer(
            open_writer(path, vfs=vfs),
            settings=self.settings,
            clock=clock,
            time=LaneTime(clock),
            ids=ids,
            prepare=lambda _connection, _now_us: None,
            contention=Contention(
                rows_max=self.settings.contention_rows_max, flag_threshold=self.settings.contention_flag_threshold
            ),
        )

    def submit(self, work: Work) -> Work:
        """Queue a work for the next group."""
        self.waiting.append(work)
        return work

    def gather(self, most: int | None = None) -> int:
        """Take queued works into the next group, all or the first `most`; return their number."""
        assert not self.group, "one group at a time"
        most = min(self.settings.group_commit_max_batch, len(self.waiting) if most is None else most)
        self.group, self.waiting = self.waiting[:most], self.waiting[most:]
        return len(self.group)

    def execute(self) -> None:
        """Run the gathered group up to, but not including, its commit."""
        self._writer.execute(self.group)

    def commit(self) -> None:
        """Make the executed group durable."""
        self._writer.commit()

    def acknowledge(self) -> Sequence[Work]:
        """Set the value or the error of the works of the committed group, and return them."""
        done, self.group = self.group, []
        return done

    def run(self) -> Sequence[Work]:
        """Run all steps for all queued works, as one group."""
        self.gather()
        self.execute()
        self.commit()
        return self.acknowledge()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
