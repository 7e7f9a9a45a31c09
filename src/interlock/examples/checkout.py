"""Checkout: validate, charge, reserve; if one fails, undo the completed steps, newest first (A8).

A pipeline is the short way to write a machine whose steps follow each other. Each step is a function from context to
context that can be tested alone; `charge` has four seconds and says how it is undone, `validate` changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from interlock.core.pipeline import pipeline, step
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.errors import NonRetryable
from interlock.examples.world import world


@dataclass(frozen=True)
class Checkout:
    """The context of a checkout."""

    order_id: str = ""
    items: Mapping[str, int] | None = None
    cents: int = 0
    payment_intent_id: str | None = None
    reserved: bool = False


@step(timeout_s=2, read_only=True)
async def validate(checkout: Checkout, ctx: StepContext) -> Checkout:
    """There is something to buy and it costs something."""
    del ctx
    if not checkout.items or checkout.cents <= 0:
        raise NonRetryable("a checkout needs items and an amount")
    return checkout


@step(timeout_s=4, retry=Retry(attempts=5), dependency="payments")
async def charge(checkout: Checkout, ctx: StepContext) -> Checkout:
    """Take the money; the bank gets 4 seconds."""
    # Two calls, two keys: a provider ties a key to one request. Both follow from the run's own key.
    intent = await world.payments.create_intent(checkout.order_id, key=f"{ctx.key}:intent")
    if not await world.payments.confirm(intent, key=f"{ctx.key}:confirm"):
        raise NonRetryable("the bank declined")
    return replace(checkout, payment_intent_id=intent)


@charge.undo
async def give_back(checkout: Checkout, ctx: StepContext) -> None:
    """Give the money back; the intent follows from the order when the charge never answered."""
    key = ctx.undoes or ctx.key
    intent = checkout.payment_intent_id or await world.payments.create_intent(checkout.order_id, key=f"{key}:intent")
    await world.payments.cancel(intent, key=ctx.key)


@step(timeout_s=5, retry=Retry(attempts=5), dependency="warehouse")
async def reserve(checkout: Checkout, ctx: StepContext) -> Checkout:
    """Put the goods aside."""
    await world.warehouse.reserve(checkout.order_id, checkout.items or {}, key=ctx.key)
    return replace(checkout, reserved=True)


@reserve.undo
async def release(checkout: Checkout, ctx: StepContext) -> None:
    """Put the goods back."""
    await world.warehouse.release(checkout.order_id, key=ctx.key)


checkout = pipeline("checkout", context=Checkout, steps=[validate, charge, reserve])
