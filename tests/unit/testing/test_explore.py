"""Exploring a machine by its graph (A1, A4)."""

from itertools import islice

import pytest

from interlock import LimitReached
from interlock.core.pipeline import pipeline, step
from interlock.core.values import StepContext
from interlock.examples.checkout import checkout
from interlock.examples.order import State as OrderState
from interlock.examples.order import order
from interlock.testing import Arrow, explore
from tests.unit.testing.samples import Basket, State, Submit, shop


def test_the_shortest_way_to_every_state() -> None:
    """A1: guards are not asked; failures, unwinding and the catch-all are ways too."""
    assert explore(shop).shortest == {
        State.CART: (),
        State.CHARGING: ("SUBMIT",),
        State.UNDOING: ("CANCEL",),
        State.LOST: ("VANISH",),
        State.PAID: ("SUBMIT", "CHARGED"),
        State.CANCELLED: ("CANCEL", "UNWOUND"),
    }
    assert explore(shop).unreached == ()


def test_a_pipeline_is_explored_as_it_really_goes() -> None:
    shortest = explore(checkout).shortest
    assert shortest[checkout.State.FAILED] == ("CANCEL",)
    assert shortest[checkout.State.UNDOING] == ("BEGIN", "VALIDATE_DONE", "CANCEL")


@step(timeout_s=1, read_only=True)
async def look(basket: Basket, ctx: StepContext) -> Basket:
    return basket


def test_a_state_that_no_way_leads_to_is_named() -> None:
    looking = pipeline("looking", context=Basket, steps=[look])
    found = explore(looking)
    assert found.unreached == (looking.State.UNDOING,)
    assert "  undoing: not reached" in found.text()


def test_paths_end_where_there_is_no_exit_or_at_the_depth() -> None:
    paths = list(explore(shop, depth=2).paths())
    assert (Arrow("cart", "VANISH", "lost"),) in paths
    assert (Arrow("cart", "CANCEL", "undoing"), Arrow("undoing", "UNWOUND", "cancelled")) in paths
    assert (Arrow("cart", "SUBMIT", "charging", "filled"), Arrow("charging", "STEP_FAILED", "undoing")) in paths
    assert len(paths) == len(set(paths)) == 4 + 4 + 1 + 1
    assert all(path[0].from_state == "cart" for path in paths)


def test_the_depth_may_be_given_to_paths_itself() -> None:
    found = explore(shop)
    assert list(found.paths(0)) == [()]
    assert len(list(found.paths(1))) == 4


def test_too_many_paths_are_an_error_and_not_cut_off_in_silence() -> None:
    found = explore(order)
    taken: list[tuple[Arrow, ...]] = []
    with pytest.raises(LimitReached, match="more than 5 paths of up to 8 transitions"):
        taken.extend(found.paths(paths_max=5))
    assert len(taken) == 5
    assert len(list(islice(found.paths(paths_max=5), 5))) == 5
    total = len(list(found.paths()))
    assert len(list(found.paths(paths_max=total))) == total


def test_the_report_and_the_repr() -> None:
    found = explore(shop)
    assert repr(found) == "<Exploration of 'shop': 6 of 6 states reached>"
    assert found.text().splitlines() == [
        "shop: 11 transitions, 6 states reached",
        "  cart       (initial)",
        "  charging   SUBMIT",
        "  undoing    CANCEL",
        "  lost       VANISH",
        "  paid       SUBMIT, CHARGED",
        "  cancelled  CANCEL, UNWOUND",
    ]


def test_the_worked_example_is_explored() -> None:
    shortest = explore(order).shortest
    assert set(shortest) == set(OrderState)
    assert shortest[OrderState.DELIVERED] == ("SUBMIT", "PAYMENT_SUCCEEDED", "INVENTORY_RESERVED", "SHIP", "DELIVER")


def test_samples_and_context_belong_together() -> None:
    with pytest.raises(TypeError, match="together"):
        explore(shop, samples=[Submit()])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="together"):
        explore(shop, context=Basket())  # type: ignore[call-overload]
