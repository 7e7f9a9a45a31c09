"""The steps of the order, with a world that keeps books."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from interlock.core.values import StepContext
from interlock.errors import NonRetryable
from interlock.examples import order as shop
from interlock.examples.order import Item, Order, PaymentFailed, PaymentStarted, PaymentSucceeded, State
from interlock.examples.world import FakePayments, FakeWarehouse, World, world
from interlock.testing import Harness

ORDER = Order(order_id="o-1", items=(Item("book", 2), Item("pen", 1)))
PAYING = replace(ORDER, payment_intent_id="pi-o-1")


@pytest.fixture
def payments(monkeypatch: pytest.MonkeyPatch) -> FakePayments:
    fake = FakePayments()
    monkeypatch.setattr(world, "payments", fake)
    return fake


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> FakeWarehouse:
    fake = FakeWarehouse()
    monkeypatch.setattr(world, "warehouse", fake)
    return fake


def run(step: Coroutine[object, object, object]) -> object:
    return asyncio.run(step)


def key(name: str) -> StepContext:
    return StepContext(key=name)


def test_the_payment_step_first_announces_and_charges_nothing(payments: FakePayments) -> None:
    assert run(shop.take_payment(ORDER, key("k-1"))) == PaymentStarted("pi-o-1")
    assert payments.charged == set()


def test_entered_again_it_confirms_that_intent(payments: FakePayments) -> None:
    assert run(shop.take_payment(PAYING, key("k-2"))) == PaymentSucceeded("pi-o-1")
    assert payments.charged == {"pi-o-1"}


def test_a_decline_is_an_event_and_not_an_exception(payments: FakePayments) -> None:
    payments.declines.add("pi-o-1")
    assert run(shop.take_payment(PAYING, key("k-2"))) == PaymentFailed("pi-o-1", reason="declined")
    assert payments.charged == set()


def test_the_two_phases_through_the_machine(payments: FakePayments) -> None:
    """PAYMENT_STARTED makes the intent durable before any money moves."""
    machine = shop.order
    snapshot = machine.apply(machine.begin(ORDER), shop.Submit())
    snapshot = machine.apply(snapshot, run(shop.take_payment(snapshot.context, key("k-1"))))
    assert snapshot.state is State.PAYMENT_PROCESSING
    assert snapshot.context.payment_intent_id == "pi-o-1"
    assert payments.charged == set()
    snapshot = machine.apply(snapshot, run(shop.take_payment(snapshot.context, key("k-2"))))
    assert snapshot.state is State.PAID
    assert payments.charged == {"pi-o-1"}


def test_a_repeated_attempt_charges_once(payments: FakePayments) -> None:
    for _ in range(3):
        assert run(shop.take_payment(PAYING, key("same"))) == PaymentSucceeded("pi-o-1")
    payments.declines.add("pi-o-1")
    assert run(shop.take_payment(PAYING, key("same"))) == PaymentSucceeded("pi-o-1")
    assert payments.charged == {"pi-o-1"}


def test_reserving_puts_the_goods_aside(warehouse: FakeWarehouse) -> None:
    assert run(shop.reserve_inventory(ORDER, key("k"))) == shop.InventoryReserved()
    assert warehouse.reserved == {"o-1": {"book": 2, "pen": 1}}


def test_what_is_sold_out_is_not_retried(warehouse: FakeWarehouse) -> None:
    warehouse.sold_out.add("pen")
    with pytest.raises(NonRetryable, match="pen"):
        run(shop.reserve_inventory(ORDER, key("k")))
    assert warehouse.reserved == {}


def test_cancelling_voids_the_intent_if_there_is_one(payments: FakePayments) -> None:
    payments.charged.add("pi-o-1")
    assert run(shop.confirm_cancel(ORDER, key("k"))) == shop.CancelConfirmed()
    assert payments.charged == {"pi-o-1"}
    assert run(shop.confirm_cancel(PAYING, key("k"))) == shop.CancelConfirmed()
    assert payments.charged == set()


@pytest.mark.parametrize("shipment_id", [None, "shp-1"])
def test_a_refund_gives_back_the_money_and_what_was_not_shipped(
    payments: FakePayments, warehouse: FakeWarehouse, shipment_id: str | None
) -> None:
    payments.charged.add("pi-o-1")
    warehouse.reserved["o-1"] = {"book": 2}
    context = replace(PAYING, shipment_id=shipment_id)
    assert run(shop.refund(context, key("refund-1"))) == shop.RefundComplete(refund_id="refund-1")
    assert payments.charged == set()
    assert ("o-1" in warehouse.reserved) is (shipment_id is not None)


def test_every_step_has_its_timeout_and_its_dependency() -> None:
    steps = {state.step.name: state.step for state in shop.order.describe().states if state.step}
    assert {name: (step.timeout_s, step.dependency) for name, step in steps.items()} == {
        "take_payment": (4, "payments"),
        "reserve_inventory": (5, "warehouse"),
        "confirm_cancel": (4, "payments"),
        "refund": (4, "payments"),
    }


def test_each_world_has_books_of_its_own() -> None:
    one, two = World(), World()
    run(one.warehouse.reserve("o-1", {"book": 1}, key="k"))
    assert two.warehouse.reserved == {}
    run(one.warehouse.release("o-1", key="k"))
    run(one.warehouse.release("o-1", key="k"))
    assert one.warehouse.reserved == {}


def test_one_order_alone_survives_an_outage_of_the_bank_of_ten_minutes(
    payments: FakePayments, warehouse: FakeWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18: as the README says of what steps call."""
    create = payments.create_intent

    async def create_intent(order_id: str, *, key: str) -> str:
        if h.clock.now_s < began_s + 600:
            raise ConnectionRefusedError("the bank is down")
        return await create(order_id, key=key)

    monkeypatch.setattr(payments, "create_intent", create_intent)
    with Harness(shop.order) as h:
        began_s = h.clock.now_s
        h.start("o-1", ORDER)
        h.send("o-1", shop.Submit())
        h.drain()
        assert h.view("o-1").state is not State.PAYMENT_FAILED
        assert payments.charged == {"pi-o-1"}
        assert h.dead_letters() == []
