"""Playing what an engine would report: results, failures, interrupted attempts, finished unwindings."""

from enum import Enum

import pytest

from interlock import InvalidPayload, InvalidTransition, Machine, StepContext, StepFailure
from interlock.core.values import Run, RunUndos, Undo
from interlock.testing import Attempted, Unwound, assert_path, play
from tests.unit.testing.samples import Basket, Cancel, Charged, Put, ShopEvent, State, shop

TIMEOUT = StepFailure(step="charge", error="timeout")


def test_an_event_is_decided_as_the_machine_decides_it() -> None:
    snapshot = shop.begin(Basket())
    assert play(shop, snapshot, Put(2)) == shop.decide(snapshot, Put(2))


def test_an_event_that_the_step_returns_is_its_result_and_can_be_undone() -> None:
    charging = shop.at(State.CHARGING, Basket(1))
    paid = play(shop, charging, Charged("r")).snapshot
    assert paid.undo_log == (Run("charge", 1, Charged("r")),)
    assert play(shop, paid, Cancel()).snapshot.state is State.UNDOING


class Till(Enum):
    CHARGING = "charging"
    PAID = "paid"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


def blank_till() -> Machine[Till, Basket, ShopEvent]:
    till = Machine(
        "till",
        states=Till,
        context=Basket,
        events=ShopEvent,
        initial=Till.CHARGING,
        final={Till.CANCELLED},
        resting={Till.PAID},
        unwind={Till.UNDOING: Till.CANCELLED},
    )
    till.on(Charged, Till.CHARGING, to=Till.PAID)
    till.on(Cancel, Till.CHARGING, Till.PAID, to=Till.UNDOING)
    return till


def silent_till() -> Machine[Till, Basket, ShopEvent]:
    """The charge of this till does not say what it returns."""
    till = blank_till()

    @till.step(Till.CHARGING, timeout_s=1, failed=Till.UNDOING)
    async def charge(basket: Basket, ctx: StepContext):  # type: ignore[no-untyped-def] # noqa: ANN202 -- see above.
        return Charged(ctx.key)

    @charge.undo(Charged)
    async def refund(basket: Basket, done: Charged | None, ctx: StepContext) -> None: ...

    return till


def test_the_result_of_a_step_without_annotation_is_known_by_its_undo() -> None:
    silent = silent_till()
    paid = assert_path(silent, Basket(1), Charged("r"), ends_in=Till.PAID)
    assert paid.undo_log == (Run("charge", 1, Charged("r")),)
    decision = play(silent, paid, Cancel())
    assert RunUndos((Undo("charge", "CHARGED", 1, Charged("r")),)) in decision.commands


def test_an_attempt_of_a_step_without_annotation_can_be_interrupted() -> None:
    """G5: an event that the step may or may not return must not hide that something may have happened."""
    undoing = assert_path(silent_till(), Basket(1), Attempted(), Cancel(), ends_in=Till.UNDOING)
    assert undoing.undo_log == (Run("charge", 1, None),)


@pytest.mark.parametrize(
    ("given", "hint"), [("chrage", "whose step is 'charge'. Did you mean charge?"), ("ship", "whose step is 'charge'.")]
)
def test_the_failure_of_another_step_is_refused(given: str, hint: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        play(shop, shop.at(State.CHARGING, Basket(1)), StepFailure(step=given, error="timeout"))
    assert refused.value.what == f"shop: step {given!r} cannot fail in state 'charging', {hint}"
    assert "StepFailure(step='charge', ...)" in refused.value.fix


def test_a_step_without_a_state_for_failures_does_not_move_the_machine() -> None:
    stays = blank_till()

    @stays.step(Till.CHARGING, timeout_s=1)
    async def charge(basket: Basket, ctx: StepContext) -> Charged:
        return Charged(ctx.key)

    with pytest.raises(InvalidTransition):
        play(stays, stays.begin(Basket()), TIMEOUT)


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
