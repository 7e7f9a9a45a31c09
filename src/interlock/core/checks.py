"""Checks of the whole graph of a machine (A2): errors, which make it unusable, and warnings.

`soundness` finds errors, `compensation` effects that a failure may leave without an undo, `advice` the rest. All take a
compiled table, sound or not, and return findings; only `demand_sound` raises, when a machine is first used. Guards are
never evaluated: every arrow counts as possible.

Sections: advice, children, compensation, soundness, all checks together.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from interlock.core.codec import Codec, changeable_parts
from interlock.core.declarations import JoinDeclaration, StepDeclaration
from interlock.core.events import (
    CHILDREN_JOINED,
    STEP_FAILED,
    UNWOUND,
    WHY_EVENT,
    Event,
    events_below,
    mistake_in,
    wire_name,
)
from interlock.core.table import Node, Table, Transition, compile_table, is_unwinding, may_owe, name_of, reached_from
from interlock.core.values import Family, Finding, finding
from interlock.errors import DefinitionError, InvalidPayload, PayloadTooLarge

__all__ = ["demand_sound", "findings"]


# --- Advice ----------------------------------------------------------------------------------------------------------
# Warnings and remarks never prevent the use of a machine. Each says which declaration silences it.


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
        *_tasks(table),
        *_children(table),
    ]


def _unused_events(table: Table) -> Iterator[Finding]:
    used = {event for node in table.nodes.values() for event in node.moves}
    for name, event in table.events.items():
        if event not in used:
            what, why = f"event {name} has no transition in any state.", "The machine refuses it in every state."
            fix = "Declare a transition for it, or remove the class."
            yield finding("unused-event", "warning", table.declared.location, what, why, fix)


def _refused_timers(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        for timer in node.timers:
            if type(timer.send) not in node.moves:
                name = wire_name(type(timer.send))
                what = f"the timer of state {node.name!r} sends {name}, which that state refuses."
                why = "The timer would fire, be refused and change nothing."
                fix = f"Declare {name} from {node.name!r}, or let the timer send another event."
                yield finding("timer-event-refused", "warning", timer.location, what, why, fix)


def _results(table: Table) -> Iterator[tuple[Node, StepDeclaration, str, tuple[Transition, ...]]]:
    """Yield each declared outcome of each step: its node, its step, the event's name and the event's transitions."""
    for node in table.nodes.values():
        for event in node.step.returns if node.step else ():
            assert node.step is not None
            yield node, node.step, wire_name(event), node.moves.get(event, ())


_WHY_REFUSED = "A refused result counts as a failure that is not retried and had no effect: nothing is undone."


def _refused_results(table: Table) -> Iterator[Finding]:
    for node, step, name, moves in _results(table):
        if not moves:
            what = f"step {step.name!r} may return {name}, which state {node.name!r} refuses."
            fix = f"Declare {name} from {node.name!r}, or take it out of the step's return annotation."
            yield finding("step-event-refused", "warning", step.location, what, _WHY_REFUSED, fix)


def _guarded_results(table: Table) -> Iterator[Finding]:
    """Yield a finding for each outcome that all guards may refuse: the step's effect would count as not done."""
    for node, step, name, moves in _results(table):
        if moves and moves == tuple(_guarded(moves)) and not step.read_only and not step.irreversible:
            guards = " or ".join(move.guard_name or "" for move in moves)
            what = f"step {step.name!r} may return {name}, which state {node.name!r} takes only if {guards} agrees."
            fix = f"Declare a transition without a guard for {name} after them."
            yield finding("step-event-guarded", "warning", step.location, what, _WHY_REFUSED, fix)


def _internal_results(table: Table) -> Iterator[Finding]:
    for node, step, name, moves in _results(table):
        if any(move.target is None for move in moves):
            what = f"step {step.name!r} may return {name}, which is internal in state {node.name!r}."
            why = "The step has run and the state is not entered again, so nothing runs there any more."
            fix = f"Give the transition a target; to={_member(node)} enters the state again and runs the step again."
            yield finding("step-result-stays", "warning", step.location, what, why, fix)


def _catch_alls(table: Table) -> Iterator[Finding]:
    """Yield a finding for each event with own transitions in some states and the catch-all in the others."""
    for declared in table.declared.transitions:
        taking = [node for node in table.nodes.values() if declared.event in node.moves]
        caught = [node for node in taking if node.moves[declared.event][0].declared.catch_all]
        if declared.catch_all and caught and len(caught) < len(taking):
            own = ", ".join(node.name for node in taking if node not in caught)
            others = ", ".join(node.name for node in caught)
            what = (
                f"{wire_name(declared.event)} has its own transition from {own}, and only the catch-all from {others}."
            )
            why = "A catch-all also takes the states where a transition was forgotten."
            fix = "Look through the list; declare a transition of its own where the catch-all is not meant."
            yield finding("catch-all-hides", "info", declared.location, what, why, fix)


def _overlapping_guards(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        for moves in node.moves.values():
            guarded = _guarded(moves)
            if len(guarded) > 1:
                guards = ", ".join(move.guard_name or "" for move in guarded)
                what = f"{moves[0].event} in state {node.name!r} has several guards ({guards}) that could both say yes."
                why = "The declared order decides: the first that says yes wins."
                fix = "Make them exclude each other, or make sure that the order is meant."
                yield finding("guards-overlap", "info", guarded[-1].declared.location, what, why, fix)


def _guarded(moves: tuple[Transition, ...]) -> list[Transition]:
    return [move for move in moves if move.guard is not None]


def _silent_steps(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        if node.step is not None and node.step.children is None and not node.step.returns:
            what = f"step {node.step.name!r} does not say which events it returns."
            why = "Its outcomes cannot be checked or drawn, nor what happens to them when the workflow fails."
            fix = "Annotate it: `-> Charged | Declined`."
            yield finding("step-outcomes-unknown", "info", node.step.location, what, why, fix)


def _no_dwell(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        if node.active and node.dwell_max_s is None:
            what = f"state {node.name!r} has no dwell limit."
            why = "A workflow that stays there too long is found only by a query with an explicit age."
            fix = f"Declare dwell({_member(node)}, max_s=...), or mark it resting."
            yield finding("no-dwell-limit", "info", table.declared.location, what, why, fix)


def _tasks(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        task = node.task
        if task is None:
            continue
        if all(move.target is None for event in task.events for move in node.moves.get(event, ())):
            what = f"no event of the task in state {node.name!r} leaves the state."
            why = "A task ends when its workflow leaves the state: a person would decide, and be asked again."
            fix = "Give one of its transitions a target; to= the same state enters it again, as a new task."
            yield finding("task-without-end", "warning", task.location, what, why, fix)
        if node.resting and (task.due_s is not None or task.due is not None):
            what = f"the task in state {node.name!r} has a due time, and the state is resting."
            why = "A listing shows that it is overdue; a resting state never stalls, so no alert is sent."
            fix = f"Take {node.name!r} out of resting=, or declare a timer that escalates."
            yield finding("task-due-unnoticed", "info", task.location, what, why, fix)


def _member(node: Node) -> str:
    return f"{type(node.state).__name__}.{node.state.name}"


# --- Children --------------------------------------------------------------------------------------------------------
# The children's machine is compiled for the check alone, so that it is not frozen.

SAMPLE_TOTALS = (0, 1, 2, 3, 10, 100, 1_000, 100_000)


def _children(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        step = node.step
        if step is None or step.children is None:
            continue
        of = compile_table(step.children.of.declarations)
        cancel = step.children.cancel
        if cancel is not None:
            yield from _uncancelled(table, node, step, of, type(cancel))
        if not node.joins:
            what = f"state {node.name!r} has children and no join."
            why = "The workflow does not notice that they have ended."
            fix = f"Declare join({_member(node)}, to=...), or start them from a step if nothing waits for them."
            yield finding("children-without-join", "info", step.location, what, why, fix)
        for join in node.joins:
            if not _can_hold(join.declared, of):
                what = f"no family makes the join of state {node.name!r} to {join.target.name!r} hold."
                why = (
                    f"Its condition was False, or raised, for each family of up to {SAMPLE_TOTALS[-1]:,} children that "
                    f"ended in any one or two of the final and resting states of {of.name!r}."
                )
                fix = "Count states in which a child can end, and no more children than there can be."
                yield finding("join-never-holds", "warning", join.declared.location, what, why, fix)


def _uncancelled(table: Table, node: Node, step: StepDeclaration, of: Table, cancel: type[Event]) -> Iterator[Finding]:
    name = wire_name(cancel)
    deaf = [each.name for each in of.nodes.values() if each.active and not each.unwinds_to and cancel not in each.moves]
    if deaf:
        what = f"children of state {node.name!r} refuse {name} in {', '.join(map(repr, deaf))}."
        why = "Such a child goes on when its parent leaves the state, or is undone."
        fix = f"Declare {name} there, or from {of.name}.any; leave it if the child soon ends by itself."
        yield finding("child-refuses-cancel", "warning", step.location, what, why, fix)
    unwinds = node.undoable and any(map(is_unwinding, reached_from([node])))
    if unwinds and not any(cancel in each.moves for each in of.nodes.values() if not each.active):
        what = f"a child of state {node.name!r} that has ended cannot be undone: no ended state accepts {name}."
        why = f"When {table.name!r} unwinds, what its ended children did stays done."
        fix = f"Make the state in which a child succeeds resting=, and declare {name} from it to an unwinding state."
        yield finding("child-not-undoable", "warning", step.location, what, why, fix)


def _can_hold(join: JoinDeclaration, of: Table) -> bool:
    """Return whether the join holds for one of many sample families."""
    ended = [node.name for node in of.nodes.values() if not node.active]
    states = of.declared.states
    for total in SAMPLE_TOTALS:
        for one in ended:
            for other in ended:
                for many in {total, total - 1, total // 2, 1, 0}:
                    counts = {other: total - many, one: many} if one != other else {one: total}
                    for endings in (total, many):
                        ends = counts if endings == total else {one: max(0, many)}
                        family = Family(total=total, ended=max(0, endings), counts=ends, states=states)
                        try:
                            if join.holds(family):
                                return True
                        except Exception:  # noqa: BLE001, S112 -- a condition that raises does not hold.
                            continue
    return False


# --- Compensation ----------------------------------------------------------------------------------------------------
# A run of a step *holds* until it is undone: by an unwinding state when the step has an undo, by the step of a state
# in `undone_in` otherwise; or until a transition with `settle=True` makes it final (C21). A path *breaks* where a
# step gives up, where an event that is not one of its outcomes cuts a running step off, where a catch-all ends the
# workflow, where an unwinding begins, and where it ends in a state in which failures end. A run that holds at a
# break and reaches an end without its undo is a finding (G5, C9). A run that holds in a cycle is undone with every
# earlier round (`_round`).
#
# The walk assumes that an event which a step may return is sent by that step alone.
# `tests/unit/core/checks/test_compensation.py` compares it with `decide` itself.


class Move(NamedTuple):
    """One arrow that leaves a node. `event` is None for a step that gave up and for an unwinding that is done."""

    source: Node
    target: Node
    name: str
    event: type[Event] | None = None
    transition: Transition | None = None

    @property
    def by_step(self) -> bool:
        """True for an outcome of the source's own step. A step without a return annotation may return every event."""
        step = self.source.step
        return step is not None and self.event is not None and (not step.returns or self.event in step.returns)

    @property
    def settles(self) -> bool:
        """True when the move makes earlier runs final."""
        return self.transition is not None and self.transition.settles

    @property
    def cuts_off(self) -> bool:
        """True when the source's step may be running, and this is not its outcome."""
        return self.source.step is not None and self.event is not None and not self.by_step


Saved = Callable[[Move], bool]


def compensation(table: Table) -> list[Finding]:
    """Return a finding for each path on which an effect outside may stay although the workflow failed."""
    failures = failure_ends(table)
    without_undo: list[Finding] = []
    skipped: dict[int, Finding] = {}
    for node in table.nodes.values():
        step = node.step
        if step is None or step.read_only or (step.children is not None and not node.undoable):
            continue
        lost = list(lost_at(node, step, failures))
        if node.undoable:
            # One finding per declared transition, also when several steps before it would be left.
            skipped |= {
                id(move.transition): _skipped(node, step, move, move.transition.declared.location)
                for move in reversed(lost)
                if move.transition
            }
        elif lost:
            without_undo.append(_without_undo(node, step, lost[0]))
    return [*without_undo, *skipped.values(), *_unsettled_rounds(table), *_dead_undos(table)]


def failure_ends(table: Table) -> set[Node]:
    """Return the final nodes in which failures end: an unwinding leads there, or a step that gave up.

    Return an empty set when there is no other end: then an end does not show whether the workflow failed.
    """
    ends = {end for node in table.nodes.values() for end in (node.unwinds_to, node.failed) if end and end.final}
    others = any((node.final or node.resting) and node not in ends for node in table.nodes.values())
    return ends if others else set()


def lost_at(node: Node, step: StepDeclaration, failures: set[Node]) -> Iterator[Move]:
    """Yield the breaks at which a run of the node's step holds and after which an end is reached before its undo."""
    saved, saves = _saving(step)
    undone = {undo.event for undo in step.undos}
    first = [
        move
        for move in moves_of(node)
        # A known outcome without an undo, of a step that has undos for others, leaves nothing to undo.
        if not (undone and move.by_step and move.event not in undone) and not _settles_itself(move)
    ]
    walked = _walk([move.target for move in first], saved)
    later = [move for each in walked for move in moves_of(each)]
    for move in dict.fromkeys([*first, *later]):
        if (
            breaks(move, failures)
            and (not saved(move) or (move.settles and move in first))
            and _reaches_an_end(move.target, saved, saves)
        ):
            yield move


def breaks(move: Move, failures: set[Node]) -> bool:
    """Return whether the path fails with this move."""
    if move.name == STEP_FAILED or is_unwinding(move.target) or move.cuts_off or move.target in failures:
        return True
    return move.transition is not None and move.transition.declared.catch_all and move.target.final


def moves_of(node: Node) -> list[Move]:
    """Return the moves that leave the node, without internal ones. A failure comes first: it is the best example."""
    found = [] if node.failed is None else [Move(node, node.failed, STEP_FAILED)]
    found += [
        Move(node, move.target, move.event, event, move)
        for event, moves in node.moves.items()
        for move in moves
        if move.target is not None
    ]
    found += [Move(node, join.target, CHILDREN_JOINED) for join in node.joins]
    if node.unwinds_to is not None:
        found.append(Move(node, node.unwinds_to, UNWOUND))
    return found


def _saving(step: StepDeclaration) -> tuple[Saved, Callable[[Node], bool]]:
    """Return predicates for the moves that undo a run of the step, and for the nodes they leave."""
    if step.undos:
        return (lambda move: is_unwinding(move.source) or move.settles), (
            lambda other: is_unwinding(other) or _may_settle(other)
        )
    undone_in = step.undone_in
    return (
        (lambda move: (move.source.state in undone_in and move.by_step) or move.settles),
        (lambda other: other.state in undone_in or _may_settle(other)),
    )


def _may_settle(node: Node) -> bool:
    return any(move.settles for moves in node.moves.values() for move in moves)


def _settles_itself(move: Move) -> bool:
    """Return whether an outcome of the source's step settles its own run. A run that is cut off is not settled."""
    return move.transition is not None and move.transition.settles and move.transition.outcome


def _walk(begin: Iterable[Node], saved: Saved) -> dict[Node, None]:
    reached: dict[Node, None] = {}
    waiting = list(begin)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached[node] = None
            waiting += [move.target for move in moves_of(node) if not saved(move)]
    return reached


def _reaches_an_end(node: Node, saved: Saved, saves: Callable[[Node], bool]) -> bool:
    """Return whether a final node, or a resting node from which no undo can be reached, comes before any undo."""
    return any(
        each.final or (each.resting and not any(map(saves, reached_from([each])))) for each in _walk([node], saved)
    )


def _without_undo(node: Node, step: StepDeclaration, move: Move) -> Finding:
    path = f"{move.name} leads from {move.source.name!r} to {move.target.name!r}"
    if step.irreversible:
        what = f"step {step.name!r} cannot be undone, and the workflow may fail after it: {path}."
        why = "It is declared irreversible: what it did outside stays done when the workflow fails."
        fix = "Nothing, if that is meant; the later in a workflow such a step comes, the better."
        return finding("step-irreversible", "info", step.location, what, why, fix)
    what = f"step {step.name!r} has no undo, and the workflow may fail after it: {path}."
    why = "Whatever it did outside stays done when the workflow fails."
    fix = (
        f"Declare @{step.name}.undo(...) and an unwinding state, or say undone_in={{...}} if other steps take it back, "
        "read_only=True if it changes nothing outside, irreversible=True if nothing can be done about it."
    )
    return finding("step-without-undo", "warning", step.location, what, why, fix + settle_first([node]))


def _skipped(node: Node, step: StepDeclaration, move: Move, location: str) -> Finding:
    if move.source is node:
        what = f"leaves state {node.name!r}, whose step {step.name!r} has an undo,"
    else:
        what = f"leaves state {move.source.name!r}, before which step {step.name!r} with its undo may have run,"
    what = f"{move.name} {what} for {move.target.name!r}, which is not unwinding."
    if move.cuts_off:
        why = "When it comes from outside while the step runs, what the step did or may have done stays done."
        fix = "Let it lead to an unwinding state, or annotate the step with it if only the step sends it."
    else:
        why = "The workflow ends as failures do, and what the step did stays done."
        fix = "Let it lead to an unwinding state."
    return finding("undo-may-be-skipped", "warning", location, what, why, fix + settle_first([node]))


def _unsettled_rounds(table: Table) -> Iterator[Finding]:
    """Yield a finding for each cycle through an undoable step that keeps earlier rounds in the undo log."""
    undone = [node for node in table.nodes.values() if node.undoable and any(map(is_unwinding, reached_from([node])))]
    for step, end in _round_ends(undone).items():
        what = f"step {step!r} may run in a cycle, and what it did in finished rounds is still undone."
        why = (
            "A round that fails and unwinds undoes all earlier rounds too: one failed renewal would refund every "
            "month that was paid."
        )
        fix = (
            f"Say settle=True on the transition on {end.name} from {end.source.name!r} to {end.target.name!r}, if "
            "a round that got there is final; settle=False, if a failure is meant to undo all rounds together."
        )
        location = end.transition.declared.location if end.transition else table.declared.location
        yield finding("rounds-not-settled", "warning", location, what, why, fix)


def settle_first(nodes: Iterable[Node]) -> str:
    """Return the addition to a fix for steps in a cycle, so that an unwinding undoes one round only."""
    ends = ", ".join(f"{end.name} from {end.source.name!r}" for end in _round_ends(nodes).values())
    return f" Settle finished rounds first (settle=True on {ends}): an unwinding would undo them too." if ends else ""


def _round_ends(nodes: Iterable[Node]) -> dict[str, Move]:
    """Return by step the move that ends a round of an unsettled cycle. A cycle of several steps begins at the first.

    The move is the first that enters a resting state, or else the last that leaves one of the steps.
    """
    ends: dict[str, Move] = {}
    passed: set[Node] = set()
    for node in nodes:
        path = [] if node in passed else _round(node)
        if path:
            assert node.step is not None
            passed |= {move.source for move in path}
            resting = [move for move in path if move.target.resting]
            leaving = [move for move in path if move.source is node or move.source.undoable]
            ends[node.step.name] = (resting[:1] or leaving[-1:])[0]
    return ends


def _round(node: Node) -> list[Move]:
    """Return a shortest cycle from an outcome of the node's step back to it whose moves settle and undo nothing."""
    step = node.step
    assert step is not None
    outcomes = {undo.event for undo in step.undos} or set(step.returns)
    # After an internal outcome, every move that leaves the state carries the run along.
    stays = any(move.target is None and not move.settles for each in outcomes for move in node.moves.get(each, ()))
    waiting = [[move] for move in moves_of(node) if (stays or move.event in outcomes) and _goes_on(move)]
    visited: set[Node] = set()
    for path in waiting:  # Grows while it is read: breadth first.
        last = path[-1].target
        if last is node:
            return path
        if last not in visited:
            visited.add(last)
            waiting += [[*path, move] for move in moves_of(last) if _goes_on(move)]
    return []


def _goes_on(move: Move) -> bool:
    """Return whether the move keeps the undo log without declaring settle=False."""
    return not is_unwinding(move.source) and (move.transition is None or move.transition.declared.settle is None)


def _dead_undos(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        step = node.step
        if step is None or step.children is not None:
            continue
        if node.undoable and not any(map(is_unwinding, reached_from([node]))):
            what = f"step {step.name!r} has an undo, but no unwinding state can be reached from {node.name!r}."
            why = "An undo runs when the workflow enters an unwinding state."
            fix = "Declare one, unwind={State.UNDOING: State.FAILED}, and lead failures and cancellations to it."
            yield finding("undo-never-runs", "warning", step.location, what, why, fix)


# --- Soundness -------------------------------------------------------------------------------------------------------
# With one of these errors a workflow could get stuck or lose undos. The first use raises the first finding.


def soundness(table: Table) -> list[Finding]:
    """Return all errors of the graph. Without an initial state only that error is returned."""
    if table.initial is None:
        what, why = "there is no initial state.", "A new workflow has to be in exactly one state."
        fix = f"Pass initial={table.declared.states.__name__}.… to Machine."
        return [finding("no-initial-state", "error", table.declared.location, what, why, fix)]
    return [
        *_bad_events(table),
        *_ambiguous_names(table),
        *_hidden_transitions(table),
        *_unreachable(table, table.initial),
        *_dead_ends(table),
        *_traps(table),
        *_lost_undos(table),
    ]


def _ambiguous_names(table: Table) -> Iterator[Finding]:
    used = dict.fromkeys(declared.event for declared in table.declared.transitions)
    for event in dict.fromkeys([*used, *events_below(table.declared.alphabet)]):
        winner = table.events[wire_name(event)]
        # A class with the same module and name is an earlier load of the same module.
        other = (event.__module__, event.__qualname__) != (winner.__module__, winner.__qualname__)
        if winner is not event and (event in used or other):
            what = f"two event classes have the wire name {wire_name(event)}."
            why = "History and HTTP know an event by its wire name alone."
            fix = "Rename one of the classes, or set its wire_name."
            yield finding("duplicate-event-name", "error", table.declared.location, what, why, fix)


def _bad_events(table: Table) -> Iterator[Finding]:
    """Yield the mistakes in event classes that no transition names and that could still be sent."""
    for event in table.events.values():
        mistake = mistake_in(event)
        if mistake is not None:
            rule, what, fix = mistake
            yield finding(rule, "error", table.declared.location, f"{what}.", WHY_EVENT, fix)


def _hidden_transitions(table: Table) -> Iterator[Finding]:
    """Yield the transitions that can never be taken, because an unguarded one of the same event precedes them."""
    for node in table.nodes.values():
        for moves in node.moves.values():
            first = next((index for index, move in enumerate(moves) if move.guard is None), len(moves))
            for index, move in enumerate(moves[: first + 1]):
                for earlier in moves[:index]:
                    if move.guard is not None and move.declared.guard is earlier.declared.guard:
                        yield _hidden(node, move, earlier)
            for move in moves[first + 1 :]:
                yield _hidden(node, move, moves[first])


def _hidden(node: Node, hidden: Transition, winner: Transition) -> Finding:
    kind = "a second unguarded transition" if hidden.guard is None else f"guard {hidden.guard_name}"
    reason = "has no guard" if winner.guard is None else "has the same guard"
    what = f"{kind} for {hidden.event} in state {node.name!r} can never be taken."
    why = f"The transition at {winner.declared.location} {reason} and is declared before it, so it always wins."
    fix = "Give the earlier one a guard, declare the guarded ones first, or drop one."
    return finding("duplicate-transition", "error", hidden.declared.location, what, why, fix)


def _unreachable(table: Table, initial: Node) -> Iterator[Finding]:
    reached = reached_from([initial])
    for node in table.nodes.values():
        if node not in reached:
            what = f"state {node.name!r} cannot be reached from {initial.name!r}."
            why = "No workflow can ever be in it: a transition is missing, or the state is left over."
            fix = f"Declare a transition to {node.name!r}, or remove it from {table.declared.states.__name__}."
            yield finding("unreachable-state", "error", table.declared.location, what, why, fix)


def _dead_ends(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        if node.active and not _exits(node):
            what = f"nothing leaves state {node.name!r}, and it is neither final nor resting."
            why = "A workflow that enters it stays for ever and is never done."
            fix = "Put it into final= or resting=, or declare a transition out of it."
            yield finding("dead-end", "error", table.declared.location, what, why, fix)


def _traps(table: Table) -> Iterator[Finding]:
    for node in table.nodes.values():
        if node.active and _exits(node) and all(other.active for other in reached_from([node])):
            what = f"from state {node.name!r} no final or resting state can be reached."
            why = "A workflow that gets there goes round for ever and is never done."
            fix = "Declare a transition towards a final or resting state, or mark one as such."
            yield finding("no-way-out", "error", table.declared.location, what, why, fix)


def _exits(node: Node) -> list[Node]:
    return [other for other in node.next_nodes() if other is not node]


def _lost_undos(table: Table) -> Iterator[Finding]:
    owing = may_owe(table)
    for node in table.nodes.values():
        if node in owing and node.step and node.failed and node.failed.unwinds_to is None:
            what = (
                f"step {node.step.name!r} fails into {node.failed.name!r}, which is not unwinding, "
                "although a step with an undo may have run before."
            )
            why = "What that step did outside would be left without its undo (G5)."
            fix = "Let it fail into an unwinding state: unwind={State.UNDOING: State.FAILED}, failed=State.UNDOING."
            fix += settle_first(other for other in table.nodes.values() if other.undoable)
            yield finding("failed-without-unwinding", "error", node.step.location, what, why, fix)


# --- All checks together ---------------------------------------------------------------------------------------------


_ORDER = ("error", "warning", "info")


def findings(table: Table, codec: Callable[[], Codec[Any, Any]]) -> list[Finding]:
    """Return all findings about the machine, errors first; `codec` creates the codec of its values."""
    found = [
        *soundness(table),
        *_unwritable(table, codec),
        *_mutable_context(table),
        *compensation(table),
        *advice(table),
    ]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def _unwritable(table: Table, codec: Callable[[], Codec[Any, Any]]) -> list[Finding]:
    """Return what the first use would raise: fields that cannot be decoded, timers whose event cannot be encoded."""
    location = table.declared.location
    try:
        encode = codec().encode_event
        for timer in table.declared.timers:
            location = timer.location
            encode(timer.send)
    except (DefinitionError, InvalidPayload, PayloadTooLarge) as error:
        if isinstance(error, DefinitionError):
            return [finding(error.rule, "error", location, error.what, error.why, error.fix)]
        return [finding("timer-event-unstorable", "error", location, error.what, error.why, error.fix)]
    return []


def _mutable_context(table: Table) -> list[Finding]:
    """Return the one error that does not stop the first use.

    A machine with stored workflows must not stop after an upgrade, so user code receives copies of such a context. But
    every call pays for the copies, and a change that a function does not return is lost silently.
    """
    parts = [part for part in changeable_parts(table.declared.context) if part.certain]
    if not parts:
        return []
    places = "; ".join(part.what for part in parts)
    what = f"the context {name_of(table.declared.context)} can be changed in place: {places}."
    why = "Guards, actions and steps receive a copy of it with every call, and a change that is not returned is lost."
    fix = (
        "Use a frozen class, with tuple instead of list, frozenset instead of set, Mapping instead of dict and "
        "bytes instead of bytearray. Return a changed copy: dataclasses.replace(context, ...)."
    )
    return [finding("mutable-context", "error", table.declared.location, what, why, fix)]


def demand_sound(table: Table) -> None:
    """Raise the first error as a DefinitionError, with the number of the others."""
    errors = soundness(table)
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors) - 1} more: see check())" if len(errors) > 1 else ""
    raise DefinitionError(
        f"machine {table.name!r}: {first.what}{more}",
        why=first.why,
        fix=first.fix,
        rule=first.code,
        location=first.location,
    )
