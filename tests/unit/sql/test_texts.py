"""Functions on text at the edges of their arguments. The conformance suite compares the rest with PostgreSQL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import texts


@given(st.text(max_size=5), st.integers(-9, 9), st.integers(0, 9))
def test_a_substring_is_what_lies_between_two_places(text: str, start: int, length: int) -> None:
    expected = "".join(letter for place, letter in enumerate(text, start=1) if start <= place < start + length)
    assert texts.substring(text, start, length) == expected


@given(st.text(max_size=5), st.integers(-9, 9))
def test_left_and_right_are_the_whole_together(text: str, count: int) -> None:
    assert (
        texts.left(text, count) + texts.right(text, -count) == text
        or not -len(text) <= count <= len(text)
        or count == 0
    )


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_written_so_that_it_reads_the_same(value: float) -> None:
    assert float(texts.from_float(value)) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (1e15, "1e+15"),
        (1e14, "100000000000000"),
        (1e-5, "1e-05"),
        (-0.0001, "-0.0001"),
        (1.5e300, "1.5e+300"),
    ],
)
def test_a_float_is_written_as_postgresql_writes_it(value: float, written: str) -> None:
    assert texts.from_float(value) == written


def test_a_text_has_a_bound() -> None:
    with pytest.raises(DialectError, match="the limit is"):
        texts.repeat("ab", 10**8)
    with pytest.raises(DialectError, match="the limit is"):
        texts.pad_left("", 10**9)
    with pytest.raises(DialectError, match="the limit is"):
        texts.replace("a" * 10**4, "a", "b" * 10**5)


def test_a_length_is_not_negative_and_fields_count_from_one() -> None:
    with pytest.raises(TransactionError, match="negative substring length"):
        texts.substring("abc", 1, -1)
    with pytest.raises(TransactionError, match="field 0"):
        texts.split_part("a,b", ",", 0)
