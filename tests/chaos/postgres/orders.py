"""The machine that flows through chaos: orders with steps, undos, effects, a step that re-enters and two timers.

States and events have the names of the machine that the crash tests kill, so that the same audit reads both. Its times
are longer: here four processes and a server share the machine, and an attempt that waits for its turn is not a failed
one. Every result carries the key of the run it came from, so that history shows whether one was ever applied twice.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext

TIMEOUT_S = 0.6
SHIPPING_TIMEOUT_S = 4
"""Longer than a worker is ever frozen: what it was told while it stood still, it says after it was woken."""
SOON = Retry(attempts=8, first_s=0.02, max_s=0.2)
FOR_EVER = Retry(attempts=1_000, first_s=0.02, max_s=0.2)


class Asked(Protocol):
    """The world outside, as a step sees it."""

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Do the deed once for this key, or not, and say so, or not."""
        ...


class State(Enum):
    CART = "cart"
    CHARGING = "charging"
    RESERVING = "reserving"
    RESERVED = "reserved"
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


shop = Machine(
    "shop",
    states=State,
    context=Order,
    events=ShopEvent,
    initial=State.CART,
    final={State.DONE, State.CANCELLED, State.EXPIRED},
    resting={State.PARKED},
    unwind={State.UNWINDING: State.CANCELLED},
)

gateways: list[Asked] = []
"""The gateway of this life, at the end."""

shop.on(Submit, State.CART, to=State.CHARGING)
shop.on(Expire, State.CART, to=State.EXPIRED)
shop.on(Reserved, State.RESERVING, to=State.RESERVED)
shop.on(Ship, State.RESERVED, to=State.SHIPPING)
shop.on(Shipped, State.SHIPPING, to=State.DONE)
shop.on(NobodyHome, State.SHIPPING, to=State.PARKED)
shop.on(Cancel, State.CART, State.CHARGING, State.RESERVING, State.RESERVED, to=State.UNWINDING)
shop.after(State.CART, after_s=2, send=Expire())
shop.after(State.RESERVED, after_s=0.05, send=Ship())


@shop.on(Charged, State.CHARGING, to=State.RESERVING)
def charged(order: Order, event: Charged) -> Order:
    return replace(order, charge=event.run)


@shop.on(TryLater, State.SHIPPING, to=State.SHIPPING)
def try_later(order: Order, event: TryLater) -> Order:
    return replace(order, tries=order.tries + 1)


@shop.step(State.CHARGING, timeout_s=TIMEOUT_S, retry=SOON, failed=State.UNWINDING)
async def charge(order: Order, ctx: StepContext) -> Charged:
    await gateways[-1].ask("charge", ctx)
    return Charged(ctx.key)


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    assert done is None or done.run == ctx.undoes
    await gateways[-1].ask("refund", ctx)


@shop.step(State.RESERVING, timeout_s=TIMEOUT_S, retry=SOON, failed=State.UNWINDING)
async def reserve(order: Order, ctx: StepContext) -> Reserved:
    await gateways[-1].ask("reserve", ctx)
    return Reserved(ctx.key)


@reserve.undo(Reserved)
async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
    await gateways[-1].ask("release", ctx)


@shop.step(State.SHIPPING, timeout_s=SHIPPING_TIMEOUT_S, retry=FOR_EVER, failed=State.UNWINDING)
async def ship(order: Order, ctx: StepContext) -> Shipped | NobodyHome | TryLater:
    await gateways[-1].ask("ship", ctx)
    # Some are tried for so long that a worker that was frozen meets them in a later visit of the same state.
    if order.tries < (60 if order.number % 6 == 0 else order.number % 4):
        return TryLater(ctx.key)
    return NobodyHome(ctx.key) if order.number % 5 == 0 else Shipped(ctx.key)


@shop.effect(State.DONE, State.PARKED, State.CANCELLED, State.EXPIRED, timeout_s=TIMEOUT_S, retry=FOR_EVER)
async def mail(order: Order, ctx: StepContext) -> None:
    await gateways[-1].ask("mail", ctx)
