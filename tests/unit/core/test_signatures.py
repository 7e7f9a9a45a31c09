"""What the signatures of user functions may be; what is not annotated, or not a plain class, is not judged."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Protocol, TypedDict, Union

import msgspec
import pytest

from interlock.core.machine import Machine
from interlock.errors import DefinitionError
from tests.unit.core.machines import (
    Cancel,
    Order,
    OrderEvent,
    State,
    Submit,
    blank_machine,
)


class HasCents(Protocol):
    cents: int


class Basket(TypedDict):
    cents: int


class Cart(msgspec.Struct, frozen=True, tag=True):
    cents: int = 0


class Gift(msgspec.Struct, frozen=True, tag=True):
    cents: int = 0


@dataclass(frozen=True)
class Larger(Order):
    extra: int = 0


class Rule:
    def __call__(self, order: Order, event: Submit) -> bool:
        return True

    def method(self, order: Order, event: Submit) -> bool:
        return True


class Opaque:
    """A callable whose signature cannot be told, as of some built-ins; which ones differs from Python to Python."""

    @property
    def __signature__(self) -> object:
        raise ValueError("no signature found")

    def __call__(self, *arguments: object) -> bool:
        return True


class AsyncRule:
    async def __call__(self, order: Order, event: Submit) -> bool:
        return True


def plain(order: Order, event: Submit) -> bool:
    return True


def unannotated(order, event):  # noqa: ANN001, ANN201 -- that is the point.
    return True


def anything(order: Any, event: Any) -> Any:  # noqa: ANN401 -- that is the point.
    return True


def structural(order: HasCents, event: Submit) -> bool:
    return True


def general(order: object, event: OrderEvent) -> bool:
    return True


def either(order: Order | None, event: Union[Submit, Cancel]) -> bool:  # noqa: UP007 -- both spellings count.
    return True


def with_default(order: Order, event: Submit, limit: int = 5) -> bool:
    return True


def many(*arguments: object) -> bool:
    return True


def with_limit(limit: int, order: Order, event: Submit) -> bool:
    return True


def unresolvable(order: "Nowhere", event: "Nothing") -> "bool":  # noqa: F821 -- that is the point.
    return True


def for_basket(order: Basket, event: Submit) -> bool:
    return True


def guarded(guard: object) -> object:
    return blank_machine().on(Submit, State.DRAFT, to=State.DONE, when=guard)


@pytest.mark.parametrize(
    "guard",
    [
        plain,
        unannotated,
        anything,
        structural,
        general,
        either,
        with_default,
        many,
        unresolvable,
        for_basket,
        lambda order, event: True,
        Rule(),
        Rule().method,
        functools.partial(with_limit, 5),
        Opaque(),
    ],
)
def test_a_guard_may_be_any_function_that_fits(guard: object) -> None:
    guarded(guard)


def too_few(order: Order) -> bool:
    return True


def too_many(order: Order, event: Submit, limit: int) -> bool:
    return True


def by_keyword(order: Order, *, event: Submit) -> bool:
    return True


def other_event(order: Order, event: Cancel) -> bool:
    return True


def other_context(order: int, event: Submit) -> bool:
    return True


def narrower(order: Larger, event: Submit) -> bool:
    return True


def says_int(order: Order, event: Submit) -> int:
    return 1


def says_maybe(order: Order, event: Submit) -> Optional[bool]:  # noqa: UP045 -- both spellings count.
    return None


def generates(order: Order, event: Submit) -> Iterator[bool]:
    yield True


async def waits(order: Order, event: Submit) -> bool:
    return True


async def streams(order: Order, event: Submit) -> AsyncIterator[bool]:
    yield True


@pytest.mark.parametrize(
    ("guard", "rule"),
    [
        (too_few, "wrong-signature"),
        (too_many, "wrong-signature"),
        (by_keyword, "wrong-signature"),
        (other_event, "wrong-signature"),
        (other_context, "wrong-signature"),
        (narrower, "wrong-signature"),
        (says_int, "wrong-signature"),
        (says_maybe, "wrong-signature"),
        (generates, "wrong-signature"),
        (5, "wrong-signature"),
        (waits, "impure-function"),
        (streams, "impure-function"),
        (AsyncRule(), "impure-function"),
        (functools.partial(waits), "impure-function"),
    ],
)
def test_a_guard_that_does_not_fit_is_refused_at_its_line(guard: object, rule: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        guarded(guard)
    assert caught.value.rule == rule
    assert caught.value.location.startswith(__file__)


def gives_order(order: Order, event: Submit) -> Order:
    return order


def gives_larger(order: Order, event: Submit) -> Larger:
    return Larger()


def gives_nothing(order: Order, event: Submit) -> None: ...


async def gives_later(order: Order, event: Submit) -> Order:
    return order


def test_an_action_returns_the_context() -> None:
    blank_machine().on(Submit, State.DRAFT, to=State.DONE)(gives_order)
    blank_machine().on(Submit, State.DRAFT, to=State.DONE)(gives_larger)


@pytest.mark.parametrize(
    ("action", "rule"),
    [(gives_nothing, "wrong-signature"), (plain, "wrong-signature"), (gives_later, "impure-function")],
)
def test_an_action_that_does_not_fit_is_refused(action: Callable[..., Order], rule: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        blank_machine().on(Submit, State.DRAFT, to=State.DONE)(action)
    assert caught.value.rule == rule


def test_a_context_that_is_a_union_is_not_judged_except_for_nothing() -> None:
    def gives_cart(cart: Cart, event: Submit) -> Cart:
        return cart

    machine = Machine("m", states=State, context=Cart | Gift, events=OrderEvent, initial=State.DRAFT)
    machine.on(Submit, State.DRAFT, to=State.DONE)(gives_cart)
    with pytest.raises(DefinitionError):
        machine.on(Submit, State.DRAFT, to=State.DONE)(gives_nothing)


def test_a_typed_dict_takes_any_dict() -> None:
    def take(order: dict[str, int], event: Submit) -> dict[str, int]:
        return order

    machine = Machine("m", states=State, context=Basket, events=OrderEvent, initial=State.DRAFT)
    machine.on(Submit, State.DRAFT, to=State.DONE)(take)
    with pytest.raises(DefinitionError):
        machine.on(Submit, State.DRAFT, to=State.DONE, when=plain)
