"""The orders of a simulated fleet: two steps, their undos and an effect, all of which call one bank."""

from dataclasses import dataclass
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from tests.simulation.bank import Bank

ATTEMPTS = {"charge": 4, "reserve": 3, "mail": 3}


class Where(Enum):
    CART, CHARGING, RESERVING, DONE = "cart", "charging", "reserving", "done"
    UNDOING, CANCELLED = "undoing", "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 5


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Submit(OrderEvent):
    pass


@dataclass(frozen=True)
class Charged(OrderEvent):
    by: str


@dataclass(frozen=True)
class Declined(OrderEvent):
    pass


@dataclass(frozen=True)
class Reserved(OrderEvent):
    by: str


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


def orders(bank: Bank) -> Machine[Where, Order, OrderEvent]:
    """Both steps call the bank, so that who waits for one of them and is cancelled waits there once more."""
    order: Machine[Where, Order, OrderEvent] = Machine(
        "order",
        states=Where,
        context=Order,
        events=OrderEvent,
        initial=Where.CART,
        final={Where.DONE, Where.CANCELLED},
        unwind={Where.UNDOING: Where.CANCELLED},
    )
    order.on(Submit, Where.CART, to=Where.CHARGING)
    order.on(Charged, Where.CHARGING, to=Where.RESERVING)
    order.on(Declined, Where.CHARGING, to=Where.CANCELLED)
    order.on(Reserved, Where.RESERVING, to=Where.DONE)
    order.on(Cancel, Where.CART, Where.CHARGING, Where.RESERVING, to=Where.UNDOING)
    retry, again = Retry(attempts=ATTEMPTS["charge"]), Retry(attempts=ATTEMPTS["reserve"], first_s=0.5)

    @order.step(Where.CHARGING, timeout_s=2, retry=retry, dependency="gateway", failed=Where.UNDOING)
    async def charge(order: Order, ctx: StepContext) -> Charged | Declined:
        return Charged(ctx.key) if await bank.act("charge", ctx) else Declined()

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        await bank.act("refund", ctx)

    @order.step(Where.RESERVING, timeout_s=2, retry=again, dependency="gateway", failed=Where.UNDOING)
    async def reserve(order: Order, ctx: StepContext) -> Reserved:
        await bank.act("reserve", ctx)
        return Reserved(ctx.key)

    @reserve.undo(Reserved)
    async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
        await bank.act("release", ctx)

    @order.effect(
        Where.DONE, Where.CANCELLED, timeout_s=2, retry=Retry(attempts=ATTEMPTS["mail"]), dependency="gateway"
    )
    async def mail(order: Order, ctx: StepContext) -> None:
        await bank.act("mail", ctx)

    return order
