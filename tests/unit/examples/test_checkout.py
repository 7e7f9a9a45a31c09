"""A8, line by line: the states, the ways to fail, and the steps and undos in a world that keeps books."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import asyncio
from collections.abc import Coroutine

import pytest

from interlock.core import decide
from interlock.core.values import Decision, RunUndos, Snapshot, StepContext, StepFailure
from interlock.errors import NonRetryable
from interlock.examples.checkout import Checkout, charge, checkout, give_back, release, reserve, validate
from interlock.examples.world import FakePayments, FakeWarehouse, world

CART = Checkout(order_id="o-1", items={"book": 2}, cents=990)
States = checkout.State


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


def run(step: Coroutine[object, object, Checkout]) -> Checkout:
    return asyncio.run(step)


def ctx(key: str = "k", undoes: str | None = None) -> StepContext:
    return StepContext(key=key, undoes=undoes)


def done(snapshot: Snapshot[object, Checkout], context: Checkout) -> Decision[object, Checkout]:
    step = checkout.compiled.nodes[snapshot.state.name].step
    return decide.decide(checkout.compiled, snapshot, step.result(context), result=True)


def failed(snapshot: Snapshot[object, Checkout], *, unknown: bool) -> Decision[object, Checkout]:
    return decide.fail(checkout.compiled, snapshot, StepFailure(step="x", error="e", unknown=unknown))


def test_the_way_is_the_one_of_the_requirement(payments: FakePayments, warehouse: FakeWarehouse) -> None:
    """PENDING -> VALIDATING -> CHARGING -> RESERVING -> COMPLETED."""
    assert [state.name for state in States] == [
        "PENDING",
        "VALIDATING",
        "CHARGING",
        "RESERVING",
        "COMPLETED",
        "UNDOING",
        "FAILED",
    ]
    snapshot = checkout.begin(CART)
    visited = [snapshot.state]
    snapshot = checkout.apply(snapshot, checkout.opening)
    for step in (validate, charge, reserve):
        visited.append(snapshot.state)
        snapshot = done(snapshot, run(step(snapshot.context, ctx()))).snapshot
    visited.append(snapshot.state)
    assert [state.name for state in visited] == ["PENDING", "VALIDATING", "CHARGING", "RESERVING", "COMPLETED"]
    assert snapshot.context == Checkout("o-1", {"book": 2}, 990, "pi-o-1", reserved=True)
    assert payments.charged == {"pi-o-1"}
    assert warehouse.reserved == {"o-1": {"book": 2}}
    assert checkout.check() == []


def test_charging_has_four_seconds_and_every_step_its_undo() -> None:
    steps = {state.step.name: state.step for state in checkout.describe().states if state.step}
    assert steps["charge"].timeout_s == 4
    assert {name: step.undoes for name, step in steps.items()} == {
        "validate": (),
        "charge": ("CHARGE_DONE",),
        "reserve": ("RESERVE_DONE",),
    }


@pytest.mark.parametrize(
    ("state", "unknown", "to", "undone"),
    [
        ("VALIDATING", True, "FAILED", []),
        ("VALIDATING", False, "FAILED", []),
        ("CHARGING", False, "FAILED", []),
        ("CHARGING", True, "UNDOING", ["charge"]),
        ("RESERVING", False, "UNDOING", ["charge"]),
        ("RESERVING", True, "UNDOING", ["reserve", "charge"]),
    ],
)
def test_any_to_undoing_when_something_must_be_undone_else_straight_to_failed(
    state: str, unknown: bool, to: str, undone: list[str]
) -> None:
    snapshot = checkout.apply(checkout.begin(CART), checkout.Begin())
    while snapshot.state.name != state:
        snapshot = done(snapshot, CART).snapshot
    decision = failed(snapshot, unknown=unknown)
    assert decision.snapshot.state.name == to
    assert len(decision.records) == 1
    undos = [undo.step for command in decision.commands if isinstance(command, RunUndos) for undo in command.undos]
    assert undos == undone


@pytest.mark.parametrize("cart", [Checkout(cents=5), Checkout(items={}, cents=5), Checkout(items={"a": 1})])
def test_validation_refuses_what_cannot_be_bought(cart: Checkout) -> None:
    with pytest.raises(NonRetryable):
        run(validate(cart, ctx()))


def test_a_decline_is_final_and_charges_nothing(payments: FakePayments) -> None:
    payments.declines.add("pi-o-1")
    with pytest.raises(NonRetryable):
        run(charge(CART, ctx()))
    assert payments.charged == set()


def test_what_is_sold_out_is_final(warehouse: FakeWarehouse) -> None:
    warehouse.sold_out.add("book")
    with pytest.raises(NonRetryable):
        run(reserve(CART, ctx()))


def test_undoing_gives_everything_back(payments: FakePayments, warehouse: FakeWarehouse) -> None:
    charged = run(charge(CART, ctx("c-1")))
    reserved = run(reserve(charged, ctx("r-1")))
    run(release(reserved, ctx("u-1", undoes="r-1")))
    run(give_back(reserved, ctx("u-2", undoes="c-1")))
    assert payments.charged == set()
    assert warehouse.reserved == {}


def test_a_charge_that_never_answered_is_given_back_too(payments: FakePayments) -> None:
    run(charge(CART, ctx("c-1")))
    run(give_back(CART, ctx("u-1", undoes="c-1")))
    assert payments.charged == set()
    run(give_back(CART, ctx("u-1")))
