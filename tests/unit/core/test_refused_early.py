"""What would otherwise be noticed late, or never: refused at the line, or reported by check()."""

# mypy: ignore-errors
# Wrong programs are what is tested here.

import functools
import threading
import types
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.pipeline import pipeline, step
from interlock.core.policies import Breaker, Dependency, Retry
from interlock.core.values import StepContext
from interlock.errors import DefinitionError, InvalidPayload, UserCodeError
from tests.unit.core.machines import (
    Cancel,
    Charged,
    Declined,
    Order,
    OrderEvent,
    State,
    Submit,
    blank_machine,
    order_machine,
)


def codes(machine: Machine) -> dict[str, str]:
    return {finding.code: finding.severity for finding in machine.check()}


def charging(*, declined_to: State, returns: object = Charged) -> Machine:
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.DONE)
    order.on(Declined, State.CHARGING, to=declined_to)
    order.on(Cancel, State.CHARGING, to=State.UNDOING)

    async def charge(order: Order, ctx: StepContext) -> None: ...

    charge.__annotations__["return"] = returns
    handle = order.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)(charge)

    @handle.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    return order


# --- G5: undos that would not run -----------------------------------------------------------------------------------


def test_an_event_from_outside_that_skips_the_undo_is_reported() -> None:
    assert codes(charging(declined_to=State.CANCELLED))["undo-may-be-skipped"] == "warning"
    assert "undo-may-be-skipped" not in codes(charging(declined_to=State.UNDOING))
    assert "undo-may-be-skipped" not in codes(charging(declined_to=State.CANCELLED, returns=Charged | Declined))


def test_an_undo_that_can_never_run_is_reported() -> None:
    class Short(Enum):
        A = "a"
        B = "b"

    machine = Machine("short", states=Short, context=Order, events=OrderEvent, initial=Short.A, final={Short.B})
    machine.on(Charged, Short.A, to=Short.B)

    @machine.step(Short.A, timeout_s=1)
    async def charge(order: Order, ctx: StepContext) -> Charged: ...

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    assert codes(machine)["undo-never-runs"] == "warning"
    assert "undo-never-runs" not in codes(order_machine())


# --- check() says what the first use would ---------------------------------------------------------------------------


class LooseEvent(Event):
    pass


@dataclass(frozen=True)
class Fine(LooseEvent):
    pass


class Two(Enum):
    A = "a"
    B = "b"


def loose(alphabet: type = LooseEvent, event: type = Fine) -> Machine:
    machine = Machine("loose", states=Two, context=Order, events=alphabet, initial=Two.A, final={Two.B})
    machine.on(event, Two.A, to=Two.B)
    return machine


def test_an_unused_event_that_cannot_be_stored_is_an_error_of_check() -> None:
    class Alphabet(Event):
        pass

    @dataclass(frozen=True)
    class Used(Alphabet):
        pass

    @dataclass(frozen=True)
    class Unused(Alphabet):
        payload: object = None
        thread: threading.Thread | None = None

    machine = loose(Alphabet, Used)
    assert codes(machine)["event-not-storable"] == "error"
    with pytest.raises(DefinitionError):
        machine.begin(Order())


def test_an_unused_event_that_is_wrong_by_itself_is_an_error_of_check() -> None:
    class Alphabet(Event):
        pass

    @dataclass(frozen=True)
    class Used(Alphabet):
        pass

    @dataclass(frozen=True)
    class Started(Alphabet):
        pass

    assert codes(loose(Alphabet, Used))["reserved-event"] == "error"


def test_two_classes_of_one_wire_name_are_an_error_even_if_only_one_is_used() -> None:
    class Alphabet(Event):
        pass

    @dataclass(frozen=True)
    class HTTPError(Alphabet):
        pass

    @dataclass(frozen=True)
    class HttpError(Alphabet):
        pass

    machine = loose(Alphabet, HTTPError)
    assert codes(machine)["duplicate-event-name"] == "error"


def test_a_class_of_the_same_name_from_elsewhere_gets_a_hint_that_helps() -> None:
    class Other(Event):
        pass

    stranger = dataclass(frozen=True)(types.new_class("Fine", (Other,)))
    machine = loose()
    snapshot = machine.begin(Order())
    with pytest.raises(InvalidPayload) as caught:
        machine.decide(snapshot, stranger())
    assert "not this class" in caught.value.what
    assert "Did you mean" not in caught.value.what


def test_a_timer_whose_event_cannot_be_written_is_an_error_of_check() -> None:
    class Alphabet(Event):
        pass

    @dataclass(frozen=True)
    class Late(Alphabet):
        after: float = 0.0

    machine = loose(Alphabet, Late)
    machine.after(Two.A, after_s=1, send=Late(float("nan")))
    assert codes(machine)["timer-event-unstorable"] == "error"


def test_the_same_guard_twice_hides_the_second_transition() -> None:
    def small(order: Order, event: Submit) -> bool:
        return event.cents < 5

    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=small)
    order.on(Submit, State.DRAFT, to=State.RESERVING, when=small)
    assert codes(order)["duplicate-transition"] == "error"


# --- refused at the line ---------------------------------------------------------------------------------------------


class Aliased(Enum):
    A = "a"
    B = "a"  # noqa: PIE796 -- that is the mistake.
    C = "c"


async def work(order: Order, ctx: StepContext) -> Charged: ...


async def for_another_context(number: int, ctx: StepContext) -> Charged: ...


async def with_another_second_argument(order: Order, ctx: str) -> Charged: ...


async def undoes_another_event(order: Order, done: Declined, ctx: StepContext) -> None: ...


def try_step(**settings: object) -> None:
    blank_machine().step(State.CHARGING, **{"timeout_s": 1, **settings})(settings.pop("function", work))


LATE = {
    "two states of one value": lambda: Machine(
        "m", states=Aliased, context=Order, events=OrderEvent, initial=Aliased.A, final={Aliased.C}
    ),
    "a single state as unwind": lambda: Machine(
        "m", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, unwind={State.UNDOING}
    ),
    "a list as renamed": lambda: Machine(
        "m", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, renamed=[1]
    ),
    "a number as a renamed state": lambda: Machine(
        "m", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, renamed={7: State.DONE}
    ),
    "a list in final": lambda: Machine(
        "m", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, final=[["x"]]
    ),
    "Any as the context": lambda: Machine("m", states=State, context=Any, events=OrderEvent, initial=State.DRAFT),
    "a number as retry": lambda: try_step(retry=3),
    "None as retry": lambda: try_step(retry=None),
    "a text as classify": lambda: try_step(classify="x"),
    "a Dependency as dependency": lambda: try_step(dependency=Dependency("x")),
    "an empty dependency": lambda: try_step(dependency=" "),
    "a step for another context": lambda: blank_machine().step(State.CHARGING, timeout_s=1)(for_another_context),
    "a step with another ctx": lambda: blank_machine().step(State.CHARGING, timeout_s=1)(with_another_second_argument),
    "an effect for another context": lambda: blank_machine().effect(State.DONE)(for_another_context),
    "an effect with a number as retry": lambda: blank_machine().effect(State.DONE, retry=3)(work),
    "an undo for another event": lambda: (
        blank_machine().step(State.CHARGING, timeout_s=1)(work).undo(Charged)(undoes_another_event)
    ),
    "half an attempt": lambda: Retry(attempts=2.5),
    "a text as attempts": lambda: Retry(attempts="3"),
    "True as failures": lambda: Breaker(failures=True),
    "a dependency without a breaker": lambda: Dependency("g", breaker=None),
    "a dependency that is a number": lambda: Dependency(5),
    "a version of nothing": lambda: order_machine().at(State.DRAFT, Order(), version=0),
    "a version that is a text": lambda: order_machine().at(State.DRAFT, Order(), version="x"),
}


@pytest.mark.parametrize("mistake", LATE.values(), ids=LATE)
def test_a_late_mistake_is_refused_early(mistake: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        mistake()
    assert caught.value.why
    assert caught.value.fix


def test_a_refused_action_takes_its_transition_along() -> None:
    order = blank_machine()

    async def impure(order: Order, event: Submit) -> Order: ...

    with pytest.raises(DefinitionError):
        order.on(Submit, State.DRAFT, to=State.CHARGING)(impure)
    assert all(transition.event != "SUBMIT" for transition in order.describe().transitions)


def test_a_context_of_a_subclass_is_not_the_context() -> None:
    @dataclass(frozen=True)
    class Bigger(Order):
        extra: int = 0

    order = blank_machine()
    order.on(Charged, State.CHARGING, to=State.DONE)
    order.on(Cancel, State.CHARGING, to=State.UNDOING)
    order.on(Declined, State.RESERVING, to=State.UNDOING)
    order.on(Submit, State.CHARGING, to=State.RESERVING)
    order.on(Submit, State.DRAFT, to=State.CHARGING)(lambda order, event: Bigger(order.cents))
    with pytest.raises(UserCodeError):
        order.decide(order.at(State.DRAFT, Order()), Submit())


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_function_from_another_module_keeps_that_modules_names() -> None:
    """The declaring frame has another class of the same name; the guard's own module means its own."""
    module = types.ModuleType("rules")
    module.Order, module.Submit = Order, Submit
    source = "def ok(order: 'Order', event: 'Submit') -> bool:\n    return True\n"
    exec(source, module.__dict__)

    def declare() -> Machine:
        class Order:
            pass

        order = blank_machine()
        order.on(Submit, State.DRAFT, to=State.CHARGING, when=module.ok)
        return order

    assert declare().check()


def test_a_mismatch_of_two_classes_of_one_name_tells_their_modules() -> None:
    stranger = type("Order", (), {"__module__": "elsewhere"})

    def guard(order: object, event: Submit) -> bool:
        return True

    guard.__annotations__["order"] = stranger
    with pytest.raises(DefinitionError) as caught:
        blank_machine().on(Submit, State.DRAFT, to=State.CHARGING, when=guard)
    assert "elsewhere.Order" in caught.value.what


def test_a_partial_guard_has_the_name_and_reason_of_its_function() -> None:
    def below(limit: int, order: Order, event: Submit) -> bool:
        """The amount is below the limit."""
        return event.cents < limit

    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=functools.partial(below, 5))
    [transition] = [each for each in order.describe().transitions if each.event == "SUBMIT"]
    assert (transition.guard, transition.guard_reason) == ("below", "The amount is below the limit.")


# --- pipelines -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cart:
    n: int = 0


@step(timeout_s=1, dwell_s=7)
async def pay(cart: Cart, ctx: StepContext) -> Cart:
    return cart


def test_a_pipeline_can_be_migrated_and_its_dwell_be_declared() -> None:
    machine = pipeline("checkout", context=Cart, steps=[pay], version=2, renamed={"charging": "PAYING"})
    description = machine.describe()
    assert description.renamed == {"charging": "paying"}
    [state] = [state for state in description.states if state.name == "paying"]
    assert state.dwell_max_s == 7


@pytest.mark.parametrize("renamed", [{"charging": "NOWHERE"}, {"charging": 7}])
def test_a_renamed_state_that_does_not_exist_is_refused(renamed: dict[str, object]) -> None:
    with pytest.raises(DefinitionError) as caught:
        pipeline("checkout", context=Cart, steps=[pay], renamed=renamed)
    assert caught.value.rule == "unknown-state"


def test_a_step_of_another_context_is_refused_when_the_pipeline_is_built() -> None:
    @step(timeout_s=1)
    async def weigh(number: int, ctx: StepContext) -> int:
        return number

    with pytest.raises(DefinitionError) as caught:
        pipeline("checkout", context=Cart, steps=[weigh])
    assert caught.value.rule == "wrong-signature"


def test_steps_that_are_no_list_are_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        pipeline("checkout", context=Cart, steps=pay)
    assert caught.value.rule == "bad-pipeline"


def test_a_wrong_result_of_a_step_names_the_step() -> None:
    machine = pipeline("checkout", context=Cart, steps=[pay])
    done = machine.compiled.events["PAY_DONE"]
    with pytest.raises(UserCodeError) as caught:
        machine.decide(machine.at(machine.State.PAYING, Cart()), done(context="nonsense"))
    assert "step pay returned" in caught.value.what


def test_what_is_declared_while_another_thread_compiles_is_refused_and_never_lost() -> None:
    order = order_machine()
    declared = order._declared
    assert not declared.frozen
    order.begin(Order())
    assert declared.frozen
    broken = blank_machine()
    broken.on(Submit, State.DRAFT, to=State.CHARGING)
    with pytest.raises(DefinitionError):
        broken.begin(Order())
    assert not broken._declared.frozen, "a machine that cannot be used can still be completed"
