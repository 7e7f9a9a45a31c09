"""`assert_path`: a story in one assertion (A3, A5, A6)."""

import pytest

from interlock import InvalidPayload, InvalidTransition, StepFailure, UserCodeError
from interlock.testing import Attempted, Unwound, assert_path
from tests.unit.testing.samples import Basket, Cancel, Charged, Put, State, Submit, Vanish, shop


def test_a_path_returns_where_it_leads() -> None:
    """A5: without database, network or event loop."""
    end = assert_path(shop, Basket(), Put(2), Submit(), Charged("r-1"), ends_in=State.PAID)
    assert end.context == Basket(items=2, receipt="r-1")


def test_a_path_may_begin_anywhere() -> None:
    assert_path(shop, shop.at(State.CHARGING, Basket(1)), Charged("r"), ends_in=State.PAID)


def test_a_path_without_moves_stays_where_it_is() -> None:
    assert_path(shop, Basket(), ends_in=State.CART)


@pytest.mark.parametrize("cause", [Cancel(), StepFailure(step="charge", error="timeout")])
def test_a_path_leads_through_failure_and_unwinding(cause: Cancel | StepFailure) -> None:
    assert_path(shop, Basket(1), Submit(), Attempted(), cause, Unwound(), ends_in=State.CANCELLED)


def test_a_refused_move_is_told_as_a_story() -> None:
    """A3, A6: where it stopped, why, and what would have been allowed."""
    with pytest.raises(AssertionError) as failed:
        assert_path(shop, Basket(), Put(1), Submit(), Submit(), ends_in=State.PAID)
    assert str(failed.value).splitlines() == [
        "shop stopped in 'charging' at move 3 of 3:",
        "  cart",
        "    Put(items=1)",
        "  cart",
        "    Submit()",
        "  charging",
        "    Submit()",
        "  refused",
        "shop: event SUBMIT has no transition from state 'charging'; allowed here: CHARGED, CANCEL, VANISH.",
        "allowed from here:",
        "  CHARGED -> paid",
        "  CANCEL -> undoing",
        "  VANISH -> lost",
    ]
    assert isinstance(failed.value.__cause__, InvalidTransition)


def test_a_guard_is_named_with_its_reason() -> None:
    with pytest.raises(AssertionError, match=r"filled \(There is something in the basket\.\)") as failed:
        assert_path(shop, Basket(), Submit(), ends_in=State.CHARGING)
    assert "  SUBMIT [filled] -> charging" in str(failed.value)


def test_another_end_is_told_as_a_story() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_path(shop, Basket(), Vanish(), ends_in=State.PAID)
    assert str(failed.value).splitlines() == [
        "shop ended in 'lost' after VANISH, not in 'paid':",
        "  cart",
        "    Vanish()",
        "  lost",
        "nothing is allowed from 'lost'",
    ]
    with pytest.raises(AssertionError, match="ended in 'cart' after nothing"):
        assert_path(shop, Basket(), ends_in=State.PAID)


@pytest.mark.parametrize(
    ("last", "name"),
    [
        (Attempted(), "ATTEMPTED"),
        (StepFailure(step="charge", error="timeout"), "STEP_FAILED"),
    ],
)
def test_what_only_an_engine_reports_has_a_name_too(last: Attempted | StepFailure, name: str) -> None:
    with pytest.raises(AssertionError, match=f"after {name}, not in 'paid'"):
        assert_path(shop, Basket(1), Submit(), last, ends_in=State.PAID)
    with pytest.raises(AssertionError, match="after UNWOUND, not in 'paid'"):
        assert_path(shop, shop.at(State.UNDOING, Basket()), Unwound(), ends_in=State.PAID)


def test_an_unwinding_without_anything_to_undo_is_shown_as_passed() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_path(shop, Basket(), Cancel(), ends_in=State.UNDOING)
    assert str(failed.value).splitlines()[1:5] == ["  cart", "    Cancel()", "  undoing", "  cancelled"]


def test_a_context_that_cannot_be_stored_is_refused_at_once() -> None:
    with pytest.raises(InvalidPayload):
        assert_path(shop, Basket(items="two"), Submit())  # type: ignore[arg-type]


def test_a_broken_guard_is_its_own_error_with_the_way_to_it() -> None:
    with pytest.raises(UserCodeError) as failed:
        assert_path(shop, Basket(), Put(1), Put(None))  # type: ignore[arg-type]
    assert failed.value.__notes__ == ["The way to it:\n  cart\n    Put(items=1)\n  cart\n    Put(items=None)"]
