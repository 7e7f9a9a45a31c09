"""C7: what is taken in is bounded, and whoever is refused is told when it is worth coming back."""

import pytest

from interlock.engine.dependencies.wait_queue import Places
from interlock.engine.engine_settings import Admission
from interlock.engine.path.admission import BACKLOG_S, RETRY_S, Gate
from interlock.errors import DefinitionError, Overloaded
from tests.conformance.engine.places import SetClock


def test_calls_under_way_are_bounded_and_leaving_makes_room() -> None:
    gate = Gate(Admission(in_flight_max=2), SetClock(), Places(1, 1, 1))
    gate.enter()
    gate.enter()
    with pytest.raises(Overloaded, match="in_flight_max") as refused:
        gate.enter()
    assert refused.value.retry_after_s > 0
    gate.leave()
    gate.enter()
    assert gate.in_flight == 2


def test_a_rate_allows_its_burst_and_then_one_after_the_other() -> None:
    clock = SetClock()
    gate = Gate(Admission(rate_per_s=10, burst=3), clock, Places(1, 1, 1))
    for _ in range(3):
        gate.enter()
    with pytest.raises(Overloaded, match="rate_per_s") as refused:
        gate.enter()
    assert refused.value.retry_after_s == pytest.approx(0.1)
    clock.now_s += 0.11
    gate.enter()
    with pytest.raises(Overloaded):
        gate.enter()
    assert gate.in_flight == 4


def test_a_burst_is_one_seconds_worth_unless_given() -> None:
    gate = Gate(Admission(rate_per_s=5), SetClock(), Places(1, 1, 1))
    for _ in range(5):
        gate.enter()
    with pytest.raises(Overloaded):
        gate.enter()


def test_a_refused_call_takes_no_token() -> None:
    clock = SetClock()
    gate = Gate(Admission(rate_per_s=1, burst=2, in_flight_max=1), clock, Places(1, 1, 1))
    gate.enter()
    for _ in range(5):
        with pytest.raises(Overloaded, match="in_flight_max"):
            gate.enter()
    gate.leave()
    gate.enter()


@pytest.mark.parametrize(("rate_per_s", "burst"), [(0, None), (-1, None), (float("nan"), None), (1, 0), (1, -1)])
def test_a_rate_that_lets_nobody_in_is_refused(rate_per_s: float, burst: float | None) -> None:
    with pytest.raises(DefinitionError):
        Gate(Admission(rate_per_s=rate_per_s, burst=burst), SetClock(), Places(1, 1, 1))


def waiting(count: int) -> Places:
    """Places for which so many wait."""
    places = Places(1, 1, 1)
    places.steps.called = None
    for each in range(count):
        places.steps.wait(f"o-{each}")
    assert places.waiting == count
    return places


def test_a_backlog_refuses_those_who_start_and_nobody_else() -> None:
    """C7: events for workflows that exist are still taken, or nothing would ever get smaller."""
    gate = Gate(Admission(in_flight_max=5), SetClock(), waiting(4))
    gate.enter(starts=True)
    with pytest.raises(Overloaded, match="4 workflows wait for a place already") as refused:
        gate.enter(starts=True)
    assert refused.value.retry_after_s == BACKLOG_S
    for _ in range(4):
        gate.enter()
    with pytest.raises(Overloaded, match="5 calls are under way already") as refused:
        gate.enter()
    assert refused.value.retry_after_s == RETRY_S
    assert gate.in_flight == 5


def test_whoever_is_refused_for_the_backlog_takes_no_token() -> None:
    places = waiting(5)
    gate = Gate(Admission(in_flight_max=5, rate_per_s=1, burst=1), SetClock(), places)
    for _ in range(3):
        with pytest.raises(Overloaded, match="wait for a place"):
            gate.enter(starts=True)
    gate.enter()


def test_bounds_change_at_run_time_and_count_what_is_under_way() -> None:
    clock = SetClock()
    gate = Gate(Admission(in_flight_max=1), clock, Places(1, 1, 1))
    gate.enter()
    with pytest.raises(Overloaded):
        gate.enter()
    gate.set(Admission(in_flight_max=3, rate_per_s=1, burst=1))
    assert gate.admission.in_flight_max == 3
    gate.enter()
    with pytest.raises(Overloaded, match="rate_per_s"):
        gate.enter()
    gate.set(Admission(in_flight_max=3))
    gate.enter()
    with pytest.raises(Overloaded, match="3 calls"):
        gate.enter()
    gate.set(Admission(in_flight_max=2))
    gate.leave()
    with pytest.raises(Overloaded, match="2 calls"):
        gate.enter()


@pytest.mark.parametrize("bad", [Admission(rate_per_s=-5), "none at all"])
def test_bounds_that_cannot_be_meant_are_refused_and_the_old_ones_stay(bad: Admission) -> None:
    """C7: a refused change must not lift the limit that was there."""
    gate = Gate(Admission(rate_per_s=1, burst=1), SetClock(), Places(1, 1, 1))
    with pytest.raises(DefinitionError):
        gate.set(bad)
    gate.enter()
    with pytest.raises(Overloaded):
        gate.enter()


@pytest.mark.parametrize(
    ("admission", "many", "let_in"),
    [
        (Admission(), 1_000, 1_000),
        (Admission(in_flight_max=3), 5, 3),
        (Admission(rate_per_s=10, burst=4.5), 5, 4),
        (Admission(rate_per_s=10, burst=9, in_flight_max=7), 8, 7),
        (Admission(rate_per_s=10, burst=9), 0, 0),
    ],
)
def test_many_enter_together_as_they_would_one_by_one(admission: Admission, many: int, let_in: int) -> None:
    together, each = (Gate(admission, SetClock(), Places(1, 1, 1)) for _ in range(2))
    assert together.enter_many(many) == let_in
    for _ in range(let_in):
        each.enter()
    assert (together.in_flight, together.bucket, together.refused) == (each.in_flight, each.bucket, 0)
    assert together.enter_many(-1) == 0
    assert together.in_flight == let_in


def test_those_who_enter_together_have_what_has_come_meanwhile_and_no_more() -> None:
    clock = SetClock()
    gate = Gate(Admission(rate_per_s=10, burst=10), clock, Places(1, 1, 1))
    assert gate.enter_many(10) == 10
    assert gate.enter_many(10) == 0
    clock.now_s += 0.25
    assert gate.enter_many(10) == 2
    with pytest.raises(Overloaded, match="rate_per_s") as refused:
        gate.enter()
    assert refused.value.retry_after_s == pytest.approx(0.05), "half a token was left"


def test_the_tokens_of_a_cluster_are_taken_one_by_one() -> None:
    class Three:
        left = 3
        is_shared = True

        def wait_s(self) -> float:
            return 0.0 if self.left else 0.5

        def take(self) -> bool:
            self.left -= 1
            return True

    gate = Gate(Admission(rate_per_s=10), SetClock(), Places(1, 1, 1), lambda _: Three())
    assert gate.enter_many(3) == 0
    for _ in range(3):
        assert gate.room > 0
        gate.enter()
    assert gate.room == 0
    with pytest.raises(Overloaded, match="of the cluster"):
        gate.enter()


def test_a_refusal_can_be_had_without_being_raised_and_counts_as_one() -> None:
    clock = SetClock()
    gate = Gate(Admission(rate_per_s=10, burst=1), clock, Places(1, 1, 1))
    assert gate.refusal() is None
    assert gate.room == 1
    gate.enter()
    refused = gate.refusal()
    assert gate.room == 0
    assert gate.refused == 1, "looking whether there is room is no refusal"
    with pytest.raises(Overloaded) as raised:
        gate.look()
    assert refused is not None
    assert (refused.what, refused.retry_after_s) == (raised.value.what, raised.value.retry_after_s)
    assert gate.refused == 2
    clock.now_s += 0.11
    assert gate.room == 1
    assert gate.refusal(starts=True) is None
    behind = gate.refusal(2)
    assert behind is not None
    assert behind.retry_after_s == pytest.approx(0.2), "two tokens more"


def test_a_backlog_is_told_to_those_who_start() -> None:
    places = Places(1, 1, 1)
    gate = Gate(Admission(in_flight_max=2), SetClock(), places)
    gate.enter()
    gate.enter()
    assert gate.room == 0
    refused = gate.refusal(starts=True)
    assert refused is not None
    assert "under way" in refused.what
