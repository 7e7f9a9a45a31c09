"""C4: when a dependency is not called any more, when it is tried again, and how fast calls come back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.core.policies import CLOSED, FIRST_WAVE, Breaker, Circuit, Verdict


def failed(breaker: Breaker, circuit: Circuit, times: int, now_s: float = 0) -> Circuit:
    for _ in range(times):
        circuit = breaker.failed(circuit, now_s)
    return circuit


def verdict(breaker: Breaker, circuit: Circuit, now_s: float, *, under_way: int = 0, undo: bool = False) -> Verdict:
    return breaker.admit(circuit, now_s, under_way=under_way, undo=undo)[1]


# --- failures in a row -------------------------------------------------------------------------------------------


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker(failures=3, reset_s=30)
    almost = failed(breaker, CLOSED, 2)
    assert (almost.phase(0), almost.failures) == ("closed", 2)
    assert breaker.admit(almost, 0) == (almost, "call")
    opened = breaker.failed(almost, 1)
    assert opened == Circuit(failures=3, opened=True, retry_at_s=31)
    assert (opened.phase(30.9), opened.phase(31)) == ("open", "half_open")
    assert breaker.admit(opened, 30.9) == (opened, "wait")


def test_five_failures_and_thirty_seconds_are_the_default() -> None:
    opened = failed(Breaker(), CLOSED, 5)
    assert (failed(Breaker(), CLOSED, 4).opened, opened.opened, opened.retry_at_s) == (False, True, 30)


def test_a_success_starts_the_count_again() -> None:
    breaker = Breaker(failures=3)
    circuit = breaker.succeeded(failed(breaker, CLOSED, 2), 0)
    assert circuit == CLOSED
    assert failed(breaker, circuit, 2).phase(0) == "closed"


def test_a_success_of_what_is_well_costs_nothing() -> None:
    breaker = Breaker()
    assert breaker.succeeded(CLOSED, 0) is CLOSED
    recovered = Circuit(closed_at_s=7)
    assert breaker.succeeded(recovered, 9) is recovered


def test_stragglers_from_before_the_opening_change_nothing_while_it_is_open_or_half_open() -> None:
    breaker = Breaker(failures=1, reset_s=30)
    opened = breaker.failed(CLOSED, 0)
    for now_s in (10, 40):
        assert breaker.succeeded(opened, now_s, took_s=now_s + 1) == opened
        assert breaker.failed(opened, now_s, took_s=now_s + 1) == opened
        assert breaker.abandoned(opened) == opened


def test_stragglers_from_before_the_opening_that_time_out_later_do_not_open_it_again() -> None:
    """What hung while the dependency was down says nothing about it when it is up again."""
    breaker = Breaker(failures=1, reset_s=30)
    circuit, _ = breaker.admit(breaker.failed(CLOSED, 0), 30)
    closed = breaker.succeeded(circuit, 31, took_s=1, admitted="probe")
    assert breaker.failed(closed, 60, took_s=60) == closed
    assert breaker.failed(closed, 60, took_s=29).opened
    assert breaker.failed(closed, 31, took_s=0).opened


# --- probes --------------------------------------------------------------------------------------------------------


def test_half_open_admits_only_so_many_probes() -> None:
    breaker = Breaker(failures=1, reset_s=30, probes=2)
    circuit = breaker.failed(CLOSED, 0)
    verdicts = list[Verdict]()
    for undo in (False, True, False):
        circuit, admitted = breaker.admit(circuit, 30, undo=undo)
        verdicts.append(admitted)
    assert verdicts == ["probe", "probe", "wait"]
    assert circuit.probes == 2


def test_a_probe_that_says_nothing_gives_its_place_back() -> None:
    breaker = Breaker(failures=1, reset_s=30)
    circuit, _ = breaker.admit(breaker.failed(CLOSED, 0), 30)
    assert verdict(breaker, circuit, 31) == "wait"
    circuit = breaker.abandoned(circuit, admitted="probe")
    assert circuit.phase(31) == "half_open"
    assert verdict(breaker, circuit, 31) == "probe"
    assert breaker.abandoned(circuit, admitted="probe").probes == 0
    assert breaker.abandoned(circuit, admitted="undo").undos == 0
    assert breaker.abandoned(CLOSED) is CLOSED


def test_a_probe_that_works_closes_it() -> None:
    breaker = Breaker(failures=1, reset_s=30)
    circuit, _ = breaker.admit(breaker.failed(CLOSED, 0), 30)
    assert breaker.succeeded(circuit, 31, admitted="probe") == Circuit(wave=FIRST_WAVE, closed_at_s=31)


def test_a_probe_that_fails_opens_it_for_the_whole_time_again() -> None:
    breaker = Breaker(failures=5, reset_s=30)
    circuit, _ = breaker.admit(failed(breaker, CLOSED, 5), 30)
    again = breaker.failed(circuit, 31, admitted="probe")
    assert (again.phase(60.9), again.phase(61), again.probes) == ("open", "half_open", 0)
    assert verdict(breaker, again, 61) == "probe"


def test_a_probe_of_an_earlier_opening_keeps_its_place_until_it_ends() -> None:
    """Otherwise a probe that hangs, and gives its place back late, would let one too many in."""
    breaker = Breaker(failures=1, reset_s=30, probes=2)
    circuit = breaker.failed(CLOSED, 0)
    for _ in range(2):
        circuit, _ = breaker.admit(circuit, 30)
    circuit = breaker.failed(circuit, 31, admitted="probe")
    assert (circuit.phase(31), circuit.probes) == ("open", 1)
    circuit, admitted = breaker.admit(circuit, 61)
    assert (admitted, verdict(breaker, circuit, 61)) == ("probe", "wait")
    closed = breaker.succeeded(circuit, 62, admitted="probe")
    assert (closed.opened, closed.probes) == (False, 1)
    assert breaker.abandoned(closed, admitted="probe").probes == 0
    assert breaker.succeeded(closed, 63, admitted="probe") == Circuit(wave=FIRST_WAVE + 1, closed_at_s=62)
    assert breaker.failed(closed, 64, took_s=1, admitted="probe").probes == 0


def test_a_probe_that_ends_after_another_has_failed_leaves_it_open() -> None:
    breaker = Breaker(failures=1, reset_s=30, probes=2)
    circuit = breaker.failed(CLOSED, 0)
    for _ in range(2):
        circuit, _ = breaker.admit(circuit, 30)
    circuit = breaker.failed(circuit, 31, admitted="probe")
    for after in (
        breaker.succeeded(circuit, 32, admitted="probe"),
        breaker.failed(circuit, 32, admitted="probe"),
        breaker.abandoned(circuit, admitted="probe"),
    ):
        assert (after.phase(32), after.retry_at_s, after.probes) == ("open", 61, 0)


# --- slow calls ------------------------------------------------------------------------------------------------------


def test_a_call_that_is_too_slow_is_a_failure_although_it_worked() -> None:
    breaker = Breaker(failures=2, slow_s=3)
    circuit = breaker.succeeded(CLOSED, 10, took_s=3)
    assert circuit.failures == 1
    assert breaker.succeeded(circuit, 10, took_s=2.9) == CLOSED
    assert breaker.refused(circuit, 10, took_s=3).opened
    assert breaker.succeeded(CLOSED, 1e9, took_s=1e6).failures == 1
    assert Breaker().succeeded(CLOSED, 1e9, took_s=1e6) is CLOSED


def test_a_probe_that_is_too_slow_does_not_close_it() -> None:
    breaker = Breaker(failures=1, slow_s=3)
    circuit, _ = breaker.admit(breaker.failed(CLOSED, 0), 30)
    assert breaker.succeeded(circuit, 34, took_s=4, admitted="probe").phase(63) == "open"


# --- the share of failures -------------------------------------------------------------------------------------------


def rated(breaker: Breaker, outcomes: str, circuit: Circuit = CLOSED) -> Circuit:
    """The circuit after calls that worked (.) or failed (x)."""
    for each in outcomes:
        circuit = breaker.failed(circuit, 0) if each == "x" else breaker.succeeded(circuit, 0)
    return circuit


@pytest.mark.parametrize(
    ("outcomes", "opened"),
    [
        ("x" * 9, False),
        ("x" * 10, True),
        ("x.x.x.x.x", False),
        ("x.x.x.x.xx", True),
        ("xx........", False),
        (".........." + "x" * 9, False),
        (".........." + "x" * 10, True),
        ("x" * 9 + "." * 20 + "x" * 9, False),
        ("x" * 9 + "." * 20 + "x" * 10, True),
    ],
)
def test_it_opens_at_a_share_of_the_last_calls_when_there_are_enough_of_them(outcomes: str, opened: bool) -> None:
    breaker = Breaker(failures=1, failure_rate=0.5, window_calls=20, calls_min=10)
    assert rated(breaker, outcomes).opened is opened


def test_a_share_is_met_exactly_although_floats_are_rounded() -> None:
    breaker = Breaker(failure_rate=0.07, window_calls=100, calls_min=100)
    assert rated(breaker, "." * 93 + "x" * 7).opened
    assert not rated(breaker, "." * 94 + "x" * 6).opened


def test_the_window_forgets_what_is_older_and_begins_anew_after_an_opening() -> None:
    breaker = Breaker(failure_rate=1, window_calls=3, calls_min=3, reset_s=30)
    circuit = rated(breaker, ".xx")
    assert (circuit.outcomes, circuit.calls, circuit.opened) == (0b011, 3, False)
    opened = breaker.failed(circuit, 0)
    assert (opened.opened, opened.outcomes, opened.calls) == (True, 0, 0)
    probing, _ = breaker.admit(opened, 30)
    closed = breaker.succeeded(probing, 30, admitted="probe")
    assert not rated(breaker, "xx", closed).opened


# --- business errors -------------------------------------------------------------------------------------------------


def test_a_business_error_is_an_answer_like_any_other() -> None:
    """C3: a declined card says that the gateway is alive."""
    breaker = Breaker(failures=2)
    circuit = breaker.failed(CLOSED, 0)
    for _ in range(100):
        circuit = breaker.refused(circuit, 0)
    assert circuit == CLOSED
    probing, _ = breaker.admit(failed(breaker, CLOSED, 2), 30)
    assert not breaker.refused(probing, 30, admitted="probe").opened


def test_business_errors_open_it_at_a_threshold_of_their_own_if_they_have_one() -> None:
    breaker = Breaker(failures=2, business_failures=3, reset_s=30)
    circuit = breaker.refused(breaker.refused(CLOSED, 0), 0)
    assert (circuit.opened, circuit.business, circuit.failures) == (False, 2, 0)
    assert breaker.succeeded(circuit, 0) == CLOSED
    assert breaker.failed(circuit, 0) == Circuit(failures=1)
    opened = breaker.refused(circuit, 0)
    assert (opened.opened, opened.business, opened.retry_at_s) == (True, 3, 30)


def test_a_business_error_ends_a_row_of_failures_and_counts_for_itself() -> None:
    breaker = Breaker(failures=2, business_failures=2)
    circuit = breaker.refused(breaker.failed(CLOSED, 0), 0)
    assert (circuit.failures, circuit.business) == (0, 1)
    assert not breaker.failed(circuit, 0).opened


def test_what_business_errors_have_opened_they_keep_open() -> None:
    breaker = Breaker(business_failures=1, reset_s=30)
    opened = breaker.refused(CLOSED, 0)
    assert breaker.refused(opened, 5) == opened
    probing, _ = breaker.admit(opened, 30)
    assert breaker.refused(probing, 31, admitted="probe").phase(60) == "open"
    assert not breaker.succeeded(probing, 31, admitted="probe").opened


def test_what_failures_have_opened_a_business_error_closes() -> None:
    breaker = Breaker(failures=1, business_failures=3, reset_s=30)
    opened = breaker.failed(CLOSED, 0)
    assert breaker.refused(opened, 5) == opened
    probing, _ = breaker.admit(opened, 30)
    assert not breaker.refused(probing, 31, admitted="probe").opened


def test_a_business_error_that_is_too_slow_counts_as_both() -> None:
    breaker = Breaker(failures=2, business_failures=3, slow_s=1)
    circuit = breaker.refused(CLOSED, 9, took_s=2)
    assert (circuit.failures, circuit.business) == (1, 1)
    assert breaker.refused(circuit, 9, took_s=2).opened


# --- undos -----------------------------------------------------------------------------------------------------------


def test_an_undo_may_try_an_open_circuit_a_few_at_a_time_until_one_fails() -> None:
    """C9: what it gives back is owed, and the breaker only guesses."""
    breaker = Breaker(failures=1, reset_s=30, probes=2)
    circuit = breaker.failed(CLOSED, 0)
    verdicts = list[Verdict]()
    for undo in (False, True, True, True):
        circuit, admitted = breaker.admit(circuit, 1, undo=undo)
        verdicts.append(admitted)
    assert verdicts == ["wait", "undo", "undo", "wait"]
    worked = breaker.succeeded(circuit, 2, admitted="undo")
    assert (worked.phase(2), worked.undos) == ("open", 1)
    assert verdict(breaker, worked, 2, undo=True) == "undo"
    wrong = breaker.failed(circuit, 2, admitted="undo")
    assert (wrong.phase(2), wrong.undos, wrong.undos_failed, wrong.retry_at_s) == ("open", 1, True, 30)
    assert verdict(breaker, breaker.abandoned(wrong, admitted="undo"), 3, undo=True) == "wait"
    assert verdict(breaker, wrong, 30, undo=True) == "probe"


def test_an_undo_that_ends_while_it_is_half_open_is_as_good_as_a_probe() -> None:
    breaker = Breaker(failures=1, reset_s=30)
    circuit, _ = breaker.admit(breaker.failed(CLOSED, 0), 29, undo=True)
    assert breaker.succeeded(circuit, 30, admitted="undo") == Circuit(wave=FIRST_WAVE, closed_at_s=30)
    assert breaker.failed(circuit, 31, admitted="undo") == Circuit(failures=1, opened=True, retry_at_s=61)
    probing, _ = breaker.admit(circuit, 30)
    assert breaker.failed(probing, 31, admitted="undo").probes == 1


# --- waves -----------------------------------------------------------------------------------------------------------


def test_calls_come_back_in_waves_that_grow_by_one_for_each_that_works() -> None:
    breaker = Breaker()
    circuit = Circuit(wave=2)
    assert [verdict(breaker, circuit, 0, under_way=each) for each in (0, 1, 2, 3)] == ["call", "call", "wait", "wait"]
    grown = breaker.succeeded(circuit, 0)
    assert grown.wave == 3
    assert [verdict(breaker, grown, 0, under_way=each) for each in (2, 3)] == ["call", "wait"]
    assert verdict(breaker, CLOSED, 0, under_way=10**6) == "call"
    assert breaker.succeeded(Circuit(wave=2, failures=1), 0) == Circuit(wave=3)
    rated = Breaker(failure_rate=0.5)
    assert rated.succeeded(Circuit(wave=2), 0) == Circuit(wave=3, calls=1)


@pytest.mark.parametrize(("wave", "after"), [(0, 0), (1, 2), (2, 2), (3, 2), (9, 8), (10, 9)])
def test_a_failure_makes_a_wave_smaller_and_never_nothing(wave: int, after: int) -> None:
    """A wave of 0 is no bound: it must not be reached by failing."""
    assert Breaker().failed(Circuit(wave=wave), 0).wave == after


def test_a_probe_that_hangs_is_not_waited_for_longer_than_the_reset() -> None:
    """C4: a step may have a timeout of an hour; who waits behind its probe does not wait so long."""
    breaker = Breaker(failures=1, reset_s=30)
    circuit, first = breaker.admit(breaker.failed(CLOSED, 0), 30)
    assert verdict(breaker, circuit, 59.9) == "wait"
    assert breaker.probes_again_s(circuit) == 60
    circuit, second = breaker.admit(circuit, 60)
    assert (first, second, circuit.probes) == ("probe", "probe", 2)
    assert verdict(breaker, circuit, 61) == "wait"
    closed = breaker.succeeded(circuit, 62, admitted="probe")
    assert closed.phase(62) == "closed"
    assert breaker.failed(closed, 3_630, took_s=3_600, admitted="probe").failures == 0


# --- whatever happens ------------------------------------------------------------------------------------------------

calls = st.lists(st.tuples(st.sampled_from(["done", "failed", "refused", "abandoned"]), st.floats(0, 20)), max_size=60)


@given(st.integers(1, 4), st.integers(1, 3), calls)
def test_it_is_never_called_while_open_and_opens_exactly_at_the_threshold(
    failures: int, probes: int, calls: list[tuple[str, float]]
) -> None:
    """One call after the other."""
    breaker, circuit, now_s, in_a_row = Breaker(failures=failures, reset_s=30, probes=probes), CLOSED, 0.0, 0
    for outcome, wait_s in calls:
        now_s += wait_s
        phase = circuit.phase(now_s)
        circuit, admitted = breaker.admit(circuit, now_s)
        assert admitted == {"closed": "call", "open": "wait", "half_open": "probe"}[phase]
        if admitted == "wait":
            continue
        if outcome == "failed":
            in_a_row += 1
            circuit = breaker.failed(circuit, now_s, admitted=admitted)
        elif outcome == "abandoned":
            circuit = breaker.abandoned(circuit, admitted=admitted)
        else:
            in_a_row = 0
            told = breaker.succeeded if outcome == "done" else breaker.refused
            circuit = told(circuit, now_s, admitted=admitted)
        assert circuit.opened is (in_a_row >= failures)
        assert circuit.probes == 0


moves = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "undo", "done", "failed", "refused", "abandoned"]), st.floats(0, 20)),
    max_size=120,
)


@given(st.integers(1, 3), st.integers(1, 3), moves)
@example(1, 1, [("ask", 0.0), ("failed", 0.0), ("ask", 10.0), ("ask", 20.0), ("ask", 10.0), ("ask", 20.0)])
def test_probes_undos_and_waves_never_exceed_their_bounds_whoever_ends_when(
    failures: int, probes: int, moves: list[tuple[str, float]]
) -> None:
    """Many at once: probes of an earlier opening end late, undos end in another phase, waves shrink and grow.

    A probe that hangs for `reset_s` is counted until it ends, and makes room for another: the bound is on the others.
    """
    breaker, circuit, now_s = Breaker(failures=failures, reset_s=30, probes=probes), CLOSED, 0.0
    under_way = list[tuple[Verdict, float]]()
    for move, wait_s in moves:
        now_s += wait_s
        if move in ("ask", "undo"):
            phase = circuit.phase(now_s)
            circuit, admitted = breaker.admit(circuit, now_s, under_way=len(under_way), undo=move == "undo")
            if admitted != "wait":
                assert admitted == {"closed": "call", "open": "undo", "half_open": "probe"}[phase]
                assert not (phase == "closed" and circuit.wave and len(under_way) >= circuit.wave)
                under_way.append((admitted, now_s))
        elif under_way:
            admitted, began_s = under_way.pop(int(wait_s * 7) % len(under_way))
            if move == "failed":
                circuit = breaker.failed(circuit, now_s, took_s=now_s - began_s, admitted=admitted)
            elif move == "abandoned":
                circuit = breaker.abandoned(circuit, admitted=admitted)
            else:
                told = breaker.succeeded if move == "done" else breaker.refused
                circuit = told(circuit, now_s, took_s=now_s - began_s, admitted=admitted)
        verdicts = [each for each, _ in under_way]
        assert (circuit.probes, circuit.undos) == (verdicts.count("probe"), verdicts.count("undo"))
        recent = [each for each, began_s in under_way if each == "probe" and now_s < began_s + breaker.reset_s]
        assert max(len(recent), circuit.undos) <= probes
