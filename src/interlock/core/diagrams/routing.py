"""Route each arrow through the placed cells.

Inside a row an arrow runs straight through the cell kept free for it; between two rows, where nothing else
stands, it changes sides. The invariant: no arrow touches a box or a label that is not its own. It needs no search.

All coordinates here are (along, across): along the flow of the rows, and across it. The odd choice is that an
arrow leaves its box right opposite the cell it goes to wherever the box is wide enough, because a straight
arrow is worth more than one that leaves from the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from interlock.core.diagrams.grid import Grid
from interlock.core.diagrams.tracks import Turn, assign_tracks

PORT_GAP = 17.0
_PORT_GAP_MIN = 12.0
_JOG_MAX = 5.0
_GAP_STRAIGHT = 20.0
_GAP_ASIDE = 13.0
_TRACK_GAP = 10.0

Knot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bands:
    """Where each row starts and ends along the flow, and where the tracks below it are."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    tracks: tuple[dict[int, float], ...]
    """For each row, the chains that change sides below it, and where they do."""


def wanted_reach(grid: Grid, spine: frozenset[int]) -> list[float]:
    """Return how far from its middle each node should be left and entered, so that its arrows keep apart."""
    position = {cell: index for row in grid.rows for index, cell in enumerate(row)}
    wanted = [0.0] * grid.node_count
    for (node, entering), chains in _sides(grid).items():
        inner = -2 if entering else 1
        chains.sort(key=lambda index: position[grid.chains[index][inner]])
        main = next((place for place, index in enumerate(chains) if index in spine), (len(chains) - 1) / 2)
        wanted[node] = max(wanted[node], _PORT_GAP_MIN * max(main, len(chains) - 1 - main))
    return wanted


def find_ports(
    grid: Grid, middles: Sequence[float], reach: Sequence[float], spine: frozenset[int]
) -> list[tuple[float, ...]]:
    """Return for each chain its coordinate across the flow at every cell.

    `reach` is how far from its middle a node may be left or entered; bends and labels are crossed in the middle.
    A chain of the spine goes straight, and the others of the same box keep to its sides.
    """
    ways = [[middles[cell] for cell in chain] for chain in grid.chains]
    for (node, entering), chains in _sides(grid).items():
        end, inner = (-1, -2) if entering else (0, 1)
        chains.sort(key=lambda index: ways[index][inner])
        wishes = [middles[grid.chains[index][inner]] for index in chains]
        main = next((place for place, index in enumerate(chains) if index in spine), None)
        low, high = middles[node] - reach[node], middles[node] + reach[node]
        for index, port in zip(chains, _spread(wishes, low, high, main), strict=True):
            # A jog of a few pixels looks like a mistake; the corner of a box has that much to spare.
            near = reach[node] > 0 and abs(port - ways[index][inner]) <= _JOG_MAX
            ways[index][end] = ways[index][inner] if near else port
    # Rounded, because float errors would make a straight arrow change sides.
    return [tuple(round(across, 1) for across in way) for way in ways]


def _sides(grid: Grid) -> dict[tuple[int, bool], list[int]]:
    """Return the chains at each side of each node: those below it, and those above, marked True."""
    sides: dict[tuple[int, bool], list[int]] = {}
    for index, chain in enumerate(grid.chains):
        sides.setdefault((chain[0], False), []).append(index)
        sides.setdefault((chain[-1], True), []).append(index)
    return sides


def _spread(wishes: Sequence[float], low: float, high: float, main: int | None) -> list[float]:
    """Return the wanted places in the same order, between low and high and not on top of each other."""
    if main is None:
        gap = min(PORT_GAP, (high - low) / max(1, len(wishes) - 1))
        return _queue(wishes, low, high, gap)
    middle = min(max(wishes[main], low), high)
    left, right = wishes[:main], wishes[main + 1 :]
    gap_left = min(PORT_GAP, (middle - low) / max(1, len(left)))
    gap_right = min(PORT_GAP, (high - middle) / max(1, len(right)))
    return [
        *_queue(left, low, middle - gap_left, gap_left),
        middle,
        *_queue(right, middle + gap_right, high, gap_right),
    ]


def _queue(wishes: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Place each as near to its wanted place as its predecessors and the room for its successors allow."""
    ports: list[float] = []
    for place, wish in enumerate(wishes):
        first = ports[-1] + gap if ports else low
        ports.append(min(max(wish, first), high - gap * (len(wishes) - 1 - place)))
    return ports


def find_bands(grid: Grid, ways: Sequence[Sequence[float]], lengths: Sequence[float]) -> Bands:
    """Stack the rows, with room for as many tracks between two of them as their arrows need."""
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    turns: list[list[Turn]] = [[] for _ in grid.rows]
    for index, (chain, way) in enumerate(zip(grid.chains, ways, strict=True)):
        for cell, start, end in zip(chain, way, way[1:], strict=False):
            if start != end:
                turns[row_of[cell]].append(Turn(index, start, end))
    starts: list[float] = []
    ends: list[float] = []
    tracks: list[dict[int, float]] = []
    along = 0.0
    for cells, turning in zip(grid.rows, turns, strict=True):
        starts.append(along)
        ends.append(along + max(lengths[cell] for cell in cells))
        first = ends[-1] + _GAP_ASIDE
        tracks.append({chain: first + track * _TRACK_GAP for chain, track in assign_tracks(turning).items()})
        along = max([ends[-1] + _GAP_STRAIGHT, *(track + _GAP_ASIDE for track in tracks[-1].values())])
    return Bands(tuple(starts), tuple(ends), tuple(tracks))


def find_knots(
    grid: Grid, bands: Bands, ways: Sequence[Sequence[float]], lengths: Sequence[float]
) -> list[tuple[Knot, ...]]:
    """Return for each chain its corners from top to bottom. `lengths` are those of the boxes it leaves and enters."""
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    routes: list[tuple[Knot, ...]] = []
    for index, (chain, way) in enumerate(zip(grid.chains, ways, strict=True)):
        first, last = row_of[chain[0]], row_of[chain[-1]]
        # A box that is shorter than its row stands in the middle of it.
        leave = (bands.starts[first] + bands.ends[first] + lengths[chain[0]]) / 2
        enter = (bands.starts[last] + bands.ends[last] - lengths[chain[-1]]) / 2
        knots = [(leave, way[0])]
        for row, (start, end) in enumerate(pairwise(way), start=first):
            if start != end:
                track = bands.tracks[row][index]
                knots += [(track, start), (track, end)]
        routes.append((*knots, (enter, way[-1])))
    return routes
