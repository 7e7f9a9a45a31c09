"""Order fulfilment: eleven states, eleven events, from the cart to the door, or to the refund (A7).

The rules of the business are guards (`has_items`, `may_retry`, `has_payment`), its bookkeeping is actions, and the
work outside is four steps. Everything a new colleague has to know about an order is on this page.

PAYMENT_STARTED has a meaning of its own: the payment step first creates an intent and returns PAYMENT_STARTED, which
re-enters the state with the intent's id in the context; run again, it confirms that intent. So the id is durable
before any money moves, and whatever crashes in between, there is exactly one intent to look for.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from interlock.clock import RandomIds
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext
from interlock.examples.world import world

ATTEMPTS_MAX = 3
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


class State(Enum):
    """The states of an order."""

    PENDING = "pending"
    PAYMENT_PROCESSING = "payment_processing"
    PAID = "paid"
    PAYMENT_FAILED = "payment_failed"
    FULFILLMENT_PENDING = "fulfillment_pending"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    REFUND_PENDING = "refund_pending"
    REFUNDED = "refunded"


@dataclass(frozen=True)
class Item:
    """A number of pieces of one article."""

    sku: str
    qty: int


@dataclass(frozen=True)
class Order:
    """The context of an order: a value, never changed, only replaced."""

    order_id: str = ""
    user_id: str = ""
    items: tuple[Item, ...] = ()
    payment_intent_id: str | None = None
    shipment_id: str | None = None
    refund_id: str | None = None
    reason: str | None = None
    failed_attempts: int = 0


class OrderEvent(Event):
    """Everything that can happen to an order."""


@dataclass(frozen=True)
class Submit(OrderEvent):
    """The customer orders, or tries to pay again."""


@dataclass(frozen=True)
class PaymentStarted(OrderEvent):
    """The provider has an intent; nothing is charged yet."""

    payment_intent_id: str


@dataclass(frozen=True)
class PaymentSucceeded(OrderEvent):
    """The money is here."""

    payment_intent_id: str


@dataclass(frozen=True)
class PaymentFailed(OrderEvent):
    """The bank declined."""

    payment_intent_id: str
    reason: str = ""


@dataclass(frozen=True)
class InventoryReserved(OrderEvent):
    """The goods are put aside."""


def new_shipment_id() -> str:
    """A fresh id. Actions are pure, so it arrives with the event and not from the action."""
    return f"shp-{RandomIds().new()}"


@dataclass(frozen=True)
class Ship(OrderEvent):
    """The parcel leaves."""

    shipment_id: str = field(default_factory=new_shipment_id)


@dataclass(frozen=True)
class Deliver(OrderEvent):
    """The parcel arrived."""


@dataclass(frozen=True)
class Cancel(OrderEvent):
    """The customer changed their mind before paying."""

    reason: str = ""


@dataclass(frozen=True)
class CancelConfirmed(OrderEvent):
    """Nothing is left to be charged."""


@dataclass(frozen=True)
class RefundRequest(OrderEvent):
    """The customer wants the money back."""

    reason: str = ""


@dataclass(frozen=True)
class RefundComplete(OrderEvent):
    """The money is back."""

    refund_id: str


order = Machine(
    "order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.PENDING,
    final={State.CANCELLED, State.REFUNDED},
    resting={State.DELIVERED},
    version=1,
)


# --- Guards ----------------------------------------------------------------------------------------------------------


def has_items(order: Order, event: Submit) -> bool:
    """The order has at least one item, and at least one piece of each."""
    del event
    return bool(order.items) and all(item.qty >= 1 for item in order.items)


def may_retry(order: Order, event: Submit) -> bool:
    """The order has items and fewer than 3 failed payment attempts."""
    return has_items(order, event) and order.failed_attempts < ATTEMPTS_MAX


def has_payment(order: Order, event: RefundRequest) -> bool:
    """There is a payment to give back."""
    del event
    return bool(order.payment_intent_id)


# --- Payment ---------------------------------------------------------------------------------------------------------


@order.on(Submit, State.PENDING, to=State.PAYMENT_PROCESSING, when=has_items)
def submit(order: Order, event: Submit) -> Order:
    """A first submission starts counting afresh."""
    del event
    return replace(order, failed_attempts=0)


order.on(Submit, State.PAYMENT_FAILED, to=State.PAYMENT_PROCESSING, when=may_retry)


@order.on(PaymentStarted, State.PAYMENT_PROCESSING, to=State.PAYMENT_PROCESSING)
def payment_started(order: Order, event: PaymentStarted) -> Order:
    """Remember the intent before it is confirmed; the state is entered again to confirm it."""
    return replace(order, payment_intent_id=event.payment_intent_id)


@order.on(PaymentSucceeded, State.PAYMENT_PROCESSING, to=State.PAID)
def payment_succeeded(order: Order, event: PaymentSucceeded) -> Order:
    """Remember which payment it was."""
    return replace(order, payment_intent_id=event.payment_intent_id)


@order.on(PaymentFailed, State.PAYMENT_PROCESSING, to=State.PAYMENT_FAILED)
def payment_failed(order: Order, event: PaymentFailed) -> Order:
    """Count the failure."""
    return replace(
        order,
        payment_intent_id=event.payment_intent_id,
        reason=event.reason or None,
        failed_attempts=order.failed_attempts + 1,
    )


@order.step(
    State.PAYMENT_PROCESSING,
    timeout_s=4,
    dependency="payments",
    undone_in={State.CANCEL_REQUESTED, State.REFUND_PENDING},
)
async def take_payment(order: Order, ctx: StepContext) -> PaymentStarted | PaymentSucceeded | PaymentFailed:
    """Create an intent, then (entered again) confirm it."""
    if order.payment_intent_id is None:
        return PaymentStarted(await world.payments.create_intent(order.order_id, key=ctx.key))
    intent = order.payment_intent_id
    if await world.payments.confirm(intent, key=ctx.key):
        return PaymentSucceeded(intent)
    return PaymentFailed(intent, reason="declined")


# --- Fulfilment ------------------------------------------------------------------------------------------------------

order.on(InventoryReserved, State.PAID, to=State.FULFILLMENT_PENDING)


@order.step(State.PAID, timeout_s=5, dependency="warehouse", undone_in={State.REFUND_PENDING})
async def reserve_inventory(order: Order, ctx: StepContext) -> InventoryReserved:
    """Put the goods aside."""
    pieces: dict[str, int] = {}
    for item in order.items:
        pieces[item.sku] = pieces.get(item.sku, 0) + item.qty
    await world.warehouse.reserve(order.order_id, pieces, key=ctx.key)
    return InventoryReserved()


@order.on(Ship, State.FULFILLMENT_PENDING, to=State.SHIPPED)
def ship(order: Order, event: Ship) -> Order:
    """Remember the parcel."""
    return replace(order, shipment_id=event.shipment_id)


order.on(Deliver, State.SHIPPED, to=State.DELIVERED)


# --- Cancellation and refund -----------------------------------------------------------------------------------------


@order.on(Cancel, State.PENDING, State.PAYMENT_PROCESSING, State.PAYMENT_FAILED, to=State.CANCEL_REQUESTED)
def cancel(order: Order, event: Cancel) -> Order:
    """Remember why."""
    return replace(order, reason=event.reason or None)


order.on(CancelConfirmed, State.CANCEL_REQUESTED, to=State.CANCELLED)


@order.step(State.CANCEL_REQUESTED, timeout_s=4, dependency="payments")
async def confirm_cancel(order: Order, ctx: StepContext) -> CancelConfirmed:
    """Void the intent, which also gives back what an interrupted payment may have charged."""
    if order.payment_intent_id is not None:
        await world.payments.cancel(order.payment_intent_id, key=ctx.key)
    return CancelConfirmed()


@order.on(
    RefundRequest,
    State.PAID,
    State.FULFILLMENT_PENDING,
    State.SHIPPED,
    State.DELIVERED,
    to=State.REFUND_PENDING,
    when=has_payment,
)
def refund_request(order: Order, event: RefundRequest) -> Order:
    """Remember why."""
    return replace(order, reason=event.reason or None)


@order.on(RefundComplete, State.REFUND_PENDING, to=State.REFUNDED)
def refund_complete(order: Order, event: RefundComplete) -> Order:
    """Remember which refund it was."""
    return replace(order, refund_id=event.refund_id)


@order.step(State.REFUND_PENDING, timeout_s=4, dependency="payments")
async def refund(order: Order, ctx: StepContext) -> RefundComplete:
    """Give the money back, and put the goods back if they are still here."""
    assert order.payment_intent_id is not None
    if order.shipment_id is None:
        await world.warehouse.release(order.order_id, key=ctx.key)
    await world.payments.cancel(order.payment_intent_id, key=ctx.key)
    return RefundComplete(refund_id=ctx.key)


# --- Timers and dwell times ------------------------------------------------------------------------------------------

order.after(State.PENDING, after_s=DAY_S, send=Cancel(reason="never submitted"))
order.after(State.PAYMENT_FAILED, after_s=DAY_S, send=Cancel(reason="payment failed"))
order.dwell(State.PENDING, max_s=2 * DAY_S)
order.dwell(State.PAYMENT_PROCESSING, max_s=HOUR_S)
order.dwell(State.PAID, max_s=HOUR_S)
order.dwell(State.PAYMENT_FAILED, max_s=2 * DAY_S)
order.dwell(State.FULFILLMENT_PENDING, max_s=2 * DAY_S)
order.dwell(State.SHIPPED, max_s=14 * DAY_S)
order.dwell(State.CANCEL_REQUESTED, max_s=HOUR_S)
order.dwell(State.REFUND_PENDING, max_s=HOUR_S)
