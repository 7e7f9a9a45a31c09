"""Place each cell within its row.

Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment" (2001): cells are chained into vertical
blocks that follow their median neighbours, the blocks are packed, and the mean of the four ways to do it
(leaning left or right, looking up or down) is taken. Arrows over many rows come out straight.

The invariant: adjacent cells of a row are at least the sum of their extents apart. It holds in each of the four
results and so in the middle of them, coordinate by coordinate. The odd choice is that a cell has two extents,
before and after its middle, because a loop and its label hang on one side of a box only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from interlock.core.diagrams.grid import Grid


@dataclass(frozen=True, slots=True)
class Extent:
    """The room a cell needs on either side of its middle, margins included."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class _View:
    """The grid, mirrored for one of the four passes so that each packs from the left, looking up."""

    rows: list[list[int]]
    upper: Sequence[Sequence[int]]
    before: Sequence[float]
    after: Sequence[float]


def place(grid: Grid, extents: Sequence[Extent], spine: frozenset[int]) -> list[float]:
    """Return the coordinate of each cell's middle across the rows, with straight chains of the spine if possible."""
    links = frozenset(pair for index in spine for pair in pairwise(grid.chains[index]))
    barred = _giving_way(grid, links)
    befores, afters = [extent.before for extent in extents], [extent.after for extent in extents]
    results: list[list[float]] = []
    for upwards in (False, True):
        rows = [list(row) for row in (reversed(grid.rows) if upwards else grid.rows)]
        upper = grid.below if upwards else grid.above
        for mirrored in (False, True):
            if mirrored:
                view = _View([row[::-1] for row in rows], upper, afters, befores)
                results.append([-value for value in _packed(view, barred)])
            else:
                results.append(_packed(_View(rows, upper, befores, afters), barred))
    return _balanced(results, befores, afters)


def _giving_way(grid: Grid, spine: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return the links that may not be kept straight: they would bend the spine or the inner part of a long arrow."""
    barred: set[tuple[int, int]] = set()
    spine_up = {lower: upper for upper, lower in spine}
    spine_down = dict(spine)
    for upper, lower in pairwise(grid.rows):
        position = {cell: index for index, cell in enumerate(upper)}
        first = scanned = 0
        for index, cell in enumerate(lower):
            inner = (up for up in grid.above[cell] if min(up, cell) >= grid.node_count)
            strong = spine_up.get(cell, next(inner, None))
            if strong is None and index < len(lower) - 1:
                continue
            last = len(upper) - 1 if strong is None else position[strong]
            for below in lower[scanned : index + 1]:
                for above in grid.above[below]:
                    outside = not first <= position[above] <= last and min(above, below) < grid.node_count
                    rival = spine_up.get(below, above) != above or spine_down.get(above, below) != below
                    if rival or (outside and (above, below) not in spine):
                        barred |= {(above, below), (below, above)}
            scanned, first = index + 1, last
    return frozenset(barred)


def _packed(view: _View, barred: frozenset[tuple[int, int]]) -> list[float]:
    return _compacted(view, _blocks(view, barred))


def _blocks(view: _View, barred: frozenset[tuple[int, int]]) -> list[int]:
    """Return for each cell the first cell of its vertical block."""
    root = list(range(len(view.before)))
    for upper, row in pairwise(view.rows):
        position = {cell: index for index, cell in enumerate(upper)}
        reached = -1
        for cell in row:
            wishes = sorted((up for up in view.upper[cell] if (up, cell) not in barred), key=position.__getitem__)
            middle = len(wishes) - 1
            for wish in wishes[middle // 2 : (middle + 1) // 2 + 1]:
                if root[cell] == cell and position[wish] > reached:
                    root[cell] = root[wish]
                    reached = position[wish]
    return root


def _compacted(view: _View, root: Sequence[int]) -> list[float]:
    """Push every block as far left as its neighbours let it, then back right where that costs nothing."""
    gaps: dict[int, dict[int, float]] = {block: {} for block in root}
    waiting = dict.fromkeys(gaps, 0)
    for row in view.rows:
        for left, right in pairwise(row):
            one, other = root[left], root[right]
            if other not in gaps[one]:
                waiting[other] += 1
            gap = view.after[left] + view.before[right]
            gaps[one][other] = max(gap, gaps[one].get(other, 0.0))
    order = [block for block, count in waiting.items() if count == 0]
    position = dict.fromkeys(gaps, 0.0)
    for block in order:
        for other, gap in gaps[block].items():
            position[other] = max(position[other], position[block] + gap)
            waiting[other] -= 1
            if waiting[other] == 0:
                order.append(other)
    for block in reversed(order):
        if gaps[block]:
            position[block] = min(position[other] - gap for other, gap in gaps[block].items())
    return [position[block] for block in root]


def _balanced(results: list[list[float]], befores: Sequence[float], afters: Sequence[float]) -> list[float]:
    """Line the four results up with the narrowest one and take the mean of the two middle values."""
    cells = range(len(befores))
    sides = [
        (
            min((result[cell] - befores[cell] for cell in cells), default=0.0),
            max((result[cell] + afters[cell] for cell in cells), default=0.0),
        )
        for result in results
    ]
    left, right = min(sides, key=lambda side: side[1] - side[0])
    shifts = [
        right - side[1] if mirrored else left - side[0]
        for side, mirrored in zip(sides, (False, True, False, True), strict=True)
    ]
    balanced: list[float] = []
    for cell in cells:
        values = sorted(result[cell] + shift for result, shift in zip(results, shifts, strict=True))
        balanced.append((values[1] + values[2]) / 2)
    start = min((balanced[cell] - befores[cell] for cell in cells), default=0.0)
    return [value - start for value in balanced]
