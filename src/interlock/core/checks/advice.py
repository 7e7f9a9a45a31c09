"""Warnings and remarks about a machine: probable oversights that may be intended.

These findings never prevent the use of a machine. Each says which declaration silences it.
"""

from interlock.core.events import wire_name
from interlock.core.table import Node, Table, Transition
from interlock.core.values import Finding


def advice(table: Table) -> list[Finding]:
    """Return all warnings and remarks about the machine."""
    return [
        *_unused_events(table),
        *_refused_timers(table),
        *_refused_results(table),
        *_guarded_results(table),
        *_internal_results(table),
        *_catch_alls(table),
        *_overlapping_guards(table),
        *_silent_steps(table),
        *_no_dwell(table),
    ]


def _unused_events(table: Table) -> list[Finding]:
    used = {event for node in table.nodes.values() for event in node.moves}
    return [
        Finding(
            code="unused-event",
            severity="warning",
            what=f"event {name} has no transition in any state.",
            why="The machine refuses it in every state.",
            fix="Declare a transition for it, or remove the class.",
            location=table.declared.location,
        )
        for name, event in table.events.items()
        if event not in used
    ]


def _refused_timers(table: Table) -> list[Finding]:
    return [
        Finding(
            code="timer-event-refused",
            severity="warning",
            what=f"the timer of state {node.name!r} sends {wire_name(type(timer.send))}, which that state refuses.",
            why="The timer would fire, be refused and change nothing.",
            fix=f"Declare {wire_name(type(timer.send))} from {node.name!r}, or let the timer send another event.",
            location=timer.location,
        )
        for node in table.nodes.values()
        for timer in node.timers
        if type(timer.send) not in node.moves
    ]


def _refused_results(table: Table) -> list[Finding]:
    return [
        Finding(
            code="step-event-refused",
            severity="warning",
            what=f"step {node.step.name!r} may return {wire_name(event)}, which state {node.name!r} refuses.",
            why="A refused result counts as a failure that is not retried and had no effect: nothing is undone.",
            fix=f"Declare {wire_name(event)} from {node.name!r}, or take it out of the step's return annotation.",
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node.step is not None
        for event in node.step.returns
        if event not in node.moves
    ]


def _guarded_results(table: Table) -> list[Finding]:
    """Return a finding for each outcome that all guards may refuse: the step's effect would count as not done."""
    return [
        Finding(
            code="step-event-guarded",
            severity="warning",
            what=f"step {node.step.name!r} may return {wire_name(event)}, which state {node.name!r} takes only if "
            f"{' or '.join(move.guard_name or '' for move in moves)} agrees.",
            why="A refused result counts as a failure that is not retried and had no effect: nothing is undone.",
            fix=f"Declare a transition without a guard for {wire_name(event)} after them.",
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node.step is not None and not node.step.read_only and not node.step.irreversible
        for event in node.step.returns
        if (moves := node.moves.get(event, ())) and moves == tuple(_guarded(moves))
    ]


def _internal_results(table: Table) -> list[Finding]:
    return [
        Finding(
            code="step-result-stays",
            severity="warning",
            what=f"step {node.step.name!r} may return {wire_name(event)}, which is internal in state {node.name!r}.",
            why="The step has run and the state is not entered again, so nothing runs there any more.",
            fix=f"Give the transition a target; to={_member(node)} enters the state again and runs the step again.",
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node.step is not None
        for event in node.step.returns
        if any(move.target is None for move in node.moves.get(event, ()))
    ]


def _catch_alls(table: Table) -> list[Finding]:
    """Return a finding for each event with own transitions in some states and the catch-all in the others."""
    found: list[Finding] = []
    for declared in table.declared.transitions:
        taking = [node for node in table.nodes.values() if declared.event in node.moves]
        caught = [node for node in taking if node.moves[declared.event][0].declared.catch_all]
        if declared.catch_all and caught and len(caught) < len(taking):
            own = ", ".join(node.name for node in taking if node not in caught)
            found.append(
                Finding(
                    code="catch-all-hides",
                    severity="info",
                    what=f"{wire_name(declared.event)} has its own transition from {own}, "
                    f"and only the catch-all from {', '.join(node.name for node in caught)}.",
                    why="A catch-all also takes the states where a transition was forgotten.",
                    fix="Look through the list; declare a transition of its own where the catch-all is not meant.",
                    location=declared.location,
                )
            )
    return found


def _overlapping_guards(table: Table) -> list[Finding]:
    return [
        Finding(
            code="guards-overlap",
            severity="info",
            what=f"{moves[0].event} in state {node.name!r} has several guards "
            f"({', '.join(move.guard_name or '' for move in guarded)}) that could both say yes.",
            why="The declared order decides: the first that says yes wins.",
            fix="Make them exclude each other, or make sure that the order is meant.",
            location=guarded[-1].declared.location,
        )
        for node in table.nodes.values()
        for moves in node.moves.values()
        if len(guarded := _guarded(moves)) > 1
    ]


def _guarded(moves: tuple[Transition, ...]) -> list[Transition]:
    return [move for move in moves if move.guard is not None]


def _silent_steps(table: Table) -> list[Finding]:
    return [
        Finding(
            code="step-outcomes-unknown",
            severity="info",
            what=f"step {node.step.name!r} does not say which events it returns.",
            why="Its outcomes cannot be checked or drawn, nor what happens to them when the workflow fails.",
            fix="Annotate it: `-> Charged | Declined`.",
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node.step is not None and not node.step.returns
    ]


def _no_dwell(table: Table) -> list[Finding]:
    return [
        Finding(
            code="no-dwell-limit",
            severity="info",
            what=f"state {node.name!r} has no dwell limit.",
            why="A workflow that stays there too long is found only by a query with an explicit age.",
            fix=f"Declare dwell({_member(node)}, max_s=...), or mark it resting.",
            location=table.declared.location,
        )
        for node in table.nodes.values()
        if node.active and node.dwell_max_s is None
    ]


def _member(node: Node) -> str:
    return f"{type(node.state).__name__}.{node.state.name}"
