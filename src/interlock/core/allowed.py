"""List the transitions that are allowed from a state, without executing anything (A6)."""

from typing import cast

from interlock.core.decide import known
from interlock.core.events import Event
from interlock.core.refusals import foreign_event, guard_raised, guard_returned
from interlock.core.table import Node, Table, Transition
from interlock.core.values import Allowed, ContextT, Snapshot, StateT


def allowed(table: Table, snapshot: Snapshot[StateT, ContextT], event: Event | None = None) -> list[Allowed[StateT]]:
    """Return the transitions from the snapshot's state, in declared order.

    With an event, return only its own transitions and evaluate their guards. Raises what `decide` raises for a guard.
    """
    node = known(table, snapshot.state)
    if event is None:
        return [_open(node, move) for moves in node.moves.values() for move in moves]
    if type(event) not in table.events.values():
        raise foreign_event(table, event)
    return [_evaluated(table, node, move, snapshot.context, event) for move in node.moves.get(type(event), ())]


def _open(node: Node, move: Transition) -> Allowed[StateT]:
    to = cast("StateT", (move.target or node).state)
    return Allowed(move.event, to, () if move.guard_name is None else (move.guard_name,))


def _evaluated(table: Table, node: Node, move: Transition, context: object, event: Event) -> Allowed[StateT]:
    entry: Allowed[StateT] = _open(node, move)
    if move.guard is None:
        return entry
    try:
        verdict = move.guard(context, event)
    except Exception as error:
        raise guard_raised(table, node, move, error) from error
    if verdict is True:
        return entry
    if verdict is not False:
        raise guard_returned(table, node, move, verdict)
    return Allowed(entry.event, entry.to, entry.guards, move.guard_name, move.guard_reason or None)
