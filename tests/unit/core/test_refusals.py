"""How values are shown and what is suggested, whatever user code does."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from interlock.core.decide import SHOWN_VALUE_CHARACTERS_MAX, bounded_repr, member_suggestion, suggestion
from interlock.core.table import class_of, first_line, name_of
from tests.unit.core.machines import State


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_is_shown_in_one_short_piece() -> None:
    assert bounded_repr("x") == "'x'"
    assert len(bounded_repr("x" * 10_000_000)) == SHOWN_VALUE_CHARACTERS_MAX + 1


def test_a_repr_that_raises_does_not_matter() -> None:
    assert "RuntimeError" in bounded_repr(Rude())


def test_something_similar_is_suggested() -> None:
    assert "SUBMIT" in suggestion("SUBMTI", ["SUBMIT", "CANCEL"])
    assert suggestion("ZZZ", ["SUBMIT"]) == ""
    assert "State.DRAFT" in member_suggestion("drafft", State)
    assert member_suggestion(object(), State) == ""


def test_a_function_has_a_name_and_a_first_line() -> None:
    assert name_of(Rude()) == "Rude"
    assert name_of(bounded_repr) == "bounded_repr"
    assert first_line(Rude()) == ""
    assert first_line(State) == ""
    assert first_line(bounded_repr).startswith("Return the value's repr")


def test_what_isinstance_can_check() -> None:
    assert class_of(Rude) is Rude
    assert class_of(list[int]) is list
    assert class_of(int | str) is object
