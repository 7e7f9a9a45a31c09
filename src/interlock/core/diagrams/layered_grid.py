"""Grid of a layered (Sugiyama) drawing: rows of cells for nodes, bends and labels, in order and in place.

An arrow over several rows gets a cell in each row it passes, so that nothing else is put in its way, and its
label gets a cell of its own. So a label has a size and a place in a row, and cannot overlap a box.

The invariant: a chain has exactly one cell in each row from its tail's to its head's. Cells below `node_count`
are the nodes themselves; the rest are bends and labels.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import pairwise
from math import inf
from statistics import median

# --- Rows ------------------------------------------------------------------------------------------------------------
# Arrows that close a cycle are turned round, so that all of them point down, and then every node gets the earliest
# row its arrows allow. A second pass pulls nodes towards their neighbours, because a state with one arrow in and none
# out should stand beside where it came from.
#
# The invariant: afterwards each arrow spans at least its required rows. The odd choice is to look for cycles in
# declared order and from the initial state on: people declare the happy path first, so that the retry gets turned
# round and not the way forward.


@dataclass(frozen=True, slots=True)
class GridArrow:
    """An arrow in the layout: from, to, and the number of rows it must span."""

    tail: int
    head: int
    span: int


def downward(count: int, wires: Sequence[GridArrow]) -> tuple[bool, ...]:
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


def assign_rows(first: Sequence[int], wires: Sequence[GridArrow]) -> list[int]:
    """Return the row of each node. No wires may form a cycle; `first` is the earliest row of each node."""
    entering: list[list[GridArrow]] = [[] for _ in first]
    leaving: list[list[GridArrow]] = [[] for _ in first]
    for wire in wires:
        entering[wire.head].append(wire)
        leaving[wire.tail].append(wire)
    rows = list(first)
    tails = {node: [wire.tail for wire in wires] for node, wires in enumerate(entering)}
    order = list(TopologicalSorter(tails).static_order())
    for node in order:
        rows[node] = max([rows[node], *(rows[wire.tail] + wire.span for wire in entering[node])])
    # Heads come before tails here, so one pass is enough.
    for node in reversed(order):
        if len(leaving[node]) > len(entering[node]):
            rows[node] = min(rows[wire.head] - wire.span for wire in leaving[node])
    top = min(rows, default=0)
    return [row - top for row in rows]


# --- Cells -----------------------------------------------------------------------------------------------------------

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


def build_grid(
    row_of: Sequence[int], wires: Sequence[GridArrow], down: Sequence[bool], widths: Sequence[float]
) -> Grid:
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
    row_of: Sequence[int], wires: Sequence[GridArrow], down: Sequence[bool], widths: Sequence[float]
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


# --- Order of the cells in a row -------------------------------------------------------------------------------------
# Sweeps down and up put each cell at the mean position of its neighbours. The best order found is kept, so more effort
# never makes a drawing worse.
#
# The invariant: the rows contain the same cells as before. The odd choice is that effort is counted in links
# examined and not in time, so that the same machine gives the same drawing on a slow computer.

_EFFORT_MAX = 300_000
_SWEEPS_MAX = 24
_SWEEPS_MIN = 2
_STALE_MAX = 6

Rows = list[list[int]]


def reduce_crossings(grid: Grid) -> Grid:
    """Return the same grid with its rows reordered."""
    links = sum(len(lower) for lower in grid.below)
    sweeps = max(_SWEEPS_MIN, min(_SWEEPS_MAX, _EFFORT_MAX // max(1, links)))
    best: Rows = [list(row) for row in grid.rows]
    fewest = count_crossings(grid, best)
    for backwards in (False, True):
        rows, crossings = _improve(grid, _order_of_discovery(grid, backwards=backwards), sweeps)
        if crossings < fewest or (crossings == fewest and not backwards):
            best, fewest = rows, crossings
    return replace(grid, rows=tuple(map(tuple, best)))


def count_crossings(grid: Grid, rows: Sequence[Sequence[int]]) -> int:
    """Return the number of pairs of links that cross."""
    total = 0
    for upper, lower in pairwise(rows):
        position = {cell: index for index, cell in enumerate(lower)}
        ends_before: list[int] = []
        for cell in upper:
            ends = sorted(position[neighbour] for neighbour in grid.below[cell])
            total += sum(len(ends_before) - bisect_right(ends_before, end) for end in ends)
            for end in ends:
                insort(ends_before, end)
    return total


def _order_of_discovery(grid: Grid, *, backwards: bool) -> Rows:
    """Return the rows in the order in which a walk downwards visits their cells, so that trees have no crossings."""
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    rows: Rows = [[] for _ in grid.rows]
    met: set[int] = set()
    step = 1 if backwards else -1
    for root in (cell for row in grid.rows for cell in row):
        stack = [root]
        while stack:
            cell = stack.pop()
            if cell in met:
                continue
            met.add(cell)
            rows[row_of[cell]].append(cell)
            stack += grid.below[cell][::step]
    return rows


def _improve(grid: Grid, rows: Rows, sweeps: int) -> tuple[Rows, int]:
    best, fewest, stale = [list(row) for row in rows], count_crossings(grid, rows), 0
    sweep = 0
    while sweep < sweeps and fewest > 0 and stale < _STALE_MAX:
        _settle(grid, rows, downwards=sweep % 2 == 0)
        crossings = count_crossings(grid, rows)
        sweep, stale = sweep + 1, stale + 1
        if crossings < fewest:
            best, fewest, stale = [list(row) for row in rows], crossings, 0
    return best, fewest


def _settle(grid: Grid, rows: Rows, *, downwards: bool) -> None:
    """Sort each row by the mean position of its cells' neighbours in the row before it."""
    order = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
    neighbours = grid.above if downwards else grid.below
    for index in order:
        before = rows[index - 1 if downwards else index + 1]
        position = {cell: place for place, cell in enumerate(before)}
        mean = {
            cell: sum(position[neighbour] for neighbour in neighbours[cell]) / len(neighbours[cell])
            for cell in rows[index]
            if neighbours[cell]
        }
        # Cells without a neighbour there keep their place.
        wishing = iter(sorted(mean, key=mean.__getitem__))
        rows[index] = [next(wishing) if cell in mean else cell for cell in rows[index]]


# --- Place of the cells in a row -------------------------------------------------------------------------------------
# Cells that should stand in one line form a column: the happy path, and the bends and the label of one arrow. Columns
# are packed from the left, and then each moves towards the cells it is linked with, as far as its neighbours let it.
#
# The invariant: adjacent cells of a row are at least the sum of their extents apart. A cell has two extents, before and
# after its middle, because a loop and its label hang on one side of a box only.

_ROUNDS = 12
_ALMOST = 0.05


@dataclass(frozen=True, slots=True)
class Extent:
    """The room a cell needs on either side of its middle, margins included."""

    before: float
    after: float


def place(grid: Grid, extents: Sequence[Extent], reach: Sequence[float], spine: frozenset[int]) -> list[float]:
    """Return the coordinate of each cell's middle across the rows.

    The chains of the spine are straight if possible. An arrow is straight too where it leaves and enters a node within
    its `reach`, which is the distance from the node's middle.
    """
    column = _columns(grid, spine)
    after: dict[int, dict[int, float]] = {each: {} for each in column}
    before: dict[int, dict[int, float]] = {each: {} for each in column}
    for row in grid.rows:
        for left, right in pairwise(row):
            one, other = column[left], column[right]
            gap = max(extents[left].after + extents[right].before, after[one].get(other, 0.0))
            after[one][other] = before[other][one] = gap
    order = list(TopologicalSorter(before).static_order())
    position = dict.fromkeys(order, 0.0)
    for each in order:
        position[each] = max([0.0, *(position[other] + gap for other, gap in before[each].items())])
    links: dict[int, list[int]] = {each: [] for each in order}
    for cell, each in enumerate(column):
        links[each] += [other for other in (*grid.above[cell], *grid.below[cell]) if column[other] != each]
    with_node = set(column[: grid.node_count])
    for _ in range(_ROUNDS):
        for each in (*reversed(order), *order):
            low = max((position[other] + gap for other, gap in before[each].items()), default=-inf)
            high = min((position[other] - gap for other, gap in after[each].items()), default=inf)
            ends = [(position[column[other]], reach[other]) for other in links[each]]
            if each in with_node:
                wish = median([middle for middle, _ in ends] or [position[each]])
                position[each] = min(max(wish, low), high)
            else:
                position[each] = _straightest(position[each], ends, low, high)
    edge = min((position[column[row[0]]] - extents[row[0]].before for row in grid.rows), default=0.0)
    return [position[each] - edge for each in column]


def _columns(grid: Grid, spine: frozenset[int]) -> list[int]:
    """Return for each cell the first cell of its column. No two columns cross."""
    place_of = {cell: (row, index) for row, cells in enumerate(grid.rows) for index, cell in enumerate(cells)}
    straight: list[list[tuple[int, int]]] = [[] for _ in grid.rows]
    upper_of: dict[int, int] = {}
    for chain in sorted(range(len(grid.chains)), key=lambda index: index not in spine):
        for upper, lower in pairwise(grid.chains[chain]):
            (row, start), (_, end) = place_of[upper], place_of[lower]
            kept = straight[row]
            at = bisect_right(kept, (start, end))
            crosses = (at > 0 and kept[at - 1][1] >= end) or (at < len(kept) and kept[at][1] <= end)
            if not crosses and (chain in spine or min(upper, lower) >= grid.node_count):
                kept.insert(at, (start, end))
                upper_of[lower] = upper
    column = list(range(len(grid.above)))
    for cell in (cell for row in grid.rows for cell in row):
        column[cell] = column[upper_of.get(cell, cell)]
    return column


def _straightest(now: float, ends: Sequence[tuple[float, float]], low: float, high: float) -> float:
    """Return the nearest place, between low and high, from which the bends of an arrow reach most of its ends."""

    def missed(place: float) -> tuple[int, float]:
        return sum(abs(place - middle) > reach + _ALMOST for middle, reach in ends), abs(place - now)

    places: list[float] = []
    for order in (ends, ends[::-1]):
        wish = now
        for middle, reach in order:
            wish = min(max(wish, middle - reach), middle + reach)
        places.append(min(max(wish, low), high))
    return min(places, key=missed)
