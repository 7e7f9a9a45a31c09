"""Lives of an engine on a store that outlives them: how tests and simulations kill an engine and open the next.

A `Life` wraps the store for one engine. When the life ends, its pending and later calls never return: committed
changes stay, uncommitted ones are lost, and no caller gets an answer. The next life finds the store as the last one
left it. `pending` asks the store what is left to do.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from interlock.clock import Chance, Clock, Ids
from interlock.core.policies import Dependency
from interlock.core.table import Node
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.internals import EngineConfig, EngineParts
from interlock.engine.settings import Admission, EngineSettings
from interlock.engine.views import view_of
from interlock.signals import Observer, Subscribers
from interlock.store.protocol import Store
from interlock.store.records import Change, OwedEffect, Row
from interlock.testing.virtual_time import VirtualLoop

# --- Lives -----------------------------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


STORE_CALLS = frozenset(
    {"delivered", "history", "find", "stalled", "effects", "letters", "living", "note", "notes", "prune"}
)
"""The calls that a life passes to its store unchanged."""


class Life:
    """A store whose calls return only until this life ends."""

    def __init__(self, store: Store, loop: VirtualLoop, *, keep: bool) -> None:
        self.store = store
        self.shared = store.shared
        self.leases = _Forward(self, store.leases)
        self.dead = False
        self._loop = loop
        self._keep = keep
        """The store is in memory: closing it would lose it, and no thread works for it."""

    @property
    def as_store(self) -> Store:
        """This life, by the type of what it stands for."""
        return cast("Store", self)

    def end(self) -> None:
        """Kill the life: its calls never return from now on."""
        self.dead = True
        if self._loop.is_running():
            self._loop.stop()

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Load as the store does."""
        return await self.call_store(lambda: self.store.load(ids))

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit as the store does."""
        return await self.call_store(lambda: self.store.commit(changes))

    def now_us(self) -> int:
        """Return the store's time."""
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

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in STORE_CALLS:
            raise AttributeError(name)
        return _Forward(self, self.store).__getattr__(name)


class _Forward:
    """The calls of a part of the store, as one life sees them."""

    def __init__(self, life: Life, part: object) -> None:
        self._life = life
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call: Callable[..., Awaitable[Any]] = getattr(self._part, name)

        async def forward(*args: object, **options: object) -> object:
            return await self._life.call_store(lambda: call(*args, **options))

        return forward


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
        worker=True,
        dependencies=tuple(dependencies),
    )
    inside = EngineParts(store, dict(machines), config)
    # A virtual clock is never set back, so a long wait is one wait, and a year takes a few turns of the event loop.
    inside.runner.timers.look_at_least_every_s = float("inf")
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


class PendingWork(msgspec.Struct, frozen=True):
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


async def pending(store: Store, inside: EngineParts, machines: Mapping[str, BoundMachine]) -> PendingWork | None:
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
    return PendingWork(running, tuple(workflows), effects)


def _has_work(node: Node) -> bool:
    return node.step is not None or node.unwinds_to is not None
