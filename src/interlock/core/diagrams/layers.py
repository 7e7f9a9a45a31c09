"""Assign a row to each node.

The first half of a layered (Sugiyama) drawing: arrows that close a cycle are turned round, so that all of them
point down, and then every node gets the earliest row its arrows allow. A second pass pulls nodes towards their
neighbours, because a state with one arrow in and none out should stand beside where it came from.

The invariant: afterwards each arrow spans at least its required rows. The odd choice is to look for cycles
in declared order and from the initial state on: people declare the happy path first, so that the retry
gets turned round and not the way forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wire:
    """An arrow in the layout: from, to, and the number of rows it must span."""

    tail: int
    head: int
    span: int


def downward(count: int, wires: Sequence[Wire]) -> tuple[bool, ...]:
    """Return for each wire whether it already points down. Turning the others round leaves no cycle."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    for index, wire in enumerate(wires):
        leaving[wire.tail].append(index)
    down = [True] * len(wires)
    unseen, active, done = 0, 1, 2
    mark = [unseen] * count
    for root in range(count):
        if mark[root] != unseen:
            continue
        mark[root] = active
        # The stack is explicit, because a long machine would exhaust Python's own.
        stack = [(root, iter(leaving[root]))]
        while stack:
            node, remaining = stack[-1]
            taken = next(remaining, None)
            if taken is None:
                mark[node] = done
                stack.pop()
                continue
            head = wires[taken].head
            if mark[head] == active:
                down[taken] = False
            elif mark[head] == unseen:
                mark[head] = active
                stack.append((head, iter(leaving[head])))
    return tuple(down)


def assign_rows(first: Sequence[int], wires: Sequence[Wire]) -> list[int]:
    """Return the row of each node. No wires may form a cycle; `first` is the earliest row of each node."""
    entering: list[list[Wire]] = [[] for _ in first]
    leaving: list[list[Wire]] = [[] for _ in first]
    for wire in wires:
        entering[wire.head].append(wire)
        leaving[wire.tail].append(wire)
    rows = list(first)
    order = _topological(entering, leaving)
    for node in order:
        rows[node] = max([rows[node], *(rows[wire.tail] + wire.span for wire in entering[node])])
    # Heads come before tails here, so one pass is enough.
    for node in reversed(order):
        if len(leaving[node]) > len(entering[node]):
            rows[node] = min(rows[wire.head] - wire.span for wire in leaving[node])
    top = min(rows, default=0)
    return [row - top for row in rows]


def _topological(entering: Sequence[Sequence[Wire]], leaving: Sequence[Sequence[Wire]]) -> list[int]:
    waiting = [len(wires) for wires in entering]
    order = [node for node, count in enumerate(waiting) if count == 0]
    for node in order:  # The list grows while it is read: it is the queue and the result in one.
        for wire in leaving[node]:
            waiting[wire.head] -= 1
            if waiting[wire.head] == 0:
                order.append(wire.head)
    return order
