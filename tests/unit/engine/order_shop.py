"""Orders whose step, undo and effect a test gives, and a store in memory that waits or fails when told to.

On it an engine needs turns of the event loop and no time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import Engine, Event, Machine, Retry, StepContext
from interlock.clock import SystemClock
from interlock.engine import open_engine as engine_open
from interlock.store.memory import MemoryStore
from interlock.store.records import Change


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    SHIPPING = "shipping"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Submit(OrderEvent): ...


@dataclass(frozen=True)
class Charged(OrderEvent):
    receipt: str = ""


@dataclass(frozen=True)
class Again(OrderEvent): ...


@dataclass(frozen=True)
class Shipped(OrderEvent): ...


@dataclass(frozen=True)
class Noted(OrderEvent): ...


@dataclass(frozen=True)
class Cancel(OrderEvent): ...


Charge = Callable[[StepContext], Awaitable["Charged | Again"]]
Told = Callable[[StepContext], Awaitable[None]]


class Orders:
    """A machine whose step, undo and effect are given as functions."""

    def __init__(
        self, charge: Charge, *, refund: Told | None = None, mail: Told | None = None, attempts: int = 1
    ) -> None:
        self.machine = machine = Machine(
            "order",
            states=State,
            context=Order,
            events=OrderEvent,
            initial=State.DRAFT,
            final={State.DONE, State.CANCELLED},
            unwind={State.UNDOING: State.CANCELLED},
        )
        machine.on(Submit, State.DRAFT, to=State.CHARGING)
        machine.on(Charged, State.CHARGING, to=State.SHIPPING)
        machine.on(Again, State.CHARGING, to=State.CHARGING)
        machine.on(Shipped, State.SHIPPING, to=State.DONE)
        machine.on(Noted, State.DRAFT)
        machine.on(Cancel, State.DRAFT, State.CHARGING, State.SHIPPING, to=State.UNDOING)

        @machine.step(State.CHARGING, timeout_s=60, retry=Retry(attempts=attempts), failed=State.UNDOING)
        async def charging(order: Order, ctx: StepContext) -> Charged | Again:
            del order
            return await charge(ctx)

        if refund is not None:

            @charging.undo(Charged)
            async def refunding(order: Order, done: Charged | None, ctx: StepContext) -> None:
                del order, done
                await refund(ctx)

        if mail is not None:

            @machine.effect(State.DONE, retry=Retry(attempts=1))
            async def mailing(order: Order, ctx: StepContext) -> None:
                del order
                await mail(ctx)


class Gated(MemoryStore):
    """A store that outlives its engines, waits before a commit when asked to, and fails when told to."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.fails: Exception | None = None
        self.meanwhile: Callable[[], None] | None = None
        """Called while a commit is under way."""

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        self.arrived.set()
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        if self.meanwhile is not None:
            self.meanwhile()
            await turns(10)
        return await super().commit(changes)

    async def close(self) -> None:
        """Stay."""


def gated(monkeypatch: pytest.MonkeyPatch) -> Gated:
    """The store of every engine that this test opens."""
    store = Gated()

    async def open_store(url: str, **_: object) -> Gated:
        del url
        return store

    monkeypatch.setattr(engine_open, "open_store", open_store)
    return store


async def turns(most: int = 300) -> None:
    """Let everything happen that can happen without time."""
    for _ in range(most):
        await asyncio.sleep(0)


async def charged(ctx: StepContext) -> Charged | Again:
    del ctx
    return Charged("r-1")


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(test)


async def begun(engine: Engine, order: Orders, *workflows: str) -> None:
    for workflow in workflows:
        await engine.start(order.machine, workflow, Order())
        await engine.send(workflow, Submit())
