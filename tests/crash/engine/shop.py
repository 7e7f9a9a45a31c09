"""The shop of the crash tests and of the chaos on PostgreSQL: its machine, and what its customers ask of an engine.

Orders have steps, undos, effects, a step that re-enters and timers of all three policies. Every result carries the key
of the run it came from, so that history shows whether one was ever applied twice. The two differ in their times alone:
where four processes and a server share the machine, an attempt that waits for its turn is not a failed one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, cast

from interlock.chaos.shop import Shop, outside
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.engine.engine import Engine


class State(Enum):
    CART = "cart"
    CHARGING = "charging"
    RESERVING = "reserving"
    RESERVED = "reserved"
    PACKED = "packed"
    SHIPPING = "shipping"
    DONE = "done"
    PARKED = "parked"
    UNWINDING = "unwinding"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Order:
    number: int = 0
    charge: str = ""
    tries: int = 0


class ShopEvent(Event): ...


@dataclass(frozen=True)
class Submit(ShopEvent):
    cents: int


@dataclass(frozen=True)
class Charged(ShopEvent):
    run: str


@dataclass(frozen=True)
class Reserved(ShopEvent):
    run: str


@dataclass(frozen=True)
class Pack(ShopEvent): ...


@dataclass(frozen=True)
class Ship(ShopEvent): ...


@dataclass(frozen=True)
class Shipped(ShopEvent):
    run: str


@dataclass(frozen=True)
class NobodyHome(ShopEvent):
    run: str


@dataclass(frozen=True)
class TryLater(ShopEvent):
    run: str


@dataclass(frozen=True)
class Cancel(ShopEvent): ...


@dataclass(frozen=True)
class Expire(ShopEvent): ...


class Times(NamedTuple):
    """How long a shop waits, and how often it tries."""

    timeout_s: float
    shipping_s: float
    expire_s: float
    timer_s: float
    soon: Retry
    for_ever: Retry
    tries: Callable[[int], int]
    """How often the parcel of an order, by its number, meets nobody."""


KILLED = Times(
    timeout_s=0.04,
    shipping_s=0.04,
    expire_s=0.15,
    timer_s=0.01,
    soon=Retry(attempts=4, first_s=0.002, max_s=0.01),
    for_ever=Retry(attempts=1_000, first_s=0.002, max_s=0.01),
    tries=lambda number: number % 3,
)
SHARED = Times(
    timeout_s=0.6,
    # Longer than a worker is ever frozen: what it was told while it stood still, it says after it was woken.
    shipping_s=4,
    expire_s=2,
    timer_s=0.05,
    soon=Retry(attempts=8, first_s=0.02, max_s=0.2),
    for_ever=Retry(attempts=1_000, first_s=0.02, max_s=0.2),
    # Some are tried for so long that a worker that was frozen meets them in a later visit of the same state.
    tries=lambda number: 60 if number % 6 == 0 else number % 4,
)

ShopMachine = Machine[State, Order, ShopEvent]


def declared(times: Times) -> ShopMachine:
    """The machine, with these times."""
    shop: ShopMachine = Machine(
        "shop",
        states=State,
        context=Order,
        events=ShopEvent,
        initial=State.CART,
        final={State.DONE, State.CANCELLED, State.EXPIRED},
        resting={State.PARKED},
        unwind={State.UNWINDING: State.CANCELLED},
    )
    shop.on(Submit, State.CART, to=State.CHARGING)
    shop.on(Expire, State.CART, to=State.EXPIRED)
    shop.on(Reserved, State.RESERVING, to=State.RESERVED)
    shop.on(Pack, State.RESERVED, to=State.PACKED)
    shop.on(Ship, State.PACKED, to=State.SHIPPING)
    shop.on(Shipped, State.SHIPPING, to=State.DONE)
    shop.on(NobodyHome, State.SHIPPING, to=State.PARKED)
    shop.on(Cancel, State.CART, State.CHARGING, State.RESERVING, State.RESERVED, State.PACKED, to=State.UNWINDING)
    shop.after(State.CART, after_s=times.expire_s, send=Expire(), policy="deadline")
    shop.after(State.RESERVED, after_s=times.timer_s, send=Pack(), policy="restart")
    shop.after(State.PACKED, after_s=times.timer_s, send=Ship(), policy="remaining")

    @shop.on(Charged, State.CHARGING, to=State.RESERVING)
    def charged(order: Order, event: Charged) -> Order:
        return replace(order, charge=event.run)

    @shop.on(TryLater, State.SHIPPING, to=State.SHIPPING)
    def try_later(order: Order, event: TryLater) -> Order:
        return replace(order, tries=order.tries + 1)

    _declare_steps(shop, times)
    return shop


def _declare_steps(shop: ShopMachine, times: Times) -> None:
    @shop.step(State.CHARGING, timeout_s=times.timeout_s, retry=times.soon, failed=State.UNWINDING)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        await outside[-1].ask("charge", ctx)
        return Charged(ctx.key)

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        assert done is None or done.run == ctx.undoes
        await outside[-1].ask("refund", ctx)

    @shop.step(State.RESERVING, timeout_s=times.timeout_s, retry=times.soon, failed=State.UNWINDING)
    async def reserve(order: Order, ctx: StepContext) -> Reserved:
        await outside[-1].ask("reserve", ctx)
        return Reserved(ctx.key)

    @reserve.undo(Reserved)
    async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
        await outside[-1].ask("release", ctx)

    @shop.step(State.SHIPPING, timeout_s=times.shipping_s, retry=times.for_ever, failed=State.UNWINDING)
    async def ship(order: Order, ctx: StepContext) -> Shipped | NobodyHome | TryLater:
        await outside[-1].ask("ship", ctx)
        if order.tries < times.tries(order.number):
            return TryLater(ctx.key)
        return NobodyHome(ctx.key) if order.number % 5 == 0 else Shipped(ctx.key)

    ends = (State.DONE, State.PARKED, State.CANCELLED, State.EXPIRED)

    @shop.effect(*ends, timeout_s=times.timeout_s, retry=times.for_ever)
    async def mail(order: Order, ctx: StepContext) -> None:
        await outside[-1].ask("mail", ctx)


SHARED_SHOP = Shop(
    declared(SHARED), Order, {"submit": Submit(1), "cancel": Cancel()}, {"undo_timeout_s": SHARED.timeout_s}
)


async def run_operation(engine: Engine, shop: ShopMachine, operation: str) -> tuple[int, State, str]:
    """Ask an engine for `start|submit|cancel`, a workflow and a delivery key; returns version, state and how."""
    what, workflow, key = operation.split(" ")
    if what == "start":
        view = await engine.start(shop, workflow, Order(int(key)))
        return view.version, view.state, "started"
    event = Submit(int(key[2:])) if what == "submit" else Cancel()
    moved = await engine.send(workflow, event, key=key, if_allowed=what == "cancel")
    how = "duplicate" if moved.duplicate else "ignored" if moved.ignored else "moved"
    return moved.version, cast("State", moved.state), how
