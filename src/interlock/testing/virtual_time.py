"""Virtual time, an event loop whose time jumps to the next timer when no callback is ready; and lives of engines in it.

A year passes in as many turns as it has timers. Callbacks run in the order of their times, and those of one time in the
order they were scheduled, so that a run repeats exactly. It is asyncio's own event loop with another selector: instead
of waiting for a timeout, time jumps to it.

The invariant: time stands still while a callback is ready, and while a thread works (`holding`). The odd choice: it may
run inside a test that is itself run by another event loop, which is blocked meanwhile.
"""

import asyncio
import contextlib
import selectors
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec

from interlock.clock import Chance, Clock, Ids
from interlock.core.policies import Dependency
from interlock.core.table import Node
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import Admission, EngineSettings
from interlock.engine.internals import EngineConfig, EngineParts
from interlock.engine.schedules import Schedules
from interlock.engine.views import view_of
from interlock.errors import InterlockError
from interlock.signals import Observer, Subscribers
from interlock.store.protocol import Store
from interlock.store.records import Change, OwedEffect, Row
from interlock.testing.explore import EPOCH_S

ResultT = TypeVar("ResultT")


TURNS_MAX = 200_000
"""Turns of the event loop without a jump of time, after which it raises Stuck."""


class Stuck(InterlockError):
    """Raised when no event can happen any more in virtual time, or when it never ends."""

    code = "stuck"
    default_why = "Time jumps to the next timer by itself, and it cannot jump out of this."
    default_fix = "Look at what waits for what: the last lines of the history of each workflow say how far it got."


class VirtualClock:
    """The clock of one virtual time; its event loop uses the same time."""

    def __init__(self, *, epoch_s: float = EPOCH_S) -> None:
        self._epoch_s = epoch_s
        self.now_s = 0.0
        """Seconds since virtual time began."""

    def wall_s(self) -> float:
        """Seconds since the epoch of the world."""
        return self._epoch_s + self.now_s

    def monotonic_s(self) -> float:
        """Seconds since virtual time began."""
        return self.now_s

    def now(self) -> datetime:
        """Return `wall_s` as a datetime in UTC."""
        return datetime.fromtimestamp(self.wall_s(), UTC)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self._jumps = _Jumps(self)
        super().__init__(self._jumps)
        # Timers within a microsecond are due together: after a year of seconds a float cannot tell nanoseconds apart.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds."""
        return self.clock.now_s

    def run_forever(self) -> None:
        """As asyncio's, and also where another event loop runs: that one stands still meanwhile."""
        with self._alone():
            super().run_forever()

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine to its end; time jumps whenever it would have to wait. Raises Stuck when that is for ever."""
        with self._alone():
            return self.run_until_complete(coroutine)

    def settle(self) -> None:
        """Run everything that is ready at this moment. No time passes."""
        self.pass_until(self.clock.now_s)

    def pass_until(self, time_s: float) -> None:
        """Let time pass, and everything happen that happens by then. Ends at that time exactly."""
        self._jumps.limit_s = max(time_s, self.clock.now_s)
        try:
            self.run_forever()
        finally:
            self._jumps.limit_s = None

    def jump(self, limit_s: float) -> bool:
        """Advance time to the next timer and run its callbacks; return False when no timer is due up to the limit."""
        soonest_s = self.next_timer_s()
        if soonest_s is None or soonest_s > limit_s:
            return False
        self.pass_until(soonest_s)
        return True

    def next_timer_s(self) -> float | None:
        """When the next timer is due."""
        return min((timer.when() for timer in self._timers() if not timer.cancelled()), default=None)

    @contextlib.contextmanager
    def holding(self) -> Generator[None]:
        """Stop virtual time inside the block: the work of a thread takes no virtual time."""
        self._jumps.holders += 1
        try:
            yield
        finally:
            self._jumps.holders -= 1

    def abandon(self) -> None:
        """End everything that runs here, as the end of a process would: tasks are cancelled, timers forgotten.

        Raises Stuck for a task that does not let itself be cancelled.
        """
        for _ in range(100):
            for timer in self._timers():
                timer.cancel()
            tasks = asyncio.all_tasks(self)
            if not tasks:
                return
            # In the order they were made, so that a run repeats exactly.
            for task in sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name())):
                task.cancel()
            self.settle()
        names = ", ".join(sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(self)))  # type: ignore[union-attr]
        raise Stuck(f"these did not end although they were cancelled again and again: {names}.")

    def leave(self) -> None:
        """Abandon everything and close."""
        try:
            self.abandon()
            self.run(self.shutdown_asyncgens())
        finally:
            self.close()

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        outer = events._get_running_loop()  # noqa: SLF001 -- made for implementations of event loops.
        if outer is self:
            raise Stuck(
                "virtual time was asked to pass from inside of it.",
                why="What runs in virtual time is part of it, and cannot wait for it from outside.",
                fix="Await what you need inside, and call the harness from the test itself.",
            )
        events._set_running_loop(None)  # noqa: SLF001
        try:
            yield
        finally:
            events._set_running_loop(outer)  # noqa: SLF001

    def _timers(self) -> list[asyncio.TimerHandle]:
        return list(cast("list[asyncio.TimerHandle]", self._scheduled))  # type: ignore[attr-defined]


class _Jumps(selectors.BaseSelector):
    """The selector of a virtual loop: instead of waiting, time jumps."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._clock = loop.clock
        self._real = selectors.DefaultSelector()
        self._turns = 0
        self.holders = 0
        self.limit_s: float | None = None
        """The time at which the event loop stops; None: no limit."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready files of threads; otherwise advance time by `timeout`."""
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._turns += 1
            if self._turns > TURNS_MAX and not self.holders:
                raise Stuck(f"after {TURNS_MAX:,} turns of the event loop at one moment there was still more to do.")
            return ready
        if self.holders:
            return self._real.select(None)
        self._turns = 0
        if timeout is None and self.limit_s is None:
            raise Stuck("nothing can happen any more: there is no timer, and no task that could wake what waits.")
        target_s = None if timeout is None else self._clock.now_s + timeout
        if target_s is None or (self.limit_s is not None and target_s > self.limit_s):
            target_s = self.limit_s
            self._loop.stop()
        assert target_s is not None
        self._clock.now_s = target_s
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401 -- as selectors has it.
        """As every selector."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401 -- as above.
        """As every selector."""
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As every selector."""
        return self._real.get_map()

    def close(self) -> None:
        """As every selector."""
        self._real.close()


# --- Lives of an engine ----------------------------------------------------------------------------------------------
# A `Life` wraps the store for one engine, on a store that outlives it. When the life ends, its pending and later calls
# never return: committed changes stay, uncommitted ones are lost, and no caller gets an answer. The next life finds the
# store as the last one left it. `pending` asks the store what is left to do.


STORE_CALLS = frozenset(name for name in vars(Store) if name[0] != "_") - {
    "leases",
    "load",
    "commit",
    "now_us",
    "close",
}
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
    schedules: Schedules | None = None,
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
        schedules=schedules or Schedules(),
    )
    inside = EngineParts(store, dict(machines), config)
    # A virtual clock is never set back, so a long wait is one wait, and a year takes a few turns of the event loop.
    inside.runner.timers.look_at_least_every_s = float("inf")
    engine = Engine(inside)
    try:
        await inside.begin(accept_changes=False)
        await inside.schedules.put_declared()
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
