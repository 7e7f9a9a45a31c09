"""What raises at run time: a second row, a key proposed twice, rows that disagree; and rows that leave a frame."""

import pytest

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions.accumulators import SUMS, MovingAggregate
from interlock.sql.functions.guards import SameValue, SingleRow, Upserts, place, step


def test_a_subquery_as_a_value_has_one_row() -> None:
    rows = SingleRow()
    assert rows.final() is None
    rows.step("a")
    assert rows.final() == "a"
    with pytest.raises(TransactionError, match="more than one row"):
        rows.step("a")


def test_source_rows_may_agree_and_may_not_differ() -> None:
    rows = SameValue()
    rows.step(1)
    rows.step(1)
    assert rows.final() == 1
    with pytest.raises(DialectError, match="1 and 2"):
        rows.step(2)


def test_null_is_a_value_of_its_own_for_source_rows() -> None:
    rows = SameValue()
    rows.step(None)
    with pytest.raises(DialectError):
        rows.step(0)


def test_a_key_is_proposed_once_per_statement() -> None:
    upserts = Upserts()
    first = upserts.begin()
    assert upserts.propose(first, 0, "vv", 1, "a") == 1
    assert upserts.propose(first, 0, "vv", 1, "b") == 1
    with pytest.raises(TransactionError, match="1, 'a'"):
        upserts.propose(first, 0, "vv", 1, "a")
    assert upserts.propose(upserts.begin(), 0, "vv", 1, "a") == 1


def test_equal_decimals_are_one_key_and_null_is_none() -> None:
    upserts = Upserts()
    number = upserts.begin()
    upserts.propose(number, 1, "n", "1.50")
    upserts.propose(number, 1, "n", None)
    upserts.propose(number, 1, "n", None)
    upserts.propose(number, 1, "n", "100")
    upserts.propose(number, 1, "n", "10")
    with pytest.raises(DialectError, match="WHERE"):
        upserts.propose(number, 1, "n", "1.5")


def test_a_series_does_not_stand_still() -> None:
    assert step(-1) == -1
    with pytest.raises(TransactionError, match="zero"):
        step(0)


def test_a_frame_gives_rows_back() -> None:
    frame = MovingAggregate(SUMS["sum_integer"])
    for value in (1, 2, None, 4):
        frame.step(value)
    assert frame.value() == "7"
    frame.inverse(1)
    frame.inverse(2)
    assert frame.value() == "4"
    frame.inverse(None)
    frame.inverse(4)
    assert frame.final() is None


def test_of_equal_decimals_the_last_one_is_the_largest_and_the_smallest() -> None:
    for name in ("min_numeric", "max_numeric"):
        extreme = SUMS[name]()
        for value in ("1.5", None, "1.50"):
            extreme.step(value)
        assert extreme.final() == "1.50"


def test_a_place_of_a_window_function_is_verified_when_it_is_known() -> None:
    assert place(0, 0) == 0
    assert place(3, 1) == 3
    for unknown in (None, -1):
        with pytest.raises(DialectError, match="NULL or negative"):
            place(unknown, 0)
    with pytest.raises(TransactionError, match="argument 0"):
        place(0, 1)
