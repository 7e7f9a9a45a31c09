"""Orders with two steps and an effect, a gateway that writes down who called it, and what must be true in the end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum

from interlock import Engine, Event, HistoryRow, Machine, Retry, StepContext, View


class State(Enum):
    NEW = "new"
    CHARGING = "charging"
    PACKING = "packing"
    DONE = "done"


@dataclass(frozen=True)
class Order:
    notes: int = 0
    charges: int = 0
    packs: int = 0


class ShopEvent(Event): ...


@dataclass(frozen=True)
class Submit(ShopEvent): ...


@dataclass(frozen=True)
class Noted(ShopEvent): ...


@dataclass(frozen=True)
class Charged(ShopEvent):
    receipt: str


@dataclass(frozen=True)
class Packed(ShopEvent): ...


Shop = Machine[State, Order, ShopEvent]


class Gateway:
    """The world outside: what it did, under which key, and who was there at the same time."""

    def __init__(self, turns: int = 3) -> None:
        self._turns = turns
        self.calls: list[tuple[str, str, str]] = []
        """Name, workflow and key of each call."""
        self.keys: dict[tuple[str, str], set[str]] = {}
        """By name and workflow: the keys of its calls."""
        self.attempts: list[int] = []
        """The number of each of them."""
        self.done: dict[str, tuple[str, str]] = {}
        """By key: what was done under it, once."""
        self.overlaps: list[str] = []
        self.pause: Callable[[], Awaitable[object]] | None = None
        """What a call waits for before it has done anything, and after."""
        self.pauses: Callable[[str], Awaitable[object]] | None = None
        """The same by workflow."""
        self._changed = asyncio.Event()
        self._under_way: set[str] = set()

    async def call(self, name: str, ctx: StepContext) -> None:
        if ctx.key in self._under_way:
            self.overlaps.append(ctx.key)
        self.calls.append((name, ctx.workflow, ctx.key))
        self.keys.setdefault((name, ctx.workflow), set()).add(ctx.key)
        self.attempts.append(ctx.attempt)
        self._under_way.add(ctx.key)
        self._changed.set()
        try:
            await self._wait(ctx.workflow)
            self.done.setdefault(ctx.key, (name, ctx.workflow))
            self._changed.set()
            await self._wait(ctx.workflow)
        finally:
            self._under_way.discard(ctx.key)

    async def _wait(self, workflow: str) -> None:
        if self.pauses is not None:
            await self.pauses(workflow)
        elif self.pause is None:
            for _ in range(self._turns):
                await asyncio.sleep(0)
        else:
            await self.pause()

    async def counted(self, name: str, least: int) -> None:
        """Wait until it was done for so many workflows."""
        await self.until(lambda: len({workflow for what, workflow in self.done.values() if what == name}) >= least)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what a call brings about."""
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    def problems(self) -> list[str]:
        found = [f"two attempts of {key} at once" for key in self.overlaps]
        for name in ("charge", "pack", "mail"):
            keys: dict[str, set[str]] = {}
            for key, (what, workflow) in self.done.items():
                if what == name:
                    keys.setdefault(workflow, set()).add(key)
            found += [
                f"{name} of {workflow} was done under {len(each)} keys"
                for workflow, each in keys.items()
                if len(each) > 1
            ]
        return found


def shop(gateway: Gateway) -> Shop:
    machine = Machine("shop", states=State, context=Order, events=ShopEvent, initial=State.NEW, final={State.DONE})
    machine.on(Submit, State.NEW, to=State.CHARGING)

    @machine.on(Noted, State.NEW, State.CHARGING, State.PACKING)
    def note(order: Order, event: Noted) -> Order:
        del event
        return replace(order, notes=order.notes + 1)

    @machine.on(Charged, State.CHARGING, to=State.PACKING)
    def charged(order: Order, event: Charged) -> Order:
        del event
        return replace(order, charges=order.charges + 1)

    @machine.on(Packed, State.PACKING, to=State.DONE)
    def packed(order: Order, event: Packed) -> Order:
        del event
        return replace(order, packs=order.packs + 1)

    @machine.step(State.CHARGING, timeout_s=60, retry=Retry(attempts=5, first_s=0.001))
    async def charge(order: Order, ctx: StepContext) -> Charged:
        del order
        await gateway.call("charge", ctx)
        return Charged(receipt=ctx.key)

    @machine.step(State.PACKING, timeout_s=60, retry=Retry(attempts=5, first_s=0.001))
    async def pack(order: Order, ctx: StepContext) -> Packed:
        del order
        await gateway.call("pack", ctx)
        return Packed()

    @machine.effect(State.DONE, retry=Retry(attempts=5, first_s=0.001))
    async def mail(order: Order, ctx: StepContext) -> None:
        del order
        await gateway.call("mail", ctx)

    return machine


async def order(engine: Engine, machine: Shop, workflow: str, *, keyed: bool) -> None:
    """One order from its start to its end, with one note."""
    await engine.start(machine, workflow, Order())
    await engine.send(workflow, Noted(), key=f"{workflow}/note" if keyed else None)
    moved = await engine.send(workflow, Submit(), key=f"{workflow}/submit" if keyed else None)
    assert moved.version == 3
    await engine.wait(workflow)


def problems_of(
    view: View[Enum, object], history: list[HistoryRow[Enum, object]], gateway: Gateway, *, notes: int
) -> list[str]:
    """What is wrong with an order that should be through, with each result applied once."""
    found: list[str] = []
    context = view.context
    assert isinstance(context, Order)
    if view.state is not State.DONE:
        found.append(f"{view.id} is in state {view.state}")
    if context != Order(notes=notes, charges=1, packs=1):
        found.append(f"{view.id} has {context}")
    if [row.version for row in history] != list(range(1, len(history) + 1)) or len(history) != view.version:
        found.append(f"{view.id} has the versions {[row.version for row in history]} and is at {view.version}")
    charged = gateway.keys.get(("charge", view.id), set())
    if len(charged) != 1:
        found.append(f"{view.id} was charged under {charged}")
    return found
