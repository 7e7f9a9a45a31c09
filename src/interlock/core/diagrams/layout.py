"""Layout of a sketch: the coordinates of every box, label and arrow.

It combines the parts of the layered drawing: rows, order, coordinates, routes. The flow runs down or to the right,
whichever is easier to read at the width of a page; both are laid out from the same rows and order.

The invariant, checked by the tests on random machines: no label overlaps a box or another label, and everything
is inside the canvas. The odd choice is that the result is plain numbers and not a drawing, so that tests can check
it without reading SVG.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from interlock.core.diagrams.grid import Grid, build_grid
from interlock.core.diagrams.layers import Wire, assign_rows, downward
from interlock.core.diagrams.legend import Legend, LegendEntry, lay_out_legend
from interlock.core.diagrams.measure import text_width
from interlock.core.diagrams.ordering import reduce_crossings
from interlock.core.diagrams.placement import Extent, place
from interlock.core.diagrams.routing import find_bands, find_knots, find_ports, wanted_reach
from interlock.core.diagrams.sketch import Arrow, Node, Size, Sketch, label_size
from interlock.core.diagrams.straighten import straighten

Flow = Literal["down", "right"]
Point = tuple[float, float]

TITLE_SIZE = 15.0
LOOP_REACH = 30.0
_PADDING = 26.0
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


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and its box."""

    node: Node
    box: Box
    loop_label: Box | None
    """Where the label of its loop is, if it has one."""


@dataclass(frozen=True, slots=True)
class PlacedArrow:
    """An arrow, the points it runs through from tail to head, and the box of its label."""

    arrow: Arrow
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

    @property
    def labels(self) -> tuple[Box, ...]:
        """The boxes of all labels."""
        loops = (placed.loop_label for placed in self.nodes)
        arrows = (placed.label for placed in self.arrows)
        return tuple(box for box in (*loops, *arrows) if box is not None)


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
    """One of the two candidates, its upper left corner at the origin."""

    flow: Flow
    size: Size
    nodes: tuple[PlacedNode, ...]
    arrows: tuple[PlacedArrow, ...]

    @property
    def strain(self) -> float:
        """Return how much a reader has to zoom or scroll. Less is better."""
        wide = math.log(max(1.0, self.size.width / _WIDTH_READABLE))
        tall = math.log(max(1.0, self.size.height / _HEIGHT_READABLE))
        # Where both fit, the flatter one leaves more of the page to the text around it.
        return 2.0 * wide + tall + 0.3 * self.size.height / _HEIGHT_READABLE


def lay_out(sketch: Sketch) -> Layout:
    """Compute the place of everything in the sketch."""
    wires = [Wire(arrow.tail, arrow.head, 2 if arrow.lines else 1) for arrow in sketch.arrows]
    down = downward(len(sketch.nodes), wires)
    falling = [
        wire if falls else Wire(wire.head, wire.tail, wire.span) for wire, falls in zip(wires, down, strict=True)
    ]
    # Only the dot of the initial state may stand in the very first row: states and labels then take turns.
    first = [0 if node.look == "start" else 1 for node in sketch.nodes]
    labels = [label_size(arrow.lines) if arrow.lines else Size(0.0, 0.0) for arrow in sketch.arrows]
    rows = assign_rows(first, falling)
    grid = reduce_crossings(build_grid(rows, falling, down, [size.width for size in labels]))
    flows: tuple[Flow, ...] = ("down", "right")
    best = min((_draw(sketch, grid, down, labels, flow) for flow in flows), key=lambda drawing: drawing.strain)
    return _framed(sketch, best)


def _draw(sketch: Sketch, grid: Grid, down: Sequence[bool], labels: Sequence[Size], flow: Flow) -> _Drawing:
    spine = _spine(sketch, grid, down)
    cells = _measure_cells(sketch, grid, labels, flow, wanted_reach(grid, spine))
    middles = straighten(grid, place(grid, cells.extents, spine), cells.extents, cells.reach)
    ways = find_ports(grid, middles, cells.reach, spine)
    bands = find_bands(grid, ways, cells.lengths)
    routes = find_knots(grid, bands, ways, cells.box_lengths)
    row_of = {cell: index for index, row in enumerate(grid.rows) for cell in row}
    along = [(bands.starts[row_of[cell]] + bands.ends[row_of[cell]]) / 2 for cell in range(len(middles))]
    centres = [_turned((along[cell], middles[cell]), flow) for cell in range(len(middles))]
    nodes = tuple(
        _place_node(node, _centred(centre, size), flow)
        for node, centre, size in zip(sketch.nodes, centres, cells.boxes, strict=False)
    )
    arrows: list[PlacedArrow] = []
    for arrow, route, falls, size, cell in zip(sketch.arrows, routes, down, labels, grid.labels, strict=True):
        points = tuple(_turned(knot, flow) for knot in route)
        label = None if cell is None else _centred(centres[cell], size)
        arrows.append(PlacedArrow(arrow, points if falls else points[::-1], label))
    return _at_origin(flow, nodes, tuple(arrows))


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
        along, across = _turned((node.size.width, node.size.height), flow)
        inset = _PORT_INSET if flow == "down" else _PORT_INSET_SIDE
        if node.lines:
            across = max(across, 2 * (min(wanted[index], across / 2 + _WIDENING_MAX - inset) + inset))
            reach[index] = across / 2 - inset
        boxes.append(Size(*_turned((along, across), flow)))
        lengths[index] = box_lengths[index] = along
        loop = 0.0
        if node.loop:
            size = label_size(node.loop)
            loop_along, loop_across = _turned((size.width, size.height), flow)
            loop = LOOP_REACH + loop_across
            lengths[index] = max(along, loop_along)
        extents[index] = Extent(across / 2 + _NODE_MARGIN, across / 2 + loop + _NODE_MARGIN)
    for cell, size in zip(grid.labels, labels, strict=True):
        if cell is not None:
            along, across = _turned((size.width, size.height), flow)
            extents[cell] = Extent(across / 2 + _LABEL_MARGIN, across / 2 + _LABEL_MARGIN)
            lengths[cell] = box_lengths[cell] = along
    return _Cells(tuple(extents), tuple(lengths), tuple(box_lengths), tuple(reach), tuple(boxes))


def _turned(pair: Point, flow: Flow) -> Point:
    """Convert (along, across) to (x, y), or back."""
    return (pair[1], pair[0]) if flow == "down" else pair


def _place_node(node: Node, box: Box, flow: Flow) -> PlacedNode:
    if not node.loop:
        return PlacedNode(node, box, None)
    size = label_size(node.loop)
    if flow == "down":
        label = Box(box.right + LOOP_REACH, box.top + (box.height - size.height) / 2, size.width, size.height)
    else:
        label = Box(box.left + (box.width - size.width) / 2, box.bottom + LOOP_REACH, size.width, size.height)
    return PlacedNode(node, box, label)


def _centred(centre: Point, size: Size) -> Box:
    return Box(centre[0] - size.width / 2, centre[1] - size.height / 2, size.width, size.height)


def _at_origin(flow: Flow, nodes: tuple[PlacedNode, ...], arrows: tuple[PlacedArrow, ...]) -> _Drawing:
    """Move everything so that its upper left corner is the origin."""
    boxes = [placed.box for placed in nodes]
    boxes += [placed.loop_label for placed in nodes if placed.loop_label is not None]
    boxes += [placed.label for placed in arrows if placed.label is not None]
    points = [point for placed in arrows for point in placed.points]
    left = min([box.left for box in boxes] + [point[0] for point in points], default=0.0)
    top = min([box.top for box in boxes] + [point[1] for point in points], default=0.0)
    right = max([box.right for box in boxes] + [point[0] for point in points], default=0.0)
    bottom = max([box.bottom for box in boxes] + [point[1] for point in points], default=0.0)
    return _Drawing(
        flow,
        Size(max(1.0, right - left), max(1.0, bottom - top)),
        tuple(_moved_node(placed, -left, -top) for placed in nodes),
        tuple(_moved_arrow(placed, -left, -top) for placed in arrows),
    )


def _framed(sketch: Sketch, drawing: _Drawing) -> Layout:
    """Add the title above, the legend below and a margin."""
    title = text_width(sketch.title, TITLE_SIZE, bold=True) + text_width(f"version {sketch.version}", TITLE_SIZE)
    width = max(drawing.size.width, title)
    legend = lay_out_legend(_entries(sketch), sketch.remarks, max(width, _LEGEND_WIDTH_MIN))
    width = max(width, legend.width)
    aside = _PADDING + (width - drawing.size.width) / 2
    above = _PADDING + _HEADER_HEIGHT
    legend_top = above + drawing.size.height + (_PADDING if legend.height else 0.0)
    return Layout(
        title=sketch.title,
        version=sketch.version,
        flow=drawing.flow,
        width=math.ceil(width + 2 * _PADDING),
        height=math.ceil(legend_top + legend.height + _PADDING),
        nodes=tuple(_moved_node(placed, aside, above) for placed in drawing.nodes),
        arrows=tuple(_moved_arrow(placed, aside, above) for placed in drawing.arrows),
        legend=legend,
        legend_top=legend_top,
    )


def _entries(sketch: Sketch) -> list[LegendEntry]:
    """Return the legend entries for the signs that occur in the picture."""
    # Colours that show visits cannot also show which states run a step.
    counted = any(node.visits is not None for node in sketch.nodes)
    looks = {node.look for node in sketch.nodes}
    kinds = {arrow.kind for arrow in sketch.arrows} | {node.loop_kind for node in sketch.nodes}
    entries = [
        (LegendEntry("step", "runs a step"), "step" in looks and not counted),
        (LegendEntry("resting", "resting"), "resting" in looks),
        (LegendEntry("unwinding", "unwinding"), "unwinding" in looks),
        (LegendEntry("final", "final"), "final" in looks),
        (LegendEntry("failed", "step failed"), "failed" in kinds),
        (LegendEntry("unwound", "unwound"), "unwound" in kinds),
    ]
    return [entry for entry, present in entries if present]


def _moved_node(placed: PlacedNode, aside: float, below: float) -> PlacedNode:
    label = None if placed.loop_label is None else _moved(placed.loop_label, aside, below)
    return PlacedNode(placed.node, _moved(placed.box, aside, below), label)


def _moved_arrow(placed: PlacedArrow, aside: float, below: float) -> PlacedArrow:
    label = None if placed.label is None else _moved(placed.label, aside, below)
    return PlacedArrow(placed.arrow, tuple((x + aside, y + below) for x, y in placed.points), label)


def _moved(box: Box, aside: float, below: float) -> Box:
    return Box(box.left + aside, box.top + below, box.width, box.height)
