"""Describe a compiled machine as plain data: names, numbers and schemas, no user objects.

One arrow differs from its declaration: where a pipeline skips its unwinding state because nothing can have to be undone
yet, the arrow leads to the failed state, where the workflow really goes.
"""

from typing import TypeVar

from msgspec import UNSET

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
from interlock.core.graph import Ends
from interlock.core.table import Node, Table, Transition, name_of
from interlock.core.values import ContextT

EventT = TypeVar("EventT", bound=Event)


def describe(table: Table, codec: Codec[ContextT, EventT]) -> MachineDescription:
    """Return the machine as plain data, the initial state first, everything else in declared order."""
    ends = Ends(table)
    nodes = sorted(table.nodes.values(), key=lambda node: node is not table.initial)
    return MachineDescription(
        name=table.name,
        version=table.version,
        states=tuple(_state(node, initial=node is table.initial) for node in nodes),
        transitions=tuple(transition for node in nodes for transition in _transitions(node, ends)),
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
        heartbeat_s=UNSET if step.heartbeat_s is None else float(step.heartbeat_s),
    )


def _transitions(node: Node, ends: Ends) -> list[TransitionDescription]:
    found: list[TransitionDescription] = []
    for moves in node.moves.values():
        for move in moves:
            found += [_transition(node, move, target) for target in ends.of(node, move.target)]
    if node.failed is not None:
        found += [_built_in(node, STEP_FAILED, target, "failed") for target in ends.of(node, node.failed)]
    if node.unwinds_to is not None:
        found.append(_built_in(node, UNWOUND, node.unwinds_to, "unwound"))
    return found


def _built_in(node: Node, event: str, target: Node, kind: TransitionKind) -> TransitionDescription:
    return TransitionDescription(source=node.name, event=event, target=target.name, kind=kind)


def _transition(node: Node, move: Transition, target: Node) -> TransitionDescription:
    return TransitionDescription(
        source=node.name,
        event=move.event,
        target=target.name,
        internal=move.target is None,
        guard=move.guard_name,
        guard_reason=move.guard_reason or None,
        action=None if move.declared.action is None else name_of(move.declared.action),
        catch_all=move.declared.catch_all,
        settle=True if move.settles else UNSET,
    )
