"""Grid of a layered drawing: rows of cells for nodes, bends and labels.

An arrow over several rows gets a cell in each row it passes, so that nothing else is put in its way, and its
label gets a cell of its own. So a label has a size and a place in a row, and cannot overlap a box.

The invariant: a chain has exactly one cell in each row from its tail's to its head's. Cells below `node_count`
are the nodes themselves; the rest are bends and labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from interlock.core.diagrams.layers import Wire

# A label one state row further from its source is worth this much less crowding, in pixels.
_DISTANCE_PRICE = 60.0


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells in rows, and their links to the next row."""

    node_count: int
    rows: tuple[tuple[int, ...], ...]
    above: tuple[tuple[int, ...], ...]
    """For each cell, its neighbours in the row above."""
    below: tuple[tuple[int, ...], ...]
    chains: tuple[tuple[int, ...], ...]
    """For each wire, its cells from top to bottom, both nodes included."""
    labels: tuple[int | None, ...]
    """For each wire, the cell that holds its label."""


def build_grid(row_of: Sequence[int], wires: Sequence[Wire], down: Sequence[bool], widths: Sequence[float]) -> Grid:
    """Lay every wire through the rows. `wires` all point down; `widths` are those of their labels, or zero.

    `down` says which wires point the way their arrow does: labels go near the state an arrow leaves.
    """
    cells = len(row_of)
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for node, row in enumerate(row_of):
        rows[row].append(node)
    label_rows = _label_rows(row_of, wires, down, widths)
    chains: list[tuple[int, ...]] = []
    labels: list[int | None] = []
    for wire, label_row in zip(wires, label_rows, strict=True):
        top, bottom = row_of[wire.tail], row_of[wire.head]
        between = range(cells, cells + bottom - top - 1)
        for cell, row in zip(between, range(top + 1, bottom), strict=True):
            rows[row].append(cell)
        labels.append(None if label_row is None else cells + label_row - top - 1)
        chains.append((wire.tail, *between, wire.head))
        cells += len(between)
    above: list[list[int]] = [[] for _ in range(cells)]
    below: list[list[int]] = [[] for _ in range(cells)]
    for chain in chains:
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return Grid(
        node_count=len(row_of),
        rows=tuple(map(tuple, rows)),
        above=tuple(map(tuple, above)),
        below=tuple(map(tuple, below)),
        chains=tuple(chains),
        labels=tuple(labels),
    )


def _label_rows(
    row_of: Sequence[int], wires: Sequence[Wire], down: Sequence[bool], widths: Sequence[float]
) -> list[int | None]:
    """Return the least crowded row for each label; short arrows come first because they have the fewest rows."""
    crowd: dict[int, float] = {}
    chosen: list[int | None] = [None] * len(wires)
    by_length = sorted(range(len(wires)), key=lambda index: row_of[wires[index].head] - row_of[wires[index].tail])
    for index in by_length:
        if widths[index] == 0:
            continue
        top, bottom = row_of[wires[index].tail], row_of[wires[index].head]
        # Every second row holds states; the rows between are there for labels.
        candidates = list(range(top + 1, bottom, 2))
        if not down[index]:
            candidates.reverse()
        prices = [crowd.get(row, 0.0) + _DISTANCE_PRICE * steps for steps, row in enumerate(candidates)]
        row = candidates[prices.index(min(prices))]
        crowd[row] = crowd.get(row, 0.0) + widths[index]
        chosen[index] = row
    return chosen
