"""The choice of a form, on paper (D7)."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from interlock.hotrow.counters import CALM_S, CounterMeasurements, Form, calm_below, choose

FORMS: tuple[Form, ...] = ("exact", "sharded", "event_log")
THRESHOLD = 50.0

rates = st.floats(0.0, 1_000.0)
measured = st.builds(
    CounterMeasurements,
    row_handoffs_per_s=rates,
    shard_handoffs_per_s=rates,
    calm_s=st.floats(0.0, 600.0),
    commits_shared=st.booleans(),
    appends_apart=st.booleans(),
)


def next_form(current: Form, **given: float) -> Form:
    return choose(current, CounterMeasurements(**given), threshold=THRESHOLD)  # type: ignore[arg-type]  # Switches are numbers.


def test_a_row_that_is_handed_around_more_often_than_the_threshold_is_split() -> None:
    assert next_form("exact", row_handoffs_per_s=50.0) == "exact"
    assert next_form("exact", row_handoffs_per_s=50.1) == "sharded"


def test_a_row_whose_writers_share_commits_stays_whole() -> None:
    assert next_form("exact", row_handoffs_per_s=10_000.0, commits_shared=True) == "exact"


def test_a_shard_that_is_handed_around_becomes_a_log_where_appends_run_apart() -> None:
    assert next_form("sharded", shard_handoffs_per_s=50.0, appends_apart=True) == "sharded"
    assert next_form("sharded", shard_handoffs_per_s=50.1, appends_apart=True) == "event_log"


def test_a_lane_keeps_its_shards_because_its_log_is_one_more_queue() -> None:
    assert next_form("sharded", shard_handoffs_per_s=1_000.0, appends_apart=False) == "sharded"


def test_after_a_long_calm_it_goes_down_one_form_at_a_time() -> None:
    assert next_form("event_log", calm_s=CALM_S - 0.1) == "event_log"
    assert next_form("event_log", calm_s=CALM_S) == "sharded"
    assert next_form("sharded", calm_s=CALM_S - 0.1) == "sharded"
    assert next_form("sharded", calm_s=CALM_S) == "exact"


def test_what_is_calm_depends_on_how_many_rows_are_below() -> None:
    """Even if each add waited for another, a row below would see a quarter of the threshold at most."""
    assert calm_below("sharded", threshold=THRESHOLD, shard_count=16) == 12.5
    assert calm_below("event_log", threshold=THRESHOLD, shard_count=16) == 200.0


@given(st.sampled_from(FORMS), measured)
def test_no_choice_skips_a_form(current: Form, seen: CounterMeasurements) -> None:
    chosen = choose(current, seen, threshold=THRESHOLD)
    assert abs(FORMS.index(chosen) - FORMS.index(current)) <= 1


@given(st.sampled_from(FORMS), measured)
def test_a_choice_goes_up_because_of_hand_offs_and_down_because_of_calm_alone(
    current: Form, seen: CounterMeasurements
) -> None:
    chosen = choose(current, seen, threshold=THRESHOLD)
    if FORMS.index(chosen) > FORMS.index(current):
        assert max(seen.row_handoffs_per_s, seen.shard_handoffs_per_s) > THRESHOLD
    if FORMS.index(chosen) < FORMS.index(current):
        assert seen.calm_s >= CALM_S


@given(st.lists(st.floats(0.0, 49.0), min_size=2, max_size=50))
def test_noise_below_the_threshold_never_moves_a_counter(noise: list[float]) -> None:
    form: Form = "exact"
    for handoffs in noise:
        form = next_form(form, row_handoffs_per_s=handoffs, shard_handoffs_per_s=handoffs, appends_apart=True)
    assert form == "exact"


@given(st.lists(st.floats(0.0, 1_000.0), min_size=1, max_size=100))
def test_a_noisy_storm_moves_a_counter_up_and_never_back(noise: list[float]) -> None:
    """Hysteresis: without a calm of its own there is no way down, so nothing flips."""
    forms: list[Form] = ["exact"]
    for handoffs in noise:
        seen = CounterMeasurements(row_handoffs_per_s=handoffs, shard_handoffs_per_s=handoffs, appends_apart=True)
        forms.append(choose(forms[-1], seen, threshold=THRESHOLD))
    assert all(FORMS.index(one) <= FORMS.index(next_one) for one, next_one in itertools.pairwise(forms))
