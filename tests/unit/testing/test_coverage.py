"""Transition coverage: what is counted, and that nothing of it stays behind."""

import threading

import msgspec
import pytest

from interlock import GuardRejected, InvalidTransition, StepFailure
from interlock.core import decide
from interlock.examples.checkout import Checkout, checkout
from interlock.testing import (
    Arrow,
    Attempted,
    TransitionCoverage,
    Unwound,
    assert_path,
    coverage_from_json,
    measure,
    transitions,
)
from tests.unit.testing.samples import Basket, Cancel, Charged, Put, Submit, Vanish, build_shop, shop

SEAM = ("_move", "_enter", "_end_unwinding", "unwound")
TIMEOUT = StepFailure(step="charge", error="timeout")


def seam() -> list[object]:
    return [vars(decide)[name] for name in SEAM]


def test_a_taken_transition_is_counted_with_its_guard() -> None:
    """A4: with the state before the move."""
    with measure() as coverage:
        assert_path(shop, Basket(), Put(1), Submit())
    [machine] = coverage.machines
    assert machine.machine == "shop"
    assert machine.location.partition(":")[0].endswith("samples.py")
    assert machine.taken == (Arrow("cart", "PUT", "cart", "fits"), Arrow("cart", "SUBMIT", "charging", "filled"))
    assert {*machine.taken, *machine.missing} == set(machine.transitions) == transitions(shop)
    assert not {*machine.taken} & {*machine.missing}
    assert (coverage.taken, coverage.total) == (2, 11)


def test_the_catch_all_counts_for_each_state_it_leaves() -> None:
    """A4: the recorded `from` is the state before the move."""
    with measure() as coverage:
        assert_path(shop, Basket(), Vanish())
    assert coverage.of(shop).taken == (Arrow("cart", "VANISH", "lost"),)


def test_a_failing_step_and_its_unwinding_are_counted() -> None:
    with measure() as coverage:
        assert_path(shop, Basket(1), Submit(), TIMEOUT, Unwound())
    assert coverage.of(shop).taken[1:] == (
        Arrow("charging", "STEP_FAILED", "undoing"),
        Arrow("undoing", "UNWOUND", "cancelled"),
    )


def test_an_unwinding_that_is_over_at_once_counts_twice() -> None:
    with measure() as coverage:
        assert_path(shop, Basket(), Cancel())
    assert coverage.of(shop).taken == (Arrow("cart", "CANCEL", "undoing"), Arrow("undoing", "UNWOUND", "cancelled"))


def test_a_pipeline_that_fails_straight_away_is_counted_as_it_went() -> None:
    with measure() as coverage:
        assert_path(checkout, Checkout(), checkout.Begin(), StepFailure(step="validate", error="non-retryable"))
    assert coverage.of(checkout).taken == (
        Arrow("pending", "BEGIN", "validating"),
        Arrow("validating", "STEP_FAILED", "failed"),
    )


def test_a_refused_event_is_not_counted() -> None:
    """A3: a refusal is not a transition."""
    with measure(shop) as coverage:
        with pytest.raises(GuardRejected):
            shop.apply(shop.begin(Basket()), Submit())
        with pytest.raises(InvalidTransition):
            shop.apply(shop.begin(Basket()), Charged("r"))
        shop.can(shop.begin(Basket()).state, Cancel)
    assert coverage.taken == 0


def test_a_decision_is_the_same_while_it_is_measured() -> None:
    moves = (Put(1), Submit(), Attempted(), TIMEOUT, Unwound())
    plain = assert_path(shop, Basket(), *moves)
    with measure():
        assert assert_path(shop, Basket(), *moves) == plain


def test_everything_can_be_taken() -> None:
    with measure() as coverage:
        for moves in [(Put(1), Submit(), Charged("r"), Cancel(), Unwound()), (Vanish(),), (Submit(), Vanish())]:
            assert_path(shop, Basket(1), *moves)
        assert_path(shop, Basket(1), Submit(), Charged("r"), Vanish())
        assert_path(shop, Basket(1), Submit(), TIMEOUT)
        assert_path(shop, Basket(1), Submit(), Cancel())
        assert_path(shop, Basket(1), Cancel())
    assert coverage.percent == 100
    assert coverage.text() == "shop: 11 of 11 transitions taken, 100.0 %"


def test_nothing_is_counted_or_replaced_outside_the_block() -> None:
    before = seam()
    with measure(shop) as coverage:
        assert seam() != before
    shop.apply(shop.begin(Basket()), Put(1))
    assert coverage.taken == 0
    assert seam() == before


def test_the_core_is_restored_after_an_error() -> None:
    before = seam()
    with pytest.raises(KeyError), measure():
        raise KeyError
    assert seam() == before


def test_measurements_nest_and_overlap() -> None:
    before = seam()
    outer, inner = measure(shop), measure(shop)
    with outer as all_of_it:
        shop.apply(shop.begin(Basket()), Put(1))
        with inner as part_of_it:
            shop.apply(shop.begin(Basket()), Vanish())
        shop.apply(shop.begin(Basket()), Cancel())
    assert [arrow.event for arrow in part_of_it.of(shop).taken] == ["VANISH"]
    assert [arrow.event for arrow in all_of_it.of(shop).taken] == ["PUT", "CANCEL", "VANISH", "UNWOUND"]
    assert seam() == before


def test_a_measurement_may_end_before_one_that_began_later() -> None:
    before = seam()
    first, second = measure(shop), measure(shop)
    early, late = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    shop.apply(shop.begin(Basket()), Put(1))
    assert (early.taken, late.taken) == (0, 1)
    second.__exit__(None, None, None)
    assert seam() == before


def test_threads_add_to_one_measurement() -> None:
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait(timeout=60)
        for _ in range(200):
            assert_path(shop, Basket(), Put(1), Submit(), TIMEOUT, Unwound())

    with measure() as coverage:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert coverage.of(shop).taken == (
        Arrow("cart", "PUT", "cart", "fits"),
        Arrow("cart", "SUBMIT", "charging", "filled"),
        Arrow("charging", "STEP_FAILED", "undoing"),
        Arrow("undoing", "UNWOUND", "cancelled"),
    )


def test_machines_of_one_name_are_told_apart_by_their_line() -> None:
    def decoy() -> TransitionCoverage:
        return coverage_from_json(coverage.to_json().replace(b"samples.py", b"other.py"))

    with measure() as coverage:
        assert_path(shop, Basket(), Put(1))
    coverage.merge(decoy())
    assert [machine.machine for machine in coverage.machines] == ["shop", "shop"]
    assert "other.py:" in coverage.text()
    assert "samples.py:" in coverage.text()
    assert coverage.text().endswith("all machines: 2 of 22 transitions taken, 9.0 %")
    assert coverage.only(shop).total == 11


def test_a_machine_that_is_built_twice_at_one_line_is_one() -> None:
    first, second = build_shop(), build_shop()
    with measure() as coverage:
        first.apply(first.begin(Basket()), Put(1))
        second.apply(second.begin(Basket()), Vanish())
    assert (len(coverage.machines), coverage.taken, coverage.total) == (1, 2, 11)


def test_a_move_that_no_workflow_can_make_is_not_of_the_machine() -> None:
    cancelled = checkout.apply(checkout.at(checkout.State.RESERVING, Checkout()), checkout.Cancel())
    assert cancelled.state is checkout.State.FAILED
    with measure() as coverage:
        checkout.apply(checkout.at(checkout.State.RESERVING, Checkout()), checkout.Cancel())
    assert (coverage.taken, coverage.total) == (0, len(transitions(checkout)))


def test_measurements_merge_and_survive_json() -> None:
    with measure() as first:
        assert_path(shop, Basket(), Put(1))
    with measure() as second:
        assert_path(shop, Basket(), Vanish())
    merged = TransitionCoverage()
    merged.merge(coverage_from_json(first.to_json()))
    merged.merge(second)
    assert [str(arrow) for arrow in merged.of(shop).taken] == ["cart --PUT [fits]--> cart", "cart --VANISH--> lost"]
    assert (first.taken, second.taken, merged.total) == (1, 1, 11)
    with pytest.raises(msgspec.ValidationError):
        coverage_from_json(b'{"machine": 1}')


def test_the_report_names_what_is_missing_and_rounds_down() -> None:
    with measure(shop, checkout) as coverage:
        assert_path(shop, Basket(), Put(1))
    lines = coverage.text().splitlines()
    assert lines[0] == f"checkout: 0 of {len(transitions(checkout))} transitions taken, 0.0 %"
    assert "shop: 1 of 11 transitions taken, 9.0 %" in lines
    assert "  never taken: cart --SUBMIT [filled]--> charging" in lines
    assert repr(coverage.only(shop)) == "<TransitionCoverage 9.0 % of 11 transitions>"


def test_an_empty_measurement_lacks_nothing() -> None:
    coverage = TransitionCoverage()
    assert (coverage.percent, coverage.machines) == (100.0, ())
    assert coverage.text() == "all machines: 0 of 0 transitions taken, 100.0 %"
