"""A machine that has one of everything: guards, a catch-all, an internal transition, a step with an undo, a timer.

Small enough to count by hand: 6 states and 11 transitions. Built by a function, so that a test may have its own.
"""

from dataclasses import dataclass, replace
from enum import Enum

from interlock import Event, Machine, StepContext, StepFailure


class State(Enum):
    CART = "cart"
    CHARGING = "charging"
    PAID = "paid"
    UNDOING = "undoing"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True)
class Basket:
    items: int = 0
    receipt: str = ""
    failures: int = 0


class ShopEvent(Event): ...


@dataclass(frozen=True)
class Put(ShopEvent):
    items: int = 1


@dataclass(frozen=True)
class Submit(ShopEvent): ...


@dataclass(frozen=True)
class Charged(ShopEvent):
    receipt: str


@dataclass(frozen=True)
class Cancel(ShopEvent): ...


@dataclass(frozen=True)
class Vanish(ShopEvent): ...


ShopMachine = Machine[State, Basket, ShopEvent]

ITEMS_MAX = 3


def build_shop() -> ShopMachine:
    shop = Machine(
        "shop",
        states=State,
        context=Basket,
        events=ShopEvent,
        initial=State.CART,
        final={State.CANCELLED, State.LOST},
        resting={State.PAID},
        unwind={State.UNDOING: State.CANCELLED},
    )

    def fits(basket: Basket, event: Put) -> bool:
        """At most 3 items fit."""
        return event.items > 0 and basket.items + event.items <= ITEMS_MAX

    def filled(basket: Basket, event: Submit) -> bool:
        """There is something in the basket."""
        return basket.items > 0

    @shop.on(Put, State.CART, when=fits)
    def put(basket: Basket, event: Put) -> Basket:
        return replace(basket, items=basket.items + event.items)

    shop.on(Submit, State.CART, to=State.CHARGING, when=filled)

    @shop.on(Charged, State.CHARGING, to=State.PAID)
    def charged(basket: Basket, event: Charged) -> Basket:
        return replace(basket, receipt=event.receipt)

    shop.on(Cancel, State.CART, State.CHARGING, State.PAID, to=State.UNDOING)
    shop.on(Vanish, shop.any, to=State.LOST)
    shop.after(State.CART, after_s=3600, send=Cancel())

    @shop.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)
    async def charge(basket: Basket, ctx: StepContext) -> Charged:
        return Charged(ctx.key)

    @charge.failed
    def charge_failed(basket: Basket, failure: StepFailure) -> Basket:
        return replace(basket, failures=basket.failures + 1)

    @charge.undo(Charged)
    async def refund(basket: Basket, done: Charged | None, ctx: StepContext) -> None: ...

    return shop


shop = build_shop()
