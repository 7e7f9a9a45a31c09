"""C3, C5: what an error means for the attempt that raised it, and how long to wait before the next one."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Classification, NonRetryable, Retry, Retryable, RetryAfter
from interlock.runtime.attempts import Attempt, Judge


class Luck:
    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def fraction(self) -> float:
        return self._fraction


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 20))
def test_every_retry_waits_a_part_of_its_growing_ceiling(fraction: float, attempt: int) -> None:
    """Retries without backoff are a death spiral: the wait grows, and its luck is spread over all of it."""
    retry = Retry(attempts=30, first_s=0.1, factor=2, max_s=30)
    failure = Judge(Luck(fraction)).failure(OSError("net"), retry, attempt)
    assert failure.delay_s == fraction * min(30, 0.1 * 2 ** (attempt - 1))
    assert failure.retryable
    assert Judge(Luck(fraction)).timeout(4, retry, attempt).delay_s == failure.delay_s


def test_retry_after_is_at_least_what_was_asked_for() -> None:
    retry = Retry(first_s=10)
    assert Judge(Luck(0.5)).failure(RetryAfter(3), retry, 1).delay_s == 5
    assert Judge(Luck(0.1)).failure(RetryAfter(3), retry, 1).delay_s == 3


@pytest.mark.parametrize(
    ("error", "retryable", "text"),
    [
        (OSError("net"), True, "OSError: net"),
        (Retryable("busy"), True, "retryable: busy"),
        (NonRetryable("no card"), False, "non-retryable: no card"),
        (ValueError(), True, "ValueError"),
        (asyncio.CancelledError(), True, "CancelledError"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_what_says_so_is_final_and_known_without_effect(error: Exception, retryable: bool, text: str) -> None:
    failure = Judge(Luck(0)).failure(error, Retry(), 1)
    assert (failure.retryable, failure.unknown, failure.text) == (retryable, retryable, text)


def test_a_classifier_has_the_last_word_unless_it_has_none() -> None:
    def classify(error: BaseException) -> Classification | None:
        if isinstance(error, KeyError):
            return Classification.NON_RETRYABLE
        if isinstance(error, NonRetryable):
            return Classification.RETRYABLE
        raise ZeroDivisionError("a classifier that is wrong")

    judge = Judge(Luck(0))
    assert not judge.failure(KeyError("x"), Retry(), 1, classify).retryable
    assert judge.failure(NonRetryable("x"), Retry(), 1, classify).retryable
    assert judge.failure(OSError("x"), Retry(), 1, classify).retryable


def test_the_first_reason_to_cut_an_attempt_counts() -> None:
    attempt = Attempt("o-1", "k", 1.0, "runs")
    attempt.begin()
    attempt.expire()
    attempt.cancel("stopping")
    assert attempt.cut == "expired"


def test_an_attempt_that_is_cut_before_it_begins_never_runs() -> None:
    attempt = Attempt("o-1", "k", 1.0, "runs")
    attempt.cancel("moved_on")
    with pytest.raises(asyncio.CancelledError):
        attempt.begin()
