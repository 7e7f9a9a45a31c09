"""LIKE on values that matter. The conformance suite has the rest."""

import pytest

from interlock.errors import TransactionError
from interlock.sql.functions.texts import ilike, like


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("abc", "abc", True),
        ("abc", "ABC", False),
        ("a\nc", "a_c", True),
        ("a\nb\nc", "a%c", True),
        ("abc", "%%b%%", True),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("a%c", "a\\%c", True),
        ("aab", "%ab", True),
        ("abab", "%ab%ab", True),
        ("ab", "%ab%ab", False),
        ("", "_", False),
    ],
)
def test_like(text: str, pattern: str, matches: bool) -> None:
    assert bool(like(text, pattern, "\\")) is matches


def test_a_hostile_pattern_takes_no_time() -> None:
    assert not like("a" * 5000, "%a" * 50 + "b", "\\")


@pytest.mark.parametrize(
    ("text", "pattern"), [("", "\\"), ("abc", "abc\\"), ("abc", "x\\"), ("", "%\\"), ("ab", "%___\\")]
)
def test_an_escape_at_the_end_that_is_never_reached_matches_nothing(text: str, pattern: str) -> None:
    assert not like(text, pattern, "\\")


@pytest.mark.parametrize(("text", "pattern"), [("ab", "a\\"), ("a", "%\\"), ("abc", "%b\\"), ("abc", "a%_%_\\")])
def test_an_escape_at_the_end_that_is_reached_is_an_error(text: str, pattern: str) -> None:
    with pytest.raises(TransactionError):
        like(text, pattern, "\\")


def test_case_counts_for_like_alone() -> None:
    assert ilike("HeLLo", "h_L%", "\\")
    assert not like("HeLLo", "h_L%", "\\")
    assert ilike("é", "É", "\\")
    assert not ilike("ß", "SS", "\\")
