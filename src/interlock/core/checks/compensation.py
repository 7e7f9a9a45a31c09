"""Check that every failing path is compensated, or declares that it is not (G5, C9).

A run of a step *holds* until it is undone: by an unwinding state when the step has an undo, by the step of a state in
`undone_in` otherwise; or until a transition with `settle=True` makes it final (C21). A path *breaks* where a step gives
up, where an event that is not one of its outcomes cuts a running step off, where a catch-all ends the workflow, where
an unwinding begins, and where it ends in a state in which failures end. A run that holds at a break and reaches an end
without its undo is a finding. A run that holds in a cycle is undone with every earlier round (`_round`).

The walk evaluates no guard: every arrow counts as possible. It assumes that an event which a step may return is sent by
that step alone. `tests/unit/core/checks/test_compensation.py` compares it with `decide` itself.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from interlock.core.events import STEP_FAILED, UNWOUND, Event
from interlock.core.graph import is_unwinding, reached_from
from interlock.core.table import Node, Table, Transition
from interlock.core.values import Finding


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
    found: list[Finding] = []
    skipped: dict[int, Finding] = {}
    for node in table.nodes.values():
        if node.step is None or node.step.read_only:
            continue
        lost = list(lost_at(node, failures))
        if node.undoable:
            # One finding per declared transition, also when several steps before it would be left.
            skipped |= {id(move.transition): _skipped(node, move) for move in reversed(lost) if move.transition}
        elif lost:
            found.append(_irreversible(node, lost[0]) if node.step.irreversible else _without_undo(node, lost[0]))
    return [*found, *skipped.values(), *_unsettled_rounds(table), *_dead_undos(table)]


def failure_ends(table: Table) -> set[Node]:
    """Return the final nodes in which failures end: an unwinding leads there, or a step that gave up.

    Return an empty set when there is no other end: then an end does not show whether the workflow failed.
    """
    ends = {end for node in table.nodes.values() for end in (node.unwinds_to, node.failed) if end and end.final}
    others = any((node.final or node.resting) and node not in ends for node in table.nodes.values())
    return ends if others else set()


def lost_at(node: Node, failures: set[Node]) -> Iterator[Move]:
    """Yield the breaks at which a run of the node's step holds and after which an end is reached before its undo."""
    saved, saves = _saving(node)
    first = [move for move in moves_of(node) if _leaves_something(move) and not _is_final(move)]
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
    if node.unwinds_to is not None:
        found.append(Move(node, node.unwinds_to, UNWOUND))
    return found


def _saving(node: Node) -> tuple[Saved, Callable[[Node], bool]]:
    """Return predicates for the moves that undo a run of the node's step, and for the nodes they leave."""
    step = node.step
    assert step is not None
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


def _is_final(move: Move) -> bool:
    """Return whether an outcome of the source's step settles its own run. A run that is cut off is not settled."""
    return move.transition is not None and move.transition.settles and move.transition.outcome


def _leaves_something(move: Move) -> bool:
    """Return False for a known outcome without an undo, of a step that has undos for others: nothing is to undo."""
    step = move.source.step
    assert step is not None
    return not (step.undos and move.by_step and all(move.event is not undo.event for undo in step.undos))


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


def _without_undo(node: Node, move: Move) -> Finding:
    assert node.step is not None
    name = node.step.name
    return Finding(
        code="step-without-undo",
        severity="warning",
        what=f"step {name!r} has no undo, and the workflow may fail after it: {_move_text(move)}.",
        why="Whatever it did outside stays done when the workflow fails.",
        fix=f"Declare @{name}.undo(...) and an unwinding state, or say undone_in={{...}} if other steps take it back, "
        "read_only=True if it changes nothing outside, irreversible=True if nothing can be done about it."
        + settle_first([node]),
        location=node.step.location,
    )


def _irreversible(node: Node, move: Move) -> Finding:
    assert node.step is not None
    return Finding(
        code="step-irreversible",
        severity="info",
        what=f"step {node.step.name!r} cannot be undone, and the workflow may fail after it: {_move_text(move)}.",
        why="It is declared irreversible: what it did outside stays done when the workflow fails.",
        fix="Nothing, if that is meant; the later in a workflow such a step comes, the better.",
        location=node.step.location,
    )


def _skipped(node: Node, move: Move) -> Finding:
    assert node.step is not None
    assert move.transition is not None
    if move.source is node:
        what = f"leaves state {node.name!r}, whose step {node.step.name!r} has an undo,"
    else:
        what = f"leaves state {move.source.name!r}, before which step {node.step.name!r} with its undo may have run,"
    return Finding(
        code="undo-may-be-skipped",
        severity="warning",
        what=f"{move.name} {what} for {move.target.name!r}, which is not unwinding.",
        why="When it comes from outside while the step runs, what the step did or may have done stays done."
        if move.cuts_off
        else "The workflow ends as failures do, and what the step did stays done.",
        fix=(
            "Let it lead to an unwinding state, or annotate the step with it if only the step sends it."
            if move.cuts_off
            else "Let it lead to an unwinding state."
        )
        + settle_first([node]),
        location=move.transition.declared.location,
    )


def _unsettled_rounds(table: Table) -> list[Finding]:
    """Return a finding for each cycle through an undoable step that keeps earlier rounds in the undo log."""
    undone = [node for node in table.nodes.values() if node.undoable and any(map(is_unwinding, reached_from([node])))]
    return [
        Finding(
            code="rounds-not-settled",
            severity="warning",
            what=f"step {step!r} may run in a cycle, and what it did in finished rounds is still undone.",
            why="A round that fails and unwinds undoes all earlier rounds too: one failed renewal would refund every "
            "month that was paid.",
            fix=f"Say settle=True on the transition on {end.name} from {end.source.name!r} to {end.target.name!r}, if "
            "a round that got there is final; settle=False, if a failure is meant to undo all rounds together.",
            location=end.transition.declared.location if end.transition else table.declared.location,
        )
        for step, end in _round_ends(undone).items()
    ]


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


def _dead_undos(table: Table) -> list[Finding]:
    return [
        Finding(
            code="undo-never-runs",
            severity="warning",
            what=f"step {node.step.name!r} has an undo, but no unwinding state can be reached from {node.name!r}.",
            why="An undo runs when the workflow enters an unwinding state.",
            fix="Declare one, unwind={State.UNDOING: State.FAILED}, and lead failures and cancellations to it.",
            location=node.step.location,
        )
        for node in table.nodes.values()
        if node.step is not None and node.undoable and not any(map(is_unwinding, reached_from([node])))
    ]


def _move_text(move: Move) -> str:
    return f"{move.name} leads from {move.source.name!r} to {move.target.name!r}"
