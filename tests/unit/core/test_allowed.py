"""A6: what is allowed from here, without executing anything, and why not."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import pytest

from interlock.core.values import Allowed
from interlock.errors import InvalidPayload, UserCodeError
from tests.unit.core.machines import Cancel, Charged, Note, Order, State, Submit, blank_machine, order_machine
from tests.unit.core.test_mistakes import Foreign, Other


def test_every_transition_is_listed_in_declared_order_with_its_guard() -> None:
    order = order_machine()
    assert order.allowed(order.begin(Order())) == [
        Allowed("SUBMIT", State.CHARGING, ("affordable",)),
        Allowed("NOTE", State.DRAFT),
        Allowed("CANCEL", State.UNDOING),
    ]


def test_nothing_is_allowed_in_a_final_state() -> None:
    order = order_machine()
    assert order.allowed(order.at(State.DONE, Order())) == []


def test_without_an_event_no_guard_is_asked() -> None:
    asked: list[object] = []

    def ask(order: Order, event: Submit) -> bool:
        asked.append(event)
        return False

    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=ask)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Charged, State.RESERVING, to=State.DONE)
    order.on(Cancel, State.DRAFT, to=State.UNDOING)
    [entry, _] = order.allowed(order.begin(Order()))
    assert entry.guards == ("ask",)
    assert entry.blocked_by is None
    assert asked == []


def test_with_an_event_only_its_own_transitions_and_the_reason_when_blocked() -> None:
    order = order_machine()
    draft = order.begin(Order())
    assert order.allowed(draft, Submit(cents=1)) == [Allowed("SUBMIT", State.CHARGING, ("affordable",))]
    [blocked] = order.allowed(draft, Submit(cents=0))
    assert blocked.blocked_by == "affordable"
    assert blocked.reason == "The amount is between 1 cent and 100 euros."
    assert order.allowed(draft, Note()) == [Allowed("NOTE", State.DRAFT)]
    assert order.allowed(draft, Charged()) == []


def test_a_guard_without_docstring_blocks_without_reason() -> None:
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=lambda order, event: False)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Charged, State.RESERVING, to=State.DONE)
    order.on(Cancel, State.DRAFT, to=State.UNDOING)
    [blocked] = order.allowed(order.begin(Order()), Submit())
    assert blocked.blocked_by == "<lambda>"
    assert blocked.reason is None


@pytest.mark.parametrize("answer", [1, None, "raise"])
def test_a_guard_that_is_wrong_is_user_code(answer: object) -> None:
    def odd(order: Order, event: Submit):  # noqa: ANN202 -- it gives what it must not.
        if answer == "raise":
            raise ZeroDivisionError
        return answer

    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=odd)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Charged, State.RESERVING, to=State.DONE)
    order.on(Cancel, State.DRAFT, to=State.UNDOING)
    with pytest.raises(UserCodeError) as caught:
        order.allowed(order.begin(Order()), Submit())
    assert "odd" in caught.value.what
    assert isinstance(caught.value.__cause__, ZeroDivisionError) is (answer == "raise")


def test_strangers_are_refused() -> None:
    order = order_machine()
    with pytest.raises(InvalidPayload):
        order.allowed(order.begin(Order()), Foreign())
    with pytest.raises(InvalidPayload):
        order.can(State.DRAFT, Foreign)
    with pytest.raises(InvalidPayload):
        order.can(Other.DRAFT, Submit)
    with pytest.raises(InvalidPayload):
        order.can("draft", Submit)
