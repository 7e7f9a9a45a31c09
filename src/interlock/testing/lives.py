"""Lives of an engine on a store that outlives them: how tests and simulations kill an engine and open the next.

A `Life` wraps the store for one engine. When the life ends, its pending and later calls never return: committed
changes stay, uncommitted ones are lost, and no caller gets an answer. The next life finds the store as the last one
left it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from interlock.core.policies import Dependency
from interlock.runtime.alerts.alarms import Alarms
from interlock.runtime.bound import Bound
from interlock.runtime.engine import Engine
from interlock.runtime.given import Given
from interlock.runtime.inside import Inside
from interlock.runtime.settings import Admission, EngineSettings
from interlock.seams import Chance, Clock, Ids
from interlock.signals import Observer, Subscribers
from interlock.store.cursors import Cursor
from interlock.store.leases import Granted, Held
from interlock.store.protocol import Store
from interlock.store.pruning import Batch, Old
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row
from interlock.testing.virtual import VirtualLoop

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

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
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
    machines: Mapping[str, Bound],
    *,
    clock: Clock,
    chance: Chance,
    ids: Ids,
    settings: EngineSettings | None = None,
    admission: Admission | None = None,
    observers: Iterable[Observer] = (),
    worker: bool = True,
    dependencies: Iterable[Dependency] = (),
) -> tuple[Engine, Inside]:
    """Open an engine on an open store, as `Engine.open` does on a URL."""
    subscribers = Subscribers()
    for observer in observers:
        subscribers.subscribe(observer)
    config = Given(
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
    inside = Inside(store, dict(machines), config)
    # A virtual clock is never set back, so a long wait is one wait, and a year takes a few turns of the event loop.
    inside.wakes.look_at_least_every_s = float("inf")
    engine = Engine(inside)
    try:
        await inside.begin(accept_changes=False)
    except Exception:
        await inside.close()
        raise
    return engine, inside
