"""C5: retries are a share of the calls of the last ten seconds, and the first ten of them are free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.policies import Budget
from interlock.engine.dependencies.outlet import RetryBudget


def spent(spending: RetryBudget, now_s: float, *, calls: int = 0, retries: int = 0) -> RetryBudget:
    for _ in range(calls):
        spending.spend(now_s, retry=False)
    for _ in range(retries):
        spending.spend(now_s, retry=True)
    return spending


def allowed(spending: RetryBudget, now_s: float) -> int:
    """So many retries are made until one is held back."""
    made = 0
    while spending.allows(now_s):
        spending.spend(now_s, retry=True)
        made += 1
    return made


def test_the_first_ten_retries_in_ten_seconds_are_free() -> None:
    spending = RetryBudget(Budget())
    assert allowed(spending, 1000.0) == 10
    assert not spending.allows(1008.9)
    assert allowed(spending, 1010.0) == 10
    assert allowed(RetryBudget(Budget(share=0)), 0.0) == 10


def test_a_fifth_of_all_calls_may_be_retries() -> None:
    """The retries are calls as well: 25 of 100 first calls and 25 retries."""
    assert allowed(spent(RetryBudget(Budget()), 5.0, calls=100), 5.0) == 25
    assert allowed(spent(RetryBudget(Budget(share=0.5)), 5.0, calls=100), 5.0) == 100


def test_the_window_moves_in_tenths_and_forgets_what_is_older() -> None:
    spending = RetryBudget(Budget())
    for second in range(10):
        spent(spending, second + 0.5, calls=second + 1, retries=1)
    assert (spending.calls, spending.retries) == (55 + 10, 10)
    spending.allows(10.0)
    assert (spending.calls, spending.retries) == (65 - 2, 9)
    spending.allows(12.9)
    assert (spending.calls, spending.retries) == (65 - 2 - 3 - 4, 7)
    spending.allows(500.0)
    assert (spending.calls, spending.retries) == (0, 0)


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    """G8."""
    spending = spent(RetryBudget(Budget()), 100.0, calls=3)
    spent(spending, 95.0, retries=1)
    assert (spending.calls, spending.retries) == (4, 1)
    spending.allows(110.0)
    assert (spending.calls, spending.retries) == (0, 0)


def test_it_says_when_the_window_moves_on() -> None:
    spending = RetryBudget(Budget())
    assert spending.left_s(3.25) == pytest.approx(0.75)
    assert spending.left_s(4.0) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=80))
def test_the_counts_are_those_of_nine_to_ten_seconds(calls: list[tuple[float, bool]]) -> None:
    spending, now_s, made = RetryBudget(Budget()), 0.0, list[tuple[float, bool]]()
    for wait_s, retry in calls:
        now_s += wait_s
        spending.spend(now_s, retry=retry)
        made.append((now_s, retry))
        inside = [each for each in made if int(each[0]) > int(now_s) - 10]
        assert (spending.calls, spending.retries) == (len(inside), sum(retry for _, retry in inside))
