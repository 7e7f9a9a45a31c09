"""Trying sample events for real (A3, A5)."""

from dataclasses import dataclass, replace
from enum import Enum

import pytest

from interlock import Event, GuardRejected, InvalidTransition, Machine, StepFailure
from interlock.examples.checkout import Checkout, checkout
from interlock.testing import Arrow, assert_path, explore
from interlock.testing.explore import try_samples
from tests.unit.testing.samples import Basket, Cancel, Charged, Put, State, Submit, Vanish, shop

SAMPLES = [Put(1), Put(2), Submit(), Charged("r"), Vanish()]


def test_everything_that_the_samples_can_reach_is_reached() -> None:
    trial = explore(shop, samples=SAMPLES, context=Basket())
    assert trial.complete
    assert set(trial.reached) == set(State)
    assert not trial.unreached
    assert not trial.problems
    assert trial.reached[State.CART] == ()
    assert trial.reached[State.PAID] == (Put(1), Submit(), Charged("r"))


def test_a_timer_a_failing_step_and_an_unwinding_need_no_sample() -> None:
    trial = explore(shop, samples=[Put(1), Submit()], context=Basket())
    assert trial.reached[State.UNDOING] == (Cancel(),)
    assert Arrow("charging", "STEP_FAILED", "undoing") in trial.taken
    assert Arrow("undoing", "UNWOUND", "cancelled") in trial.taken
    assert trial.unreached == (State.PAID, State.LOST)


def test_a_transition_that_no_sample_takes_is_named() -> None:
    trial = explore(shop, samples=[Put(1), Submit(), Vanish()], context=Basket())
    assert trial.never_taken == (
        Arrow("charging", "CHARGED", "paid"),
        Arrow("charging", "CANCEL", "undoing"),
        Arrow("paid", "CANCEL", "undoing"),
        Arrow("paid", "VANISH", "lost"),
    )


def test_guards_are_asked_and_their_refusals_kept_by_event() -> None:
    """A3: a refusal names the state, the event and the guard."""
    trial = explore(shop, samples=[Put(9), Submit(), Charged("r")], context=Basket())
    assert set(trial.reached) == {State.CART, State.UNDOING, State.CANCELLED}
    [put] = trial.refusals["PUT"]
    assert isinstance(put, GuardRejected)
    assert put.guards == ("fits",)
    [charged] = trial.refusals["CHARGED"]
    assert isinstance(charged, InvalidTransition)
    assert charged.state == "cart"


def test_the_same_snapshot_is_looked_at_once() -> None:
    # Baskets of 0, 1, 2 and 3 items, and for each the cancelled one.
    trial = explore(shop, samples=[Put(1)], context=Basket())
    assert trial.snapshots == 8


def test_every_way_can_be_played_again() -> None:
    trial = explore(shop, samples=[*SAMPLES, Cancel()], context=Basket())
    for state, moves in trial.reached.items():
        if state is not State.UNDOING:  # It is also passed at once, when nothing has to be undone.
            assert_path(shop, Basket(), *moves, ends_in=state)


def test_a_pipeline_begins_by_itself_and_goes_both_ways_of_failing() -> None:
    names = ("VALIDATE_DONE", "CHARGE_DONE", "RESERVE_DONE")
    samples = [checkout.codec.decode_event(name, b'{"context": {}}') for name in names]
    trial = explore(checkout, samples=[*samples, checkout.Cancel()], context=Checkout())
    assert not trial.never_taken
    assert not trial.unreached
    assert trial.reached[checkout.State.UNDOING][-1] == StepFailure(step="charge", error="STEP_FAILED")
    assert Arrow("undoing", "UNWOUND", "failed") in trial.taken


def test_limits_are_reported_and_not_silent() -> None:
    by_depth = explore(shop, samples=SAMPLES, context=Basket(), depth=2)
    assert by_depth.stopped_by == "depth"
    assert State.PAID in by_depth.unreached
    by_count = try_samples(shop, SAMPLES, Basket(), snapshots_max=3)
    assert by_count.stopped_by == "snapshots"
    assert by_count.snapshots == 3
    assert "stopped by the limit of snapshots" in by_count.text()


class Count(Enum):
    UP = "up"
    DONE = "done"


@dataclass(frozen=True)
class Number:
    value: float = 0.0


class CountEvent(Event): ...


@dataclass(frozen=True)
class Divide(CountEvent):
    by: float


@dataclass(frozen=True)
class Stop(CountEvent): ...


def build_counter() -> Machine[Count, Number, CountEvent]:
    counter = Machine("counter", states=Count, context=Number, events=CountEvent, initial=Count.UP, final={Count.DONE})

    @counter.on(Divide, Count.UP)
    def divide(number: Number, event: Divide) -> Number:
        return replace(number, value=1 / event.by)

    counter.on(Stop, Count.UP, to=Count.DONE)
    return counter


@pytest.mark.parametrize(
    ("by", "code", "told"),
    [(0.0, "user-code-error", "ZeroDivisionError"), (1e-320, "invalid-payload", "contains inf")],
)
def test_user_code_that_goes_wrong_is_found_with_the_way_to_it(by: float, code: str, told: str) -> None:
    trial = explore(build_counter(), samples=[Divide(2.0), Divide(by), Stop()], context=Number())
    [problem] = trial.problems
    assert problem.error.code == code
    assert told in problem.error.what
    assert problem.state is Count.UP
    assert problem.moves == (Divide(by),)
    assert trial.complete
    assert f"after {Divide(by)!r}" in trial.text()


def test_a_context_that_could_not_be_read_back_is_found() -> None:
    counter = Machine("counter", states=Count, context=Number, events=CountEvent, initial=Count.UP, final={Count.DONE})

    @counter.on(Stop, Count.UP, to=Count.DONE)
    def stop(number: Number, event: Stop) -> Number:
        return replace(number, value="many")  # type: ignore[arg-type]

    [problem] = explore(counter, samples=[Stop()], context=Number()).problems
    assert problem.error.code == "invalid-payload"
    assert problem.moves == (Stop(),)


def test_the_report_and_the_repr() -> None:
    trial = explore(shop, samples=[Put(3), Submit(), Cancel()], context=Basket())
    assert repr(trial) == "<Trial of 'shop': 4 of 6 states reached, transitions never taken: 5, problems: 0>"
    assert trial.text().splitlines() == [
        "shop: 9 snapshots tried",
        "  cart       (initial)",
        "  undoing    CANCEL",
        "  cancelled  CANCEL",
        "  charging   PUT, SUBMIT",
        "  not reached: paid",
        "  not reached: lost",
        "  never taken: cart --VANISH--> lost",
        "  never taken: charging --CHARGED--> paid",
        "  never taken: charging --VANISH--> lost",
        "  never taken: paid --CANCEL--> undoing",
        "  never taken: paid --VANISH--> lost",
        "  refused: SUBMIT in cart by filled",
        "  refused: PUT in cart by fits",
    ]
