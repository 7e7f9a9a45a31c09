"""jsonb on values that matter. The conformance suite compares the rest with PostgreSQL."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import documents
from interlock.sql.stored_values import json_text

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_a_document_reads_as_it_was_written(value: object) -> None:
    written = json_text(value)
    assert documents.read(written) == written
    assert json.loads(written) == value


@given(values, values)
def test_a_document_contains_itself_and_is_equal_to_itself_alone(left: object, right: object) -> None:
    one, other = json_text(left), json_text(right)
    assert documents.contains(one, one)
    assert (documents.key(one) == documents.key(other)) is (
        documents.contains(one, other) and one == other
    ) or left == right


def test_every_digit_stays() -> None:
    assert documents.read('{"b": 1.10, "a": 1e2, "a": 12345678901234567890.123456789}') == (
        '{"a": 12345678901234567890.123456789, "b": 1.10}'
    )
    assert documents.key("1.10") == documents.key("1.1") != documents.key("1.01")


@pytest.mark.parametrize("text", ["", "{", "nul", "01", "NaN", "[1,]", '"\\u0000"', '"\\ud800"', "[" * 100_000])
def test_what_is_no_document_is_not_read(text: str) -> None:
    # One that is nested too deeply is refused: PostgreSQL has another limit.
    with pytest.raises((ValueError, DialectError)):
        documents.read(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda: documents.remove("5", "a"),
        lambda: documents.remove_item('{"a": 1}', 0),
        lambda: documents.remove_path("5", '["a"]'),
        lambda: documents.place("5", '["a"]', "1"),
        lambda: documents.place("[1]", '["x"]', "1"),
        lambda: documents.place("{}", "[null]", "1"),
        lambda: documents.array_length("{}"),
        lambda: documents.build_object(None, "1"),
        lambda: documents.to_numeric('"1"'),
        lambda: documents.to_bool("1"),
        lambda: documents.to_integer("int4")("3000000000"),
    ],
)
def test_what_postgresql_refuses_is_an_error_of_the_transaction(change: object) -> None:
    assert callable(change)
    with pytest.raises(TransactionError) as caught:
        change()
    assert caught.value.fix


@pytest.mark.parametrize("cast", [documents.to_numeric, documents.to_bool, documents.to_integer("int8")])
def test_the_cast_of_null_depends_on_the_version_and_is_refused(cast: object) -> None:
    assert callable(cast)
    with pytest.raises(DialectError, match="jsonb null"):
        cast("null")
