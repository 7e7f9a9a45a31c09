"""A2: a mistake in one declaration raises at that line, and says what, why and how to fix it."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext, StepFailure
from interlock.errors import DefinitionError
from tests.unit.core.machines import (
    Again,
    Cancel,
    Charged,
    Order,
    OrderEvent,
    OrderMachine,
    Reserved,
    State,
    Submit,
    affordable,
    blank_machine,
    order_machine,
)

NAN, INFINITY = float("nan"), float("inf")


class Numbers(Enum):
    ONE = 1


class Blank(Enum):
    EMPTY = " "


class Nul(Enum):
    BAD = "a\x00b"


class Surrogate(Enum):
    BAD = "a\ud800"


class Empty(Enum):
    pass


class Other(Enum):
    DRAFT = "draft"


class OtherEvent(Event):
    pass


@dataclass(frozen=True)
class Foreign(OtherEvent):
    pass


class FaultyEvent(Event):
    """An alphabet full of mistakes."""


class NotDataclass(FaultyEvent):
    def __init__(self) -> None:
        pass


@dataclass
class NotFrozen(FaultyEvent):
    pass


@dataclass(frozen=True)
class Started(FaultyEvent):
    pass


@dataclass(frozen=True)
class StepFailed(FaultyEvent):
    pass


@dataclass(frozen=True)
class Timer(FaultyEvent):
    pass


@dataclass(frozen=True)
class Disguised(FaultyEvent):
    wire_name = "UNWOUND"


@dataclass(frozen=True)
class Numbered(FaultyEvent):
    wire_name = 5


@dataclass(frozen=True)
class Complex(FaultyEvent):
    number: complex


@dataclass(frozen=True)
class Unstorable:
    number: complex = 0j


def machine(**changes: object) -> object:
    settings = {"states": State, "context": Order, "events": OrderEvent, "initial": State.DRAFT}
    return Machine(**{"name": "order", **settings, **changes})


def faulty() -> Machine[State, Order, FaultyEvent]:
    return Machine("faulty", states=State, context=Order, events=FaultyEvent, initial=State.DRAFT)


async def work(order: Order, ctx: StepContext) -> Charged:
    return Charged()


async def undo(order: Order, done: Charged | None, ctx: StepContext) -> None: ...


async def mail(order: Order, ctx: StepContext) -> None: ...


def keep(order: Order, event: OrderEvent) -> Order:
    return order


def after_failure(order: Order, failure: StepFailure) -> Order:
    return order


def charging() -> OrderMachine:
    order = blank_machine()
    order.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)(work)
    return order


Build = Callable[[], object]
m = blank_machine

IN_MACHINE: list[tuple[str, str, Build]] = [
    ("value-out-of-range", "''", lambda: machine(name="")),
    ("value-out-of-range", "100", lambda: machine(name="x" * 101)),
    ("value-out-of-range", "printable", lambda: machine(name="a\nb")),
    ("value-out-of-range", "5", lambda: machine(name=5)),
    ("value-out-of-range", "version", lambda: machine(version=0)),
    ("value-out-of-range", "version", lambda: machine(version=1.5)),
    ("value-out-of-range", "version", lambda: machine(version=True)),
    ("bad-states", "Enum", lambda: machine(states=["draft"])),
    ("bad-states", "members", lambda: machine(states=Empty)),
    ("bad-states", "ONE", lambda: machine(states=Numbers)),
    ("bad-states", "EMPTY", lambda: machine(states=Blank)),
    ("bad-states", "Nul", lambda: machine(states=Nul)),
    ("bad-states", "Surrogate", lambda: machine(states=Surrogate)),
    ("bad-states", "final", lambda: machine(final=State.DONE)),
    ("bad-states", "resting", lambda: machine(resting="done")),
    ("no-alphabet", "Event", lambda: machine(events=Event)),
    ("no-alphabet", "int", lambda: machine(events=int)),
    ("no-alphabet", "'x'", lambda: machine(events="x")),
    ("context-not-storable", "instance of Order, not the class", lambda: machine(context=Order())),
    ("context-not-storable", "complex", lambda: machine(context=Unstorable)),
    ("context-not-storable", "object", lambda: machine(context=dict[object, object])),
    ("unknown-state", "State.DRAFT", lambda: machine(initial="draft")),
    ("unknown-state", "Other", lambda: machine(final={Other.DRAFT})),
    ("unknown-state", "Other", lambda: machine(resting={Other.DRAFT})),
    ("unknown-state", "Other", lambda: machine(unwind={Other.DRAFT: State.DONE})),
    ("unknown-state", "Other", lambda: machine(unwind={State.DONE: Other.DRAFT})),
    ("unknown-state", "Other", lambda: machine(renamed={"old": Other.DRAFT})),
    ("contradiction", "final and resting", lambda: machine(final={State.DONE}, resting={State.DONE})),
    ("contradiction", "final and unwinding", lambda: machine(final={State.DONE}, unwind={State.DONE: State.DRAFT})),
    ("contradiction", "resting and unwinding", lambda: machine(resting={State.DONE}, unwind={State.DONE: State.DRAFT})),
    ("contradiction", "initial and unwinding", lambda: machine(unwind={State.DRAFT: State.DONE})),
    ("contradiction", "itself", lambda: machine(unwind={State.DONE: State.UNDOING, State.UNDOING: State.CANCELLED})),
]

IN_TRANSITION: list[tuple[str, str, Build]] = [
    ("unknown-event", "Foreign", lambda: m().on(Foreign, State.DRAFT, to=State.DONE)),
    ("unknown-event", "instance", lambda: m().on(Submit(), State.DRAFT, to=State.DONE)),
    ("unknown-event", "SUBMIT", lambda: m().on("SUBMIT", State.DRAFT, to=State.DONE)),
    ("unknown-event", "OrderEvent", lambda: m().on(OrderEvent, State.DRAFT, to=State.DONE)),
    ("event-not-dataclass", "NotDataclass", lambda: faulty().on(NotDataclass, State.DRAFT, to=State.DONE)),
    ("event-not-frozen", "NotFrozen", lambda: faulty().on(NotFrozen, State.DRAFT, to=State.DONE)),
    ("event-not-storable", "complex", lambda: faulty().on(Complex, State.DRAFT, to=State.DONE)),
    ("reserved-event", "STARTED", lambda: faulty().on(Started, State.DRAFT, to=State.DONE)),
    ("reserved-event", "STEP_FAILED", lambda: faulty().on(StepFailed, State.DRAFT, to=State.DONE)),
    ("reserved-event", "TIMER", lambda: faulty().on(Timer, State.DRAFT, to=State.DONE)),
    ("reserved-event", "UNWOUND", lambda: faulty().on(Disguised, State.DRAFT, to=State.DONE)),
    ("bad-wire-name", "5", lambda: faulty().on(Numbered, State.DRAFT, to=State.DONE)),
    ("no-source", "Submit", lambda: m().on(Submit, to=State.DONE)),
    ("unknown-state", "draft", lambda: m().on(Submit, "draft", to=State.DONE)),
    ("unknown-state", "[<State.DRAFT", lambda: m().on(Submit, [State.DRAFT, State.CHARGING], to=State.DONE)),
    ("unknown-state", "any", lambda: m().on(Submit, State.DRAFT, to=m().any)),
    ("unknown-state", "Did you mean State.DRAFT", lambda: m().on(Submit, Other.DRAFT, to=State.DONE)),
    ("contradiction", "any", lambda: m().on(Submit, m().any, State.DRAFT, to=State.DONE)),
    ("contradiction", "twice", lambda: m().on(Submit, State.DRAFT, State.DRAFT, to=State.DONE)),
    ("exit-from-final", "done", lambda: m().on(Submit, State.DONE, to=State.DRAFT)),
    ("exit-from-final", "done", lambda: m().on(Submit, State.DONE)),
    ("exit-from-unwinding", "undoing", lambda: m().on(Submit, State.UNDOING, to=State.DRAFT)),
    ("exit-from-unwinding", "undoing", lambda: m().on(Submit, State.UNDOING, to=State.UNDOING)),
    ("contradiction", "keep", lambda: two_actions(m())),
    ("contradiction", "settle=1", lambda: m().on(Submit, State.DRAFT, to=State.DONE, settle=1)),
    ("contradiction", "settle=True leaves nothing", lambda: m().on(Submit, State.DRAFT, to=State.UNDOING, settle=True)),
    ("contradiction", "settle=True in an unwinding", lambda: m().on(Submit, State.UNDOING, settle=True)),
]

IN_STEP: list[tuple[str, str, Build]] = [
    ("unknown-state", "charging", lambda: m().step("charging", timeout_s=1)(work)),
    ("unknown-state", "undoing", lambda: m().step(State.CHARGING, timeout_s=1, failed="undoing")(work)),
    ("contradiction", "final", lambda: m().step(State.DONE, timeout_s=1)(work)),
    ("contradiction", "unwinding", lambda: m().step(State.UNDOING, timeout_s=1)(work)),
    ("contradiction", "work", lambda: charging().step(State.CHARGING, timeout_s=1, name="other")(work)),
    ("duplicate-name", "work", lambda: charging().step(State.DRAFT, timeout_s=1)(work)),
    ("duplicate-name", "work", lambda: charging().effect(State.DONE, name="work")(mail)),
    ("duplicate-name", "mail", lambda: with_mail().step(State.DRAFT, timeout_s=1, name="mail")(work)),
    ("duplicate-name", "mail", lambda: with_mail().effect(State.CANCELLED)(mail)),
    ("value-out-of-range", "name", lambda: m().step(State.DRAFT, timeout_s=1, name=" ")(work)),
    ("value-out-of-range", "name", lambda: m().effect(State.DRAFT, name="a\x00")(mail)),
    *[
        ("value-out-of-range", "timeout_s", lambda bad=bad: m().step(State.DRAFT, timeout_s=bad)(work))
        for bad in (0, -1, NAN, INFINITY, True, "4", None)
    ],
    *[
        ("value-out-of-range", word, lambda bad=bad: m().step(State.DRAFT, timeout_s=4, heartbeat_s=bad)(work))
        for bad, word in [
            *((bad, f"heartbeat_s is {bad!r}; it must be") for bad in (0, -1, NAN, INFINITY, True, "1")),
            (4, "heartbeat_s is 4, and timeout_s is 4: the heartbeat could never be missed."),
            (4.5, "heartbeat_s is 4.5, and timeout_s is 4: the heartbeat could never be missed."),
        ]
    ],
    ("value-out-of-range", "timeout_s is 0", lambda: m().step(State.DRAFT, timeout_s=0, heartbeat_s=1)(work)),
    ("value-out-of-range", "timeout_s", lambda: m().effect(State.DONE, timeout_s=0)(mail)),
    ("contradiction", "names no state", lambda: m().effect()(mail)),
    ("unknown-state", "done", lambda: m().effect("done")(mail)),
    ("unknown-event", "Foreign", lambda: step_of(charging()).undo(Foreign)(undo)),
    ("contradiction", "already has an undo", lambda: two_undos(charging())),
    (
        "contradiction",
        "read_only",
        lambda: m().step(State.DRAFT, timeout_s=1, read_only=True)(work).undo(Charged)(undo),
    ),
    (
        "contradiction",
        "irreversible",
        lambda: m().step(State.DRAFT, timeout_s=1, irreversible=True)(work).undo(Charged)(undo),
    ),
    (
        "contradiction",
        "undone_in",
        lambda: m().step(State.DRAFT, timeout_s=1, undone_in={State.RESERVING})(work).undo(Charged)(undo),
    ),
    (
        "contradiction",
        "read_only and irreversible",
        lambda: m().step(State.DRAFT, timeout_s=1, read_only=True, irreversible=True)(work),
    ),
    (
        "contradiction",
        "its own state 'draft'",
        lambda: m().step(State.DRAFT, timeout_s=1, undone_in={State.DRAFT})(work),
    ),
    ("unknown-state", "Other", lambda: m().step(State.DRAFT, timeout_s=1, undone_in=set(Other))(work)),
    ("bad-states", "undone_in", lambda: m().step(State.DRAFT, timeout_s=1, undone_in=State.RESERVING)(work)),
    ("undo-of-impossible-event", "RESERVED", lambda: step_of(charging()).undo(Reserved)(undo)),
    ("failed-action-without-state", "failed=", lambda: m().step(State.DRAFT, timeout_s=1)(work).failed(after_failure)),
    ("contradiction", "failed action", lambda: two_failed_actions(charging())),
]

IN_TIME: list[tuple[str, str, Build]] = [
    ("unknown-state", "draft", lambda: m().after("draft", after_s=1, send=Cancel())),
    ("contradiction", "final", lambda: m().after(State.DONE, after_s=1, send=Cancel())),
    ("contradiction", "unwinding", lambda: m().after(State.UNDOING, after_s=1, send=Cancel())),
    ("contradiction", "instance", lambda: m().after(State.DRAFT, after_s=1, send=Cancel)),
    ("unknown-event", "Foreign", lambda: m().after(State.DRAFT, after_s=1, send=Foreign())),
    ("unknown-event", "int", lambda: m().after(State.DRAFT, after_s=1, send=5)),
    ("contradiction", "already has a timer", lambda: order_machine().after(State.DRAFT, after_s=1, send=Cancel())),
    ("value-out-of-range", "after_s", lambda: m().after(State.DRAFT, after_s=0, send=Cancel())),
    ("value-out-of-range", "restart", lambda: m().after(State.DRAFT, after_s=1, send=Cancel(), policy="never")),
    ("unknown-state", "draft", lambda: m().dwell("draft", max_s=1)),
    ("contradiction", "final", lambda: m().dwell(State.DONE, max_s=1)),
    ("contradiction", "resting", lambda: m(resting=frozenset({State.DRAFT})).dwell(State.DRAFT, max_s=1)),
    ("contradiction", "already has a dwell", lambda: order_machine().dwell(State.DRAFT, max_s=1)),
    ("value-out-of-range", "max_s", lambda: m().dwell(State.DRAFT, max_s=-1)),
]


def step_of(order: OrderMachine, state: State = State.RESERVING) -> object:
    return order.step(state, timeout_s=1, name="second", failed=State.UNDOING)(work)


def with_mail() -> OrderMachine:
    order = blank_machine()
    order.effect(State.DONE)(mail)
    return order


def two_actions(order: OrderMachine) -> None:
    declare = order.on(Submit, State.DRAFT, to=State.DONE)
    declare(keep)
    declare(keep)


def two_undos(order: OrderMachine) -> None:
    step = step_of(order)
    step.undo(Charged)(undo)
    step.undo(Charged)(undo)


def two_failed_actions(order: OrderMachine) -> None:
    step = step_of(order)
    step.failed(after_failure)
    step.failed(after_failure)


CASES = [*IN_MACHINE, *IN_TRANSITION, *IN_STEP, *IN_TIME]


@pytest.mark.parametrize(
    ("rule", "word", "build"), CASES, ids=[f"{rule}-{word}-{index}" for index, (rule, word, _) in enumerate(CASES)]
)
def test_a_mistake_is_refused_with_its_rule_and_three_parts(rule: str, word: str, build: Build) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()
    error = caught.value
    assert error.rule == rule
    assert word in error.what
    assert error.code == "definition"
    assert error.why
    assert error.fix
    file, _, line = error.location.rpartition(":")
    assert file == __file__
    assert int(line) > 0


def here(build: Build) -> int:
    """The line of a lambda: where its declaration stands."""
    return build.__code__.co_firstlineno


@pytest.mark.parametrize(("rule", "word", "build"), [case for case in IN_TRANSITION + IN_TIME if case[1] != "keep"])
def test_the_location_is_the_line_of_the_declaration(rule: str, word: str, build: Build) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()
    assert caught.value.location == f"{__file__}:{here(build)}"


def test_a_decorated_function_is_located_at_its_decorator() -> None:
    order = blank_machine()
    with pytest.raises(DefinitionError) as caught:

        @order.step(State.CHARGING, timeout_s=1)
        def charge(order: Order, ctx: StepContext) -> Charged:
            return Charged()

    line = int(caught.value.location.rpartition(":")[2])
    assert line == charge_line()


def charge_line() -> int:
    code = test_a_decorated_function_is_located_at_its_decorator.__code__
    return code.co_firstlineno + 4


def test_a_refused_declaration_leaves_the_machine_as_it_was() -> None:
    order, untouched = order_machine(), order_machine()
    with pytest.raises(DefinitionError):
        order.on(Again, State.DONE, to=State.DRAFT)
    with pytest.raises(DefinitionError):
        order.step(State.DRAFT, timeout_s=0)(work)
    assert order.describe() == untouched.describe()


def test_good_declarations_are_accepted() -> None:
    """The neighbours of the mistakes above."""
    order = blank_machine("x" * 100)
    order.on(Submit, State.DRAFT, State.CHARGING, to=State.DONE, when=affordable)(keep)
    order.on(Again, State.UNDOING)
    order.after(State.DRAFT, after_s=0.001, send=Cancel(), policy="remaining")
    order.after(State.DRAFT, after_s=1, send=Again(), policy="restart")
    order.dwell(State.UNDOING, max_s=1)
    order.step(State.DRAFT, timeout_s=1, heartbeat_s=0.999)(work).undo(Charged)(undo)
    order.effect(State.DONE, State.DONE)(mail)


def test_a_class_in_place_of_the_event_of_a_timer_is_answered_with_an_instance() -> None:
    with pytest.raises(DefinitionError, match="send=Cancel is a class") as refused:
        order_machine().after(State.DRAFT, after_s=1, send=Cancel)  # type: ignore[arg-type]
    assert refused.value.fix == "Write send=Cancel(...)."


def test_the_remedy_for_a_wrong_annotation_is_not_what_is_written_already() -> None:
    async def work_on_text(order: str, ctx: StepContext) -> Charged: ...

    with pytest.raises(DefinitionError, match="takes order: str, but receives a Order") as refused:
        blank_machine("order").step(State.DRAFT, timeout_s=1)(work_on_text)  # type: ignore[arg-type]
    assert refused.value.fix == "Correct the annotation."


def test_the_remedy_for_a_list_of_states_is_to_leave_out_the_brackets() -> None:
    with pytest.raises(DefinitionError) as refused:
        blank_machine("order").on(Submit, [State.DRAFT, State.CHARGING], to=State.DONE)
    assert "one after another" in refused.value.fix
