"""Arrays on values that matter. The conformance suite compares the rest with PostgreSQL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.sql.functions import arrays
from interlock.sql.stored_values import array_items, array_text
from interlock.sql.types import PLAIN_TYPES

words = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


def written(items: list[str | None]) -> str:
    quoted = ["NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items]
    return "{" + ",".join(quoted) + "}"


@given(st.lists(words, max_size=4))
def test_an_array_reads_as_postgresql_writes_it(items: list[str | None]) -> None:
    assert arrays.read_items(written(items)) == items
    assert array_items(PLAIN_TYPES["text[]"], array_text(items)) == items


@pytest.mark.parametrize(
    ("text", "items"),
    [("{}", []), (" { } ", []), ("{1,NULL,null}", ["1", None, None]), ('{ a b , "NULL" }', ["a b", "NULL"])],
)
def test_words_need_no_quotes(text: str, items: list[str | None]) -> None:
    assert arrays.read_items(text) == items


@pytest.mark.parametrize("text", ["", "1,2", "{1,2", "{1,,2}", "{,}", "{{1}}", '{"a"b}', '{"a}', '{a"b"}', "{a\\b}"])
def test_what_is_no_plain_array_is_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        arrays.read_items(text)
