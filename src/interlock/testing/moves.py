"""Moves: everything that can move a machine, played without an engine.

`Machine.apply` takes events. An engine also reports that a step was begun, its result (which can be undone later), a
step that gave up and a completed unwinding. `play` takes those too and decides as an engine would, so that tests,
exploration and random walks reach the states after a failure.
"""

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec

from interlock.core import decide
from interlock.core.declarations import StepDeclaration
from interlock.core.events import STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.machine import EventT, Machine
from interlock.core.refusals import allowed_events, shown, suggestion
from interlock.core.table import Node
from interlock.core.values import Allowed, ContextT, Decision, Snapshot, StateT, StepFailure
from interlock.errors import InvalidPayload, InvalidTransition

ATTEMPTED = "ATTEMPTED"


@dataclass(frozen=True, slots=True)
class Unwound:
    """The move out of an unwinding state: everything that had to be undone is undone."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt of the state's step has begun: an event that interrupts it now leaves something to undo."""


AnyEventT = TypeVar("AnyEventT", bound=Event)

Move: TypeAlias = AnyEventT | StepFailure | Unwound | Attempted
"""An event of the machine, `StepFailure(step=..., error=...)` for a step that gave up, `Unwound()`, `Attempted()`."""


def play(
    machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT], move: Move[EventT]
) -> Decision[StateT, ContextT]:
    """Return the engine's decision on the move. Raises the refusal, as `Machine.decide` does.

    An event that the state's step returns, or has an undo for, counts as the step's result: an unwinding undoes it.
    A failure must name the step of the state; another name raises InvalidPayload.
    """
    table = machine.compiled
    node = decide.known(table, snapshot.state)
    if isinstance(move, StepFailure):
        if node.step is None or node.failed is None:
            raise _no_way(machine.name, node, STEP_FAILED)
        if move.step != node.step.name:
            raise _other_step(machine.name, node, node.step.name, move.step)
        decision = decide.fail(table, snapshot, move)
        assert decision is not None  # Only a step without `failed=` stays where it is.
        return decision
    if isinstance(move, Unwound):
        if node.unwinds_to is None:
            raise _no_way(machine.name, node, UNWOUND)
        # Through the module, where coverage of transitions can see it.
        return decide.unwound(table, snapshot)
    if isinstance(move, Attempted):
        if node.step is None:
            raise _no_way(machine.name, node, ATTEMPTED)
        return Decision(msgspec.structs.replace(snapshot, attempted=True), ())
    result = node.step is not None and _is_result(node.step, type(move))
    return decide.decide(table, snapshot, move, result=result)


def name_of_move(move: Event | StepFailure | Unwound | Attempted) -> str:
    """Return the move's name in history: the event's wire name, STEP_FAILED or UNWOUND; or ATTEMPTED."""
    if isinstance(move, Attempted):
        return ATTEMPTED
    if isinstance(move, StepFailure):
        return STEP_FAILED
    if isinstance(move, Unwound):
        return UNWOUND
    return wire_name(type(move))


def allowed_text(allowed: Allowed[StateT]) -> str:
    """Return one allowed transition as text: `SUBMIT [has_items] -> paid`."""
    guards = f" [{', '.join(allowed.guards)}]" if allowed.guards else ""
    return f"{allowed.event}{guards} -> {allowed.to.value}"


def _is_result(step: StepDeclaration, event: type[Event]) -> bool:
    # Without a return annotation only the events with an undo count as results. Other events are taken for a client's:
    # as results they would leave nothing to undo, and an attempt that a Cancel interrupts would be forgotten (G5).
    return event in step.returns or any(event is undo.event for undo in step.undos)


def _other_step(machine: str, node: Node, step: str, failed: str) -> InvalidPayload:
    return InvalidPayload(
        f"{machine}: step {shown(failed)} cannot fail in state {node.name!r}, whose step is {step!r}."
        f"{suggestion(failed, [step])}",
        why="Only the step of the state that a workflow is in can give up there.",
        fix=f"Write StepFailure(step={step!r}, ...), or move to the state of the step that is meant.",
    )


def _no_way(machine: str, node: Node, event: str) -> InvalidTransition:
    return InvalidTransition(machine=machine, state=node.name, event=event, allowed=allowed_events(node))
