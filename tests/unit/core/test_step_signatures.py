"""What the signatures of steps, effects and undos may be, and which events a step says it returns."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext, StepFailure
from interlock.errors import DefinitionError
from tests.unit.core.machines import Charged, Declined, Order, OrderEvent, State, Submit, blank_machine


class ShopEvent(Event):
    pass


class PaymentEvent(ShopEvent):
    """It groups two events; it is none itself."""


@dataclass(frozen=True)
class Closed(ShopEvent):
    pass


@dataclass(frozen=True)
class Paid(PaymentEvent):
    pass


@dataclass(frozen=True)
class Bounced(PaymentEvent):
    pass


async def charge(order: Order, ctx: StepContext) -> Charged | Declined:
    return Declined()


async def silent(order, ctx):  # noqa: ANN001, ANN201 -- that is the point.
    return Charged()


async def whole_alphabet(order: Order, ctx: StepContext) -> OrderEvent:
    return Charged()


async def no_promise(order: Order, ctx: StepContext) -> Any:  # noqa: ANN401 -- that is the point.
    return Charged()


async def grouped(order: Order, ctx: StepContext) -> PaymentEvent | Paid | Closed:
    return Paid()


class Charger:
    async def __call__(self, order: Order, ctx: StepContext) -> Charged:
        return Charged()


@pytest.mark.parametrize(
    ("function", "returns"),
    [
        (charge, (Charged, Declined)),
        (silent, ()),
        (whole_alphabet, ()),
        (no_promise, ()),
        (Charger(), (Charged,)),
        (functools.partial(charge), ()),
    ],
)
def test_a_step_says_which_events_it_returns(function: object, returns: tuple[type[OrderEvent], ...]) -> None:
    order = blank_machine()
    order.step(State.CHARGING, timeout_s=1)(function)
    assert order._declared.steps[State.CHARGING].returns == returns


def test_a_class_that_groups_events_stands_for_all_of_them() -> None:
    shop = Machine("shop", states=State, context=Order, events=ShopEvent, initial=State.DRAFT)
    shop.step(State.CHARGING, timeout_s=1)(grouped)
    assert shop._declared.steps[State.CHARGING].returns == (Paid, Bounced, Closed)


async def maybe(order: Order, ctx: StepContext) -> Charged | None:
    return None


async def text(order: Order, ctx: StepContext) -> str:
    return ""


async def one_argument(order: Order) -> Charged:
    return Charged()


async def stream(order: Order, ctx: StepContext) -> AsyncIterator[Charged]:
    yield Charged()


def blocking(order: Order, ctx: StepContext) -> Charged:
    return Charged()


class ThawedEvent(Event):
    pass


@dataclass
class Thawed(ThawedEvent):
    pass


async def thawed(order: Order, ctx: StepContext) -> Thawed:
    return Thawed()


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (maybe, "step-returns-foreign-event"),
        (text, "step-returns-foreign-event"),
        (one_argument, "wrong-signature"),
        (stream, "wrong-signature"),
        (blocking, "wrong-signature"),
        (5, "wrong-signature"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(function: object, rule: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        blank_machine().step(State.CHARGING, timeout_s=1)(function)
    assert caught.value.rule == rule
    assert caught.value.location.startswith(__file__)


def test_the_events_a_step_returns_are_checked_like_those_of_transitions() -> None:
    machine = Machine("m", states=State, context=Order, events=ThawedEvent, initial=State.DRAFT)
    with pytest.raises(DefinitionError) as caught:
        machine.step(State.CHARGING, timeout_s=1)(thawed)
    assert caught.value.rule == "event-not-frozen"


def for_an_event(order: Order, event: Submit) -> Order:
    return order


def test_an_effect_and_an_undo_are_async_too() -> None:
    order = blank_machine()
    with pytest.raises(DefinitionError):
        order.effect(State.DONE)(blocking)
    step = order.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)(silent)
    with pytest.raises(DefinitionError):
        step.undo(Charged)(charge)
    with pytest.raises(DefinitionError) as caught:
        step.failed(for_an_event)
    assert caught.value.rule == "wrong-signature"


def test_an_undo_of_a_silent_step_may_name_any_event() -> None:
    async def undo(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    blank_machine().step(State.CHARGING, timeout_s=1)(silent).undo(Charged)(undo)


def test_a_failed_action_takes_context_and_failure() -> None:
    def failed(order: Order, failure: StepFailure) -> Order:
        return order

    step = blank_machine().step(State.CHARGING, timeout_s=1, failed=State.UNDOING)(charge)
    assert step.failed(failed) is failed
