"""The façade: names, first use and freezing, snapshots by hand, states by their stored name."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from collections.abc import Callable

import pytest

from interlock.core.machine import Machine
from interlock.core.values import Snapshot, StepContext, StepFailure
from interlock.errors import DefinitionError, InvalidPayload
from tests.unit.core.machines import (
    Cancel,
    Charged,
    Order,
    OrderMachine,
    State,
    Submit,
    order_machine,
)
from tests.unit.core.test_mistakes import Other


def test_name_version_and_repr() -> None:
    order = order_machine()
    assert (order.name, order.version) == ("order", 1)
    assert repr(order) == "<Machine 'order' version 1: 6 states>"
    assert repr(Machine.any) == "any"
    assert order.opening is None


def test_begin_is_the_initial_state_at_version_1() -> None:
    assert order_machine().begin(Order(cents=2)) == Snapshot(State.DRAFT, Order(cents=2), 1, 1)


def test_at_is_any_state_for_tests() -> None:
    order = order_machine()
    assert order.at(State.CHARGING, Order(), version=4, attempted=True) == Snapshot(
        State.CHARGING, Order(), 4, 4, (), attempted=True
    )


def test_a_state_is_found_by_its_stored_name() -> None:
    assert order_machine().state("charging") is State.CHARGING


def test_an_unknown_stored_name_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidPayload) as caught:
        order_machine().state("chargin")
    assert "Did you mean State.CHARGING" in caught.value.what
    assert "draft, charging" in caught.value.what


def test_a_very_long_stranger_is_cut() -> None:
    with pytest.raises(InvalidPayload) as caught:
        order_machine().state("x" * 1_000_000)
    assert len(caught.value.what) < 500


USES: dict[str, Callable[[OrderMachine], object]] = {
    "begin": lambda order: order.begin(Order()),
    "start": lambda order: order.start(Order()),
    "at": lambda order: order.at(State.DRAFT, Order()),
    "decide": lambda order: order.decide(Snapshot(State.DRAFT, Order()), Submit()),
    "apply": lambda order: order.apply(Snapshot(State.DRAFT, Order()), Submit()),
    "can": lambda order: order.can(State.DRAFT, Submit),
    "allowed": lambda order: order.allowed(Snapshot(State.DRAFT, Order())),
    "compiled": lambda order: order.compiled,
    "codec": lambda order: order.codec,
}

NOT_USES: dict[str, Callable[[OrderMachine], object]] = {
    "check": lambda order: order.check(),
    "describe": lambda order: order.describe(),
    "mermaid": lambda order: order.mermaid(),
    "dot": lambda order: order.dot(),
    "svg": lambda order: order.svg(),
    "table": lambda order: order.table(),
    "state": lambda order: order.state("draft"),
    "repr": repr,
    "name": lambda order: order.name,
}


def keep(order: Order, event: Cancel) -> Order:
    return order


async def work(order: Order, ctx: StepContext) -> Charged:
    return Charged()


async def undo(order: Order, done: Charged | None, ctx: StepContext) -> None: ...


def test_every_kind_of_declaration_is_refused_after_the_first_use() -> None:
    order = order_machine()
    declare_action = order.on(Cancel, State.CHARGING, to=State.CANCELLED)
    declare_step = order.step(State.DRAFT, timeout_s=1)
    declare_effect = order.effect(State.DONE, name="late")
    handle = declare_step(work)
    declare_undo = handle.undo(Charged)
    order.begin(Order())

    def failed(order: Order, failure: StepFailure) -> Order:
        return order

    declarations: list[Callable[[], object]] = [
        lambda: order.on(Submit, State.CHARGING, to=State.DONE),
        lambda: declare_action(keep),
        lambda: declare_step(work),
        lambda: declare_effect(undo),
        lambda: declare_undo(undo),
        lambda: handle.failed(failed),
        lambda: order.after(State.CHARGING, after_s=1, send=Cancel()),
        lambda: order.dwell(State.CHARGING, max_s=1),
    ]
    for declare in declarations:
        with pytest.raises(DefinitionError) as caught:
            declare()
        assert caught.value.rule == "declared-after-first-use"
        assert caught.value.location.startswith(__file__)


@pytest.mark.parametrize("use", USES)
def test_using_it_freezes_it(use: str) -> None:
    order = order_machine()
    USES[use](order)
    with pytest.raises(DefinitionError):
        order.on(Submit, State.CHARGING, to=State.DONE)


@pytest.mark.parametrize("look", NOT_USES)
def test_looking_at_it_does_not_freeze_it(look: str) -> None:
    order = order_machine()
    NOT_USES[look](order)
    order.on(Submit, State.CHARGING, to=State.DONE)
    assert order.can(State.CHARGING, Submit)


def test_a_machine_is_compiled_once() -> None:
    order = order_machine()
    assert order.compiled is order.compiled
    assert order.codec is order.codec


def test_a_strangers_state_makes_no_snapshot() -> None:
    with pytest.raises(InvalidPayload) as caught:
        order_machine().at(Other.DRAFT, Order())
    assert "Did you mean State.DRAFT" in caught.value.what


@pytest.mark.parametrize("wrong", [{"cents": 5}, None, 5, Snapshot(State.DRAFT, Order())])
def test_only_a_context_of_the_declared_class_begins(wrong: object) -> None:
    order = order_machine()
    for begin in (order.begin, lambda context: order.at(State.DRAFT, context)):
        with pytest.raises(InvalidPayload) as caught:
            begin(wrong)
        assert "Order" in caught.value.what


def test_pictures_are_drawn_from_the_description() -> None:
    order = order_machine()
    for picture in (order.mermaid(), order.dot(), order.svg(visits={"draft": 3}, theme="dark"), order.table()):
        assert "charging" in picture
