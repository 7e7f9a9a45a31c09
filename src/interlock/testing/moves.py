"""Moves: everything that can move a machine, tried by hand and without an engine.

`Machine.apply` takes events. An engine also reports that a step was begun, its result (which can be undone later), a
step that gave up and an unwinding that is done; `play` takes those too and does what an engine would do, so that
tests, exploration and random walks reach the states behind a failure.
"""

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec

from interlock.core import decide
from interlock.core.events import STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.machine import EventT, Machine
from interlock.core.refusals import allowed_events
from interlock.core.table import Node
from interlock.core.values import Allowed, ContextT, Decision, Snapshot, StateT, StepFailure
from interlock.errors import InvalidTransition

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

    An event that the state's step returns counts as the step's result: from then on it is there to be undone.
    """
    table = machine.compiled
    node = decide.known(table, snapshot.state)
    if isinstance(move, StepFailure):
        decision = decide.fail(table, snapshot, move) if node.step is not None else None
        if decision is None:
            raise _no_way(machine.name, node, STEP_FAILED)
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
    result = node.step is not None and type(move) in node.step.returns
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


def _no_way(machine: str, node: Node, event: str) -> InvalidTransition:
    return InvalidTransition(machine=machine, state=node.name, event=event, allowed=allowed_events(node))
