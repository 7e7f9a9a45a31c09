"""Questions about the graph of a compiled machine: what can be reached, and where something may have to be undone.

Guards are not asked, so every move counts as possible. Something has to be undone after an undoable step until the
workflow unwinds, or a transition settles it (C21).
"""

from collections.abc import Callable, Iterable

from interlock.core.table import Node, Table


def reached_from(
    starts: Iterable[Node],
    *,
    stops: Callable[[Node], bool] | None = None,
    following: Callable[[Node], Iterable[Node]] = Node.next_nodes,
) -> set[Node]:
    """The nodes reachable from `starts`, these included. A node that `stops` is reached, but not passed."""
    reached: set[Node] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node in reached:
            continue
        reached.add(node)
        if stops is None or not stops(node):
            waiting.extend(following(node))
    return reached


def is_unwinding(node: Node) -> bool:
    """True for an unwinding node. Behind it the undo log is empty."""
    return node.unwinds_to is not None


def may_owe(table: Table) -> set[Node]:
    """The nodes in which a workflow may have something to undo."""
    undoable = (node for node in table.nodes.values() if node.undoable)
    return reached_from(undoable, stops=is_unwinding, following=_carried_to)


def _carried_to(node: Node) -> list[Node]:
    """The nodes one move away in which what was to be undone still is: not behind a move that settles it."""
    moves = (move.target for moves in node.moves.values() for move in moves if not move.clears)
    return [each for each in (*moves, node.failed, node.unwinds_to) if each is not None]


def may_owe_nothing(table: Table) -> set[Node]:
    """The nodes that can be reached without completing an undoable step before, or since it was settled."""
    moves = (move for node in table.nodes.values() for moves in node.moves.values() for move in moves)
    settled = [move.target for move in moves if move.settles and move.target is not None]
    return reached_from([*([table.initial] if table.initial else []), *settled], stops=lambda node: node.undoable)


class Ends:
    """Where a move really ends: past a straight unwinding state when nothing has to be undone."""

    def __init__(self, table: Table) -> None:
        self._straight = table.declared.straight
        self._may_owe = may_owe(table)
        self._may_owe_nothing = may_owe_nothing(table)

    def of(self, node: Node, target: Node | None) -> tuple[Node, ...]:
        """The nodes that a move from `node` to `target` may end in; None is an internal transition."""
        if target is None or target.unwinds_to is None or not self._straight:
            return (target or node,)
        with_debts = (target,) if node in self._may_owe else ()
        without_debts = (target.unwinds_to,) if node in self._may_owe_nothing else ()
        return with_debts + without_debts
