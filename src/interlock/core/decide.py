"""The decision function: `(machine, snapshot, event) -> Decision`, or a raised refusal, without side effects.

Pure and synchronous: no clock, no randomness, no I/O (A5). The same inputs give the same decision in a test, in a
lane's writer and in a simulation.

- `decide` applies an event from outside, or a step's result (`result=True`);
- `fail` applies a step that gave up, `unwound` a finished unwinding, `start` the start of a workflow.

Every function raises before it builds anything: a refusal changes nothing (A3). `_move` is looked up in the module on
each call, so that a test can replace it to measure the coverage of transitions.
"""

from enum import Enum

from interlock.core.events import STARTED, STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.refusals import (
    action_raised,
    action_returned,
    foreign_event,
    foreign_state,
    guard_raised,
    guard_rejected,
    guard_returned,
    invalid_transition,
)
from interlock.core.table import Node, Table, Transition
from interlock.core.unwinding import demand_room, logged, undos_of
from interlock.core.values import (
    Command,
    ContextT,
    Decision,
    Record,
    Run,
    RunUndos,
    Snapshot,
    StateT,
    StepFailure,
)
from interlock.errors import InvalidPayload


def decide(
    table: Table, snapshot: Snapshot[StateT, ContextT], event: Event, *, result: bool = False
) -> Decision[StateT, ContextT]:
    """Decide one event. Raises InvalidTransition, GuardRejected, InvalidPayload or UserCodeError."""
    state = snapshot.state
    node = table.nodes.get(getattr(state, "_name_", ""))
    if node is None or node.state is not state:
        raise foreign_state(table, state)
    moves = node.moves.get(type(event))
    if moves is None:
        if type(event) not in table.events.values():
            raise foreign_event(table, event)
        raise invalid_transition(table, node, event)
    context = snapshot.context
    for transition in moves:
        guard = transition.guard
        if guard is None:
            break
        try:
            verdict = guard(context, event)
        except Exception as error:
            raise guard_raised(table, node, transition, error) from error
        if verdict is True:
            break
        if verdict is not False:
            raise guard_returned(table, node, transition, verdict)
    else:
        raise guard_rejected(table, node, moves)
    action = transition.action
    if action is not None:
        try:
            changed = action(context, event)
        except Exception as error:
            raise action_raised(table, node, transition.event, transition.declared.action, error) from error
        expected = table.context_class
        if type(changed) is not expected and (table.context_exact or not isinstance(changed, expected)):
            raise action_returned(table, node, transition.event, transition.declared.action, changed)
        context = changed
    return _move(table, snapshot, node, transition, event, context, result)


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
    payload: Event | StepFailure | None,
    context: ContextT,
    log: tuple[Run, ...],
    leaving: tuple[Command, ...],
) -> Decision[StateT, ContextT]:
    version = snapshot.version + 1
    undos = undos_of(table, log) if target.unwinds_to else ()
    if target.unwinds_to and not undos and table.declared.straight:
        target, log = target.unwinds_to, ()
    state: StateT = target.state  # type: ignore[assignment]  # The table belongs to the snapshot's machine.
    records: tuple[Record[StateT, ContextT], ...] = (Record(version, snapshot.state, state, event, payload, context),)
    if target.unwinds_to is None:
        demand_room(log, target)
        log = () if target.final else log
        return Decision(Snapshot(state, context, version, version, log), records, leaving + target.entering)
    if undos:
        commands = (*leaving, *target.entering, RunUndos(undos))
        return Decision(Snapshot(state, context, version, version, log), records, commands)
    # Nothing to undo: the unwinding ends in the same commit, and history still shows the unwinding state.
    return _over(Snapshot(state, context, version, version, log), target, records, (*leaving, *target.entering))


def _over(
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
        commands + node.leaving + node.unwinds_to.entering,
    )


def fail(table: Table, snapshot: Snapshot[StateT, ContextT], failure: StepFailure) -> Decision[StateT, ContextT] | None:
    """Decide a step that gave up. Return None when it has no `failed=`: then it becomes a dead letter."""
    node = known(table, snapshot.state)
    step = node.step
    if step is None:
        raise _not_here(table, node, f"step {failure.step!r} cannot fail", "has no step")
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
            raise action_raised(table, node, STEP_FAILED, step.failed_action, error) from error
        expected = table.context_class
        if type(changed) is not expected and (table.context_exact or not isinstance(changed, expected)):
            raise action_returned(table, node, STEP_FAILED, step.failed_action, changed)
        context = changed
    return _enter(table, snapshot, node.failed, STEP_FAILED, failure, context, log, node.leaving)


def unwound(table: Table, snapshot: Snapshot[StateT, ContextT]) -> Decision[StateT, ContextT]:
    """Decide an unwinding whose undos are all settled: move to the state that `unwind=` names."""
    node = known(table, snapshot.state)
    if node.unwinds_to is None:
        raise _not_here(table, node, "nothing is unwound", "is not unwinding")
    return _over(snapshot, node, (), ())


def start(table: Table, state: StateT, context: ContextT) -> Decision[StateT, ContextT]:
    """Start a workflow: version 1, a STARTED record from the initial state to itself, and its entry commands."""
    record: Record[StateT, ContextT] = Record(1, state, state, STARTED, None, context)
    return Decision(Snapshot(state, context), (record,), known(table, state).entering)


def can(table: Table, state: Enum, event: type[Event]) -> bool:
    """Return whether the event has a transition from the state; guards are not evaluated (A6)."""
    node = known(table, state)
    if table.events.get(wire_name(event)) is not event:
        raise foreign_event(table, event)
    return event in node.moves


def _not_here(table: Table, node: Node, what: str, reason: str) -> InvalidPayload:
    return InvalidPayload(
        f"{table.name}: {what} in state {node.name!r}, which {reason}.",
        why="A report belongs to one visit of one state; this workflow has left that state, or is another one.",
        fix="Compare the visit before you report.",
    )


def known(table: Table, state: Enum) -> Node:
    """Return the node of the state. Raises InvalidPayload for a state of another machine."""
    node = table.node(state) if isinstance(state, Enum) else None
    if node is None:
        raise foreign_state(table, state)
    return node
