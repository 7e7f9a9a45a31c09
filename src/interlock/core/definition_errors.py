"""Checks of single declarations: each raises a `DefinitionError` at the line of its own declaration (A2).

An error says what is wrong (with the offending value and the allowed ones), why it matters and how to fix it. Rules
that need the whole graph are in `checks`.
"""

import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, cast

from interlock.core.codec import not_storable
from interlock.core.decide import bounded_repr, member_suggestion
from interlock.core.declarations import (
    AnyState,
    Declarations,
    DwellDeclaration,
    EffectDeclaration,
    StepDeclaration,
    TimerDeclaration,
    TransitionDeclaration,
    declared_at,
)
from interlock.core.events import Event, is_event, mistake_in, wire_name
from interlock.core.policies import Retry
from interlock.core.table import name_of
from interlock.errors import DefinitionError

NAME_CHARACTERS_MAX = 100
POLICIES = ("deadline", "remaining", "restart")
STORABLE_FIELDS = "Use fields of ordinary types: numbers, texts, dates, lists, dicts, and dataclasses of these."


def in_snapshot(version: object) -> None:
    """Check `machine.at(...)`."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _bad_number("version", version, "a whole number from 1 up", declared_at())


def in_machine(declared: Declarations) -> None:
    """Check `Machine(...)` itself."""
    where = declared.location
    _good_name("machine", declared.name, where)
    _good_states(declared)
    alphabet = declared.alphabet
    if not (isinstance(alphabet, type) and issubclass(alphabet, Event) and alphabet is not Event):
        raise DefinitionError(
            f"events={bounded_repr(alphabet)} is not an alphabet.",
            why="The alphabet is a class of its own, so that two machines cannot mix up their events.",
            fix="Write `class OrderEvent(Event): ...` and pass events=OrderEvent.",
            rule="no-alphabet",
            location=where,
        )
    if isinstance(declared.version, bool) or not isinstance(declared.version, int) or declared.version < 1:
        raise _bad_number("version", declared.version, "a whole number from 1 up", where)
    problem = not_storable(declared.context)
    if declared.context is cast("object", Any):
        problem = "Any is not a class"
    if problem:
        raise DefinitionError(
            f"context={name_of(declared.context)} cannot be stored: {problem}.",
            why="The context is written with every transition and read back after a crash.",
            fix="Use a frozen dataclass, msgspec.Struct or pydantic model with fields of ordinary types.",
            rule="context-not-storable",
            location=where,
        )
    named = [declared.initial] if declared.initial is not None else []
    named += [*declared.final, *declared.resting, *declared.unwind, *declared.unwind.values()]
    for state in [*named, *declared.renamed.values()]:
        _known_state(declared, state, where)
    for old in declared.renamed:
        if not isinstance(old, str):
            raise _bad_number("a key of renamed", old, "the text that the old state was stored as", where)
    _separate_kinds(declared)


def _good_states(declared: Declarations) -> None:
    states = declared.states
    problem = ""
    if not (isinstance(states, type) and issubclass(states, Enum)):
        problem = f"states={bounded_repr(states)} is not an Enum class"
    elif not len(states):
        problem = f"{states.__name__} has no members"
    else:
        wrong = [state for state in states if not isinstance(state.value, str) or not state.value.strip()]
        if wrong:
            problem = f"{wrong[0]!r} does not have a text as its value"
        elif not all(state.value.isprintable() for state in states):
            problem = f"{states.__name__} has a character in a value that cannot be printed"
        elif len(states.__members__) != len(states):
            alias = next(name for name, state in states.__members__.items() if name != state.name)
            problem = f"{states.__name__}.{alias} has the value of {states.__members__[alias].name}: they are one state"
    if problem:
        raise DefinitionError(
            f"{problem}.",
            why="A state is stored by its value and read by people: it has to be a text that does not change.",
            fix='Write `class State(Enum): DRAFT = "draft"; DONE = "done"` and pass states=State.',
            rule="bad-states",
            location=declared.location,
        )


def _separate_kinds(declared: Declarations) -> None:
    kinds = {"final": declared.final, "resting": declared.resting, "unwinding": frozenset(declared.unwind)}
    for first, second in (("final", "resting"), ("final", "unwinding"), ("resting", "unwinding")):
        both = kinds[first] & kinds[second]
        if both:
            raise _conflict(f"{_names(both)} cannot be both {first} and {second}", declared.location)
    if declared.initial in declared.unwind:
        raise _conflict(f"{_names([declared.initial])} cannot be both initial and unwinding", declared.location)
    for state, target in declared.unwind.items():
        if target in declared.unwind:
            raise _conflict(
                f"unwinding {_names([state])} leads to {_names([target])}, which is unwinding itself", declared.location
            )


def after_first_use(declared: Declarations, location: str) -> None:
    """Raise if the machine is already in use."""
    if declared.frozen:
        raise DefinitionError(
            f"machine {declared.name!r} is already in use and cannot be changed any more.",
            why="All workflows in one process must be decided with the same definition.",
            fix="Declare everything at import, before the first begin, decide, describe or Engine.open.",
            rule="declared-after-first-use",
            location=location,
        )


def in_transition(
    declared: Declarations,
    event: object,
    sources: tuple[object, ...],
    to: object,
    location: str,
) -> None:
    """Check `machine.on(...)`."""
    _good_event(declared, event, location)
    if not sources:
        raise DefinitionError(
            f"the transition on {name_of(event)} has no source state.",
            why="A transition starts from one state, from several, or from any.",
            fix=f"Write on({name_of(event)}, State.X, to=...), or on({name_of(event)}, {declared.name}.any, to=...).",
            rule="no-source",
            location=location,
        )
    catch_all = [source for source in sources if isinstance(source, AnyState)]
    if catch_all and len(sources) > 1:
        raise _conflict("`any` already means every state: name it alone, or name the states", location)
    if to is not None:
        _known_state(declared, to, location)
    checked: set[Enum] = set()
    for source in sources:
        if isinstance(source, AnyState):
            continue
        state = _known_state(declared, source, location)
        if state in checked:
            raise _conflict(f"{_names([state])} is named twice as a source", location)
        checked.add(state)
        _may_be_left(declared, state, to, location)


def in_settle(declared: Declarations, settle: object, sources: tuple[object, ...], to: object, location: str) -> None:
    """Check `machine.on(..., settle=)`."""
    if settle is not None and not isinstance(settle, bool):
        raise DefinitionError(
            f"settle={bounded_repr(settle)} is not True or False.",
            why="A transition settles what was done so far, or it does not.",
            fix="Pass settle=True, or leave it out.",
            rule="contradiction",
            location=location,
        )
    if settle and isinstance(to, Enum) and to in declared.unwind:
        raise _conflict(f"settle=True leaves nothing to undo, and {_names([to])} is unwinding", location)
    if settle and any(source in declared.unwind for source in sources):
        raise _conflict("settle=True in an unwinding state would forget undos that are owed", location)


def _may_be_left(declared: Declarations, state: Enum, to: object, location: str) -> None:
    if state in declared.final:
        raise DefinitionError(
            f"{_names([state])} is final and cannot have a transition.",
            why="A final state ends the workflow: nothing leaves it, and waiting callers rely on that.",
            fix="Take it out of final= (resting= lets a workflow stay and still take events), or drop the transition.",
            rule="exit-from-final",
            location=location,
        )
    if state in declared.unwind and to is not None:
        raise DefinitionError(
            f"{_names([state])} is unwinding and is left only when everything is undone.",
            why="An event that left it would abandon undos that are owed.",
            fix="Drop `to=` (an internal transition may record something), or choose another source.",
            rule="exit-from-unwinding",
            location=location,
        )


def second_action(declaration: TransitionDeclaration) -> None:
    """Raise if the transition already has an action."""
    if declaration.action is not None:
        raise _conflict(
            f"the transition on {wire_name(declaration.event)} already has the action {name_of(declaration.action)}",
            declaration.location,
        )


def in_step(declared: Declarations, step: StepDeclaration) -> None:
    """Check `machine.step(...)`."""
    state = _known_state(declared, step.state, step.location)
    if state in declared.final or state in declared.unwind:
        kind = "final" if state in declared.final else "unwinding"
        raise _conflict(f"{_names([state])} is {kind} and cannot have a step", step.location)
    if state in declared.steps:
        raise _conflict(f"{_names([state])} already has the step {declared.steps[state].name!r}", step.location)
    if step.failed is not None:
        _known_state(declared, step.failed, step.location)
    for event in step.returns:
        _good_event(declared, event, step.location)
    for place in step.undone_in:
        if _known_state(declared, place, step.location) is state:
            raise _conflict(f"step {step.name!r} cannot be undone in its own {_names([state])}", step.location)
    if len(step.undo_flags) > 1:
        raise _conflict(f"step {step.name!r} is declared {' and '.join(step.undo_flags)}", step.location)
    in_step_settings(
        step.name, step.timeout_s, step.location, retry=step.retry, dependency=step.dependency, classify=step.classify
    )
    in_heartbeat(step.heartbeat_s, step.timeout_s, step.location)
    taken = [known.name for known in declared.steps.values()] + [effect.name for effect in declared.effects]
    _free_name("step", step.name, taken, step.location)


def in_step_settings(
    name: str, timeout_s: float, location: str, *, retry: object, dependency: object, classify: object = None
) -> None:
    """Check the settings of a step or effect, in a machine or free-standing."""
    _good_name("step", name, location)
    _positive("timeout_s", timeout_s, location)
    _good_retry(retry, location)
    if dependency is not None and not (isinstance(dependency, str) and dependency.strip()):
        raise _bad_number("dependency", dependency, "the name of the dependency as a text, or None", location)
    if classify is not None and not callable(classify):
        raise _bad_number("classify", classify, "a function from an error to a Classification, or None", location)


def in_heartbeat(heartbeat_s: float | None, timeout_s: float, location: str) -> None:
    """Check the heartbeat of a step whose timeout is valid."""
    if heartbeat_s is None:
        return
    _positive("heartbeat_s", heartbeat_s, location)
    if heartbeat_s >= timeout_s:
        raise DefinitionError(
            f"heartbeat_s is {heartbeat_s}, and timeout_s is {timeout_s}: the heartbeat could never be missed.",
            why="An attempt that is silent for heartbeat_s is ended, and the timeout would always end this one before.",
            fix="Give heartbeat_s less than timeout_s, or drop it: the timeout alone is enough for a short step.",
            rule="value-out-of-range",
            location=location,
        )


def in_undo(declared: Declarations, step: StepDeclaration, event: object, location: str) -> None:
    """Check `@step.undo(...)`, except for what depends on the step's return annotation."""
    known = _good_event(declared, event, location)
    if step.undo_flags:
        raise _conflict(f"step {step.name!r} is declared {step.undo_flags[0]}, and this is an undo", location)
    if any(undo.event is known for undo in step.undos):
        raise _conflict(f"step {step.name!r} already has an undo for {wire_name(known)}", location)


def in_undo_retry(retry: object, location: str) -> None:
    """Check the `retry` of an undo; None is the engine's default."""
    if retry is not None:
        _good_retry(retry, location)


def _good_retry(retry: object, location: str) -> None:
    if not isinstance(retry, Retry):
        raise _bad_number("retry", retry, "a Retry, such as Retry(attempts=5)", location)


def in_failed_action(step: StepDeclaration, location: str) -> None:
    """Check `@step.failed`."""
    if step.failed is None:
        raise DefinitionError(
            f"step {step.name!r} has no failed= state, so its failure makes no move that an action could accompany.",
            why="Without failed= a step that gave up becomes a dead letter and the workflow stays.",
            fix="Give the step failed=State.X, or drop the action.",
            rule="failed-action-without-state",
            location=location,
        )
    if step.failed_action is not None:
        raise _conflict(f"step {step.name!r} already has a failed action", location)


def in_effect(declared: Declarations, effect: EffectDeclaration) -> None:
    """Check `machine.effect(...)`."""
    if not effect.states:
        raise _conflict(f"effect {effect.name!r} names no state", effect.location)
    for state in effect.states:
        _known_state(declared, state, effect.location)
    taken = [known.name for known in declared.effects] + [step.name for step in declared.steps.values()]
    _free_name("effect", effect.name, taken, effect.location)
    in_step_settings(effect.name, effect.timeout_s, effect.location, retry=effect.retry, dependency=effect.dependency)


def in_timer(declared: Declarations, timer: TimerDeclaration) -> None:
    """Check `machine.after(...)`."""
    state = _known_state(declared, timer.state, timer.location)
    if state in declared.final or state in declared.unwind:
        kind = "final" if state in declared.final else "unwinding"
        raise _conflict(f"{_names([state])} is {kind} and cannot have a timer", timer.location)
    if isinstance(timer.send, type):
        name = timer.send.__name__
        raise _conflict(f"send={name} is a class; a timer sends an instance: send={name}(...)", timer.location)
    event = _good_event(declared, type(timer.send), timer.location)
    if any(type(known.send) is event and known.state is state for known in declared.timers):
        raise _conflict(f"{_names([state])} already has a timer that sends {wire_name(event)}", timer.location)
    _positive("after_s", timer.after_s, timer.location)
    if timer.policy not in POLICIES:
        raise _bad_number("policy", timer.policy, "one of " + ", ".join(POLICIES), timer.location)


def in_dwell(declared: Declarations, dwell: DwellDeclaration) -> None:
    """Check `machine.dwell(...)`."""
    state = _known_state(declared, dwell.state, dwell.location)
    if state in declared.final or state in declared.resting:
        kind = "final" if state in declared.final else "resting"
        raise _conflict(f"{_names([state])} is {kind}: a workflow may stay there for ever", dwell.location)
    if state in declared.dwells:
        raise _conflict(f"{_names([state])} already has a dwell limit", dwell.location)
    _positive("max_s", dwell.max_s, dwell.location)


def _known_state(declared: Declarations, state: object, location: str) -> Enum:
    if isinstance(state, declared.states):
        return state
    names = [member.value for member in declared.states]
    hint = member_suggestion(state, declared.states)
    raise DefinitionError(
        f"{bounded_repr(state)} is not a state of machine {declared.name!r}; its states are {', '.join(names)}.{hint}",
        why="At any moment a workflow is in exactly one of the declared states.",
        fix=f"Use a member of {declared.states.__name__}, or add one.",
        rule="unknown-state",
        location=location,
    )


def _good_event(declared: Declarations, event: object, location: str) -> type[Event]:
    alphabet = declared.alphabet
    if not is_event(event, alphabet):
        problem_text = "an instance" if isinstance(event, alphabet) else "not an event of this machine"
        raise DefinitionError(
            f"{bounded_repr(event)} is {problem_text}; "
            f"machine {declared.name!r} takes the classes below {alphabet.__name__}.",
            why="Another machine's event, or a plain value, could never be sent here.",
            fix=f"Pass a class that is a frozen dataclass below {alphabet.__name__}.",
            rule="unknown-event",
            location=location,
        )
    assert isinstance(event, type)
    mistake = mistake_in(event)
    problem = not_storable(event) if mistake is None else ""
    if problem:
        mistake = "event-not-storable", f"event {event.__name__} cannot be stored: {problem}", STORABLE_FIELDS
    if mistake is not None:
        rule, what, fix = mistake
        raise DefinitionError(
            f"{what}.",
            why="An event is written to history and sent again after a crash: a value with a fixed shape and name.",
            fix=fix,
            rule=rule,
            location=location,
        )
    return event


def _good_name(kind: str, name: object, location: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= NAME_CHARACTERS_MAX:
        raise _bad_number(f"the {kind}'s name", name, f"1 to {NAME_CHARACTERS_MAX} printable characters", location)


def _free_name(kind: str, name: str, taken: Iterable[str], location: str) -> None:
    if name in taken:
        raise DefinitionError(
            f"{kind} {name!r} is declared twice.",
            why="Keys, history and metrics name steps and effects; two with one name would be indistinguishable.",
            fix="Rename one of the functions, or give it name=.",
            rule="duplicate-name",
            location=location,
        )


def _positive(name: str, value: object, location: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _bad_number(name, value, "a number of seconds more than 0, and finite", location)


def _bad_number(name: str, value: object, allowed: str, location: str) -> DefinitionError:
    return DefinitionError(
        f"{name} is {bounded_repr(value)}; it must be {allowed}.",
        why="A value outside its range would be noticed only in production.",
        fix=f"Give {name} a value that is {allowed}.",
        rule="value-out-of-range",
        location=location,
    )


def _conflict(what: str, location: str) -> DefinitionError:
    return DefinitionError(
        f"{what}.",
        why="The two declarations contradict each other, and Interlock does not guess.",
        fix="Keep one of them.",
        rule="contradiction",
        location=location,
    )


def _names(states: Iterable[Enum | None]) -> str:
    return ", ".join(f"state {state.value!r}" for state in states if state is not None)
