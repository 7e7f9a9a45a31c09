"""Checks of single declarations: each raises a `DefinitionError` at the line of its own declaration (A2).

An error says what is wrong (with the offending value and the allowed ones), why it matters and how to fix it. Rules
that need the whole graph are in `checks`.

Sections: machines, transitions, steps, timers and tasks; user functions.
"""

import inspect
import math
import string
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, TypeGuard, TypeVar, Union, cast

from interlock.core.codec import not_storable
from interlock.core.decide import bounded_repr, member_suggestion, suggestion
from interlock.core.declarations import (
    AnyState,
    ChildrenDeclaration,
    Declarations,
    DwellDeclaration,
    EffectDeclaration,
    JoinDeclaration,
    Needs,
    StepDeclaration,
    TaskDeclaration,
    TimerDeclaration,
    TimerFunction,
    TransitionDeclaration,
    declared_at,
)
from interlock.core.events import WHY_EVENT, Event, events_below, is_event, is_group, mistake_in, wire_name
from interlock.core.policies import Retry, Seconds, in_seconds
from interlock.core.table import class_of, name_of
from interlock.core.values import StepContext
from interlock.errors import DefinitionError

# --- Machines, transitions, steps, timers and tasks ------------------------------------------------------------------

KeyT = TypeVar("KeyT")

NAME_CHARACTERS_MAX = 100
POLICIES = ("deadline", "remaining", "restart")
LEAVES = ("cancel", "abandon")
STORABLE_FIELDS = "Use fields of ordinary types: numbers, texts, dates, lists, dicts, and dataclasses of these."


def as_states(name: str, argument: object) -> frozenset[Enum]:
    """Return the argument as a set of states. Raises DefinitionError for a single state or anything else."""
    passed: object = argument
    several = isinstance(passed, AbstractSet | list | tuple)
    members = tuple(cast("Iterable[object]", argument)) if several else ()
    if not several or not all(isinstance(member, Enum) for member in members):
        what = f"{name}={bounded_repr(argument)} is not a set of states."
        fix = f"Write braces around it: {name}={{State.X}}."
        raise _error("bad-states", declared_at(), what, "A machine may have several such states.", fix)
    return frozenset(cast("Iterable[Enum]", members))


def as_mapping(name: str, argument: object) -> dict[KeyT, Enum]:
    """Return the argument as a dict, empty for None. Raises DefinitionError for anything else."""
    if argument is None or isinstance(argument, Mapping):
        return dict(cast("Mapping[KeyT, Enum]", argument or {}))
    what, why = f"{name}={bounded_repr(argument)} is not a mapping.", "It says for each state where it leads."
    raise _error("bad-states", declared_at(), what, why, f"Write {name}={{from: to}}.")


def in_snapshot(version: object) -> None:
    """Check `machine.at(...)`."""
    _good_version(version, declared_at())


def _good_version(version: object, location: str) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _bad_value("version", version, "a whole number from 1 up", location)


def in_machine(declared: Declarations) -> None:
    """Check `Machine(...)` itself."""
    where = declared.location
    _good_name("machine", declared.name, where)
    _good_states(declared)
    alphabet = declared.alphabet
    if not (isinstance(alphabet, type) and issubclass(alphabet, Event) and alphabet is not Event):
        what = f"events={bounded_repr(alphabet)} is not an alphabet."
        why = "The alphabet is a class of its own, so that two machines cannot mix up their events."
        fix = "Write `class OrderEvent(Event): ...` and pass events=OrderEvent."
        raise _error("no-alphabet", where, what, why, fix)
    _good_version(declared.version, where)
    problem = not_storable(declared.context)
    if declared.context is cast("object", Any):
        problem = "Any is not a class"
    if problem:
        what = f"context={name_of(declared.context)} cannot be stored: {problem}."
        why = "The context is written with every transition and read back after a crash."
        fix = "Use a frozen dataclass, msgspec.Struct or pydantic model with fields of ordinary types."
        if hasattr(type(declared.context), "__dataclass_fields__"):
            name = type(declared.context).__name__
            what, fix = f"context= is an instance of {name}, not the class.", f"Pass the class: context={name}."
        raise _error("context-not-storable", where, what, why, fix)
    initial = [] if declared.initial is None else [declared.initial]
    unwinding = [*declared.unwind, *declared.unwind.values()]
    for state in [*initial, *declared.final, *declared.resting, *unwinding, *declared.renamed.values()]:
        _known_state(declared, state, where)
    for old in declared.renamed:
        if not isinstance(old, str):
            raise _bad_value("a key of renamed", old, "the text that the old state was stored as", where)
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
        why = "A state is stored by its value and read by people: it has to be a text that does not change."
        fix = 'Write `class State(Enum): DRAFT = "draft"; DONE = "done"` and pass states=State.'
        raise _error("bad-states", declared.location, f"{problem}.", why, fix)


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
            what = f"unwinding {_names([state])} leads to {_names([target])}, which is unwinding itself"
            raise _conflict(what, declared.location)


def after_first_use(declared: Declarations, location: str) -> None:
    """Raise if the machine is already in use."""
    if declared.frozen:
        what = f"machine {declared.name!r} is already in use and cannot be changed any more."
        why = "All workflows in one process must be decided with the same definition."
        fix = "Declare everything at import, before the first begin, decide, describe or Engine.open."
        raise _error("declared-after-first-use", location, what, why, fix)


def in_transition(
    declared: Declarations, event: object, sources: tuple[object, ...], to: object, location: str
) -> None:
    """Check `machine.on(...)`."""
    _good_event(declared, event, location)
    if not sources:
        what = f"the transition on {name_of(event)} has no source state."
        why = "A transition starts from one state, from several, or from any."
        fix = f"Write on({name_of(event)}, State.X, to=...), or on({name_of(event)}, {declared.name}.any, to=...)."
        raise _error("no-source", location, what, why, fix)
    if len(sources) > 1 and any(isinstance(source, AnyState) for source in sources):
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
        what = f"settle={bounded_repr(settle)} is not True or False."
        why = "A transition settles what was done so far, or it does not."
        raise _error("contradiction", location, what, why, "Pass settle=True, or leave it out.")
    if settle and isinstance(to, Enum) and to in declared.unwind:
        raise _conflict(f"settle=True leaves nothing to undo, and {_names([to])} is unwinding", location)
    if settle and any(source in declared.unwind for source in sources):
        raise _conflict("settle=True in an unwinding state would forget undos that are owed", location)


def _may_be_left(declared: Declarations, state: Enum, to: object, location: str) -> None:
    if state in declared.final:
        what = f"{_names([state])} is final and cannot have a transition."
        why = "A final state ends the workflow: nothing leaves it, and waiting callers rely on that."
        fix = "Take it out of final= (resting= lets a workflow stay and still take events), or drop the transition."
        raise _error("exit-from-final", location, what, why, fix)
    if state in declared.unwind and to is not None:
        what = f"{_names([state])} is unwinding and is left only when everything is undone."
        why = "An event that left it would abandon undos that are owed."
        fix = "Drop `to=` (an internal transition may record something), or choose another source."
        raise _error("exit-from-unwinding", location, what, why, fix)


def second_action(declaration: TransitionDeclaration) -> None:
    """Raise if the transition already has an action."""
    if declaration.action is not None:
        name = wire_name(declaration.event)
        what = f"the transition on {name} already has the action {name_of(declaration.action)}"
        raise _conflict(what, declaration.location)


def in_step(declared: Declarations, step: StepDeclaration) -> None:
    """Check `machine.step(...)`."""
    state = _known_state(declared, step.state, step.location)
    _refuse_kinds(state, " and cannot have a step", step.location, final=declared.final, unwinding=declared.unwind)
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
    _free_name(declared, "step", step.name, step.location)


def in_step_settings(
    name: str, timeout_s: float, location: str, *, retry: object, dependency: object, classify: object = None
) -> None:
    """Check the settings of a step or effect, in a machine or free-standing."""
    _good_name("step", name, location)
    _positive("timeout_s", timeout_s, location)
    _good_retry(retry, location)
    if dependency is not None and not (isinstance(dependency, str) and dependency.strip()):
        raise _bad_value("dependency", dependency, "the name of the dependency as a text, or None", location)
    if classify is not None and not callable(classify):
        raise _bad_value("classify", classify, "a function from an error to a Classification, or None", location)


def in_heartbeat(heartbeat_s: float | None, timeout_s: float, location: str) -> None:
    """Check the heartbeat of a step whose timeout is valid."""
    if heartbeat_s is None:
        return
    _positive("heartbeat_s", heartbeat_s, location)
    if heartbeat_s >= timeout_s:
        what = f"heartbeat_s is {heartbeat_s}, and timeout_s is {timeout_s}: the heartbeat could never be missed."
        why = "An attempt that is silent for heartbeat_s is ended, and the timeout would always end this one before."
        fix = "Give heartbeat_s less than timeout_s, or drop it: the timeout alone is enough for a short step."
        raise _error("value-out-of-range", location, what, why, fix)


def in_undo(declared: Declarations, step: StepDeclaration, event: object, retry: object, location: str) -> None:
    """Check `@step.undo(...)`."""
    known = _good_event(declared, event, location)
    if step.undo_flags:
        raise _conflict(f"step {step.name!r} is declared {step.undo_flags[0]}, and this is an undo", location)
    if any(undo.event is known for undo in step.undos):
        raise _conflict(f"step {step.name!r} already has an undo for {wire_name(known)}", location)
    in_undo_retry(retry, location)
    if step.returns and known not in step.returns:
        what = (
            f"step {step.name!r} can never return {wire_name(known)}, so there is nothing to undo; "
            f"it returns {', '.join(map(wire_name, step.returns))}."
        )
        fix = "Name one of the events it returns, or add this one to the step's return annotation."
        raise _error("undo-of-impossible-event", location, what, "An undo belongs to one outcome of its step.", fix)


def in_undo_retry(retry: object, location: str) -> None:
    """Check the `retry` of an undo; None is the engine's default."""
    if retry is not None:
        _good_retry(retry, location)


def _good_retry(retry: object, location: str) -> None:
    if not isinstance(retry, Retry):
        raise _bad_value("retry", retry, "a Retry, such as Retry(attempts=5)", location)


def in_failed_action(step: StepDeclaration, location: str) -> None:
    """Check `@step.failed`."""
    if step.failed is None:
        what = f"step {step.name!r} has no failed= state, so its failure makes no move that an action could accompany."
        why = "Without failed= a step that gave up becomes a dead letter and the workflow stays."
        fix = "Give the step failed=State.X, or drop the action."
        raise _error("failed-action-without-state", location, what, why, fix)
    if step.failed_action is not None:
        raise _conflict(f"step {step.name!r} already has a failed action", location)


def in_effect(declared: Declarations, effect: EffectDeclaration) -> None:
    """Check `machine.effect(...)`."""
    if not effect.states:
        raise _conflict(f"effect {effect.name!r} names no state", effect.location)
    for state in effect.states:
        _known_state(declared, state, effect.location)
    _free_name(declared, "effect", effect.name, effect.location)
    in_step_settings(effect.name, effect.timeout_s, effect.location, retry=effect.retry, dependency=effect.dependency)


def in_children(declared: Declarations, state: object, children: ChildrenDeclaration, location: str) -> None:
    """Check `machine.children(...)`."""
    of: object = children.of
    if not isinstance(getattr(of, "declarations", None), Declarations):
        raise _bad_value("of", of, "the machine of the children", location)
    if children.leave not in LEAVES:
        raise _bad_value("leave", children.leave, "one of " + ", ".join(map(repr, LEAVES)), location)
    known, alphabet = _known_state(declared, state, location), children.of.declarations.alphabet
    if children.leave == "abandon":
        if children.cancel is not None:
            raise _conflict('leave="abandon" sends nothing to the children, and cancel= names an event', location)
        return
    if children.cancel is None:
        what = f"the children of {_names([known])} have no cancel= event."
        why = "A workflow that leaves the state while children live must say what becomes of them."
        fix = f'Pass cancel=Event(...) of machine {children.of.name!r}, or leave="abandon" to let them go on.'
        raise _error("children-without-cancel", location, what, why, fix)
    if isinstance(children.cancel, type):
        name = children.cancel.__name__
        raise _conflict(f"cancel={name} is a class; an instance is sent: cancel={name}(...)", location)
    if not is_event(type(children.cancel), alphabet):
        what = f"cancel={bounded_repr(children.cancel)} is not an event of machine {children.of.name!r}."
        why = "It is sent to the children, which refuse events of other machines."
        raise _error("unknown-event", location, what, why, f"Pass an instance of a class below {alphabet.__name__}.")


def in_join(declared: Declarations, join: JoinDeclaration) -> None:
    """Check `machine.join(...)`."""
    state = _known_state(declared, join.state, join.location)
    _known_state(declared, join.to, join.location)
    step = declared.steps.get(state)
    if step is None or step.children is None:
        what = f"{_names([state])} has no children that could be joined."
        why = "A join moves the workflow when the children of its state have ended."
        fix = f"Declare children({type(state).__name__}.{state.name}, of=...) first, or name the state that has them."
        raise _error("join-without-children", join.location, what, why, fix)
    if join.when is None and any(known.state is state and known.when is None for known in declared.joins):
        what = f"the join of {_names([state])} can never be taken: another join without when= holds first"
        raise _conflict(what, join.location)


def in_timer(declared: Declarations, timer: TimerDeclaration) -> None:
    """Check `machine.after(...)`."""
    state = _known_state(declared, timer.state, timer.location)
    _refuse_kinds(state, " and cannot have a timer", timer.location, final=declared.final, unwinding=declared.unwind)
    if isinstance(timer.send, type):
        name = timer.send.__name__
        why = "An event is a value: the class is only its name."
        what, fix = f"send={name} is a class; a timer sends an instance.", f"Write send={name}(...)."
        raise _error("contradiction", timer.location, what, why, fix)
    event = _good_event(declared, type(timer.send), timer.location)
    if any(type(known.send) is event and known.state is state for known in declared.timers):
        raise _conflict(f"{_names([state])} already has a timer that sends {wire_name(event)}", timer.location)
    if timer.function is None:
        _positive("after_s", timer.after_s, timer.location)
    if timer.policy not in POLICIES:
        raise _bad_value("policy", timer.policy, "one of " + ", ".join(POLICIES), timer.location)


def one_of_two(first: str, one: object, second: str, other: object, location: str) -> object:
    """Return the one argument that is given. Raises DefinitionError for both and for none."""
    if (one is None) == (other is None):
        raise _conflict(f"a timer takes {first} or {second}, and exactly one of them", location)
    return other if one is None else one


def in_dwell(declared: Declarations, dwell: DwellDeclaration) -> None:
    """Check `machine.dwell(...)`."""
    state = _known_state(declared, dwell.state, dwell.location)
    ending = ": a workflow may stay there for ever"
    _refuse_kinds(state, ending, dwell.location, final=declared.final, resting=declared.resting)
    if state in declared.dwells:
        raise _conflict(f"{_names([state])} already has a dwell limit", dwell.location)
    _positive("max_s", dwell.max_s, dwell.location)


def in_task(
    declared: Declarations,
    state: object,
    *,
    role: object,
    title: object,
    events: object,
    due: object,
    local: Mapping[str, object],
    location: str,
) -> TaskDeclaration:
    """Check `machine.task(...)`, and return what it declares."""
    known = _known_state(declared, state, location)
    ending = ": no person can move a workflow there"
    _refuse_kinds(known, ending, location, final=declared.final, unwinding=declared.unwind)
    if known in declared.tasks:
        raise _conflict(f"{_names([known])} already has a task", location)
    _good_name("role", role, location)
    passed = events
    classes = tuple(cast("Iterable[object]", events)) if isinstance(events, list | tuple) else ()
    if not classes:
        raise _bad_value("events", passed, "the events with which a person decides: (Approve, Reject)", location)
    found = tuple(_task_event(declared, known, each, location) for each in classes)
    if len(set(found)) < len(found):
        raise _conflict(f"the task of {_names([known])} names an event twice", location)
    parts = _title_parts(declared, title, location)
    task = TaskDeclaration(known, cast("str", role), parts, found, location)
    if callable(due):
        check_pure(due, "due time", (declared.context,), None, local, location)
        task.due = cast("TimerFunction", due)
    elif due is not None:
        seconds = in_seconds(cast("Seconds", due))
        _positive("due", seconds, location)
        task.due_s = float(seconds)
    return task


def _task_event(declared: Declarations, state: Enum, event: object, location: str) -> type[Event]:
    known = _good_event(declared, event, location)
    for each in declared.transitions:
        if each.event is known and (each.catch_all or state in each.sources):
            return known
    member = f"{type(state).__name__}.{state.name}"
    what = f"{wire_name(known)} has no transition from {_names([state])}, which waits for a person to send it."
    why = "A person would decide, and the workflow would refuse the decision."
    raise _error(
        "task-event-refused", location, what, why, f"Declare on({known.__name__}, {member}, to=...) above the task."
    )


def _title_parts(declared: Declarations, title: object, location: str) -> tuple[tuple[str, str | None], ...]:
    """Return the pieces of a title. Only names of fields may stand in braces: no attribute, index, format or call."""
    if not isinstance(title, str) or not title.strip():
        raise _bad_value("title", title, "a text, such as 'Approve {cents} for {customer}'", location)
    why = "A title is filled in with fields of the context, and evaluates nothing."
    try:
        pieces = list(string.Formatter().parse(title))
    except ValueError as error:
        what = f"title={bounded_repr(title)} cannot be read: {error}."
        raise _error("bad-title", location, what, why, "Write a brace that is not a field twice: {{ or }}.") from error
    fields, context = _field_names(declared.context), name_of(declared.context)
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if form or conversion or not name.isidentifier():
            field = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            what = f"title={bounded_repr(title)} has {{{field}}}, which is not the name of a field."
            fix = "Write the name of a field alone, {cents}; put a text that is made of fields into a field of its own."
            raise _error("bad-title", location, what, why, fix)
        if name not in fields:
            what = f"title={bounded_repr(title)} has {{{name}}}, which is not a field of {context}."
            fix = f"Use some of its fields: {', '.join(fields) or 'it has none'}.{suggestion(name, fields)}"
            raise _error("bad-title", location, what, why, fix)
    return tuple((text, name) for text, name, _, _ in pieces)


def _field_names(context: type[object]) -> list[str]:
    """Return the fields of a context's class, without looking at their types: a name may not be resolvable yet."""
    own: Iterable[str] = getattr(context, "__struct_fields__", None) or getattr(context, "model_fields", None) or ()
    classes: Iterable[type[object]] = reversed(getattr(context, "__mro__", ()))
    return list(own) or list(dict.fromkeys(name for each in classes for name in inspect.get_annotations(each)))


def _known_state(declared: Declarations, state: object, location: str) -> Enum:
    if isinstance(state, declared.states):
        return state
    names = ", ".join(member.value for member in declared.states)
    hint = member_suggestion(state, declared.states)
    what = f"{bounded_repr(state)} is not a state of machine {declared.name!r}; its states are {names}.{hint}"
    why = "At any moment a workflow is in exactly one of the declared states."
    fix = f"Use a member of {declared.states.__name__}, or add one."
    if isinstance(state, list | tuple | set | frozenset):
        fix = "Pass the states one after another: on(Submit, State.DRAFT, State.OPEN, to=State.DONE)."
    raise _error("unknown-state", location, what, why, fix)


def _good_event(declared: Declarations, event: object, location: str) -> type[Event]:
    alphabet = declared.alphabet
    if not is_event(event, alphabet):
        problem = "an instance" if isinstance(event, alphabet) else "not an event of this machine"
        takes = f"machine {declared.name!r} takes the classes below {alphabet.__name__}"
        why = "Another machine's event, or a plain value, could never be sent here."
        fix = f"Pass a class below {alphabet.__name__}."
        raise _error("unknown-event", location, f"{bounded_repr(event)} is {problem}; {takes}.", why, fix)
    assert isinstance(event, type)
    mistake = mistake_in(event)
    problem = not_storable(event) if mistake is None else ""
    if problem:
        mistake = "event-not-storable", f"event {event.__name__} cannot be stored: {problem}", STORABLE_FIELDS
    if mistake is not None:
        rule, what, fix = mistake
        raise _error(rule, location, f"{what}.", WHY_EVENT, fix)
    return event


def _good_name(kind: str, name: object, location: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= NAME_CHARACTERS_MAX:
        raise _bad_value(f"the {kind}'s name", name, f"1 to {NAME_CHARACTERS_MAX} printable characters", location)


def _free_name(declared: Declarations, kind: str, name: str, location: str) -> None:
    if name in {*(step.name for step in declared.steps.values()), *(effect.name for effect in declared.effects)}:
        why = "Keys, history and metrics name steps and effects; two with one name would be indistinguishable."
        fix = "Rename one of the functions, or give it name=."
        raise _error("duplicate-name", location, f"{kind} {name!r} is declared twice.", why, fix)


def _refuse_kinds(state: Enum, ending: str, location: str, **kinds: Collection[Enum]) -> None:
    for kind, states in kinds.items():
        if state in states:
            raise _conflict(f"{_names([state])} is {kind}{ending}", location)


def _positive(name: str, value: object, location: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _bad_value(name, value, "a number of seconds more than 0, and finite", location)


def _bad_value(name: str, value: object, allowed: str, location: str) -> DefinitionError:
    what = f"{name} is {bounded_repr(value)}; it must be {allowed}."
    why = "A value outside its range would be noticed only in production."
    return _error("value-out-of-range", location, what, why, f"Give {name} a value that is {allowed}.")


def _conflict(what: str, location: str) -> DefinitionError:
    why = "The two declarations contradict each other, and Interlock does not guess."
    return _error("contradiction", location, f"{what}.", why, "Keep one of them.")


def _error(rule: str, location: str, what: str, why: str, fix: str) -> DefinitionError:
    return DefinitionError(what, why=why, fix=fix, rule=rule, location=location)


def _names(states: Iterable[Enum | None]) -> str:
    return ", ".join(f"state {state.value!r}" for state in states if state is not None)


# --- User functions: shape, purity and annotations -------------------------------------------------------------------
# Users without a type checker get these errors at the line of the declaration. Annotations that are missing or cannot
# be resolved are skipped: the first decision would still find a wrong type.
#
# The odd choice: annotations are resolved with the local names of the declaring frame too, because machines are
# often built inside a function (a test), where `from __future__ import annotations` hides the local classes. For a
# function of another module that module's own names take precedence.

Names = Mapping[str, object]
Expected = tuple[type[object] | None, ...]
"""The types of a function's arguments, in order; None for one that is not checked."""


def check_pure(
    function: object,
    kind: str,
    arguments: tuple[type[object], ...],
    returns: type[object] | None,
    local: Names,
    location: str,
    *,
    may_take_time: bool = False,
) -> bool:
    """Demand a synchronous function of `arguments` that returns `returns`. `kind` is "guard", "action" or "timer".

    With `returns=None` any annotation is accepted. Return whether it takes one argument more, the time of the move
    (A11); `may_take_time` says that it may.
    """
    if is_async(function):
        why = "Guards, actions and timers are pure and synchronous: they do no I/O."
        fix = "Make it a plain function; put the I/O into a step, whose result is an event."
        raise _error("impure-function", location, f"{kind} {name_of(function)} is async.", why, fix)
    takes_time = may_take_time and _takes_time(function, len(arguments))
    expected = (*arguments, datetime) if takes_time else arguments
    shape = f"({', '.join(map(name_of, expected))})" + ("" if returns is None else f" -> {name_of(returns)}")
    _check_signature(function, kind, expected, returns, shape, local, location)
    return takes_time


def check_async(
    function: object,
    kind: str,
    arguments: Expected,
    local: Names,
    location: str,
    *,
    returns: type[object] | None = None,
    blocking: bool = False,
) -> Needs:
    """Demand an `async def` that can be called with these arguments; `returns` is checked unless it is None.

    Return the resources that it takes besides them, by the types of its other parameters.

    With `blocking` demand a plain `def`, which an engine runs in a thread.
    """
    shape = "(context, ctx)" if len(arguments) == 2 else "(context, done, ctx)"  # noqa: PLR2004 -- the two shapes.
    if is_async(function) == bool(blocking):
        if blocking:
            what = f"{kind} {name_of(function)} is async and declared blocking=True."
            why = "A blocking function runs in a thread, where there is no event loop to await in."
            fix = f"Write `def {name_of(function)}{shape}`, or leave blocking=True out."
        else:
            what = f"{kind} {name_of(function)} is not async."
            why = "Steps, undos and effects do I/O; a timeout has to be able to cancel them."
            fix = f"Write `async def {name_of(function)}{shape}`; declare a function that blocks with blocking=True: "
            fix += "it runs in a thread."
        raise _error("wrong-signature", location, what, why, fix)
    needs = needs_of(function, len(arguments), local)
    _check_signature(function, kind, arguments, returns, shape, local, location, needs)
    return needs


def check_many(function: object, kind: str, context: type[object], local: Names, location: str) -> None:
    """Demand a synchronous function or generator of the context. `kind` is "children" or "sends"."""
    if is_async(function) or inspect.isasyncgenfunction(function):
        what = f"{kind} {name_of(function)} is async."
        why = "It is evaluated again after a crash and must give the same values, so it does no I/O."
        raise _error("impure-function", location, what, why, "Make it a plain function of the context.")
    problem = _call_problem(function, 1, (), generator=True) or _annotation_problem(function, (context,), None, local)
    if problem:
        shape = f"({name_of(context)}) -> Iterable[{'Child' if kind == 'children' else 'Send'}]"
        what, why = f"{kind} {name_of(function)} {problem}.", f"Interlock calls it as {shape}."
        raise _error("wrong-signature", location, what, why, f"Write {name_of(function)}{shape}.")


def needs_of(function: object, arguments: int, local: Names) -> dict[str, type[object]]:
    """Return the types of the parameters after the arguments that have no default, by name.

    A value of a built-in type, an event or a `StepContext` is not a resource: such a parameter is a mistake.
    """
    signature = _signature(function) if callable(function) else None
    hints = _hints(function, local)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needs: dict[str, type[object]] = {}
    for each in list(signature.parameters.values())[arguments:] if signature else ():
        wanted = hints.get(each.name)
        required = each.kind in kinds and each.default is inspect.Parameter.empty
        if required and _is_resource(wanted):
            needs[each.name] = wanted
    return needs


def _is_resource(wanted: object) -> TypeGuard[type[object]]:
    return isinstance(wanted, type) and wanted.__module__ != "builtins" and not issubclass(wanted, Event | StepContext)


def _check_signature(
    function: object,
    kind: str,
    arguments: Expected,
    returns: type[object] | None,
    shape: str,
    local: Names,
    location: str,
    needs: Iterable[str] = (),
) -> None:
    problem = _call_problem(function, len(arguments), needs)
    annotated = "" if problem else _annotation_problem(function, arguments, returns, local)
    if problem or annotated:
        what = f"{kind} {name_of(function)} {problem or annotated}."
        fix = "Correct the annotation." if annotated else f"Write {name_of(function)}{shape}."
        raise _error("wrong-signature", location, what, f"Interlock calls it as {shape}.", fix)


def _takes_time(function: object, arguments: int) -> bool:
    """Return whether it needs one argument more, or has one named `at`. Another one with a default stays unset."""
    signature = _signature(function) if callable(function) else None
    if signature is None or not _binds(signature, arguments + 1):
        return False
    extra = list(signature.parameters.values())[arguments : arguments + 1]
    return not _binds(signature, arguments) or any(each.name == "at" for each in extra)


def _binds(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _call_problem(function: object, arguments: int, needs: Iterable[str], *, generator: bool = False) -> str:
    if not callable(function):
        return "is not callable"
    if (inspect.isgeneratorfunction(function) and not generator) or inspect.isasyncgenfunction(function):
        return "is a generator"
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(*range(arguments), **dict.fromkeys(needs))
    except TypeError as error:
        return f"cannot be called with {arguments} arguments: {error}"
    return ""


def _annotation_problem(function: object, arguments: Expected, returns: type[object] | None, local: Names) -> str:
    hints = _hints(function, local)
    signature = _signature(cast("Callable[..., object]", function))
    parameters = signature.parameters.values() if signature else ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in kinds]
    for name, expected in zip(names, arguments, strict=False):
        annotated = hints.get(name, Any)
        if expected is not None and not _takes(annotated, expected):
            return f"takes {name}: {_label(annotated, expected)}, but receives a {_label(expected, annotated)}"
    if returns is not None and "return" in hints and not _gives(hints["return"], returns):
        return f"returns {_label(hints['return'], returns)}, but must return {_label(returns, hints['return'])}"
    return ""


def returned_events(function: object, alphabet: type[Event], local: Names, location: str) -> tuple[type[Event], ...]:
    """Return the events in a step's return annotation; empty without one, or for the whole alphabet.

    A class that only groups events stands for all events below it.
    """
    hints = _hints(function, local)
    if "return" not in hints:
        return ()
    events: list[type[Event]] = []
    for member in _members(hints["return"]):
        if member is alphabet or member is Any:
            return ()
        if not is_event(member, alphabet):
            what = (
                f"step {name_of(function)} may return {_label(member)}, which is not an event of {alphabet.__name__}."
            )
            why = "The result of a step is the next event of its machine; anything else could not be applied."
            fix = f"Return events below {alphabet.__name__} only; a failure is raised, not returned."
            raise _error("step-returns-foreign-event", location, what, why, fix)
        event = cast("type[Event]", member)
        events += events_below(event) if is_group(event) else [event]
    return tuple(dict.fromkeys(events))


def is_async(function: object) -> bool:
    """Return whether it is an `async def`, also as a bound method, a partial or an object with an async `__call__`."""
    target = function
    while isinstance(target, partial):
        target = target.func
    call = inspect.getattr_static(type(target), "__call__", None)
    return any(
        test(candidate)
        for candidate in (target, call)
        for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # Some built-ins have no signature; a wrong one fails at the first call.
        return None


def _hints(function: object, local: Names) -> dict[str, object]:
    target = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__", function)
    own: Names = getattr(inspect.unwrap(target), "__globals__", {}) if callable(target) else {}
    # A nested function may refer to a local class; a function of a module refers to that module's names.
    inside = "<locals>" in getattr(target, "__qualname__", "")
    try:
        return typing.get_type_hints(target, localns={n: v for n, v in local.items() if inside or n not in own})
    except Exception:  # noqa: BLE001 -- an annotation that cannot be resolved is skipped.
        return {}


def _members(annotation: object) -> tuple[object, ...]:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _takes(annotated: object, argument: type[object]) -> bool:
    """Return whether a parameter with this annotation accepts an `argument`; True for anything but a plain class."""
    argument_class = class_of(argument)
    if argument_class is object:  # A union of contexts, or a context that only the pipeline will know.
        return True
    return any(not _is_plain_class(member) or issubclass(argument_class, member) for member in _members(annotated))


def _gives(annotated: object, wanted: type[object]) -> bool:
    """Return whether the annotation only admits values of the wanted type; True for anything but a plain class."""
    wanted_class = class_of(wanted)
    if wanted is not type(None) and type(None) in _members(annotated):  # A forgotten return, for any class.
        return False
    return all(not _is_plain_class(member) or issubclass(member, wanted_class) for member in _members(annotated))


def _is_plain_class(annotation: object) -> TypeGuard[type[object]]:
    """Return whether `issubclass` works with it: not Any, not a TypedDict, not a Protocol."""
    special = hasattr(annotation, "__required_keys__") or getattr(annotation, "_is_protocol", False)
    return isinstance(annotation, type) and annotation is not Any and not special


def _label(annotation: object, other: object = None) -> str:
    if not isinstance(annotation, type):
        return str(annotation)
    # Two classes with the same name are distinguished by their modules.
    same = getattr(other, "__name__", "") == annotation.__name__
    return f"{annotation.__module__}.{annotation.__qualname__}" if same else annotation.__name__
