"""Moves: everything that can move a machine, tried by hand and without an engine.

`Machine.apply` takes events. An engine also reports that a step was begun, its result (which can be undone later), a
step that gave up and an unwinding that is done; `play` takes those too and does what an engine would do, so that
tests, exploration and random walks reach the states behind a failure.
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
    """What an engine would decide on the move. Raises the refusal, as `Machine.decide` does.

    An event that the state's step returns, or has an undo for, counts as the step's result: from then on it is there to
    be undone. A failure must name the step of the state; another name raises InvalidPayload.
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
    """The name that history gives to the move: the event's wire name, STEP_FAILED or UNWOUND; or ATTEMPTED."""
    if isinstance(move, Attempted):
        return ATTEMPTED
    if isinstance(move, StepFailure):
        return STEP_FAILED
    if isinstance(move, Unwound):
        return UNWOUND
    return wire_name(type(move))


def told(allowed: Allowed[StateT]) -> str:
    """One allowed transition for people: `SUBMIT [has_items] -> paid`."""
    guards = f" [{', '.join(allowed.guards)}]" if allowed.guards else ""
    return f"{allowed.event}{guards} -> {allowed.to.value}"


def _is_result(step: StepDeclaration, event: type[Event]) -> bool:
    # A step without a return annotation is known by what it undoes. Its other events are taken for somebody else's: as
    # results they would leave nothing to undo, and an attempt that a Cancel interrupts would be forgotten (G5).
    return event in step.returns or any(event is undo.event for undo in step.undos)


def _other_step(machine: str, node: Node, step: str, given: str) -> InvalidPayload:
    return InvalidPayload(
        f"{machine}: step {shown(given)} cannot fail in state {node.name!r}, whose step is {step!r}."
        f"{suggestion(given, [step])}",
        why="Only the step of the state that a workflow is in can give up there.",
        fix=f"Write StepFailure(step={step!r}, ...), or move to the state of the step that is meant.",
    )


def _no_way(machine: str, node: Node, event: str) -> InvalidTransition:
    return InvalidTransition(machine=machine, state=node.name, event=event, allowed=allowed_events(node))
