"""The decision function: `(machine, snapshot, event) -> Decision`, or a raised refusal, without side effects.

Pure and synchronous: no clock, no randomness, no I/O (A5). The same inputs give the same decision in a test, in a
lane's writer and in a simulation.

- `decide` applies an event from outside, or a step's result (`result=True`);
- `fail` applies a step that gave up, `unwound` a finished unwinding, `start` the start of a workflow;
- `rewind` begins to set a workflow back to what it was, and `rewound` ends that;
- `can` and `allowed` list the transitions from a state and change nothing (A6).

Every function raises before it builds anything: a refusal changes nothing (A3). `_move` is looked up in the module on
each call, so that a test can replace it to measure the coverage of transitions.

Sections: undo log, errors, decisions, allowed transitions.
"""

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, cast

from interlock.core.declarations import StepDeclaration
from interlock.core.events import (
    CHILDREN_JOINED,
    FORKED,
    REWINDING,
    REWOUND,
    STARTED,
    STEP_FAILED,
    UNWOUND,
    Event,
    wire_name,
)
from interlock.core.policies import is_number
from interlock.core.table import Join, Node, Table, Transition, is_unwinding, name_of, reached_from
from interlock.core.values import (
    Allowed,
    Command,
    ContextT,
    Decision,
    Family,
    Record,
    Run,
    RunEffect,
    RunUndos,
    Snapshot,
    StartTimer,
    StateT,
    StepFailure,
    StoredJson,
    Undo,
)
from interlock.errors import GuardRejected, InvalidPayload, InvalidTransition, LimitReached, UserCodeError

# --- Undo log --------------------------------------------------------------------------------------------------------
# G5: the log has every run that was started and is not known to have failed without effect. Runs are undone newest
# first. A run with a known outcome is undone by the handler of that outcome, if there is one. A run with an unknown
# outcome is undone by every handler of its step, with `done=None`, because any of the outcomes may be real.

UNDO_LOG_MAX = 1_000
"""G6: runs one workflow may accumulate without unwinding or ending."""


def logged(log: tuple[Run, ...], node: Node, visit: int, done: Event | None) -> tuple[Run, ...]:
    """Return the log after the run of this visit ended with `done`, or with an unknown outcome (None).

    A run that no handler would undo is not logged: an outcome without a handler, a step without any.
    """
    step = node.step
    if step is None or not node.undoable:
        return log
    if done is not None and all(type(done) is not undo.event for undo in step.undos):
        return log
    return (*log, Run(step.name, visit, done))


def demand_room(log: tuple[Run, ...], node: Node) -> None:
    """Refuse to enter a state whose run would not fit into the undo log.

    The check comes before the run, because after it the effect outside exists (G5). When the refused event is the
    result of another undoable step, that step has happened: the caller then reports it with `fail(unknown=True)`,
    which logs the run and unwinds.
    """
    if node.undoable and len(log) >= UNDO_LOG_MAX:
        raise LimitReached(
            f"state {node.name!r} cannot be entered: the workflow already has {UNDO_LOG_MAX:,} runs "
            "that an unwinding would undo.",
            why="A loop through an undoable step grows the undo log of one workflow without end.",
            fix="Say settle=True on the transition that ends a round, or start a new workflow per round.",
        )


def undos_of(table: Table, log: tuple[Run, ...]) -> tuple[Undo, ...]:
    """Return the undos of the log, newest first. A step that the machine no longer has is skipped; `plan` warns."""
    owed: list[Undo] = []
    for run in reversed(log):
        node = table.steps.get(run.step)
        if node is None or node.step is None:
            continue
        owed += [
            Undo(run.step, undo.name, run.visit, run.done)
            for undo in reversed(node.step.undos)
            if run.done is None or wire_name(type(run.done)) == undo.name
        ]
    if table.has_children:
        # E3: children are compensated before the runs of their parent, in the order of the log among themselves.
        owed.sort(key=lambda undo: _runs_itself(table, undo))
    return tuple(owed)


def _runs_itself(table: Table, undo: Undo) -> bool:
    step = table.steps[undo.step].step
    return step is None or step.children is None


# --- Errors, built outside the hot path ------------------------------------------------------------------------------
# Each error names the event, the state of the workflow and the allowed alternatives, so that one log line is enough.

SHOWN_VALUE_CHARACTERS_MAX = 80


def user_code_error(
    table: Table, node: Node, event: str, function: str, problem: object, fix: str = ""
) -> UserCodeError:
    """Return the error for a guard or action that raised `problem`, or returned something else than it must."""
    if isinstance(problem, Exception):
        try:
            text = str(problem)
        except Exception:  # noqa: BLE001 -- user code; the message must still be made.
            text = "(its text cannot be read)"
        problem = f"raised {type(problem).__name__}: {text}"
    what = f"{table.name}: {function} for {event} in state {node.name!r} {problem}"
    return UserCodeError(what, fix=fix, machine=table.name, event=event)


def guard_returned(table: Table, node: Node, transition: Transition, verdict: object) -> UserCodeError:
    """Return the error for a guard that returned something other than a bool."""
    problem = f"returned {bounded_repr(verdict)} ({type(verdict).__name__}), not True or False."
    fix = "Return a bool; wrap the expression in bool(...) if it is only truthy."
    return user_code_error(table, node, transition.event, f"guard {transition.guard_name}", problem, fix)


def action_returned(table: Table, node: Node, event: str, action: object, value: object) -> UserCodeError:
    """Return the error for an action that returned something other than the machine's context."""
    expected = name_of(table.declared.context)
    problem = f"returned {bounded_repr(value)} ({type(value).__name__}), not a {expected}."
    step = node.step
    if step is not None and step.result is not None and step.result is table.events.get(event):
        return UserCodeError(
            f"{table.name}: step {step.name} {problem}",
            why="A step of a pipeline returns the context, which is stored and passed to the next step.",
            fix="Return it, unchanged or as a new value: dataclasses.replace(context, ...).",
            machine=table.name,
            event=event,
        )
    fix = "Return the new context, for example with dataclasses.replace(context, ...)."
    return user_code_error(table, node, event, f"action {name_of(action)}", problem, fix)


def context_not_storable(table: Table, event: str, error: InvalidPayload) -> UserCodeError:
    """Return the error for an action's context that has the right type and cannot be encoded or decoded again."""
    return UserCodeError(
        f"{error.what.rstrip('.')}, after the action for {event}.",
        why="Every transition writes the context; an action returns one that can be written and read back.",
        machine=table.name,
        event=event,
    )


def foreign_event(table: Table, event: Event | type[Event], step: StepDeclaration | None = None) -> InvalidPayload:
    """Return the error for an event outside this machine's alphabet; with a step, for what the step has returned."""
    if step is not None:
        expected = " or ".join(f"{each.__name__}(...)" for each in step.returns or table.events.values())
        return InvalidPayload(
            f"{table.name}: step {step.name} returned {bounded_repr(event)}, which is not an event of this machine.",
            why="The value that a step returns is the next event of its workflow.",
            fix=f"Return {expected}.",
        )
    cls = event if isinstance(event, type) else type(event)
    if isinstance(event, str):
        example = table.events.get(event) or next(iter(table.events.values()), Event)
        return InvalidPayload(
            f"{table.name}: the event is the text {event!r:.100}; its events are {', '.join(table.events)}."
            f"{suggestion(event, table.events)}",
            why="An event is a value of its class, with its payload. Only HTTP and the command line take names.",
            fix=f"Send an instance: {example.__name__}(...).",
        )
    name = wire_name(cls) if issubclass(cls, Event) else cls.__name__
    if cls in table.events.values():
        return InvalidPayload(
            f"{table.name}: {name} was sent as the class {cls.__name__}.",
            why="An event is a value: the class is only its name.",
            fix=f"Send an instance: {cls.__name__}(...).",
        )
    if name in table.events:
        return InvalidPayload(
            f"{table.name} has an event {name}, but not this class ({cls.__module__}.{cls.__qualname__}).",
            why="Another class has the same wire name: another machine's, or the same module loaded twice.",
            fix="Import the class from the module that the machine was built in.",
        )
    return InvalidPayload(
        f"{table.name} has no event {name} ({cls.__module__}.{cls.__qualname__}); its events are "
        f"{', '.join(table.events)}.{suggestion(name, table.events)}",
        why="A machine takes only the events of its own alphabet.",
        fix=f"Send one of its events, or declare the class below {table.declared.alphabet.__name__}.",
    )


def foreign_state(table: Table, state: object) -> InvalidPayload:
    """Return the error for a state that this machine does not have."""
    return InvalidPayload(
        f"{table.name} has no state {bounded_repr(state)}; its states are "
        f"{', '.join(node.name for node in table.nodes.values())}.{member_suggestion(state, table.declared.states)}",
        why="A machine has only the states that it declares.",
        fix=f"Use a member of {table.declared.states.__name__}.",
    )


def allowed_events(node: Node) -> list[str]:
    """Return the wire names of the events that have a transition from the node."""
    return [moves[0].event for moves in node.moves.values()]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the hint "Did you mean X?" when a similar name exists, else an empty text."""
    close = difflib.get_close_matches(name[:SHOWN_VALUE_CHARACTERS_MAX], list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def member_suggestion(value: object, states: type[Enum]) -> str:
    """Return the hint "Did you mean State.X?" for a text or another Enum's member that resembles one of the states."""
    members = {state.value: f"{states.__name__}.{state.name}" for state in states}
    text = str(getattr(value, "value", value))[:SHOWN_VALUE_CHARACTERS_MAX]
    close = difflib.get_close_matches(text, list(members), n=1)
    return f" Did you mean {members[close[0]]}?" if close else ""


def bounded_repr(value: object) -> str:
    """Return the value's repr, cut to the length of a log line. Never raises: a failing repr is replaced."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 -- user code; the message must still be made.
        text = f"<repr raised {type(error).__name__}>"
    return text if len(text) <= SHOWN_VALUE_CHARACTERS_MAX else text[:SHOWN_VALUE_CHARACTERS_MAX] + "…"


# --- Decisions -------------------------------------------------------------------------------------------------------


def decide(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    event: Event,
    at: datetime | None = None,
    *,
    result: bool = False,
) -> Decision[StateT, ContextT]:
    """Decide one event. Raises InvalidTransition, GuardRejected, InvalidPayload or UserCodeError.

    `at` is the time of the move, for guards and actions that take it (A11); required where one of the event does.
    """
    state = snapshot.state
    node = table.nodes.get(getattr(state, "_name_", ""))
    if node is None or node.state is not state:
        raise foreign_state(table, state)
    moves = node.timeless.get(type(event))
    if moves is None:
        moves = _at_time(table, node, event, at, result=result)
    context = snapshot.context
    for transition in moves:
        guard = transition.guard
        if guard is None:
            break
        try:
            verdict = guard(context, event)
        except Exception as error:
            guard_name = f"guard {transition.guard_name}"
            raise user_code_error(table, node, transition.event, guard_name, error) from error
        if verdict is True:
            break
        if verdict is not False:
            raise guard_returned(table, node, transition, verdict)
    else:
        raise GuardRejected(
            machine=table.name,
            state=node.name,
            event=moves[0].event,
            guards=[(move.guard_name or "", move.guard_reason) for move in moves],
            allowed=allowed_events(node),
        )
    action = transition.action
    if action is not None:
        try:
            changed = action(context, event)
        except Exception as error:
            action_name = f"action {name_of(transition.declared.action)}"
            raise user_code_error(table, node, transition.event, action_name, error) from error
        expected = table.context_class
        if type(changed) is not expected and (table.context_exact or not isinstance(changed, expected)):
            raise action_returned(table, node, transition.event, transition.declared.action, changed)
        context = changed
    return _move(table, snapshot, node, transition, event, context, result)


def _at_time(
    table: Table, node: Node, event: Event, at: datetime | None, *, result: bool = False
) -> tuple[Transition, ...]:
    """Return the event's transitions, with the time passed to the guards and actions that take it.

    Raises InvalidTransition without one.
    """
    if type(event) not in table.events.values():
        raise foreign_event(table, event, node.step if result else None)
    moves = node.moves.get(type(event))
    if moves is None:
        name = wire_name(type(event))
        raise InvalidTransition(machine=table.name, state=node.name, event=name, allowed=allowed_events(node))
    if not isinstance(at, datetime) or at.utcoffset() is None:
        problem = "was not given" if at is None else f"is {bounded_repr(at)}"
        raise InvalidPayload(
            f"{table.name}: at, the time of the move, {problem}; {moves[0].event} in state {node.name!r} takes it.",
            why="Deciding reads no clock, and a time without a zone is ambiguous. An engine passes its store's time.",
            fix="Pass an aware datetime: decide(snapshot, event, at=datetime.now(UTC)).",
        )
    bound: list[Transition] = []
    for move in moves:
        guard, action = move.guard, move.action
        if guard is not None and move.declared.guard_at:
            guard = _with_last(guard, at)
        if action is not None and move.declared.action_at:
            action = _with_last(action, at)
        bound.append(replace(move, guard=guard, action=action))
    return tuple(bound)


def _with_last(function: Callable[..., object], at: datetime) -> Callable[..., Any]:
    def call(context: object, event: Event) -> object:
        return function(context, event, at)

    return call


def _move(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    node: Node,
    transition: Transition,
    event: Event,
    context: ContextT,
    result: bool,  # noqa: FBT001 -- as above: keyword arguments cost time here.
) -> Decision[StateT, ContextT]:
    version = snapshot.version + 1
    if transition.plain:
        target: StateT = transition.target.state  # type: ignore[assignment,union-attr]  # plain means: has one.
        return Decision(
            Snapshot(target, context, version, version, () if transition.ends else snapshot.undo_log),
            (Record(version, snapshot.state, target, transition.event, event, context),),
            transition.commands,
        )
    if transition.target is None:
        return _stay(snapshot, node, transition, event, context, result)
    log = snapshot.undo_log
    if transition.settles:
        # Completed runs are final. A run that is cut off here is not completed, and may have happened.
        cut_off = snapshot.attempted and not result and not transition.outcome
        log = logged((), node, snapshot.visit, None) if cut_off else ()
    elif result:
        log = logged(log, node, snapshot.visit, event)
    elif snapshot.attempted:
        # G5: an interrupted run may have happened.
        log = logged(log, node, snapshot.visit, None)
    return _enter(table, snapshot, transition.target, transition.event, event, context, log, node.leaving)


def _stay(
    snapshot: Snapshot[StateT, ContextT],
    node: Node,
    transition: Transition,
    event: Event,
    context: ContextT,
    result: bool,  # noqa: FBT001 -- see _move.
) -> Decision[StateT, ContextT]:
    # An internal transition: step and timers of the visit go on, unless the event is the step's own result.
    version = snapshot.version + 1
    log, attempted = () if transition.settles else snapshot.undo_log, snapshot.attempted
    if result:
        log, attempted = log if transition.settles else logged(log, node, snapshot.visit, event), False
    state = snapshot.state
    return Decision(
        Snapshot(state, context, version, snapshot.visit, log, attempted),
        (Record(version, state, state, transition.event, event, context),),
        transition.commands,
    )


def _enter(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    target: Node,
    event: str,
    payload: Event | StepFailure | StoredJson | None,
    context: ContextT,
    log: tuple[Run, ...],
    leaving: tuple[Command, ...],
) -> Decision[StateT, ContextT]:
    version = snapshot.version + 1
    undos = undos_of(table, log) if target.unwinds_to else ()
    if target.unwinds_to and not undos and table.declared.straight:
        target, log = target.unwinds_to, ()
    state: StateT = target.state  # type: ignore[assignment]  # The table belongs to the snapshot's machine.
    entering = _entering(table, target, event, context)
    records: tuple[Record[StateT, ContextT], ...] = (Record(version, snapshot.state, state, event, payload, context),)
    if target.unwinds_to is None:
        demand_room(log, target)
        log = () if target.final else log
        return Decision(Snapshot(state, context, version, version, log), records, leaving + entering)
    if undos:
        commands = (*leaving, *entering, RunUndos(undos))
        return Decision(Snapshot(state, context, version, version, log), records, commands)
    # Nothing to undo: the unwinding ends in the same commit, and history still shows the unwinding state.
    return _end_unwinding(
        table, Snapshot(state, context, version, version, log), target, records, (*leaving, *entering)
    )


# B16: timers of each workflow are computed once, from the context with which their state is entered.

TIMER_S_MAX = 1_000 * 366 * 86_400.0
"""G6: the longest time that a function may return for a timer, in seconds: a thousand years."""


def _entering(table: Table, node: Node, event: str, context: object) -> tuple[Command, ...]:
    """Return the commands of entering the node. Raises UserCodeError for a timer that cannot be computed."""
    if not node.computed:
        return node.entering
    timers: list[Command] = []
    for timer in node.computed:
        name = f"timer {wire_name(type(timer.send))}"
        function = timer.function
        assert function is not None
        try:
            value = function(context if table.copy_context is None else table.copy_context(context))
        except Exception as error:
            raise user_code_error(table, node, event, name, error) from error
        if value is None:
            continue
        if timer.until is not None:
            if not isinstance(value, datetime) or value.utcoffset() is None:
                raise _timer_returned(table, node, event, name, value, "an aware datetime", "datetime.now(UTC)")
            timers.append(StartTimer(timer.send, 0.0, timer.policy, value))
        else:
            after_s = value.total_seconds() if isinstance(value, timedelta) else value
            if not is_number(after_s) or not after_s <= TIMER_S_MAX:
                allowed_here = "a timedelta or a number of seconds up to 1,000 years"
                raise _timer_returned(table, node, event, name, value, allowed_here, "timedelta(days=30)")
            timers.append(StartTimer(timer.send, max(0.0, after_s), timer.policy))
    return (*node.entering, *timers)


def _timer_returned(
    table: Table, node: Node, event: str, name: str, value: object, allowed_here: str, example: str
) -> UserCodeError:
    problem = f"returned {bounded_repr(value)} ({type(value).__name__}), not {allowed_here} or None."
    return user_code_error(table, node, event, name, problem, f"Return a value like {example}, or None for no timer.")


def _end_unwinding(
    table: Table,
    snapshot: Snapshot[StateT, ContextT],
    node: Node,
    records: tuple[Record[StateT, ContextT], ...],
    commands: tuple[Command, ...],
) -> Decision[StateT, ContextT]:
    assert node.unwinds_to is not None
    version = snapshot.version + 1
    state: StateT = node.unwinds_to.state  # type: ignore[assignment]  # As in _enter.
    record = Record(version, snapshot.state, state, UNWOUND, None, snapshot.context)
    return Decision(
        Snapshot(state, snapshot.context, version, version),
        (*records, record),
        commands + node.leaving + _entering(table, node.unwinds_to, UNWOUND, snapshot.context),
    )


def fail(table: Table, snapshot: Snapshot[StateT, ContextT], failure: StepFailure) -> Decision[StateT, ContextT] | None:
    """Decide a step that gave up. Return None when it has no `failed=`: then it becomes a dead letter."""
    node = node_of(table, snapshot.state)
    step = node.step
    if step is None:
        raise _wrong_state(table, node, f"step {failure.step!r} cannot fail", "has no step")
    if node.failed is None:
        return None
    log = snapshot.undo_log
    if failure.unknown:
        log = logged(log, node, snapshot.visit, None)
    context = snapshot.context
    if step.failed_action is not None:
        try:
            lent = context if table.copy_context is None else table.copy_context(context)
            changed = step.failed_action(lent, failure)
        except Exception as error:
            action_name = f"action {name_of(step.failed_action)}"
            raise user_code_error(table, node, STEP_FAILED, action_name, error) from error
        expected = table.context_class
        if type(changed) is not expected and (table.context_exact or not isinstance(changed, expected)):
            raise action_returned(table, node, STEP_FAILED, step.failed_action, changed)
        context = changed
    return _enter(table, snapshot, node.failed, STEP_FAILED, failure, context, log, node.leaving)


def join(
    table: Table, snapshot: Snapshot[StateT, ContextT], joined: Join, family: Family
) -> Decision[StateT, ContextT]:
    """Decide the move of a parent whose children have ended as the join declares."""
    node, declared, context = node_of(table, snapshot.state), joined.declared, snapshot.context
    if declared.action is not None:
        action_name = f"action {name_of(declared.action)}"
        try:
            lent = context if table.copy_context is None else table.copy_context(context)
            changed = declared.action(lent, family)
        except Exception as error:
            raise user_code_error(table, node, CHILDREN_JOINED, action_name, error) from error
        expected = table.context_class
        if type(changed) is not expected and (table.context_exact or not isinstance(changed, expected)):
            raise action_returned(table, node, CHILDREN_JOINED, declared.action, changed)
        context = changed
    counts = json.dumps({"total": family.total, "ended": family.ended, "counts": family.counts})
    log = logged(snapshot.undo_log, node, snapshot.visit, None)
    payload = StoredJson(counts, "the children of the state, as they were counted")
    return _enter(table, snapshot, joined.target, CHILDREN_JOINED, payload, context, log, node.leaving)


def join_of(table: Table, state: Enum, family: Family) -> Join | None:
    """Return the first join of the state that holds. Raises UserCodeError for a `when` that fails."""
    node = node_of(table, state)
    for each in node.joins:
        name = "guard all children ended" if each.declared.when is None else f"guard {name_of(each.declared.when)}"
        try:
            verdict: object = each.declared.holds(family)
        except Exception as error:
            raise user_code_error(table, node, CHILDREN_JOINED, name, error) from error
        if verdict is True:
            return each
        if verdict is not False:
            problem = f"returned {bounded_repr(verdict)} ({type(verdict).__name__}), not True or False."
            fix = "Return a bool; wrap the expression in bool(...) if it is only truthy."
            raise user_code_error(table, node, CHILDREN_JOINED, name, problem, fix)
    return None


def unwound(table: Table, snapshot: Snapshot[StateT, ContextT]) -> Decision[StateT, ContextT]:
    """Decide an unwinding whose undos are all settled: move to the state that `unwind=` names."""
    node = node_of(table, snapshot.state)
    if node.unwinds_to is None:
        raise _wrong_state(table, node, "nothing is unwound", "is not unwinding")
    return _end_unwinding(table, snapshot, node, (), ())


def start(table: Table, state: StateT, context: ContextT) -> Decision[StateT, ContextT]:
    """Start a workflow: version 1, a STARTED record from the initial state to itself, and its entry commands."""
    record: Record[StateT, ContextT] = Record(1, state, state, STARTED, None, context)
    return Decision(Snapshot(state, context), (record,), _entering(table, node_of(table, state), STARTED, context))


def fork(table: Table, state: StateT, context: ContextT, payload: StoredJson) -> Decision[StateT, ContextT]:
    """Start a workflow in any state, with a FORKED record. It owes no effects: they belong to the other workflow."""
    record: Record[StateT, ContextT] = Record(1, state, state, FORKED, payload, context)
    commands = _entering(table, node_of(table, state), FORKED, context)
    kept = tuple(each for each in commands if not isinstance(each, RunEffect))
    return Decision(Snapshot(state, context), (record,), kept)


def runs_to_undo(table: Table, snapshot: Snapshot[StateT, ContextT], keep: int) -> tuple[Undo, ...]:
    """Return what would be undone, newest first, to set a workflow back to the first `keep` runs of its undo log."""
    return undos_of(table, _with_interrupted(table, snapshot)[keep:])


def _with_interrupted(table: Table, snapshot: Snapshot[StateT, ContextT]) -> tuple[Run, ...]:
    """Return the undo log with the run of this visit, which is interrupted and may have happened (G5)."""
    log = snapshot.undo_log
    return logged(log, node_of(table, snapshot.state), snapshot.visit, None) if snapshot.attempted else log


def rewind(
    table: Table, snapshot: Snapshot[StateT, ContextT], keep: int, state: StateT, context: ContextT, payload: StoredJson
) -> Decision[StateT, ContextT]:
    """Begin to set a workflow back to a state, a context and the first `keep` runs of its undo log.

    It unwinds in an unwinding state of the machine, whose effects it does not owe. If nothing is to be undone it is set
    back by this decision. Raises InvalidPayload if the machine has no such state.
    """
    undos = runs_to_undo(table, snapshot, keep)
    if not undos:
        return rewound(table, snapshot, keep, state, context, payload)
    node = node_of(table, snapshot.state)
    found = [each for each in reached_from([node]) if is_unwinding(each)]
    unwinding = next((each for each in table.nodes.values() if each in found), None)
    unwinding = unwinding or next((each for each in table.nodes.values() if is_unwinding(each)), None)
    if unwinding is None:
        raise _wrong_state(table, node, f"step {undos[0].step!r} cannot be undone", "leads to no unwinding state")
    version = snapshot.version + 1
    undoing: StateT = unwinding.state  # type: ignore[assignment]  # As in _enter.
    record = Record(version, snapshot.state, undoing, REWINDING, payload, snapshot.context)
    return Decision(
        Snapshot(undoing, snapshot.context, version, version, _with_interrupted(table, snapshot)),
        (record,),
        (*node.leaving, RunUndos(undos)),
    )


def rewound(
    table: Table, snapshot: Snapshot[StateT, ContextT], keep: int, state: StateT, context: ContextT, payload: StoredJson
) -> Decision[StateT, ContextT]:
    """Enter the state that a workflow is set back to. It owes no effects: they were owed when it was there before."""
    version = snapshot.version + 1
    record = Record(version, snapshot.state, state, REWOUND, payload, context)
    entering = _entering(table, node_of(table, state), REWOUND, context)
    kept = tuple(each for each in entering if not isinstance(each, RunEffect))
    return Decision(
        Snapshot(state, context, version, version, snapshot.undo_log[:keep]),
        (record,),
        node_of(table, snapshot.state).leaving + kept,
    )


def can(table: Table, state: Enum, event: type[Event]) -> bool:
    """Return whether the event has a transition from the state; guards are not evaluated (A6)."""
    node = node_of(table, state)
    if table.events.get(wire_name(event)) is not event:
        raise foreign_event(table, event)
    return event in node.moves


def _wrong_state(table: Table, node: Node, what: str, reason: str) -> InvalidPayload:
    return InvalidPayload(
        f"{table.name}: {what} in state {node.name!r}, which {reason}.",
        why="A report belongs to one visit of one state; this workflow has left that state, or is another one.",
        fix="Compare the visit before you report.",
    )


def node_of(table: Table, state: Enum) -> Node:
    """Return the node of the state. Raises InvalidPayload for a state of another machine."""
    node = table.node(state) if isinstance(state, Enum) else None
    if node is None:
        raise foreign_state(table, state)
    return node


# --- Allowed transitions ---------------------------------------------------------------------------------------------


def allowed(
    table: Table, snapshot: Snapshot[StateT, ContextT], event: Event | None = None, *, at: datetime | None = None
) -> list[Allowed[StateT]]:
    """Return the transitions from the snapshot's state, in declared order.

    With an event, return only its own transitions and evaluate their guards. Raises what `decide` raises for a guard.
    """
    node = node_of(table, snapshot.state)
    if event is None:
        return [_entry(node, move) for moves in node.moves.values() for move in moves]
    if type(event) not in table.events.values():
        raise foreign_event(table, event)
    if type(event) not in node.moves:
        return []
    moves = node.timeless.get(type(event)) or _at_time(table, node, event, at)
    return [_evaluated_entry(table, node, move, snapshot.context, event) for move in moves]


def _entry(node: Node, move: Transition) -> Allowed[StateT]:
    to = cast("StateT", (move.target or node).state)
    return Allowed(move.event, to, () if move.guard_name is None else (move.guard_name,))


def _evaluated_entry(table: Table, node: Node, move: Transition, context: object, event: Event) -> Allowed[StateT]:
    entry: Allowed[StateT] = _entry(node, move)
    if move.guard is None:
        return entry
    try:
        verdict = move.guard(context, event)
    except Exception as error:
        raise user_code_error(table, node, move.event, f"guard {move.guard_name}", error) from error
    if verdict is True:
        return entry
    if verdict is not False:
        raise guard_returned(table, node, move, verdict)
    return Allowed(entry.event, entry.to, entry.guards, move.guard_name, move.guard_reason or None)
