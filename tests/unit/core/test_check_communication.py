"""E9: machines that talk are checked together: messages, children that never end, joins, undos that cross."""

import sys
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import Child, Event, Family, Machine, Send, StepContext
from interlock.core import check_communication as communications
from interlock.core.check_communication import communication
from interlock.core.values import Finding
from tests.conformance.engine import families as samples

AnyMachine = Machine[Any, Any, Any]


class Stage(Enum):
    FIRST = "first"
    SECOND = "second"
    UNDOING = "undoing"
    LAST = "last"
    OTHER = "other"


class AskerEvent(Event): ...


class Next(AskerEvent): ...


class Back(AskerEvent): ...


class ReplyEvent(Event): ...


class Go(ReplyEvent): ...


class Stop(ReplyEvent): ...


class ThirdEvent(Event): ...


class Elsewhere(ThirdEvent): ...


def asker(**options: Any) -> AnyMachine:  # noqa: ANN401 -- as Machine takes them.
    """FIRST → SECOND → LAST."""
    machine = Machine("asker", states=Stage, context=dict, events=AskerEvent, initial=Stage.FIRST, **options)
    machine.on(Next, Stage.FIRST, to=Stage.SECOND)
    return machine


def replier(final: Stage = Stage.LAST) -> AnyMachine:
    """It waits in FIRST for Go."""
    machine = Machine("replier", states=Stage, context=dict, events=ReplyEvent, initial=Stage.FIRST, final={final})
    machine.on(Go, Stage.FIRST, to=final)
    return machine


def found(*machines: AnyMachine) -> dict[str, Finding]:
    return {each.code: each for each in communication(machine.declarations for machine in machines)}


def children_of(machine: AnyMachine, of: AnyMachine, state: Stage, **options: Any) -> None:  # noqa: ANN401 -- see asker.
    def each(context: dict[str, object]) -> Iterable[Child[dict[str, object]]]:
        return [Child("a", {})]

    machine.children(state, of=of, **({"leave": "abandon"} | options))(each)


def test_machines_that_understand_each_other_have_no_findings() -> None:
    parcel, cart = samples.parcels(), samples.carts()
    assert found(samples.orders(parcel), parcel, cart) == {}
    assert found(samples.orders(parcel, leave="abandon", lost_max=2), parcel, cart) == {}
    assert found(samples.callers(cart), cart) == {}
    assert found(parcel, cart) == {}
    assert found() == {}


def test_a_message_that_its_receiver_never_takes_is_found() -> None:
    machine = asker(final={Stage.SECOND})

    @machine.sends(Stage.SECOND)
    def tell(context: dict[str, object]) -> Iterable[Send]:
        return [Send("r", Stop()) for _ in range(1)]

    finding = found(machine, replier())["message-never-accepted"]
    assert finding.severity == "warning"
    assert finding.what == "tell of 'asker' sends STOP on entering 'second'; 'replier' never takes it."


def test_a_message_that_an_internal_transition_takes_is_accepted() -> None:
    machine, other = asker(final={Stage.SECOND}), replier()
    other.on(Stop, Stage.FIRST)

    @machine.effect(Stage.SECOND)
    async def tell(context: dict[str, object], ctx: StepContext) -> None:
        await ctx.send("r", Stop())

    assert found(machine, other) == {}


def test_a_message_to_a_machine_that_is_not_checked_is_a_remark() -> None:
    machine = asker(final={Stage.SECOND})

    @machine.step(Stage.FIRST, timeout_s=1, read_only=True)
    async def tell(context: dict[str, object], ctx: StepContext) -> Next:
        await ctx.send("r", Elsewhere())
        await ctx.send("s", Elsewhere())
        return Next()

    @machine.effect(Stage.SECOND)
    async def tell_again(context: dict[str, object], ctx: StepContext) -> None:
        assert issubclass(Next, AskerEvent)
        assert issubclass(Next, Event)
        await ctx.send("r", Elsewhere())

    findings = found(machine, replier())
    assert list(findings) == ["message-not-checked"]
    assert findings["message-not-checked"].severity == "info"
    assert found(machine) == {}, "one machine alone sends to machines that were not given"


def test_a_child_that_waits_for_what_is_sent_after_its_end_never_ends() -> None:
    machine, child = asker(final={Stage.LAST}), replier()
    children_of(machine, child, Stage.SECOND)
    machine.join(Stage.SECOND, to=Stage.LAST)

    @machine.sends(Stage.LAST)
    def release(context: dict[str, object]) -> Iterable[Send]:
        return [Send("p.a", Go())]

    findings = found(machine, child)
    assert set(findings) == {"child-never-ends", "join-never-taken"}
    assert "only GO would move it" in findings["child-never-ends"].what
    assert "join of state 'second' of 'asker' to 'last'" in findings["join-never-taken"].what


def test_a_workflow_that_waits_for_nothing_is_found() -> None:
    machine = asker(final={Stage.LAST})
    machine.on(Back, Stage.SECOND, to=Stage.LAST)
    other = replier()

    @other.sends(Stage.LAST)
    def answer(context: dict[str, object]) -> Iterable[Send]:
        return [Send("a", Back()), Send("a", Next())]

    @machine.sends(Stage.LAST)
    def ask(context: dict[str, object]) -> Iterable[Send]:
        return [Send("r", Go())]

    findings = found(machine, other)
    assert set(findings) == {"waits-for-ever"}


def test_a_state_without_any_move_is_found_for_a_child() -> None:
    machine, child = asker(final={Stage.LAST}), replier()
    child.on(Stop, Stage.FIRST, to=Stage.OTHER)
    children_of(machine, child, Stage.SECOND)
    machine.join(Stage.SECOND, to=Stage.LAST)
    assert "nothing moves it" in found(machine, child)["child-never-ends"].what


def test_a_join_whose_condition_fails_for_each_family_is_found() -> None:
    machine, child = asker(final={Stage.LAST, Stage.OTHER}), replier()

    def broken(family: Family) -> bool:
        raise ArithmeticError

    children_of(machine, child, Stage.SECOND)
    machine.join(Stage.SECOND, to=Stage.OTHER, when=broken)
    machine.join(Stage.SECOND, to=Stage.LAST, when=lambda family: family.ended >= 1_000)
    assert "to 'other'" in found(machine, child)["join-never-taken"].what


def test_an_undo_whose_message_comes_too_late_crosses() -> None:
    machine = asker(final={Stage.LAST}, unwind={Stage.UNDOING: Stage.LAST})
    machine.on(Back, Stage.SECOND, to=Stage.UNDOING)
    child = replier()

    @machine.step(Stage.FIRST, timeout_s=1)
    async def book(context: dict[str, object], ctx: StepContext) -> Next:
        await ctx.send("r", Go())
        return Next()

    @book.undo(Next)
    async def unbook(context: dict[str, object], done: Next | None, ctx: StepContext) -> None:
        await ctx.send("r", Stop())

    finding = found(machine, child)["undo-crosses"]
    assert finding.what == "the undo unbook of 'asker' sends STOP, and 'replier' never takes it by then."


def test_an_event_leads_to_the_targets_of_all_guards_that_may_say_yes() -> None:
    machine, other = asker(final={Stage.LAST, Stage.OTHER}), replier()
    machine.on(Back, Stage.SECOND, to=Stage.OTHER, when=lambda context, event: bool(context))
    machine.on(Back, Stage.SECOND, to=Stage.LAST)

    @other.sends(Stage.LAST)
    def answer(context: dict[str, object]) -> Iterable[Send]:
        return [Send("a", Back())]

    @machine.sends(Stage.LAST)
    def ask(context: dict[str, object]) -> Iterable[Send]:
        return [Send("r", Stop())]

    assert set(found(machine, other)) == {"message-never-accepted"}, "the second target is reached too"


def test_a_parent_that_unwinds_cancels_its_children_and_begins_them_again_on_a_second_visit() -> None:
    machine = asker(final={Stage.LAST}, unwind={Stage.UNDOING: Stage.LAST})
    machine.on(Back, Stage.SECOND, to=Stage.FIRST)
    child = replier()
    child.on(Stop, Stage.FIRST, to=Stage.LAST)
    children_of(machine, child, Stage.SECOND, leave="cancel", cancel=Stop())
    machine.join(Stage.SECOND, to=Stage.UNDOING)
    assert found(machine, child) == {}


def test_an_undo_that_waits_for_a_child_that_waits_names_the_child() -> None:
    machine = asker(final={Stage.LAST}, unwind={Stage.UNDOING: Stage.LAST})
    machine.on(Back, Stage.SECOND, to=Stage.UNDOING)
    child = replier()
    child.on(Stop, Stage.FIRST)
    children_of(machine, child, Stage.SECOND, leave="cancel", cancel=Stop())

    @machine.sends(Stage.LAST)
    def release(context: dict[str, object]) -> Iterable[Send]:
        return [Send("p.a", Go())]

    assert set(found(machine, child)) == {"child-never-ends"}


def test_children_of_a_machine_that_was_not_given_are_left_out() -> None:
    machine, child, other = asker(final={Stage.LAST}), replier(), samples.carts()
    children_of(machine, child, Stage.SECOND)
    machine.join(Stage.SECOND, to=Stage.LAST)

    @machine.step(Stage.FIRST, timeout_s=1, read_only=True)
    async def begin(context: dict[str, object], ctx: StepContext) -> Next:
        await ctx.start(other, "c", samples.Cart())
        return Next()

    assert set(found(machine, other)) == {"waits-for-ever"}


def test_a_step_that_names_no_outcome_may_return_all() -> None:
    machine = asker(final={Stage.SECOND})

    @machine.step(Stage.FIRST, timeout_s=1, read_only=True)
    async def ask(context: dict[str, object], ctx: StepContext):  # type: ignore[no-untyped-def]  # noqa: ANN202 -- tested.
        await ctx.send("r", Go())
        return Next()

    other = replier()

    @other.sends(Stage.LAST)
    def answer(context: dict[str, object]) -> Iterable[Send]:
        return [Send("a", Next())]

    assert found(machine, other) == {}


@pytest.mark.parametrize("bound", ["configurations", "workflows"])
def test_what_is_too_large_is_not_explored(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bound == "configurations":
        monkeypatch.setattr(communications, "CONFIGURATIONS_MAX", 3)
    else:
        monkeypatch.setattr(communications, "WORKFLOWS_MAX", 2)
    parcel = samples.parcels()
    finding = found(samples.orders(parcel), parcel)["communication-too-large"]
    assert finding.severity == "info"
    assert finding.what.startswith("order, parcel together have more than ")


def test_machines_that_start_each_other_have_a_first_one() -> None:
    one, other = asker(final={Stage.LAST}), replier()
    children_of(one, other, Stage.SECOND)
    one.join(Stage.SECOND, to=Stage.LAST)
    children_of(other, one, Stage.FIRST)
    assert set(found(one, other)) == {"communication-too-large"}


def release(count: int) -> list[Event]:
    return [Stop()] if count else going(count)


def going(count: int) -> list[Event]:
    return [Go()] if count else release(count + 1)


def test_names_are_read_from_the_functions_that_a_function_calls_in_its_module() -> None:
    def sends(context: int) -> list[Event]:
        return release(context)

    assert {Go, Stop} <= {each for each in communications._named(sends) if isinstance(each, type)}


def test_names_are_read_from_all_that_a_function_encloses() -> None:
    module = sys.modules[__name__]
    enclosed = Go

    def function() -> list[object]:
        return [enclosed, module.Stop, *(Next for _ in (1,))]

    assert {Go, Stop, Next} <= {each for each in communications._named(function) if isinstance(each, type)}
    assert communications._named(partial(function)) == []
    assert communications._named(SimpleNamespace()) == []

    def unassigned() -> Callable[[], object]:
        def inner() -> object:
            return late

        found = communications._named(inner)
        late = found
        return lambda: late

    assert unassigned()() == []
