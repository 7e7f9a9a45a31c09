"""The keys of a lane's indexes sort as their values, in Python and in SQL; and the end of a prefix."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.search import SearchField, plain_of
from interlock.store.lane_search import decimal_key, key_sql
from interlock.store.search_pages import next_text

PRICE = SearchField("price", "price", "Decimal", "decimal")
AT = SearchField("at", "at", "datetime", "time")
BELOW_ALL = float("-inf")

decimals = st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda each: len(str(each)) < 900 and abs(each.adjusted()) < 9_000
)


def key_in_sql(field: SearchField, context: bytes) -> object:
    """The key that the triggers of a lane make of a stored context."""
    connection: Any = apsw.Connection(":memory:")  # Its stubs leave the values of SQLite partly open.
    return connection.execute(f"SELECT {key_sql(field, '?1')}", (context.decode(),)).get


@given(decimals, decimals)
def test_keys_of_decimals_sort_as_the_decimals(one: Decimal, other: Decimal) -> None:
    assert (decimal_key(one) < decimal_key(other)) == (one < other)
    assert (decimal_key(one) == decimal_key(other)) == (one == other)


@given(decimals)
def test_sql_makes_the_same_key_of_a_decimal(value: Decimal) -> None:
    assert key_in_sql(PRICE, msgspec.json.encode({"price": value})) == decimal_key(value)


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-Infinity", "1E+10000", "9" * 1_001, "x"])
def test_decimals_that_have_no_place_count_as_none(text: str) -> None:
    context = msgspec.json.encode({"price": text})
    assert key_in_sql(PRICE, context) == BELOW_ALL
    assert plain_of(PRICE, {"price": text}) is None


def test_numbers_in_json_are_decimals_too() -> None:
    for text in ("5", "-1.25", "1e22", "100000000000000000000000.5"):
        raw = f'{{"price":{text}}}'.encode()
        assert key_in_sql(PRICE, raw) == decimal_key(Decimal(text))


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 -- with and without a timezone.
    st.none() | st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_sql_makes_the_same_instant_of_a_time(naive: datetime, zone: timezone | None) -> None:
    at = naive.replace(tzinfo=zone)
    context = msgspec.json.encode({"at": at})
    expected = (naive.replace(tzinfo=zone or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert key_in_sql(AT, context) == expected
    assert plain_of(AT, msgspec.json.decode(context)) == expected


def test_a_day_that_is_in_no_calendar_is_none() -> None:
    assert plain_of(AT, {"at": "2026-99-30T00:00:00Z"}) is None
    assert key_in_sql(AT, b'{"at":"2026-99-30T00:00:00Z"}') == BELOW_ALL


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_texts_with_a_prefix_are_those_before_the_next_text(prefix: str, text: str) -> None:
    end = next_text(prefix)
    for each in (text, prefix + text):
        within = prefix <= each and (end is None or each < end)
        assert within == each.startswith(prefix)


def test_the_last_characters_have_a_next_text_too() -> None:
    assert next_text("a\U0010ffff") == "b"
    assert next_text("\U0010ffff") is None
    assert next_text("") is None
    assert next_text("\ud7ff") == "\ue000"
