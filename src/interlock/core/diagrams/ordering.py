"""Order the cells of each row so that few arrows cross.

Sweeps down and up put each cell at the mean position of its neighbours. Swaps of adjacent cells then remove crossings
that remain. The best order found is kept, so more effort never makes a drawing worse.

The invariant: the rows contain the same cells as before. The odd choice is that effort is counted in links examined
and not in time, so that the same machine gives the same drawing on a slow computer.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from interlock.core.diagrams.grid import Grid

_EFFORT_MAX = 300_000
_SWEEPS_MAX = 24
_SWEEPS_MIN = 2
_STALE_MAX = 6
_SWAP_ROUNDS_MAX = 8
_SWAP_LINKS_MAX = 4_000

Rows = list[list[int]]


def reduce_crossings(grid: Grid) -> Grid:
    """Return the same grid with its rows reordered."""
    links = sum(len(lower) for lower in grid.below)
    sweeps = max(_SWEEPS_MIN, min(_SWEEPS_MAX, _EFFORT_MAX // max(1, links)))
    best: Rows = [list(row) for row in grid.rows]
    fewest = count_crossings(grid, best)
    for backwards in (False, True):
        rows, crossings = _improved(grid, _discovered(grid, backwards=backwards), sweeps=sweeps, links=links)
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


def _discovered(grid: Grid, *, backwards: bool) -> Rows:
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


def _improved(grid: Grid, rows: Rows, *, sweeps: int, links: int) -> tuple[Rows, int]:
    best, fewest, stale = [list(row) for row in rows], count_crossings(grid, rows), 0
    sweep = 0
    while sweep < sweeps and fewest > 0 and stale < _STALE_MAX:
        _settle(grid, rows, downwards=sweep % 2 == 0)
        if links <= _SWAP_LINKS_MAX:
            _swap(grid, rows)
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


def _swap(grid: Grid, rows: Rows) -> None:
    """Exchange adjacent cells while that removes crossings."""
    position = {cell: place for row in rows for place, cell in enumerate(row)}
    rounds, improved = 0, True
    while improved and rounds < _SWAP_ROUNDS_MAX:
        rounds, improved = rounds + 1, False
        for row in rows:
            for place in range(len(row) - 1):
                left, right = row[place], row[place + 1]
                if _saved(grid, position, left, right) > 0:
                    row[place], row[place + 1] = right, left
                    position[left], position[right] = place + 1, place
                    improved = True


def _saved(grid: Grid, position: dict[int, int], left: int, right: int) -> int:
    """Return how many crossings are removed by exchanging the two cells."""
    saved = 0
    for neighbours in (grid.above, grid.below):
        lefts = [position[cell] for cell in neighbours[left]]
        rights = [position[cell] for cell in neighbours[right]]
        saved += sum((one > other) - (one < other) for one in lefts for other in rights)
    return saved
