"""`BlockingEngine`: the engine for code that is not async, with the same calls.

with BlockingEngine.open("lanes:///var/shop", machines=[order]) as engine:
    engine.start(order, "o-1", Order())
    engine.send("o-1", Submit(cents=999), key="click-7")
    view = engine.wait("o-1", timeout_s=60)

One event loop in one thread per engine; any number of threads may call. Steps, effects and observers run in that
thread, and may not call the engine from there.
"""

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.runtime.engine import Engine
from interlock.runtime.leases import LEASE_S, WAIT_S, Lease, Leasing
from interlock.runtime.opening import Opening
from interlock.runtime.portal import BlockingProxy, Portal, blocking, plain
from interlock.runtime.transactions.blocks import BlockingTransaction
from interlock.runtime.typed import Workflows

EventT = TypeVar("EventT", bound=Event)
P = ParamSpec("P")


class BlockingWorkflows(BlockingProxy[Workflows[StateT, ContextT, EventT]], Generic[StateT, ContextT, EventT]):
    """The workflows of one machine. Made by `engine.of(machine)`."""

    start = blocking(Workflows[StateT, ContextT, EventT].start)
    send = blocking(Workflows[StateT, ContextT, EventT].send)
    get = blocking(Workflows[StateT, ContextT, EventT].get)
    wait = blocking(Workflows[StateT, ContextT, EventT].wait)
    history = blocking(Workflows[StateT, ContextT, EventT].history)
    find = blocking(Workflows[StateT, ContextT, EventT].find)
    stalled = blocking(Workflows[StateT, ContextT, EventT].stalled)
    allowed = blocking(Workflows[StateT, ContextT, EventT].allowed)


class BlockingLease(BlockingProxy[Lease]):
    """A granted lease. Made by `engine.lease(…)`, and released when its block is left."""

    @property
    def name(self) -> str:
        """The name of the lease."""
        return self._inside.name

    @property
    def token(self) -> int:
        """Higher than the token of every earlier holder of this name."""
        return self._inside.token

    @property
    def lost(self) -> bool:
        """Whether another owner may have it by now, as far as this process knows."""
        return self._inside.lost

    def check(self) -> None:
        """Raise Fenced when it is lost."""
        self._inside.check()

    held = blocking(Lease.held)


class BlockingLeasing(BlockingProxy[Leasing]):
    """Context manager that acquires a lease: `with engine.lease(…) as lease`."""

    def __enter__(self) -> BlockingLease:
        """Acquire the lease. Raises LeaseHeld after `wait_s`."""
        return BlockingLease(self._portal, self._portal.call(self._inside.__aenter__))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease, also after an error in the block. A closed engine has released it already."""
        if not self._portal.is_forked and not self._portal.is_stopped:
            self._portal.call(self._inside.__aexit__, kind, error, trace)


def _blocking_open(open_engine: Callable[P, Opening[Engine]]) -> Callable[P, "BlockingEngine"]:
    @functools.wraps(open_engine)
    def opened(*args: P.args, **kwargs: P.kwargs) -> "BlockingEngine":
        # Invalid arguments raise here, before a thread is started.
        opening = open_engine(*args, **kwargs)
        portal = Portal("interlock-engine")
        try:
            return BlockingEngine(portal, portal.call(_await_engine, opening))
        except BaseException:
            portal.stop()
            raise

    opened.__doc__ = "Open an engine: `with BlockingEngine.open(…) as engine`. It takes what `Engine.open` takes."
    return opened


async def _await_engine(opening: Opening[Engine]) -> Engine:
    return await opening


class BlockingEngine(BlockingProxy[Engine]):
    """An open engine for code that is not async. Make one with `BlockingEngine.open`."""

    def __init__(self, portal: Portal, engine: Engine) -> None:
        super().__init__(portal, engine)
        self._closing = threading.Lock()

    open = staticmethod(_blocking_open(Engine.open))

    start = blocking(Engine.start)
    send = blocking(Engine.send)
    send_many = blocking(Engine.send_many)

    get = blocking(Engine.get)
    wait = blocking(Engine.wait)
    history = blocking(Engine.history)
    find = blocking(Engine.find)
    stalled = blocking(Engine.stalled)
    allowed = blocking(Engine.allowed)
    stats = blocking(Engine.stats)

    subscribe = plain(Engine.subscribe)
    unsubscribe = plain(Engine.unsubscribe)

    compensations = blocking(Engine.compensations)
    dead_letters = blocking(Engine.dead_letters)
    retry_dead_letter = blocking(Engine.retry_dead_letter)
    resolve_dead_letter = blocking(Engine.resolve_dead_letter)
    prune = blocking(Engine.prune)

    contention = blocking(Engine.contention)

    breakers = plain(Engine.breakers)
    force_breaker = plain(Engine.force_breaker)
    set_limit = plain(Engine.set_limit)
    set_admission = plain(Engine.set_admission)

    def lease(self, name: str, *, wait_s: float = WAIT_S, lease_s: float = LEASE_S) -> BlockingLeasing:
        """As `Engine.lease`: `with engine.lease("nightly-report") as lease`."""
        return BlockingLeasing(self._portal, self._inside.lease(name, wait_s=wait_s, lease_s=lease_s))

    def of(self, machine: Machine[StateT, ContextT, EventT]) -> BlockingWorkflows[StateT, ContextT, EventT]:
        """Return the same calls, typed by the machine."""
        return BlockingWorkflows(self._portal, self._inside.of(machine))

    def transaction(self, connection: object) -> AbstractContextManager[BlockingTransaction]:
        """As `Engine.transaction`, for connections without an event loop. It does not run in the engine's loop."""
        return self._inside.transaction(connection)

    def close(self) -> None:
        """As `Engine.close`; then the thread ends. Idempotent: a second call waits for the first."""
        self._portal.refuse_for_ever()
        with self._closing:
            try:
                if not self._portal.is_stopped:
                    self._portal.call(self._inside.close)
            finally:
                # Also when Ctrl-C has interrupted the closing: the store is closed in the loop before it ends.
                self._portal.stop()

    def __enter__(self) -> Self:
        """Return the engine, which is open already; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also after an error in the block. In a forked child there is nothing to close."""
        del kind, error, trace
        if not self._portal.is_forked:
            self.close()
