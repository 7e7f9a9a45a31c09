"""From a compiled machine to its description: names, numbers and schemas, no user objects.

The one thing it has to know better than the declarations: where a pipeline goes straight to its failure because
nothing can have to be undone yet, the arrow is drawn to where the workflow really goes.
"""

from typing import NamedTuple, TypeVar

from interlock.core.codec import Codec
from interlock.core.description import (
    EventDescription,
    MachineDescription,
    StateDescription,
    StepDescription,
    TimerDescription,
    TransitionDescription,
    TransitionKind,
)
from interlock.core.events import STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.graph import may_owe, may_owe_nothing
from interlock.core.table import Node, Table, Transition, name_of
from interlock.core.values import ContextT

EventT = TypeVar("EventT", bound=Event)


class _Debts(NamedTuple):
    """Where something may have to be undone, and where nothing may have to."""

    possible: set[Node]
    avoidable: set[Node]


def describe(table: Table, codec: Codec[ContextT, EventT]) -> MachineDescription:
    """The machine as plain data, the initial state first, everything else in declared order."""
    debts = _Debts(may_owe(table), may_owe_nothing(table))
    nodes = sorted(table.nodes.values(), key=lambda node: node is not table.initial)
    return MachineDescription(
        name=table.name,
        version=table.version,
        states=tuple(_state(node, initial=node is table.initial) for node in nodes),
        transitions=tuple(transition for node in nodes for transition in _transitions(table, node, debts)),
        events=tuple(EventDescription(name=name, schema=codec.event_schema(name)) for name in table.events),
        context_schema=codec.context_schema(),
        renamed={old: new.value for old, new in table.declared.renamed.items()},
    )


def _state(node: Node, *, initial: bool) -> StateDescription:
    return StateDescription(
        name=node.name,
        initial=initial,
        final=node.final,
        resting=node.resting,
        unwinds_to=node.unwinds_to.name if node.unwinds_to else None,
        step=_step(node),
        effects=tuple(effect.name for effect in node.effects),
        timers=tuple(
            TimerDescription(event=wire_name(type(timer.send)), after_s=float(timer.after_s), policy=timer.policy)
            for timer in node.timers
        ),
        dwell_max_s=None if node.dwell_max_s is None else float(node.dwell_max_s),
    )


def _step(node: Node) -> StepDescription | None:
    step = node.step
    if step is None:
        return None
    return StepDescription(
        name=step.name,
        timeout_s=float(step.timeout_s),
        attempts=step.retry.attempts,
        dependency=step.dependency,
        returns=tuple(wire_name(event) for event in step.returns),
        undoes=tuple(undo.name for undo in step.undos),
    )


def _transitions(table: Table, node: Node, debts: _Debts) -> list[TransitionDescription]:
    found: list[TransitionDescription] = []
    for moves in node.moves.values():
        for move in moves:
            found += [_transition(node, move, target) for target in _really(table, node, move.target, debts)]
    for target in _really(table, node, node.failed, debts) if node.failed else ():
        found.append(_built_in(node, STEP_FAILED, target, "failed"))
    if node.unwinds_to is not None:
        found.append(_built_in(node, UNWOUND, node.unwinds_to, "unwound"))
    return found


def _really(table: Table, node: Node, target: Node | None, debts: _Debts) -> tuple[Node | None, ...]:
    """Where a move to `target` may lead: past a straight unwinding state when nothing has to be undone."""
    if target is None or target.unwinds_to is None or not table.declared.straight:
        return (target,)
    with_debts = (target,) if node in debts.possible else ()
    without_debts = (target.unwinds_to,) if node in debts.avoidable else ()
    return with_debts + without_debts


def _built_in(node: Node, event: str, target: Node | None, kind: TransitionKind) -> TransitionDescription:
    return TransitionDescription(source=node.name, event=event, target=(target or node).name, kind=kind)


def _transition(node: Node, move: Transition, target: Node | None) -> TransitionDescription:
    return TransitionDescription(
        source=node.name,
        event=move.event,
        target=(target or node).name,
        internal=target is None,
        guard=move.guard_name,
        guard_reason=move.guard_reason or None,
        action=None if move.action is None else name_of(move.action),
        catch_all=move.declared.catch_all,
    )
