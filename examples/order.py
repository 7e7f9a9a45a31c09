"""One order from the cart to the door, by hand: no engine, no database, every decision visible.

The machine is imported from the package; everything here is what a program does with it: begin, decide, look at the
records, and meet a refusal.
"""

from interlock import InterlockError, Refusal
from interlock.examples.order import (
    Cancel,
    CancelConfirmed,
    Deliver,
    InventoryReserved,
    Item,
    Order,
    OrderEvent,
    PaymentFailed,
    PaymentStarted,
    PaymentSucceeded,
    RefundComplete,
    RefundRequest,
    Ship,
    State,
    Submit,
    order,
)

__all__ = [
    "Cancel",
    "CancelConfirmed",
    "Deliver",
    "InventoryReserved",
    "Item",
    "Order",
    "OrderEvent",
    "PaymentFailed",
    "PaymentStarted",
    "PaymentSucceeded",
    "RefundComplete",
    "RefundRequest",
    "Ship",
    "State",
    "Submit",
    "order",
]

STORY: tuple[OrderEvent, ...] = (
    Submit(),
    PaymentStarted(payment_intent_id="pi-1"),
    PaymentFailed(payment_intent_id="pi-1", reason="declined"),
    Submit(),
    PaymentSucceeded(payment_intent_id="pi-1"),
    Cancel(reason="too late for that"),
    InventoryReserved(),
    Ship(shipment_id="shp-1"),
    Deliver(),
    RefundRequest(reason="wrong size"),
    RefundComplete(refund_id="re-1"),
)


def main() -> None:
    """Walk the story and print every move and every refusal."""
    try:
        order.apply(order.begin(Order(order_id="o-1")), Submit())
    except Refusal as refusal:
        print(f"An empty order is refused:\n{refusal}\n")
    snapshot = order.begin(Order(order_id="o-1", user_id="ada", items=(Item("book", 1),)))
    for event in STORY:
        try:
            decision = order.decide(snapshot, event)
        except InterlockError as refusal:
            print(f"  refused: {refusal}")
            continue
        for record in decision.records:
            print(f"{record.version:3}  {record.from_state.value:>20} --{record.event}--> {record.to_state.value}")
        snapshot = decision.snapshot
    print(f"\nIn the end: {snapshot.state.value}, {snapshot.context}")


if __name__ == "__main__":
    main()
