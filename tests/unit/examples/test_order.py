"""A7, line by line: every rule, every transition, and every refusal, against a table written from the requirement."""

from dataclasses import replace

import pytest

from interlock.core.values import RunStep, Snapshot, StartTimer
from interlock.errors import GuardRejected, InvalidTransition
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

STATES = [
    "pending",
    "payment_processing",
    "paid",
    "payment_failed",
    "fulfillment_pending",
    "shipped",
    "delivered",
    "cancel_requested",
    "cancelled",
    "refund_pending",
    "refunded",
]

EVENTS: dict[str, OrderEvent] = {
    "SUBMIT": Submit(),
    "PAYMENT_STARTED": PaymentStarted("pi-1"),
    "PAYMENT_SUCCEEDED": PaymentSucceeded("pi-1"),
    "PAYMENT_FAILED": PaymentFailed("pi-1", reason="declined"),
    "INVENTORY_RESERVED": InventoryReserved(),
    "SHIP": Ship("shp-1"),
    "DELIVER": Deliver(),
    "CANCEL": Cancel("too slow"),
    "CANCEL_CONFIRMED": CancelConfirmed(),
    "REFUND_REQUEST": RefundRequest("broken"),
    "REFUND_COMPLETE": RefundComplete("re-1"),
}

# Written from the requirement, not from the code: (from, event) -> to. Whatever is not here is refused.
TABLE = {
    ("pending", "SUBMIT"): "payment_processing",
    ("pending", "CANCEL"): "cancel_requested",
    ("payment_processing", "PAYMENT_STARTED"): "payment_processing",
    ("payment_processing", "PAYMENT_SUCCEEDED"): "paid",
    ("payment_processing", "PAYMENT_FAILED"): "payment_failed",
    ("payment_processing", "CANCEL"): "cancel_requested",
    ("payment_failed", "SUBMIT"): "payment_processing",
    ("payment_failed", "CANCEL"): "cancel_requested",
    ("paid", "INVENTORY_RESERVED"): "fulfillment_pending",
    ("paid", "REFUND_REQUEST"): "refund_pending",
    ("fulfillment_pending", "SHIP"): "shipped",
    ("fulfillment_pending", "REFUND_REQUEST"): "refund_pending",
    ("shipped", "DELIVER"): "delivered",
    ("shipped", "REFUND_REQUEST"): "refund_pending",
    ("delivered", "REFUND_REQUEST"): "refund_pending",
    ("cancel_requested", "CANCEL_CONFIRMED"): "cancelled",
    ("refund_pending", "REFUND_COMPLETE"): "refunded",
}

FULL = Order(
    order_id="o-1", user_id="u-1", items=(Item("book", 2),), payment_intent_id="pi-0", reason="old", failed_attempts=1
)


def at(state: str, context: Order = FULL) -> Snapshot[State, Order]:
    return order.at(State(state), context, version=5)


def test_it_has_exactly_the_states_and_events_of_the_requirement() -> None:
    assert [state.value for state in State] == STATES
    assert set(order.compiled.events) == set(EVENTS)
    assert order.begin(FULL).state is State.PENDING


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_the_whole_matrix(state: str, event: str) -> None:
    """11 states times 11 events: the table's transition, or a refusal that changes nothing."""
    before = at(state)
    allowed = {name for source, name in TABLE if source == state}
    assert order.can(State(state), type(EVENTS[event])) is ((state, event) in TABLE)
    if (state, event) in TABLE:
        decision = order.decide(before, EVENTS[event])
        [record] = decision.records
        assert decision.snapshot.state is State(TABLE[state, event])
        assert (record.from_state, record.event, record.version) == (State(state), event, 6)
        assert decision.snapshot.visit == 6
        return
    with pytest.raises(InvalidTransition) as caught:
        order.decide(before, EVENTS[event])
    assert (caught.value.state, caught.value.event) == (state, event)
    assert set(caught.value.allowed) == allowed
    assert before == at(state)


def test_allowed_says_the_same() -> None:
    listed = {(state, entry.event): entry.to.value for state in STATES for entry in order.allowed(at(state))}
    assert listed == TABLE


# --- rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "payment_failed"])
def test_submit_needs_items(state: str) -> None:
    with pytest.raises(GuardRejected) as caught:
        order.decide(at(state, replace(FULL, items=())), Submit())
    assert caught.value.state == state
    assert "item" in caught.value.reasons[0]


def test_submit_from_pending_sets_failed_attempts_to_0() -> None:
    assert order.apply(at("pending", replace(FULL, failed_attempts=7)), Submit()).context.failed_attempts == 0


@pytest.mark.parametrize("attempts", [0, 1, 2])
def test_submit_from_payment_failed_leaves_the_count(attempts: int) -> None:
    after = order.apply(at("payment_failed", replace(FULL, failed_attempts=attempts)), Submit())
    assert after.context.failed_attempts == attempts


@pytest.mark.parametrize("attempts", [3, 4, 100])
def test_resubmit_only_while_failed_attempts_are_fewer_than_3(attempts: int) -> None:
    with pytest.raises(GuardRejected) as caught:
        order.decide(at("payment_failed", replace(FULL, failed_attempts=attempts)), Submit())
    assert caught.value.guard == "may_retry"


def test_a_failed_payment_adds_1() -> None:
    after = order.apply(at("payment_processing", replace(FULL, failed_attempts=1)), PaymentFailed("pi-9", "declined"))
    assert after.context.failed_attempts == 2
    assert after.context.reason == "declined"


def test_three_failed_payments_are_the_end_of_trying() -> None:
    snapshot = order.begin(Order(items=(Item("book", 1),)))
    for _ in range(3):
        snapshot = order.apply(snapshot, Submit())
        snapshot = order.apply(snapshot, PaymentFailed("pi-1"))
    assert snapshot.context.failed_attempts == 3
    with pytest.raises(GuardRejected):
        order.apply(snapshot, Submit())
    assert order.apply(snapshot, Cancel()).state is State.CANCEL_REQUESTED


@pytest.mark.parametrize("event", [PaymentStarted("pi-9"), PaymentSucceeded("pi-9"), PaymentFailed("pi-9")])
def test_payment_events_carry_the_intent_id_into_the_context(event: OrderEvent) -> None:
    after = order.apply(at("payment_processing", replace(FULL, payment_intent_id=None)), event)
    assert after.context.payment_intent_id == "pi-9"


@pytest.mark.parametrize("state", ["paid", "fulfillment_pending", "shipped", "delivered"])
def test_a_refund_needs_a_payment_intent_id(state: str) -> None:
    unpaid = at(state, replace(FULL, payment_intent_id=None))
    with pytest.raises(GuardRejected) as caught:
        order.decide(unpaid, RefundRequest())
    assert caught.value.guard == "has_payment"
    assert order.apply(at(state), RefundRequest("broken")).context.reason == "broken"


def test_a_refund_records_its_id() -> None:
    assert order.apply(at("refund_pending"), RefundComplete("re-1")).context.refund_id == "re-1"


def test_a_cancellation_records_its_reason() -> None:
    assert order.apply(at("pending"), Cancel("too slow")).context.reason == "too slow"
    assert order.apply(at("pending"), Cancel()).context.reason is None


def test_shipping_records_the_id_that_arrives_with_the_event() -> None:
    assert order.apply(at("fulfillment_pending"), Ship("shp-7")).context.shipment_id == "shp-7"
    first, second = Ship(), Ship()
    assert first.shipment_id
    assert first.shipment_id != second.shipment_id
    assert order.apply(at("fulfillment_pending"), first).context.shipment_id == first.shipment_id


def test_the_context_has_every_field_of_the_requirement() -> None:
    assert Order.__dataclass_fields__.keys() == {
        "order_id",
        "user_id",
        "items",
        "payment_intent_id",
        "shipment_id",
        "refund_id",
        "reason",
        "failed_attempts",
    }
    assert Item.__dataclass_fields__.keys() == {"sku", "qty"}


def test_delivered_is_resting_and_two_states_are_final() -> None:
    described = {state.name: state for state in order.describe().states}
    assert {name for name, state in described.items() if state.resting} == {"delivered"}
    assert {name for name, state in described.items() if state.final} == {"cancelled", "refunded"}
    assert described["delivered"].dwell_max_s is None
    assert not order.compiled.nodes["DELIVERED"].active
    assert order.can(State.DELIVERED, RefundRequest)


def test_every_active_state_has_a_dwell_limit_and_nothing_is_left_to_say() -> None:
    assert order.check() == []


def test_the_context_survives_being_stored() -> None:
    full = replace(FULL, shipment_id="s", refund_id="r")
    assert order.codec.decode_context(order.codec.checked_context(full), strict=True) == full


def test_entering_a_state_owes_its_step_and_its_timer() -> None:
    paying = order.decide(at("pending"), Submit())
    assert RunStep("take_payment") in paying.commands
    again = order.decide(at("payment_processing"), PaymentStarted("pi-1"))
    assert again.commands[-1] == RunStep("take_payment")
    assert again.snapshot.visit == 6
    failed = order.decide(at("payment_processing"), PaymentFailed("pi-1"))
    assert any(isinstance(command, StartTimer) for command in failed.commands)
    assert any(isinstance(command, StartTimer) for command in order.start(FULL).commands)
