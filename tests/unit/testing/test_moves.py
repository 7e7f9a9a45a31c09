"""Playing what an engine would report: results, failures, interrupted attempts, finished unwindings."""

import pytest

from interlock import InvalidTransition, StepFailure
from interlock.core.values import Run
from interlock.testing import Attempted, Unwound, play
from tests.unit.testing.samples import Basket, Cancel, Charged, Put, State, shop

TIMEOUT = StepFailure(step="charge", error="timeout")


def test_an_event_is_decided_as_the_machine_decides_it() -> None:
    snapshot = shop.begin(Basket())
    assert play(shop, snapshot, Put(2)) == shop.decide(snapshot, Put(2))


def test_an_event_that_the_step_returns_is_its_result_and_can_be_undone() -> None:
    charging = shop.at(State.CHARGING, Basket(1))
    paid = play(shop, charging, Charged("r")).snapshot
    assert paid.undo_log == (Run("charge", 1, Charged("r")),)
    assert play(shop, paid, Cancel()).snapshot.state is State.UNDOING


def test_a_step_that_gives_up_moves_the_machine() -> None:
    decision = play(shop, shop.at(State.CHARGING, Basket(1)), TIMEOUT)
    assert decision.snapshot.state is State.UNDOING
    assert decision.snapshot.context == Basket(1, failures=1)


def test_an_interrupted_attempt_has_to_be_undone() -> None:
    charging = shop.at(State.CHARGING, Basket(1))
    assert play(shop, charging, Cancel()).snapshot.state is State.CANCELLED
    attempted = play(shop, charging, Attempted())
    assert not attempted.records
    assert play(shop, attempted.snapshot, Cancel()).snapshot.state is State.UNDOING


def test_an_unwinding_ends() -> None:
    assert play(shop, shop.at(State.UNDOING, Basket()), Unwound()).snapshot.state is State.CANCELLED


@pytest.mark.parametrize(
    ("move", "name"), [(TIMEOUT, "STEP_FAILED"), (Unwound(), "UNWOUND"), (Attempted(), "ATTEMPTED")]
)
def test_what_cannot_happen_in_a_state_is_refused(move: StepFailure | Unwound | Attempted, name: str) -> None:
    """A3: the refusal names the state and what is allowed there."""
    with pytest.raises(InvalidTransition) as refused:
        play(shop, shop.begin(Basket()), move)
    assert refused.value.event == name
    assert refused.value.state == "cart"
    assert refused.value.allowed == ("PUT", "SUBMIT", "CANCEL", "VANISH")
