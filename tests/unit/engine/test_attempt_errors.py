"""C3, C5: what an error means for the attempt that raised it, and how long to wait before the next one."""

import asyncio
from typing import cast

import asyncpg
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Classification, NonRetryable, Retry, Retryable, RetryAfter
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.dependencies.wait_queue import Pass, Slots
from interlock.engine.steps.attempt import DELAY_S_MAX, Judge, RunningAttempt
from tests.unit.engine.shared.stores import Luck


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 20))
def test_every_retry_waits_a_part_of_its_growing_ceiling(fraction: float, attempt: int) -> None:
    """Retries without backoff are a death spiral: the wait grows, and its luck is spread over all of it."""
    retry = Retry(attempts=30, first_s=0.1, factor=2, max_s=30)
    failure = Judge(Luck(fraction)).failure(OSError("net"), retry, attempt)
    ceiling_s = min(30, 0.1 * 2 ** (attempt - 1))
    assert failure.delay_s == (fraction * ceiling_s if ceiling_s < 30 else 15 + fraction * 15)
    assert failure.retryable
    assert Judge(Luck(fraction)).timeout("it took longer than 4 s", retry, attempt).delay_s == failure.delay_s


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
        (MemoryError(), True, "MemoryError"),
        (asyncio.CancelledError(), True, "CancelledError"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_what_says_so_is_final_and_known_without_effect(error: Exception, retryable: bool, text: str) -> None:
    failure = Judge(Luck(0)).failure(error, Retry(), 1)
    assert (failure.retryable, failure.unknown, failure.text) == (retryable, retryable, text)


def http_error(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://gateway.test/charges")
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(status, headers=shown, request=request))


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (http_error(500), Kind.INFRASTRUCTURE, True),
        (http_error(402), Kind.BUSINESS, False),
        (FileNotFoundError("x"), Kind.UNEXPECTED, True),
        (asyncpg.UniqueViolationError("x"), Kind.BUSINESS, False),
        (ExceptionGroup("", [NonRetryable("x"), http_error(404)]), Kind.BUSINESS, False),
        (ExceptionGroup("", [NonRetryable("x"), OSError()]), Kind.INFRASTRUCTURE, True),
    ],
)
def test_the_kind_of_an_error_decides_whether_it_is_tried_again(error: Exception, kind: Kind, retryable: bool) -> None:
    """C3: only what may work is retried; G5: only a refusal is known to have had no effect."""
    failure = Judge(Luck(0)).failure(error, Retry(), 1)
    assert (failure.kind, failure.retryable, failure.unknown) == (kind, retryable, retryable)


def test_a_timeout_is_the_fault_of_the_dependency() -> None:
    """C2: a timeout is retryable, unknown, and seen by the breaker."""
    failure = Judge(Luck(0)).timeout("it took longer than 4 s", Retry(), 1)
    assert (failure.kind, failure.retryable, failure.unknown) == (Kind.INFRASTRUCTURE, True, True)


def test_the_header_of_a_gateway_is_heeded_like_retry_after_and_bounded() -> None:
    judge, retry = Judge(Luck(0.5)), Retry(first_s=10)
    assert judge.failure(http_error(429, Retry_After="3"), retry, 1).delay_s == 5
    assert judge.failure(http_error(429, Retry_After="60"), retry, 1).delay_s == 60
    assert judge.failure(http_error(503, Retry_After="9" * 400), retry, 1).delay_s == DELAY_S_MAX
    assert judge.failure(RetryAfter(float("nan")), retry, 1).delay_s == 5
    assert judge.failure(RetryAfter(-1), retry, 1).delay_s == 5


def classify(error: BaseException) -> Classification | None:
    if isinstance(error, KeyError):
        return Classification.NON_RETRYABLE
    if isinstance(error, NonRetryable | TypeError):
        return Classification.RETRYABLE
    if isinstance(error, OSError):
        return None
    raise ZeroDivisionError("a classifier that is wrong")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("x"), Kind.BUSINESS),
        (NonRetryable("x"), Kind.INFRASTRUCTURE),
        (TypeError("x"), Kind.INFRASTRUCTURE),
        (OSError("x"), Kind.INFRASTRUCTURE),
        (PermissionError("x"), Kind.UNEXPECTED),
        (MemoryError("it raises"), Kind.UNEXPECTED),
        (http_error(404), Kind.BUSINESS),
    ],
)
def test_a_classifier_has_the_last_word_unless_it_has_none(error: Exception, kind: Kind) -> None:
    failure = Judge(Luck(0)).failure(error, Retry(), 1, classify)
    assert (failure.kind, failure.retryable) == (kind, kind is not Kind.BUSINESS)


def test_a_classifier_is_not_asked_about_what_is_no_error_of_the_step() -> None:
    failure = Judge(Luck(0)).failure(asyncio.CancelledError(), Retry(), 1, lambda _: Classification.NON_RETRYABLE)
    assert failure.retryable


def test_a_classifier_that_is_wrong_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def talks(error: BaseException) -> Classification | None:
        return cast("Classification", "retryable")

    judge = Judge(Luck(0))
    with caplog.at_level("WARNING", logger="interlock.steps"):
        for _ in range(3):
            judge.failure(ValueError("x"), Retry(), 1, classify)
            judge.failure(ValueError("x"), Retry(), 1, talks)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "classify raised ZeroDivisionError (a classifier that is wrong)" in told[0]
    assert "returned str instead of a Classification" in told[1]


def test_the_first_reason_to_cut_an_attempt_counts() -> None:
    attempt = RunningAttempt("o-1", "k", 1.0, Pass(Slots(1)))
    attempt.begin()
    attempt.expire()
    attempt.cancel("stopping")
    assert attempt.cut == "expired"


def test_an_attempt_that_is_cut_before_it_begins_never_runs() -> None:
    attempt = RunningAttempt("o-1", "k", 1.0, Pass(Slots(1)))
    attempt.cancel("moved_on")
    with pytest.raises(asyncio.CancelledError):
        attempt.begin()
