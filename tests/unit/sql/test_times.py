"""Moments and intervals on values that matter. The conformance suite compares the rest with PostgreSQL."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import times
from interlock.sql.functions.times import Interval
from interlock.sql.stored_values import TIME_MAX, TIME_MIN, microseconds

moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(microseconds)  # noqa: DTZ001 - hypothesis wants them naive


def at(text: str) -> int:
    return microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1 day", Interval(days=1)),
        ("5 minutes", Interval(micros=5 * times.MINUTE_US)),
        ("-1 month 2 weeks", Interval(months=-1, days=14)),
        ("1 year 2 months 3 days 04:05:06.789", Interval(14, 3, 14_706_789_000)),
        ("1.5 SECONDS", Interval(micros=1_500_000)),
        ("-0.25 seconds", Interval(micros=-250_000)),
        ("-02:30", Interval(micros=-150 * times.MINUTE_US)),
        ("10 mins 5 secs", Interval(micros=605_000_000)),
        ("0 seconds", Interval()),
        ("1.5 days", Interval(days=1, micros=12 * times.HOUR_US)),
        ("P1DT2H", Interval(days=1, micros=2 * times.HOUR_US)),
    ],
)
def test_an_interval_is_read_in_three_parts(written: str, read: Interval) -> None:
    assert times.read_interval(written) == read.stored


@pytest.mark.parametrize(
    "written",
    ["", "day", "1", "1 fortnight", "1.5 fortnights", "1 day 1 day", "1-2", "P1D2", "02:60", "1 hour 02:30", "1 day x"],
)
def test_what_is_no_plain_interval_is_not_read(written: str) -> None:
    with pytest.raises(ValueError):
        times.read_interval(written)


@pytest.mark.parametrize(
    ("moment", "interval", "later"),
    [
        ("2030-01-31", Interval(months=1), "2030-02-28"),
        ("2028-01-31", Interval(months=1), "2028-02-29"),
        ("2028-02-29", Interval(months=12), "2029-02-28"),
        ("2030-12-15", Interval(months=1), "2031-01-15"),
        ("2030-01-31", Interval(1, 1, times.HOUR_US), "2030-03-01T01:00:00"),
        ("2030-03-31", Interval(months=-1), "2030-02-28"),
    ],
)
def test_a_month_ends_on_its_last_day(moment: str, interval: Interval, later: str) -> None:
    assert times.add(at(moment), interval.stored) == at(later)


@given(moments, moments)
def test_a_difference_leads_from_one_moment_to_the_other(first: int, second: int) -> None:
    between = times.difference(first, second)
    assert times.add(second, between) == first
    assert times.subtract(first, between) == second
    assert times.interval_key(between) == first - second


@pytest.mark.parametrize(
    ("moment", "interval"),
    [(TIME_MAX, Interval(micros=1)), (TIME_MIN, Interval(days=-1)), (TIME_MAX, Interval(months=1))],
)
def test_a_moment_that_cannot_be_kept_is_refused(moment: int, interval: Interval) -> None:
    with pytest.raises(DialectError, match="years 1 to 9999"):
        times.add(moment, interval.stored)


def test_a_part_of_a_month_becomes_days_and_a_part_of_a_day_becomes_time() -> None:
    assert times.multiply(Interval(months=1).stored, 1.5) == Interval(1, 15, 0).stored
    assert times.divide(Interval(days=1).stored, 2.0) == Interval(micros=12 * times.HOUR_US).stored
    with pytest.raises(TransactionError, match="division by zero"):
        times.divide(Interval(days=1).stored, 0.0)
    with pytest.raises(TransactionError, match="out of range"):
        times.multiply(Interval(months=2**30).stored, 4.0)
    with pytest.raises(TransactionError, match="out of range"):
        times.multiply(Interval(micros=2**62).stored, 1e300)
    with pytest.raises(TransactionError, match="out of range"):
        times.multiply(Interval(months=12).stored, 1.7e308)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(DialectError, match="date_trunc"):
        times.truncate("decade", 0)


def test_intervals_too_long_to_compare_are_refused() -> None:
    with pytest.raises(DialectError, match="comparison"):
        times.interval_key(Interval(months=2**31 - 1).stored)
