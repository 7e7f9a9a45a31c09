"""Children, joins and messages: what their declarations demand, and what `check` finds (E1 to E4)."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import (
    Child,
    Decision,
    DefinitionError,
    Event,
    Family,
    InvalidPayload,
    Machine,
    NonRetryable,
    Send,
    StepContext,
    UserCodeError,
)
from interlock.core import decide
from interlock.core.machine import by_an_engine
from interlock.errors import BadUsage


class PartState(Enum):
    OPEN = "open"
    GOOD = "good"
    BAD = "bad"


class PartEvent(Event): ...


class Good(PartEvent): ...


class Bad(PartEvent): ...


class Stop(PartEvent): ...


@dataclass(frozen=True)
class Part:
    name: str = ""


PartMachine = Machine[PartState, Part, PartEvent]


def parts(*, stoppable: bool = True) -> PartMachine:
    machine = Machine(
        "part", states=PartState, context=Part, events=PartEvent, initial=PartState.OPEN,
        final={PartState.GOOD, PartState.BAD},
    )  # fmt: skip
    machine.on(Good, PartState.OPEN, to=PartState.GOOD)
    machine.on(Bad, PartState.OPEN, to=PartState.BAD)
    if stoppable:
        machine.on(Stop, PartState.OPEN, to=PartState.BAD)
    return machine


class State(Enum):
    WAITING = "waiting"
    DONE = "done"
    UNDOING = "undoing"
    FAILED = "failed"


class WholeEvent(Event): ...


class Undo(WholeEvent): ...


@dataclass(frozen=True)
class Whole:
    names: tuple[str, ...] = ()


WholeMachine = Machine[State, Whole, WholeEvent]


def whole() -> WholeMachine:
    machine = Machine(
        "whole", states=State, context=Whole, events=WholeEvent, initial=State.WAITING,
        final={State.DONE, State.FAILED}, unwind={State.UNDOING: State.FAILED},
    )  # fmt: skip
    machine.on(Undo, State.WAITING, to=State.UNDOING)
    return machine


def some(context: Whole) -> Iterable[Child[Part]]:
    return [Child(name, Part(name)) for name in context.names]


def mistake(declare: Callable[[], object]) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        declare()
    return caught.value


def test_children_need_a_cancel_event_or_are_abandoned() -> None:
    error = mistake(lambda: whole().children(State.WAITING, of=parts())(some))
    assert error.rule == "children-without-cancel"
    assert 'leave="abandon"' in error.fix
    whole().children(State.WAITING, of=parts(), leave="abandon")(some)
    error = mistake(lambda: whole().children(State.WAITING, of=parts(), cancel=Stop(), leave="abandon")(some))
    assert "sends nothing" in error.what


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"cancel": Undo()}, "is not an event of machine 'part'"),
        ({"cancel": Stop}, "cancel=Stop is a class"),
        ({"cancel": Stop(), "leave": "kill"}, "leave is 'kill'"),
        ({"cancel": Stop(), "of": "part"}, "of is 'part'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], part: str) -> None:
    given = {"of": parts()} | arguments
    error = mistake(lambda: whole().children(State.WAITING, **given)(some))  # type: ignore[arg-type]
    assert part in error.what


def test_a_state_of_another_machine_and_a_final_one_have_no_children() -> None:
    error = mistake(lambda: whole().children(PartState.OPEN, of=parts(), cancel=Stop())(some))  # type: ignore[arg-type]
    assert error.rule == "unknown-state"
    error = mistake(lambda: whole().children(State.DONE, of=parts(), cancel=Stop())(some))
    assert "is final and cannot have a step" in error.what


def test_a_function_of_children_is_pure_and_takes_the_context() -> None:
    async def later(context: Whole) -> Iterable[Child[Part]]:
        return some(context)

    error = mistake(lambda: whole().children(State.WAITING, of=parts(), cancel=Stop())(later))  # type: ignore[arg-type]
    assert error.rule == "impure-function"

    def of_nothing() -> Iterable[Child[Part]]:
        return []

    error = mistake(lambda: whole().children(State.WAITING, of=parts(), cancel=Stop())(of_nothing))  # type: ignore[arg-type]
    assert error.rule == "wrong-signature"

    def one_by_one(context: Whole) -> Iterable[Child[Part]]:
        yield from some(context)

    whole().children(State.WAITING, of=parts(), cancel=Stop())(one_by_one)


def test_a_join_needs_children_and_a_state_has_one_without_a_condition() -> None:
    assert mistake(lambda: whole().join(State.WAITING, to=State.DONE)).rule == "join-without-children"
    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.DONE)
    error = mistake(lambda: machine.join(State.WAITING, to=State.FAILED))
    assert "can never be taken" in error.what


def test_the_join_without_a_condition_is_asked_last_wherever_it_is_declared() -> None:
    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.DONE)
    machine.join(State.WAITING, to=State.FAILED, when=lambda family: family.ended > 0)
    joins = machine.compiled.nodes[State.WAITING.name].joins
    assert [each.target.state for each in joins] == [State.FAILED, State.DONE]


def codes(machine: WholeMachine) -> set[str]:
    return {each.code for each in machine.check()}


def test_a_join_that_no_family_satisfies_is_found() -> None:
    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.DONE, when=lambda family: family.count(PartState.OPEN) > 0)
    assert "join-never-holds" in codes(machine)
    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.FAILED, when=lambda family: family.count(PartState.BAD) >= 3)
    machine.join(State.WAITING, to=State.DONE)
    assert "join-never-holds" not in codes(machine)


def test_children_that_refuse_the_cancellation_are_found() -> None:
    machine = whole()
    machine.children(State.WAITING, of=parts(stoppable=False), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.DONE)
    assert {"child-refuses-cancel", "child-not-undoable"} <= codes(machine)


def test_a_count_of_a_state_that_no_child_has_is_refused() -> None:
    family = Family(total=2, ended=1, counts={"good": 1}, states=PartState)
    assert (family.count(PartState.GOOD), family.living) == (1, 1)
    with pytest.raises(InvalidPayload, match="their states are open, good, bad"):
        family.count(State.DONE)


def test_a_step_that_sends_outside_an_engine_is_told_so() -> None:
    call = StepContext(key="k").send("w", Undo())
    with pytest.raises(BadUsage, match="outside an attempt of an engine"):
        call.send(None)


def test_messages_are_declared_like_effects() -> None:
    machine = whole()

    @machine.sends(State.DONE)
    def tell(context: Whole) -> Iterable[Send]:
        return [Send("w", Undo()) for _ in context.names]

    assert mistake(lambda: machine.sends(State.DONE)(tell)).rule == "duplicate-name"
    assert mistake(lambda: machine.sends()(lambda _context: [])).what.endswith("names no state.")


ALL = Family(total=1, ended=1, counts={"good": 1}, states=PartState)


def parent() -> WholeMachine:
    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    return machine


def joined(machine: WholeMachine, family: Family = ALL) -> Decision[State, Whole] | None:
    """Decide what a family does to a workflow in its first state."""
    table = machine.compiled
    join = decide.join_of(table, State.WAITING, family)
    return None if join is None else decide.join(table, machine.begin(Whole()), join, family)


def test_a_join_moves_with_and_without_an_action() -> None:
    def named(context: Whole, family: Family) -> Whole:
        return Whole((*context.names, str(family.ended)))

    for action, names in ((None, ()), (named, ("1",))):
        machine = parent()
        declare = machine.join(State.WAITING, to=State.DONE)
        if action is not None:
            declare(action)
        decision = joined(machine)
        assert decision is not None
        assert (decision.snapshot.state, decision.snapshot.context) == (State.DONE, Whole(names))
    machine = parent()
    machine.join(State.WAITING, to=State.DONE)
    assert joined(machine, Family(total=2, ended=1, counts={"good": 1}, states=PartState)) is None


def test_a_condition_and_an_action_that_fail_name_themselves() -> None:
    def raises(family: Family) -> bool:
        raise LookupError(family.total)

    def truthy(family: Family) -> bool:
        return family.total  # type: ignore[return-value]

    def action_raises(context: Whole, family: Family) -> Whole:
        raise LookupError(context, family)

    def of_another_type(context: Whole, family: Family) -> Whole:
        return family, context  # type: ignore[return-value]

    for when, part in ((raises, "guard raises"), (truthy, "not True or False")):
        machine = parent()
        machine.join(State.WAITING, to=State.DONE, when=when)
        with pytest.raises(UserCodeError, match=part):
            joined(machine)
    for action, part in ((action_raises, "action action_raises"), (of_another_type, "of_another_type")):
        machine = parent()
        machine.join(State.WAITING, to=State.DONE)(action)
        with pytest.raises(UserCodeError, match=part):
            joined(machine)


def test_an_action_of_a_join_with_a_wrong_signature_leaves_no_join() -> None:
    def without_family(context: Whole) -> Whole:
        return context

    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    error = mistake(lambda: machine.join(State.WAITING, to=State.DONE)(without_family))  # type: ignore[arg-type]
    assert error.rule == "wrong-signature"
    assert not machine.declarations.joins


def test_children_without_a_join_are_found() -> None:
    machine = whole()
    machine.children(State.WAITING, of=parts(), leave="abandon")(some)
    assert "children-without-join" in {each.code for each in machine.check()}


def test_a_join_whose_condition_always_raises_never_holds() -> None:
    def raises(family: Family) -> bool:
        raise LookupError(family.total)

    machine = whole()
    machine.children(State.WAITING, of=parts(), cancel=Stop())(some)
    machine.join(State.WAITING, to=State.DONE, when=raises)
    assert "join-never-holds" in {each.code for each in machine.check()}


def test_only_an_engine_starts_children() -> None:
    with pytest.raises(NonRetryable, match="only an engine"):
        asyncio.run(by_an_engine(Whole()))
