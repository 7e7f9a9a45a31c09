"""Cursors: what a page gives is what the next one takes, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import InvalidPayload
from interlock.store.records import Cursor, parse_cursor

whole = st.integers(0, 10**18 - 1)


@given(entered_us=whole, number=whole)
def test_a_cursor_is_read_back_as_it_was_written(entered_us: int, number: int) -> None:
    assert parse_cursor(str(Cursor(entered_us, number))) == Cursor(entered_us, number)


def test_no_cursor_is_the_beginning() -> None:
    assert parse_cursor(None) is None


@given(text=st.text(max_size=20).filter(lambda text: "." not in text))
def test_any_other_text_is_refused_with_what_it_was(text: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        parse_cursor(text)
    assert repr(text) in caught.value.what
