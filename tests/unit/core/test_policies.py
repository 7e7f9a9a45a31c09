"""The arithmetic of policies: backoff (C5), breaker (C4), token bucket (C7), budget, and their ranges."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.policies import Breaker, Budget, Classification, Dependency, Retry, TokenBucket, TokenRate
from interlock.errors import DefinitionError

NAN, INFINITY = float("nan"), float("inf")

fractions = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10**9)
retries = st.builds(
    Retry,
    attempts=st.integers(1, 10**6),
    first_s=st.floats(1e-6, 1),
    factor=st.floats(1, 1e9),
    max_s=st.floats(1, 1e9),
)

# --- retrying ------------------------------------------------------------------------------------------------------


def test_the_ceiling_doubles_until_it_is_capped() -> None:
    retry = Retry(attempts=5, first_s=0.1, factor=2.0, max_s=0.5)
    assert [retry.ceiling_s(attempt) for attempt in range(1, 6)] == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_the_defaults_are_those_that_are_documented() -> None:
    assert Retry() == Retry(attempts=60, first_s=0.1, factor=2.0, max_s=30.0)
    assert Breaker() == Breaker(failures=5, reset_s=30.0, probes=1)
    assert Dependency("x") == Dependency("x", 50, None, Breaker(), 0.2)
    assert Budget() == Budget(share=0.2, free=10, window_s=10.0)


@given(retries, attempts, fractions)
def test_full_jitter_is_between_nothing_and_the_ceiling(retry: Retry, attempt: int, fraction: float) -> None:
    """C5. A wait that grows no more is at least half of the longest."""
    delay_s, ceiling_s = retry.delay_s(attempt, fraction), retry.ceiling_s(attempt)
    assert 0 <= delay_s <= ceiling_s <= retry.max_s
    floor_s = ceiling_s / 2 if ceiling_s == retry.max_s else 0
    assert retry.delay_s(attempt, 0) == floor_s
    assert delay_s == pytest.approx(floor_s + fraction * (ceiling_s - floor_s))


def test_the_defaults_last_longer_than_ten_minutes_with_the_worst_luck() -> None:
    """C18."""
    retry = Retry()
    assert sum(retry.delay_s(attempt, 0) for attempt in range(1, retry.attempts)) > 600
    assert retry.waits_s_max() < 1_800


@given(retries, st.integers(1, 2_000))
def test_the_ceiling_never_falls(retry: Retry, attempt: int) -> None:
    assert retry.ceiling_s(attempt) <= retry.ceiling_s(attempt + 1)


@pytest.mark.parametrize("factor", [2, 3, 2.0, 1e300])
def test_ten_thousand_retries_overflow_nothing(factor: float) -> None:
    assert Retry(factor=factor).ceiling_s(10_000) == 30.0


def test_the_last_attempt_exhausts() -> None:
    assert [Retry(attempts=3).exhausted(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]
    assert Retry(attempts=1).exhausted(1)


@given(st.integers(1, 1_200), st.floats(1, 3))
def test_all_waits_together_are_the_sum_of_the_ceilings(attempts: int, factor: float) -> None:
    retry = Retry(attempts=attempts, factor=factor)
    expected = sum(retry.ceiling_s(attempt) for attempt in range(1, attempts))
    assert retry.waits_s_max() == pytest.approx(expected)


def test_all_waits_of_a_step_that_never_gives_up_are_told_at_once() -> None:
    assert Retry(attempts=10**12).waits_s_max() == pytest.approx(30 * 10**12, rel=1e-3)


# --- the bucket ----------------------------------------------------------------------------------------------------


def test_a_full_bucket_gives_its_burst_and_then_its_rate() -> None:
    rate = TokenRate(rate_per_s=10, burst=3)
    bucket = rate.full(100)
    for _ in range(3):
        bucket, wait_s = rate.take(bucket, 100)
        assert wait_s == 0
    bucket, wait_s = rate.take(bucket, 100)
    assert wait_s == pytest.approx(0.1)
    bucket, wait_s = rate.take(bucket, 100.2)
    assert wait_s == 0
    assert bucket.tokens == pytest.approx(1)


def test_several_tokens_at_once() -> None:
    rate = TokenRate(rate_per_s=2, burst=10)
    bucket, wait_s = rate.take(rate.full(0), 0, 8)
    assert (bucket, wait_s) == (TokenBucket(2, 0), 0)
    assert rate.take(bucket, 0, 4)[1] == pytest.approx(1)


def test_a_refused_take_costs_nothing() -> None:
    rate = TokenRate(rate_per_s=1, burst=1)
    empty, _ = rate.take(rate.full(0), 0)
    refused, wait_s = rate.take(empty, 0.5)
    assert wait_s == pytest.approx(0.5)
    assert rate.take(refused, 1.0)[1] == 0


def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    rate = TokenRate(rate_per_s=1, burst=5)
    bucket, _ = rate.take(rate.full(10), 10, 5)
    bucket, wait_s = rate.take(bucket, 0)
    assert wait_s == pytest.approx(1)
    assert bucket.at_s == 10


@given(
    st.floats(0.1, 1e5),
    st.floats(1, 1e5),
    st.lists(st.tuples(st.floats(0, 10), st.integers(1, 3)), min_size=1, max_size=60),
)
def test_it_never_gives_more_than_burst_plus_rate(
    rate_per_s: float, burst: float, takes: list[tuple[float, int]]
) -> None:
    rate, now_s, given_out = TokenRate(rate_per_s=rate_per_s, burst=burst), 0.0, 0
    bucket = rate.full(now_s)
    for wait_s, tokens in takes:
        now_s += wait_s
        bucket, told_s = rate.take(bucket, now_s, tokens)
        assert 0 <= bucket.tokens <= burst
        if told_s == 0:
            given_out += tokens
        assert given_out <= (burst + rate_per_s * now_s) * (1 + 1e-9)


@given(st.floats(0.1, 1e4), st.integers(1, 1_000), st.floats(0, 1e4))
def test_waiting_as_long_as_told_is_enough(rate_per_s: float, burst: int, start_s: float) -> None:
    rate = TokenRate(rate_per_s=rate_per_s, burst=burst)
    bucket, _ = rate.take(rate.full(start_s), start_s, burst)
    bucket, wait_s = rate.take(bucket, start_s)
    assert rate.take(bucket, start_s + wait_s * (1 + 1e-6) + 1e-6)[1] == 0


# --- the budget ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "retried", "allowed"),
    [(0, 0, True), (10, 9, True), (10, 10, False), (54, 10, True), (53, 10, False), (100, 19, True), (100, 20, False)],
)
def test_the_first_ten_retries_are_free_and_then_a_fifth_of_the_calls(calls: int, retried: int, allowed: bool) -> None:
    assert Budget().allows(calls=calls, retries=retried) is allowed


@given(st.floats(0, 1), st.integers(0, 20), st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_their_share(share: float, free: int, wishes: list[bool]) -> None:
    budget, calls, retried = Budget(share=share, free=free), 0, 0
    for is_retry in wishes:
        if is_retry and not budget.allows(calls=calls, retries=retried):
            continue
        calls, retried = calls + 1, retried + is_retry
        assert retried <= max(free, share * calls)


# --- ranges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Retry(attempts=0), "attempts"),
        *[(lambda bad=bad: Retry(first_s=bad), "first_s") for bad in (0, -1, NAN, 31)],
        *[(lambda bad=bad: Retry(factor=bad), "factor") for bad in (0.5, NAN, INFINITY)],
        (lambda: Retry(max_s=INFINITY), "max_s"),
        (lambda: Retry(max_s=NAN), "first_s"),
        (lambda: Breaker(failures=0), "failures"),
        *[(lambda bad=bad: Breaker(reset_s=bad), "reset_s") for bad in (0, NAN, INFINITY)],
        (lambda: Breaker(probes=0), "probes"),
        *[(lambda bad=bad: TokenRate(rate_per_s=bad, burst=1), "rate_per_s") for bad in (0, NAN, INFINITY)],
        *[(lambda bad=bad: TokenRate(rate_per_s=1, burst=bad), "burst") for bad in (0.5, NAN, INFINITY)],
        *[(lambda bad=bad: Budget(share=bad), "share") for bad in (-0.1, 1.1, NAN)],
        (lambda: Budget(free=-1), "free"),
        *[(lambda bad=bad: Budget(window_s=bad), "window_s") for bad in (0, NAN, INFINITY)],
        (lambda: Dependency(""), "name"),
        (lambda: Dependency("x", concurrency_max=0), "concurrency_max"),
        *[(lambda bad=bad: Dependency("x", rate_per_s=bad), "rate_per_s") for bad in (0, NAN, INFINITY)],
        *[(lambda bad=bad: Dependency("x", budget=bad), "budget") for bad in (-1, 2, NAN)],
    ],
)
def test_a_policy_out_of_its_range_is_refused(make: Callable[[], object], word: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert caught.value.rule == "policy-out-of-range"
    assert word in caught.value.what


def test_the_edges_of_the_ranges_are_allowed() -> None:
    Retry(attempts=1, first_s=30, factor=1, max_s=30)
    Breaker(failures=1, reset_s=math.ulp(0.0), probes=1)
    TokenRate(rate_per_s=0.001, burst=1)
    Budget(share=0, free=0)
    Budget(share=1)
    Dependency("x", concurrency_max=1, rate_per_s=0.5, budget=0)


def test_errors_are_of_two_classes() -> None:
    """C3."""
    assert {kind.value for kind in Classification} == {"retryable", "non_retryable"}
