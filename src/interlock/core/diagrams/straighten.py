"""Remove needless corners from arrows, in a last pass.

Coordinates are averages, so an arrow may miss the box it goes to by a few pixels and need two corners to get
there. Here each arrow's label and bends, which stand in one line, are shifted together to where the arrow
needs fewest corners.

The invariant: nothing moves past or nearer to its neighbours than their extents allow, so cells that did not overlap
before do not overlap after. The odd choice is to move only bends and labels and never a node: moving a node would
bend all its other arrows.
"""

from collections.abc import Sequence

from interlock.core.diagrams.grid import Grid
from interlock.core.diagrams.placement import Extent

_ROUNDS = 3
# Two corners weigh more than any detour on a page.
_CORNER_PRICE = 10_000.0


def straighten(grid: Grid, middles: Sequence[float], extents: Sequence[Extent], reach: Sequence[float]) -> list[float]:
    """Return the coordinates with the inner cells of each arrow moved to where it has the fewest corners."""
    result = list(middles)
    place = {cell: (row, index) for row in grid.rows for index, cell in enumerate(row)}
    for _ in range(_ROUNDS):
        before = list(result)
        for chain in grid.chains:
            inner = chain[1:-1]
            if inner and all(abs(result[cell] - result[inner[0]]) < 1 for cell in inner):
                low, high = _room(inner, place, result, extents)
                ends = [(result[node], reach[node]) for node in (chain[0], chain[-1])]
                target = _straightest(result[inner[0]], ends, low, high)
                for cell in inner:
                    result[cell] = target
        if result == before:
            break
    return result


def _room(
    inner: Sequence[int],
    place: dict[int, tuple[tuple[int, ...], int]],
    middles: Sequence[float],
    extents: Sequence[Extent],
) -> tuple[float, float]:
    """Return how far these cells can be moved together in both directions."""
    low, high = float("-inf"), float("inf")
    for cell in inner:
        row, index = place[cell]
        if index > 0:
            left = row[index - 1]
            low = max(low, middles[left] + extents[left].after + extents[cell].before)
        if index < len(row) - 1:
            right = row[index + 1]
            high = min(high, middles[right] - extents[right].before - extents[cell].after)
    return low, high


def _straightest(now: float, ends: Sequence[tuple[float, float]], low: float, high: float) -> float:
    """Return the place, within reach of an end, with the fewest corners and then the shortest way."""
    wishes = [now]
    for middle, reach in ends:
        wishes += [middle, min(max(now, middle - reach), middle + reach)]
    # Rounding may leave slightly less room than the cell already has.
    low, high = min(low, now), max(high, now)
    reachable = [min(max(wish, low), high) for wish in wishes]
    return min(reachable, key=lambda place: (_price(place, ends), abs(place - now)))


def _price(place: float, ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    misses = [max(0.0, abs(place - middle) - reach) for middle, reach in ends]
    # Where both ends are missed, the sum is the same all the way between them: then it is best to be near one.
    return round(sum(_CORNER_PRICE + miss for miss in misses if miss > 0), 1), min(misses)
