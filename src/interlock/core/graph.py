"""Questions about the graph of a compiled machine: what can be reached, and where something may have to be undone."""

from collections.abc import Callable, Iterable

from interlock.core.table import Node, Table


def reached_from(starts: Iterable[Node], *, stops: Callable[[Node], bool] | None = None) -> set[Node]:
    """The nodes reachable from `starts`, these included. A node that `stops` is reached, but not passed."""
    reached: set[Node] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node in reached:
            continue
        reached.add(node)
        if stops is None or not stops(node):
            waiting.extend(node.next_nodes())
    return reached


def is_unwinding(node: Node) -> bool:
    """True for an unwinding node. Behind it the undo log is empty."""
    return node.unwinds_to is not None


def may_owe(table: Table) -> set[Node]:
    """The nodes in which a workflow may have something to undo."""
    return reached_from((node for node in table.nodes.values() if node.undoable), stops=is_unwinding)


def may_owe_nothing(table: Table) -> set[Node]:
    """The nodes that can be reached without completing an undoable step before."""
    return reached_from([table.initial] if table.initial else [], stops=lambda node: node.undoable)
