"""Errors of the graph, with which a workflow could get stuck or lose undos: the machine cannot be used.

One function per rule, each from the compiled table to its findings; the first finding is what the first use raises.
"""

from interlock.core.checks.compensation import settle_first
from interlock.core.events import events_below, mistake_in, wire_name
from interlock.core.graph import may_owe, reached_from
from interlock.core.table import Node, Table, Transition
from interlock.core.values import Finding


def soundness(table: Table) -> list[Finding]:
    """Return all errors of the graph. Without an initial state only that error is returned."""
    if table.initial is None:
        return [_no_initial(table)]
    return [
        *_bad_events(table),
        *_ambiguous_names(table),
        *_hidden_transitions(table),
        *_unreachable(table, table.initial),
        *_dead_ends(table),
        *_traps(table),
        *_lost_undos(table),
    ]


def _no_initial(table: Table) -> Finding:
    return Finding(
        code="no-initial-state",
        severity="error",
        what="there is no initial state.",
        why="A new workflow has to be in exactly one state.",
        fix=f"Pass initial={table.declared.states.__name__}.… to Machine.",
        location=table.declared.location,
    )


def _ambiguous_names(table: Table) -> list[Finding]:
    used = dict.fromkeys(declared.event for declared in table.declared.transitions)
    everything = dict.fromkeys([*used, *events_below(table.declared.alphabet)])
    return [
        Finding(
            code="duplicate-event-name",
            severity="error",
            what=f"two event classes have the wire name {wire_name(event)}.",
            why="History and HTTP know an event by its wire name alone.",
            fix="Rename one of the classes, or set its wire_name.",
            location=table.declared.location,
        )
        for event in everything
        if (winner := table.events[wire_name(event)]) is not event
        # A class with the same module and name is an earlier load of the same module.
        and (event in used or (event.__module__, event.__qualname__) != (winner.__module__, winner.__qualname__))
    ]


def _bad_events(table: Table) -> list[Finding]:
    """Return the mistakes in event classes that no transition names and that could still be sent."""
    return [
        Finding(
            code=mistake[0],
            severity="error",
            what=f"{mistake[1]}.",
            why="An event is written to history and sent again after a crash: a value with a fixed shape and name.",
            fix=mistake[2],
            location=table.declared.location,
        )
        for event in table.events.values()
        if (mistake := mistake_in(event)) is not None
    ]


def _hidden_transitions(table: Table) -> list[Finding]:
    """Return the transitions that can never be taken, because an unguarded one of the same event precedes them."""
    found: list[Finding] = []
    for node in table.nodes.values():
        for moves in node.moves.values():
            first = next((index for index, move in enumerate(moves) if move.guard is None), len(moves))
            found += [
                _hidden(node, move, earlier)
                for index, move in enumerate(moves[: first + 1])
                for earlier in moves[:index]
                if move.guard is not None and move.declared.guard is earlier.declared.guard
            ]
            found += [_hidden(node, hidden, moves[first]) for hidden in moves[first + 1 :]]
    return found


def _hidden(node: Node, hidden: Transition, winner: Transition) -> Finding:
    kind = "a second unguarded transition" if hidden.guard is None else f"guard {hidden.guard_name}"
    reason = "has no guard" if winner.guard is None else "has the same guard"
    return Finding(
        code="duplicate-transition",
        severity="error",
        what=f"{kind} for {hidden.event} in state {node.name!r} can never be taken.",
        why=f"The transition at {winner.declared.location} {reason} and is declared before it, so it always wins.",
        fix="Give the earlier one a guard, declare the guarded ones first, or drop one.",
        location=hidden.declared.location,
    )


def _unreachable(table: Table, initial: Node) -> list[Finding]:
    reached = reached_from([initial])
    return [
        Finding(
            code="unreachable-state",
            severity="error",
            what=f"state {node.name!r} cannot be reached from {initial.name!r}.",
            why="No workflow can ever be in it: a transition is missing, or the state is left over.",
            fix=f"Declare a transition to {node.name!r}, or remove it from {table.declared.states.__name__}.",
            location=table.declared.location,
        )
        for node in table.nodes.values()
        if node not in reached
    ]


def _dead_ends(table: Table) -> list[Finding]:
    return [
        Finding(
            code="dead-end",
            severity="error",
            what=f"nothing leaves state {node.name!r}, and it is neither final nor resting.",
            why="A workflow that enters it stays for ever and is never done.",
            fix="Put it into final= or resting=, or declare a transition out of it.",
            location=table.declared.location,
        )
        for node in table.nodes.values()
        if node.active and not _exits(node)
    ]


def _traps(table: Table) -> list[Finding]:
    return [
        Finding(
            code="no-way-out",
            severity="error",
            what=f"from state {node.name!r} no final or resting state can be reached.",
            why="A workflow that gets there goes round for ever and is never done.",
            fix="Declare a transition towards a final or resting state, or mark one as such.",
            location=table.declared.location,
        )
        for node in table.nodes.values()
        if node.active and _exits(node) and all(other.active for other in reached_from([node]))
    ]


def _exits(node: Node) -> list[Node]:
    return [other for other in node.next_nodes() if other is not node]


def _lost_undos(table: Table) -> list[Finding]:
    owing = may_owe(table)
    return [
        Finding(
            code="failed-without-unwinding",
            severity="error",
            what=f"step {node.step.name!r} fails into {node.failed.name!r}, which is not unwinding, "
            "although a step with an undo may have run before.",
            why="What that step did outside would be left without its undo (G5).",
            fix="Let it fail into an unwinding state: unwind={State.UNDOING: State.FAILED}, failed=State.UNDOING."
            + settle_first(other for other in table.nodes.values() if other.undoable),
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node in owing and node.step and node.failed and node.failed.unwinds_to is None
    ]
