"""C4, C8: one outlet per dependency and process: its breaker, its places, its rate and its budget."""

import pytest

from interlock.core.policies import Breaker
from interlock.engine.dependencies.outlet import Kind, Outcome, Outlet, fact_of
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.dependencies.queues import Told, fails, outlet_for


def asked(outlet: Outlet, times: int, kind: Kind = "first") -> list[str]:
    return [outlet.ask(kind) for _ in range(times)]


def test_who_waits_behind_a_probe_that_hangs_looks_again_after_the_reset() -> None:
    """C4: no timeout of a probe, however long, holds up the others."""
    clock = VirtualClock()
    outlet = outlet_for(clock, breaker=Breaker(failures=1, reset_s=30))
    fails(outlet)
    clock.now_s = 30.0
    assert outlet.ask("first") == "probe"
    assert (outlet.ask("first"), outlet.retry_in_s("first")) == ("wait", 30.0)
    clock.now_s = 60.0
    assert outlet.ask("first") == "probe"


# --- limits ----------------------------------------------------------------------------------------------------------


def test_no_more_than_concurrency_max_calls_are_under_way() -> None:
    outlet, told = outlet_for(concurrency_max=2), Told()
    outlet.join(told)
    assert outlet.why("first") is None
    assert asked(outlet, 3) == ["call", "call", "wait"]
    assert outlet.why("retry") == "all 2 places of 'gateway' are taken (concurrency_max)"
    assert outlet.retry_in_s("first") is None
    outlet.leave("first", "call", "done")
    assert (told.stirred, outlet.under_way) == (1, 1)
    assert asked(outlet, 2, "retry") == ["call", "wait"]


@pytest.mark.parametrize(("concurrency_max", "undos"), [(1, 1), (9, 1), (10, 2), (50, 10)])
def test_undos_have_places_of_their_own(concurrency_max: int, undos: int) -> None:
    """C9: compensation works while all calls are stuck, and the other way round."""
    outlet = outlet_for(concurrency_max=concurrency_max)
    assert asked(outlet, concurrency_max + 1)[-1] == "wait"
    assert asked(outlet, undos + 1, "undo") == ["call"] * undos + ["wait"]
    assert outlet.why("undo") == f"all {undos} places for undos of 'gateway' are taken (concurrency_max)"
    outlet.leave("undo", "call", "done")
    assert (outlet.under_way, outlet.undos_under_way) == (concurrency_max, undos - 1)
    assert outlet.ask("first") == "wait"


def test_a_rate_lets_a_tenth_of_a_second_through_at_once_and_then_one_after_the_other() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, rate_per_s=20)
    assert asked(outlet, 3) == ["call", "call", "wait"]
    assert outlet.why("first") == "'gateway' is called at most 20 times per second (rate_per_s)"
    assert outlet.retry_in_s("first") == pytest.approx(0.05)
    clock.now_s += 0.051
    assert asked(outlet, 2, "undo") == ["call", "wait"]


def test_a_slow_rate_lets_at_least_one_through() -> None:
    assert asked(outlet_for(rate_per_s=0.1), 2) == ["call", "wait"]


def test_retries_wait_for_the_budget_and_nobody_else_does() -> None:
    """C5: an exhausted budget delays a retry, never fails it."""
    clock = VirtualClock()
    outlet = outlet_for(clock)
    assert asked(outlet, 11, "retry") == ["call"] * 10 + ["wait"]
    assert outlet.spent("retry")
    assert outlet.why("retry") == "the retry budget of 'gateway' is spent"
    assert outlet.retry_in_s("retry") == pytest.approx(1.0)
    for kind in ("first", "undo"):
        assert (outlet.spent(kind), outlet.why(kind), outlet.ask(kind)) == (False, None, "call")
    clock.now_s = 10.0
    assert outlet.ask("retry") == "call"


def test_whoever_is_refused_takes_nothing() -> None:
    """Neither a token from the bucket nor a place, a probe or a part of the budget."""
    clock = VirtualClock()
    outlet = outlet_for(clock, rate_per_s=10, breaker=Breaker(failures=1, reset_s=30))
    fails(outlet)
    assert asked(outlet, 5) == ["wait"] * 5
    clock.now_s = 30.0
    assert outlet.ask("first") == "probe"
    outlet.leave("first", "probe", "abandoned")
    assert (outlet.ask("first"), outlet.circuit.probes, outlet.under_way) == ("wait", 0, 0)
    assert outlet._spending.calls == 1
    clock.now_s = 30.11
    assert outlet.ask("first") == "probe"


def test_whoever_is_stopped_by_the_breaker_takes_no_token() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, rate_per_s=0.1, breaker=Breaker(failures=1, reset_s=30))
    fails(outlet)
    clock.now_s = 29.9
    assert asked(outlet, 5) == ["wait"] * 5
    clock.now_s = 30.0
    assert outlet.ask("first") == "probe"


def test_limits_change_at_run_time_and_stir_those_who_wait() -> None:
    outlet, told = outlet_for(concurrency_max=1), Told()
    outlet.join(told)
    assert asked(outlet, 2) == ["call", "wait"]
    outlet.limit(concurrency_max=3, rate_per_s=None)
    assert told.stirred == 1
    assert asked(outlet, 3) == ["call", "call", "wait"]
    outlet.limit(concurrency_max=1, rate_per_s=None)
    outlet.leave("first", "call", "done")
    outlet.leave("first", "call", "done")
    assert outlet.ask("first") == "wait"
    outlet.leave("first", "call", "done")
    assert outlet.ask("first") == "call"


def test_a_rate_that_stays_keeps_its_bucket() -> None:
    outlet = outlet_for(rate_per_s=10)
    assert asked(outlet, 2) == ["call", "wait"]
    outlet.limit(concurrency_max=7, rate_per_s=10)
    assert outlet.ask("first") == "wait"
    outlet.limit(concurrency_max=7, rate_per_s=None)
    assert asked(outlet, 6) == ["call"] * 6


# --- the breaker -----------------------------------------------------------------------------------------------------


def test_it_opens_tells_once_and_is_probed_and_closed() -> None:
    clock = VirtualClock()
    outlet, told = outlet_for(clock, breaker=Breaker(failures=2, reset_s=30)), Told()
    outlet.join(told)
    fails(outlet, 2)
    assert (outlet.phase, outlet.retry_in_s("first")) == ("open", 30)
    clock.now_s = 10.0
    why = "the breaker of 'gateway' is open (2 failures in a row, the last: OSError); probes in 20.0 s"
    assert outlet.why("first") == why
    clock.now_s = 30.0
    assert (outlet.phase, outlet.retry_in_s("first")) == ("half_open", 0)
    assert asked(outlet, 2) == ["probe", "wait"]
    assert outlet.why("first") == "the breaker of 'gateway' is half-open and waits for its probe"
    outlet.leave("first", "probe", "failed", 0.0, "OSError: still")
    clock.now_s = 60.0
    assert outlet.ask("first") == "probe"
    outlet.leave("first", "probe", "done")
    assert outlet.phase == "closed"
    assert [(each.before, each.after, each.reason) for each in told.changes] == [
        ("closed", "open", "2 failures in a row, the last: OSError: net"),
        ("open", "half_open", "a probe is made"),
        ("half_open", "open", "its probe failed: OSError: still"),
        ("open", "half_open", "a probe is made"),
        ("half_open", "closed", "a probe has worked"),
    ]
    assert not any(each.by_hand for each in told.changes)
    assert (outlet.reason, outlet.since_s) == ("a probe has worked", clock.wall_s())


@pytest.mark.parametrize(
    ("breaker", "outcomes", "reason"),
    [
        (Breaker(failures=1, slow_s=1), ["done"], "calls are too slow"),
        (Breaker(failures=1, slow_s=1), ["refused"], "calls are too slow"),
        (Breaker(business_failures=2), ["refused", "refused"], "2 business errors in a row, the last: x"),
        (Breaker(failure_rate=0.5, calls_min=2), ["failed", "failed"], "at least 50% of the last calls failed"),
    ],
)
def test_it_says_why_it_is_open(breaker: Breaker, outcomes: list[Outcome], reason: str) -> None:
    outlet = outlet_for(breaker=breaker)
    for outcome in outcomes:
        admitted = outlet.ask("first")
        outlet.leave("first", admitted, outcome, 5.0, "x")
    assert outlet.phase == "open"
    assert outlet.reason.startswith(reason)


@pytest.mark.parametrize(
    ("breaker", "outcome", "reason"),
    [
        (Breaker(failures=1, slow_s=1), "failed", "its probe failed: x"),
        (Breaker(failures=1, slow_s=1), "done", "its probe was too slow"),
        (Breaker(failures=1, slow_s=1), "refused", "its probe was too slow"),
        (Breaker(business_failures=1), "refused", "its probe failed: x"),
    ],
)
def test_it_says_why_a_probe_has_not_closed_it(breaker: Breaker, outcome: Outcome, reason: str) -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, breaker=breaker)
    for time_s in (0.0, 30.0):
        clock.now_s = time_s
        outlet.leave("first", outlet.ask("first"), outcome, 5.0, "x")
    assert (outlet.phase, outlet.reason) == ("open", reason)


def test_a_mistake_of_the_program_and_a_cancellation_say_nothing() -> None:
    outlet = outlet_for(breaker=Breaker(failures=2))
    fails(outlet)
    for _ in range(5):
        assert outlet.ask("first") == "call"
        outlet.leave("first", "call", "abandoned")
    assert outlet.circuit.failures == 1
    fails(outlet)
    assert outlet.phase == "open"


def test_calls_come_back_in_waves_until_all_places_are_used() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, concurrency_max=4, breaker=Breaker(failures=1, reset_s=30))
    fails(outlet)
    clock.now_s = 30.0
    assert outlet.ask("first") == "probe"
    outlet.leave("first", "probe", "done")
    assert asked(outlet, 3) == ["call", "call", "wait"]
    assert outlet.why("first") == "'gateway' has just recovered, and calls come back in waves (2 concurrently)"
    outlet.leave("first", "call", "done")
    assert asked(outlet, 3) == ["call", "call", "wait"]
    outlet.leave("first", "call", "done")
    assert outlet.circuit.wave == 0
    assert asked(outlet, 3) == ["call", "call", "wait"]
    assert outlet.why("first") == "all 4 places of 'gateway' are taken (concurrency_max)"


def test_undos_count_in_a_wave_and_do_not_wait_for_calls_that_hang() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, breaker=Breaker(failures=1, reset_s=30))
    fails(outlet)
    clock.now_s = 30.0
    assert outlet.ask("first") == "probe"
    outlet.leave("first", "probe", "done")
    assert asked(outlet, 3) == ["call", "call", "wait"]
    assert outlet.why("undo") is None
    assert asked(outlet, 3, "undo") == ["call", "call", "wait"]
    for _ in range(2):
        outlet.leave("first", "call", "abandoned")
    assert (outlet.circuit.wave, outlet.ask("first")) == (2, "wait")


def test_a_person_holds_it_open_or_closed_or_lets_it_decide_again() -> None:
    outlet, told = outlet_for(breaker=Breaker(failures=1)), Told()
    outlet.join(told)
    outlet.force("open", "held open by a person")
    assert (outlet.phase, outlet.ask("first"), outlet.ask("undo")) == ("open", "wait", "wait")
    assert outlet.why("first") == "the breaker of 'gateway' was opened by hand"
    assert outlet.retry_in_s("first") is None
    outlet.force("closed", "a person holds it closed")
    fails(outlet, 3)
    assert (outlet.phase, outlet.ask("first"), outlet.why("first")) == ("closed", "call", None)
    assert outlet.retry_in_s("first") == 0
    outlet.force(None, "released by a person")
    assert (outlet.phase, outlet.circuit.failures) == ("closed", 0)
    fails(outlet)
    assert outlet.phase == "open"
    outlet.force(None, "once more")
    assert outlet.phase == "open"
    assert [(each.after, each.forced, each.by_hand) for each in told.changes] == [
        ("open", "open", True),
        ("closed", "closed", True),
        ("closed", None, True),
        ("open", None, False),
        ("open", None, True),
    ]
    assert told.stirred >= 4


def test_what_is_held_closed_knows_no_waves() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock, rate_per_s=100, breaker=Breaker(failures=1, reset_s=1))
    fails(outlet)
    clock.now_s = 1.0
    assert outlet.ask("first") == "probe"
    outlet.leave("first", "probe", "done")
    outlet.force("closed", "by hand")
    assert asked(outlet, 5) == ["call"] * 5
    assert outlet.why("first") is None
    assert asked(outlet, 6)[-1] == "wait"


def test_one_that_was_open_when_the_last_process_ended_is_probed_at_once() -> None:
    clock = VirtualClock()
    outlet = outlet_for(clock)
    assert outlet.remember("open", None, "it was down", 1_700_000_000.0)
    assert (outlet.phase, outlet.reason, outlet.since_s) == ("half_open", "it was down", 1_700_000_000.0)
    assert asked(outlet, 2) == ["probe", "wait"]
    outlet.leave("first", "probe", "failed", 0.0, "x")
    assert outlet.phase == "open"


def test_what_a_person_held_stays_held_and_what_was_closed_begins_closed() -> None:
    held, closed = outlet_for(), outlet_for()
    assert held.remember("open", "open", "held open by a person")
    assert (held.phase, held.ask("undo")) == ("open", "wait")
    held.force(None, "auto")
    assert held.ask("first") == "call"
    assert closed.remember("closed", None, "")
    assert closed.ask("first") == "call"


def test_a_note_is_not_believed_by_a_process_that_knows_more() -> None:
    used, forced, opened = outlet_for(), outlet_for(), outlet_for(breaker=Breaker(failures=1))
    assert used.ask("first") == "call"
    forced.force("closed", "by hand")
    fails(opened)
    for outlet in (used, forced, opened):
        phase = outlet.phase
        assert not outlet.remember("half_open", None, "")
        assert outlet.phase == phase


@pytest.mark.parametrize(
    ("reason", "fact"),
    [
        ("2 failures in a row, the last: OSError: DE89 3704", "2 failures in a row, the last: OSError"),
        ("2 failures in a row, the last: DE89 3704", "2 failures in a row, the last"),
        ("its probe failed: Declined: DE89, the last: x", "its probe failed: Declined"),
        ("its probe failed: timeout", "its probe failed: timeout"),
        ("calls are too slow", "calls are too slow"),
    ],
)
def test_a_workflow_that_waits_quotes_no_error_of_another(reason: str, fact: str) -> None:
    assert fact_of(reason) == fact
