"""Graph of a compiled machine: reachable nodes, and nodes in which a workflow may owe undos.

Guards are not evaluated, so every move counts as possible. A workflow owes undos after an undoable step until it
unwinds, or a transition settles the run (C21).
"""

from collections.abc import Callable, Iterable

from interlock.core.table import Node, Table


def reached_from(
    starts: Iterable[Node],
    *,
    stops: Callable[[Node], bool] | None = None,
    following: Callable[[Node], Iterable[Node]] = Node.next_nodes,
) -> set[Node]:
    """Return the nodes reachable from `starts`, these included. A node that `stops` is included, but not passed."""
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
    """Return whether the node is unwinding. After an unwinding node the undo log is empty."""
    return node.unwinds_to is not None


def may_owe(table: Table) -> set[Node]:
    """Return the nodes in which a workflow may owe undos."""
    undoable = (node for node in table.nodes.values() if node.undoable)
    return reached_from(undoable, stops=is_unwinding, following=_carried_to)


def _carried_to(node: Node) -> list[Node]:
    """Return the nodes one move away in which the undos are still owed: without moves that clear the undo log."""
    moves = (move.target for moves in node.moves.values() for move in moves if not move.clears)
    return [each for each in (*moves, node.failed, node.unwinds_to) if each is not None]


def may_owe_nothing(table: Table) -> set[Node]:
    """Return the nodes that can be reached with an empty undo log: before an undoable step or after settling."""
    moves = (move for node in table.nodes.values() for moves in node.moves.values() for move in moves)
    settled = [move.target for move in moves if move.settles and move.target is not None]
    return reached_from([*([table.initial] if table.initial else []), *settled], stops=lambda node: node.undoable)


class Ends:
    """The nodes in which a move really ends: a straight unwinding state is skipped when nothing has to be undone."""

    def __init__(self, table: Table) -> None:
        self._straight = table.declared.straight
        self._may_owe = may_owe(table)
        self._may_owe_nothing = may_owe_nothing(table)

    def of(self, node: Node, target: Node | None) -> tuple[Node, ...]:
        """Return the nodes that a move from `node` to `target` may end in; None is an internal transition."""
        if target is None or target.unwinds_to is None or not self._straight:
            return (target or node,)
        with_debts = (target,) if node in self._may_owe else ()
        without_debts = (target.unwinds_to,) if node in self._may_owe_nothing else ()
        return with_debts + without_debts
