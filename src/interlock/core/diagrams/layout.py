"""Layout of a sketch: the coordinates of every box, label and arrow.

It combines the parts of the layered drawing: rows, order, coordinates, routes. The flow runs down or to the right,
whichever is easier to read at the width of a page; both are laid out from the same rows and order.

The invariant, checked by the tests on random machines: no label overlaps a box or another label, and everything
is inside the canvas. The odd choice is that the result is plain numbers and not a drawing, so that tests can check
it without reading SVG.

Sections: legend, tracks, routes, layout.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from interlock.core.diagrams.layered_grid import (
    Extent,
    Grid,
    GridArrow,
    assign_rows,
    build_grid,
    downward,
    place,
    reduce_crossings,
)
from interlock.core.diagrams.sketch import Size, Sketch, SketchArrow, SketchNode, label_size, text_width

# --- Legend ----------------------------------------------------------------------------------------------------------
# It names only signs that occur in the picture. Signs stand side by side and wrap; remarks, which may list many
# states, are broken between words.
#
# The invariant: no line is wider than `width_max`, unless a single word already is. The odd choice is that the
# legend has its own width, since such a word must widen the canvas instead of running out of it.

Sign = Literal["step", "resting", "unwinding", "final", "failed", "unwound"]

LEGEND_SIZE = 11.0
SIGN_WIDTH = 22.0
SIGN_GAP = 7.0
_ENTRY_GAP = 15.0
LEGEND_LINE_HEIGHT = 19.0
_MEANINGS: dict[Sign, str] = {
    "step": "runs a step",
    "resting": "resting",
    "unwinding": "unwinding",
    "final": "final",
    "failed": "step failed",
    "unwound": "unwound",
}


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign with its meaning, and where it starts, from the upper left corner of the legend."""

    sign: Sign
    text: str
    left: float
    line: int


@dataclass(frozen=True, slots=True)
class Legend:
    """All lines of the legend."""

    entries: tuple[LegendEntry, ...]
    remarks: tuple[str, ...]
    """Lines of text below the entries, already broken."""
    width: float
    lines: int

    @property
    def height(self) -> float:
        """The height of all its lines."""
        return self.lines * LEGEND_LINE_HEIGHT


def lay_out_legend(signs: Iterable[Sign], remarks: Sequence[str], width_max: float) -> Legend:
    """Break the entries of the signs and the remarks into lines of at most that width."""
    entries: list[LegendEntry] = []
    left, line, widest = 0.0, 0, 0.0
    for sign in signs:
        width = SIGN_WIDTH + SIGN_GAP + text_width(_MEANINGS[sign], LEGEND_SIZE)
        if left > 0 and left + width > width_max:
            left, line = 0.0, line + 1
        entries.append(LegendEntry(sign, _MEANINGS[sign], left, line))
        widest = max(widest, left + width)
        left += width + _ENTRY_GAP
    texts = [text for remark in remarks for text in _break_lines(remark, width_max)]
    widest = max([widest, *(text_width(text, LEGEND_SIZE) for text in texts)])
    lines = (line + 1 if entries else 0) + len(texts)
    return Legend(tuple(entries), tuple(texts), widest, lines)


def _break_lines(remark: str, width_max: float) -> list[str]:
    lines: list[str] = []
    for word in remark.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, LEGEND_SIZE) <= width_max:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# --- Tracks between two rows, in which arrows change sides -----------------------------------------------------------
# Each arrow that does not go straight runs down to a track of its own, along it, and down again. The order of the
# tracks determines how many arrows cross, so each pair has a price and every arrow is put where it costs least.
#
# The invariant: two arrows that overlap across the flow never share a track. The odd choice is that above a limit
# the arrows are only sorted and not searched: in such a crowd no reader can follow a single arrow.

# Closer than this, two lines look like one.
_CLEARANCE = 7.0
_OVERLAP_PRICE = 3
_SEARCH_MAX = 60


@dataclass(frozen=True, slots=True)
class CrossingArrow:
    """An arrow between two rows: where it comes from and where it goes, across the flow."""

    chain: int
    start: float
    end: float

    @property
    def low(self) -> float:
        """The smaller of its two ends."""
        return min(self.start, self.end)

    @property
    def high(self) -> float:
        """The larger of its two ends."""
        return max(self.start, self.end)


def assign_tracks(turns: Sequence[CrossingArrow]) -> dict[int, int]:
    """Return the track of each chain that turns, counted from the upper row."""
    ordered = sorted(turns, key=_outermost_first)
    if len(ordered) <= _SEARCH_MAX:
        ordered = _searched(ordered)
    tracks: dict[int, int] = {}
    for index, turn in enumerate(ordered):
        above = [tracks[other.chain] for other in ordered[:index] if _meet(turn, other)]
        tracks[turn.chain] = max(above, default=-1) + 1
    return tracks


def _outermost_first(turn: CrossingArrow) -> tuple[bool, float]:
    rightwards = turn.end > turn.start
    return rightwards, -turn.start if rightwards else turn.start


def _searched(turns: Sequence[CrossingArrow]) -> list[CrossingArrow]:
    """Insert one turn after the other where it costs least among those already there."""
    ordered: list[CrossingArrow] = []
    for turn in turns:
        price = lowest = sum(_price(turn, other) for other in ordered)
        best = 0
        for index, other in enumerate(ordered):
            price += _price(other, turn) - _price(turn, other)
            if price < lowest:
                best, lowest = index + 1, price
        ordered.insert(best, turn)
    return ordered


def _price(upper: CrossingArrow, lower: CrossingArrow) -> int:
    """Return the price of one turn above another: crossings, and lines that would lie on each other."""
    crossings = (upper.low < lower.start < upper.high) + (lower.low < upper.end < lower.high)
    return crossings + _OVERLAP_PRICE * (abs(upper.end - lower.start) < _CLEARANCE)


def _meet(one: CrossingArrow, other: CrossingArrow) -> bool:
    return one.low < other.high + _CLEARANCE and other.low < one.high + _CLEARANCE


# --- Routes through the placed cells ---------------------------------------------------------------------------------
# Inside a row an arrow runs straight through the cell kept free for it; between two rows, where nothing else stands,
# it changes sides. The invariant: no arrow touches a box or a label that is not its own. It needs no search.
#
# All coordinates here are (along, across): along the flow of the rows, and across it. The odd choice is that an
# arrow leaves its box right opposite the cell it goes to wherever the box is wide enough, because a straight arrow
# is worth more than one that leaves from the middle.

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
    for index, wish in enumerate(wishes):
        first = ports[-1] + gap if ports else low
        ports.append(min(max(wish, first), high - gap * (len(wishes) - 1 - index)))
    return ports


def find_bands(grid: Grid, ways: Sequence[Sequence[float]], lengths: Sequence[float]) -> Bands:
    """Stack the rows, with room for as many tracks between two of them as their arrows need."""
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    turns: list[list[CrossingArrow]] = [[] for _ in grid.rows]
    for index, (chain, way) in enumerate(zip(grid.chains, ways, strict=True)):
        for cell, start, end in zip(chain, way, way[1:], strict=False):
            if start != end:
                turns[row_of[cell]].append(CrossingArrow(index, start, end))
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


# --- Layout ----------------------------------------------------------------------------------------------------------

Flow = Literal["down", "right"]
Point = tuple[float, float]

TITLE_SIZE = 15.0
LOOP_REACH = 30.0
PADDING = 26.0
_HEADER_HEIGHT = 36.0
_NODE_MARGIN = 20.0
_LABEL_MARGIN = 9.0
_BEND_MARGIN = 10.0
_PORT_INSET = 20.0
_PORT_INSET_SIDE = 11.0
_WIDENING_MAX = 60.0
_WIDTH_READABLE = 1000.0
_HEIGHT_READABLE = 1100.0
_LEGEND_WIDTH_MIN = 460.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the canvas."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The coordinate of its right side."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The coordinate of its lower side."""
        return self.top + self.height

    def inset(self, margin: float) -> "Box":
        """Return the rectangle inside it at that distance."""
        return Box(self.left + margin, self.top + margin, self.width - 2 * margin, self.height - 2 * margin)

    def shifted(self, aside: float, below: float) -> "Box":
        """Return the rectangle at another place."""
        return Box(self.left + aside, self.top + below, self.width, self.height)


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and its box."""

    node: SketchNode
    box: Box
    loop_label: Box | None
    """Where the label of its loop is, if it has one."""


@dataclass(frozen=True, slots=True)
class PlacedArrow:
    """An arrow, the points it runs through from tail to head, and the box of its label."""

    arrow: SketchArrow
    points: tuple[Point, ...]
    label: Box | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole drawing as numbers."""

    title: str
    version: int
    flow: Flow
    width: float
    height: float
    nodes: tuple[PlacedNode, ...]
    arrows: tuple[PlacedArrow, ...]
    legend: Legend
    legend_top: float


@dataclass(frozen=True, slots=True)
class _Cells:
    """The sizes of all cells, turned so that rows lie across the flow."""

    extents: tuple[Extent, ...]
    lengths: tuple[float, ...]
    """How much of the row each cell takes along the flow, its loop's label included."""
    box_lengths: tuple[float, ...]
    reach: tuple[float, ...]
    boxes: tuple[Size, ...]
    """The size of each node's box, wide enough for its arrows."""


@dataclass(frozen=True, slots=True)
class _Drawing:
    """One of the two candidates."""

    flow: Flow
    nodes: tuple[PlacedNode, ...]
    arrows: tuple[PlacedArrow, ...]

    @property
    def bounds(self) -> Box:
        """The rectangle around everything."""
        corners = [point for placed in self.arrows for point in placed.points]
        labels = (*(placed.loop_label for placed in self.nodes), *(placed.label for placed in self.arrows))
        for box in (*(placed.box for placed in self.nodes), *labels):
            corners += [] if box is None else [(box.left, box.top), (box.right, box.bottom)]
        left, right = (extreme((x for x, _ in corners), default=0.0) for extreme in (min, max))
        top, bottom = (extreme((y for _, y in corners), default=0.0) for extreme in (min, max))
        return Box(left, top, max(1.0, right - left), max(1.0, bottom - top))

    @property
    def strain(self) -> float:
        """Return how much a reader has to zoom or scroll. Less is better."""
        bounds = self.bounds
        wide = math.log(max(1.0, bounds.width / _WIDTH_READABLE))
        tall = math.log(max(1.0, bounds.height / _HEIGHT_READABLE))
        # Where both fit, the flatter one leaves more of the page to the text around it.
        return 2.0 * wide + tall + 0.3 * bounds.height / _HEIGHT_READABLE


def lay_out(sketch: Sketch) -> Layout:
    """Compute the place of everything in the sketch."""
    wires = [GridArrow(arrow.tail, arrow.head, 2 if arrow.lines else 1) for arrow in sketch.arrows]
    down = downward(len(sketch.nodes), wires)
    falling = [
        wire if falls else GridArrow(wire.head, wire.tail, wire.span) for wire, falls in zip(wires, down, strict=True)
    ]
    # Only the dot of the initial state may stand in the very first row: states and labels then take turns.
    first = [0 if node.look == "start" else 1 for node in sketch.nodes]
    labels = [label_size(arrow.lines) if arrow.lines else Size(0.0, 0.0) for arrow in sketch.arrows]
    rows = assign_rows(first, falling)
    grid = reduce_crossings(build_grid(rows, falling, down, [size.width for size in labels]))
    flows: tuple[Flow, ...] = ("down", "right")
    best = min((_draw(sketch, grid, down, labels, flow) for flow in flows), key=lambda drawing: drawing.strain)
    return _add_frame(sketch, best)


def _draw(sketch: Sketch, grid: Grid, down: Sequence[bool], labels: Sequence[Size], flow: Flow) -> _Drawing:
    spine = _spine(sketch, grid, down)
    cells = _measure_cells(sketch, grid, labels, flow, wanted_reach(grid, spine))
    middles = place(grid, cells.extents, cells.reach, spine)
    ways = find_ports(grid, middles, cells.reach, spine)
    bands = find_bands(grid, ways, cells.lengths)
    routes = find_knots(grid, bands, ways, cells.box_lengths)
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    along = [(bands.starts[row_of[cell]] + bands.ends[row_of[cell]]) / 2 for cell in range(len(middles))]
    centres = [_turn((along[cell], middles[cell]), flow) for cell in range(len(middles))]
    nodes = tuple(
        _place_node(node, _box_around(centre, size), flow)
        for node, centre, size in zip(sketch.nodes, centres, cells.boxes, strict=False)
    )
    arrows: list[PlacedArrow] = []
    for arrow, route, falls, size, cell in zip(sketch.arrows, routes, down, labels, grid.labels, strict=True):
        points = tuple(_turn(knot, flow) for knot in route)
        label = None if cell is None else _box_around(centres[cell], size)
        arrows.append(PlacedArrow(arrow, points if falls else points[::-1], label))
    return _Drawing(flow, nodes, tuple(arrows))


def _spine(sketch: Sketch, grid: Grid, down: Sequence[bool]) -> frozenset[int]:
    """Return the arrows of the happy path: from each node the first one declared, to a node not yet on the path."""
    taken: set[int] = set()
    spine: list[int] = []
    leaving: dict[int, list[int]] = {}
    for index, arrow in enumerate(sketch.arrows):
        if down[index] and arrow.kind != "failed":
            leaving.setdefault(arrow.tail, []).append(index)
    for node in (cell for row in grid.rows for cell in sorted(row)):
        free = [index for index in leaving.get(node, ()) if sketch.arrows[index].head not in taken]
        if free:
            taken.add(sketch.arrows[free[0]].head)
            spine.append(free[0])
    return frozenset(spine)


def _measure_cells(sketch: Sketch, grid: Grid, labels: Sequence[Size], flow: Flow, wanted: Sequence[float]) -> _Cells:
    bend = Extent(_BEND_MARGIN, _BEND_MARGIN)
    extents = [bend] * len(grid.above)
    lengths = [0.0] * len(grid.above)
    box_lengths = [0.0] * len(grid.above)
    reach = [0.0] * len(grid.above)
    boxes: list[Size] = []
    for index, node in enumerate(sketch.nodes):
        along, across = _turn(node.size, flow)
        inset = _PORT_INSET if flow == "down" else _PORT_INSET_SIDE
        if node.lines:
            across = max(across, 2 * (min(wanted[index], across / 2 + _WIDENING_MAX - inset) + inset))
            reach[index] = across / 2 - inset
        boxes.append(Size(*_turn((along, across), flow)))
        lengths[index] = box_lengths[index] = along
        loop = 0.0
        if node.loop:
            loop_along, loop_across = _turn(label_size(node.loop), flow)
            loop = LOOP_REACH + loop_across
            lengths[index] = max(along, loop_along)
        extents[index] = Extent(across / 2 + _NODE_MARGIN, across / 2 + loop + _NODE_MARGIN)
    for cell, size in zip(grid.labels, labels, strict=True):
        if cell is not None:
            along, across = _turn(size, flow)
            extents[cell] = Extent(across / 2 + _LABEL_MARGIN, across / 2 + _LABEL_MARGIN)
            lengths[cell] = box_lengths[cell] = along
    return _Cells(tuple(extents), tuple(lengths), tuple(box_lengths), tuple(reach), tuple(boxes))


def _turn(pair: Point, flow: Flow) -> Point:
    """Convert (along, across) to (x, y), or back."""
    return (pair[1], pair[0]) if flow == "down" else pair


def _place_node(node: SketchNode, box: Box, flow: Flow) -> PlacedNode:
    if not node.loop:
        return PlacedNode(node, box, None)
    size = label_size(node.loop)
    if flow == "down":
        label = Box(box.right + LOOP_REACH, box.top + (box.height - size.height) / 2, size.width, size.height)
    else:
        label = Box(box.left + (box.width - size.width) / 2, box.bottom + LOOP_REACH, size.width, size.height)
    return PlacedNode(node, box, label)


def _box_around(centre: Point, size: Size) -> Box:
    return Box(centre[0] - size.width / 2, centre[1] - size.height / 2, size.width, size.height)


def _add_frame(sketch: Sketch, drawing: _Drawing) -> Layout:
    """Add the title above, the legend below and a margin."""
    title = text_width(sketch.title, TITLE_SIZE, bold=True) + text_width(f"version {sketch.version}", TITLE_SIZE)
    bounds = drawing.bounds
    width = max(bounds.width, title)
    legend = lay_out_legend(_signs(sketch), sketch.remarks, max(width, _LEGEND_WIDTH_MIN))
    width = max(width, legend.width)
    aside = PADDING + (width - bounds.width) / 2 - bounds.left
    below = PADDING + _HEADER_HEIGHT - bounds.top
    legend_top = PADDING + _HEADER_HEIGHT + bounds.height + (PADDING if legend.height else 0.0)
    nodes = [
        PlacedNode(placed.node, placed.box.shifted(aside, below), _shift_label(placed.loop_label, aside, below))
        for placed in drawing.nodes
    ]
    arrows = [
        PlacedArrow(
            placed.arrow,
            tuple((x + aside, y + below) for x, y in placed.points),
            _shift_label(placed.label, aside, below),
        )
        for placed in drawing.arrows
    ]
    return Layout(
        title=sketch.title,
        version=sketch.version,
        flow=drawing.flow,
        width=math.ceil(width + 2 * PADDING),
        height=math.ceil(legend_top + legend.height + PADDING),
        nodes=tuple(nodes),
        arrows=tuple(arrows),
        legend=legend,
        legend_top=legend_top,
    )


def _shift_label(label: Box | None, aside: float, below: float) -> Box | None:
    return None if label is None else label.shifted(aside, below)


def _signs(sketch: Sketch) -> list[Sign]:
    """Return the signs that occur in the picture."""
    signs: set[str] = {node.look for node in sketch.nodes} | {node.loop_kind for node in sketch.nodes}
    signs |= {arrow.kind for arrow in sketch.arrows}
    # Colours that show visits cannot also show which states run a step.
    if any(node.visits is not None for node in sketch.nodes):
        signs.discard("step")
    return [sign for sign in _MEANINGS if sign in signs]
