"""The orders of a simulated fleet: two steps, their undos and an effect, all of which call one bank."""

from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.testing.engine_simulation.sample_machines import (
    Cancel,
    Charged,
    Declined,
    Purchase,
    Reserved,
    ShopEvent,
    ShopState,
    Submit,
)
from tests.simulation.bank import Bank

ATTEMPTS = {"charge": 4, "reserve": 3, "mail": 3}


def orders(bank: Bank) -> Machine[ShopState, Purchase, ShopEvent]:
    """Both steps call the bank, so that who waits for one of them and is cancelled waits there once more."""
    order: Machine[ShopState, Purchase, ShopEvent] = Machine(
        "order",
        states=ShopState,
        context=Purchase,
        events=ShopEvent,
        initial=ShopState.CART,
        final={ShopState.DONE, ShopState.CANCELLED},
        unwind={ShopState.UNDOING: ShopState.CANCELLED},
    )
    order.on(Submit, ShopState.CART, to=ShopState.CHARGING)
    order.on(Charged, ShopState.CHARGING, to=ShopState.RESERVING)
    order.on(Declined, ShopState.CHARGING, to=ShopState.CANCELLED)
    order.on(Reserved, ShopState.RESERVING, to=ShopState.DONE)
    order.on(Cancel, ShopState.CART, ShopState.CHARGING, ShopState.RESERVING, to=ShopState.UNDOING)
    retry, again = Retry(attempts=ATTEMPTS["charge"]), Retry(attempts=ATTEMPTS["reserve"], first_s=0.5)

    @order.step(ShopState.CHARGING, timeout_s=2, retry=retry, dependency="gateway", failed=ShopState.UNDOING)
    async def charge(purchase: Purchase, ctx: StepContext) -> Charged | Declined:
        return Charged(ctx.key) if await bank.act("charge", ctx) else Declined(ctx.key)

    @charge.undo(Charged)
    async def refund(purchase: Purchase, done: Charged | None, ctx: StepContext) -> None:
        await bank.act("refund", ctx)

    @order.step(ShopState.RESERVING, timeout_s=2, retry=again, dependency="gateway", failed=ShopState.UNDOING)
    async def reserve(purchase: Purchase, ctx: StepContext) -> Reserved:
        await bank.act("reserve", ctx)
        return Reserved(ctx.key)

    @reserve.undo(Reserved)
    async def release(purchase: Purchase, done: Reserved | None, ctx: StepContext) -> None:
        await bank.act("release", ctx)

    @order.effect(
        ShopState.DONE, ShopState.CANCELLED, timeout_s=2, retry=Retry(attempts=ATTEMPTS["mail"]), dependency="gateway"
    )
    async def mail(purchase: Purchase, ctx: StepContext) -> None:
        await bank.act("mail", ctx)

    return order
