"""Write a machine as a standalone SVG, without another program.

READMEs, documentation pages and the dashboard show it, so it needs no font, no script and no network, and it follows
the reader's light or dark theme. `layout` computes the geometry; this module only paints.

The invariant: every text passes through `escape`, and the same description gives the same bytes. The odd choice
is that icons and arrowheads are drawn as paths: some fonts render symbols such as a gear as coloured emoji, and some
programs do not give markers the colour of their line.
"""

import math
from collections.abc import Iterable, Mapping
from html import escape

from interlock.core.description import MachineDescription
from interlock.core.diagrams.heat import busiest, level, share
from interlock.core.diagrams.layout import Box, Flow, Layout, PlacedArrow, PlacedNode, Point, lay_out
from interlock.core.diagrams.legend import LEGEND_LINE_HEIGHT, SIGN_GAP, SIGN_WIDTH, PlacedEntry
from interlock.core.diagrams.sketch import ICON_WIDTH, SPACE_WIDTH, TEXT_SIZE, Icon, Line, Span, sketch
from interlock.core.diagrams.theme import Theme, style_sheet

_TIP_LENGTH = 8.0
_TIP_WIDTH = 3.6
_CORNER = 9.0
_CANVAS_CORNER = 14.0
_BEND = 9.0
_RING_INSET = 3.5
_BASELINE = 0.35
_PADDING = 26.0
_ICONS: Mapping[Icon, str] = {
    # A cog: a ring with six teeth. A clock: a ring with two hands. Arrows back and round for the other two.
    "step": "M3.6 6a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0-4.8 0M6 1v1.6M6 9.4V11M1.7 3.5l1.4.8M8.9 7.7l1.4.8"
    "M1.7 8.5l1.4-.8M8.9 4.3l1.4-.8",
    "timer": "M1.2 6a4.8 4.8 0 1 0 9.6 0a4.8 4.8 0 1 0-9.6 0M6 3.2V6l1.9 1.2",
    "unwind": "M4.2 2L1.6 4.6l2.6 2.6M1.8 4.6h5.4a3 3 0 0 1 0 6H4.6",
    "internal": "M9.9 3.6A4.6 4.6 0 1 0 10.6 6M10.4 1.4v2.5H7.9",
}


def svg(description: MachineDescription, *, visits: Mapping[str, int] | None = None, theme: Theme = "auto") -> str:
    """Draw the machine as an SVG document.

    With `visits`, how often each state was entered, boxes are coloured by it and show their count. `theme` "auto"
    follows the reader's system; "light" and "dark" are fixed.
    """
    layout = lay_out(sketch(description, visits=visits))
    most = busiest(description, visits or {})
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="interlock-{theme}" role="img" '
        f'aria-label="State machine {escape(layout.title)}" '
        f'viewBox="0 0 {_number(layout.width)} {_number(layout.height)}" '
        f'width="{_number(layout.width)}" height="{_number(layout.height)}">'
    )
    parts = [
        head,
        f"<title>{escape(layout.title)}, version {layout.version}</title>",
        f"<style>\n{style_sheet(theme)}</style>",
        _rectangle("canvas", Box(0.5, 0.5, layout.width - 1, layout.height - 1), _CANVAS_CORNER),
        *_paint_header(layout),
        *(_paint_arrow(placed, layout.flow, _emphasis(layout, placed, most)) for placed in layout.arrows),
        *(_paint_loop(placed, layout.flow) for placed in layout.nodes if placed.loop_label is not None),
        *(_paint_node(placed, most) for placed in layout.nodes),
        *_paint_legend(layout),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _paint_header(layout: Layout) -> Iterable[str]:
    y = _number(_PADDING + 14)
    yield (
        f'<text class="title" x="{_number(_PADDING)}" y="{y}">{escape(layout.title)}'
        f'<tspan class="version" dx="8">version {layout.version}</tspan></text>'
    )


def _emphasis(layout: Layout, placed: PlacedArrow, most: int) -> float | None:
    """Return how busy an arrow may be, from 0 to 1: no busier than either of its ends. None without `visits`."""
    ends = [layout.nodes[index].node.visits for index in (placed.arrow.tail, placed.arrow.head)]
    counts = [count for count in ends if count is not None]
    return share(min(counts), most) if counts else None


def _paint_arrow(placed: PlacedArrow, flow: Flow, emphasis: float | None) -> str:
    kind = placed.arrow.kind
    group = "cold" if emphasis == 0 else "arrow"
    width = "" if emphasis is None else f' style="stroke-width:{_number(1.2 + 1.4 * emphasis)}px"'
    parts = [f'<g class="{group}">']
    if placed.arrow.note:
        parts.append(f"<title>{escape(placed.arrow.note)}</title>")
    *points, tip = placed.points
    if flow == "down":
        toward = (0.0, math.copysign(1.0, tip[1] - points[-1][1]))
    else:
        toward = (math.copysign(1.0, tip[0] - points[-1][0]), 0.0)
    base = (tip[0] - toward[0] * (_TIP_LENGTH - 1), tip[1] - toward[1] * (_TIP_LENGTH - 1))
    parts.append(f'<path class="line {kind}" d="{_way((*points, base))}"{width}/>')
    parts.append(_paint_tip(tip, toward, kind))
    if placed.label is not None:
        parts.append(_rectangle("gap", placed.label, 4))
        parts.append(_paint_lines(placed.arrow.lines, placed.label, inside=False))
    parts.append("</g>")
    return "".join(parts)


def _way(points: tuple[Point, ...]) -> str:
    """Return a line through the points, its corners rounded as far as the stretches between them allow."""
    commands = [f"M{_pair(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        arriving, leaving = math.dist(before, corner), math.dist(corner, after)
        radius = min(_BEND, arriving / 2, leaving / 2)
        start = _between(corner, before, radius / arriving)
        end = _between(corner, after, radius / leaving)
        commands.append(f"L{_pair(start)}Q{_pair(corner)} {_pair(end)}")
    return "".join([*commands, f"L{_pair(points[-1])}"])


def _between(one: Point, other: Point, share: float) -> Point:
    return (one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share)


def _paint_tip(tip: Point, toward: Point, kind: str) -> str:
    back = (tip[0] - toward[0] * _TIP_LENGTH, tip[1] - toward[1] * _TIP_LENGTH)
    aside = (toward[1] * _TIP_WIDTH, toward[0] * _TIP_WIDTH)
    one, other = (back[0] + aside[0], back[1] + aside[1]), (back[0] - aside[0], back[1] - aside[1])
    return f'<path class="tip {kind}" d="M{_pair(tip)}L{_pair(one)}L{_pair(other)}Z"/>'


def _paint_loop(placed: PlacedNode, flow: Flow) -> str:
    node, box = placed.node, placed.box
    assert placed.loop_label is not None
    if flow == "down":
        x, y = box.right, box.top + box.height / 2
        start, control, second, end = (x, y - 8), (x + 34, y - 20), (x + 34, y + 20), (x + _TIP_LENGTH - 1, y + 8)
        tip, toward = (x, y + 8), (-1.0, 0.0)
    else:
        x, y = box.left + box.width / 2, box.bottom
        start, control, second, end = (x - 8, y), (x - 20, y + 34), (x + 20, y + 34), (x + 8, y + _TIP_LENGTH - 1)
        tip, toward = (x + 8, y), (0.0, -1.0)
    return (
        f"<g><title>{escape(node.loop_note)}</title>"
        f'<path class="line {node.loop_kind}" d="M{_pair(start)}C{_pair(control)} {_pair(second)} {_pair(end)}"/>'
        + _paint_tip(tip, toward, node.loop_kind)
        + _paint_lines(node.loop, placed.loop_label, inside=False)
        + "</g>"
    )


def _paint_node(placed: PlacedNode, most: int) -> str:
    node, box = placed.node, placed.box
    if node.look == "start":
        radius = box.width / 2
        return (
            f'<circle class="dot" cx="{_number(box.left + radius)}" cy="{_number(box.top + radius)}" r="{radius:g}"/>'
        )
    look = node.look
    heat = "" if node.visits is None else f" heat{level(node.visits, most)}"
    corner = min(box.height / 2, 20.0) if look in ("resting", "any") else _CORNER
    # The dashboard finds the box of a state by this attribute, to write the number of workflows beside it.
    state = "" if look == "any" else f' data-state="{escape(node.name)}"'
    parts = [f'<g class="{look}{heat}"{state}>', _rectangle("box", box, corner)]
    if look == "final":
        inner = Box(
            box.left + _RING_INSET,
            box.top + _RING_INSET,
            box.width - 2 * _RING_INSET,
            box.height - 2 * _RING_INSET,
        )
        parts.append(_rectangle("ring", inner, _CORNER - _RING_INSET))
    parts += [_paint_lines(node.lines, box, inside=True), "</g>"]
    return "".join(parts)


def _paint_lines(lines: tuple[Line, ...], box: Box, *, inside: bool) -> str:
    """Return the lines in the middle of a box, one below the other."""
    middle = box.left + box.width / 2
    y = box.top + (box.height - sum(line.height for line in lines)) / 2
    parts: list[str] = []
    for line in lines:
        centre = y + line.height / 2
        x = middle
        if line.icon is not None:
            # Icon and text are centred together, so the text starts at a place known only by estimate.
            x = middle - line.width / 2 + ICON_WIDTH
            parts.append(_paint_icon(line.icon, x - ICON_WIDTH, centre))
        size = 13.0 if line.spans[0].role == "name" else TEXT_SIZE
        centred = "" if line.icon else ' class="centred"'
        words = f'<tspan dx="{SPACE_WIDTH:g}">'.join(_paint_span(span, inside=inside) for span in line.spans)
        words += "</tspan>" * (len(line.spans) - 1)
        parts.append(f'<text{centred} x="{_number(x)}" y="{_number(centre + size * _BASELINE)}">{words}</text>')
        y += line.height
    return "".join(parts)


def _paint_span(span: Span, *, inside: bool) -> str:
    name = {"pill": "pill-name"}.get(span.role, span.role)
    if inside and span.role in ("event", "guard"):
        name = "inside"
    return f'<tspan class="{name}">{escape(span.text)}</tspan>'


def _paint_icon(icon: Icon, left: float, middle: float) -> str:
    return f'<path class="icon" transform="translate({_number(left)} {_number(middle - 6)})" d="{_ICONS[icon]}"/>'


def _paint_legend(layout: Layout) -> Iterable[str]:
    for placed in layout.legend.entries:
        yield _paint_entry(placed, layout.legend_top)
    first = layout.legend.lines - len(layout.legend.remarks)
    for index, remark in enumerate(layout.legend.remarks):
        y = layout.legend_top + (first + index + 0.5) * LEGEND_LINE_HEIGHT + TEXT_SIZE * _BASELINE
        yield f'<text class="remark" x="{_number(_PADDING)}" y="{_number(y)}">{escape(remark)}</text>'


def _paint_entry(placed: PlacedEntry, top: float) -> str:
    sign = placed.entry.sign
    left, middle = _PADDING + placed.left, top + (placed.line + 0.5) * LEGEND_LINE_HEIGHT
    text_at = f'x="{_number(left + SIGN_WIDTH + SIGN_GAP)}" y="{_number(middle + TEXT_SIZE * _BASELINE)}"'
    words = f'<text class="remark" {text_at}>{escape(placed.entry.text)}</text>'
    if sign in ("failed", "unwound"):
        way = f"M{_pair((left, middle))}L{_pair((left + SIGN_WIDTH - _TIP_LENGTH, middle))}"
        tip = _paint_tip((left + SIGN_WIDTH, middle), (1.0, 0.0), sign)
        return f'<g><path class="line {sign}" d="{way}"/>{tip}{words}</g>'
    box = Box(left + 1, middle - 6, SIGN_WIDTH - 2, 12)
    node = _rectangle("box", box, 6 if sign == "resting" else 3.5)
    if sign == "final":
        node += _rectangle("ring", Box(box.left + 2.5, box.top + 2.5, box.width - 5, box.height - 5), 1.5)
    return f'<g class="{sign}">{node}{words}</g>'


def _rectangle(name: str, box: Box, corner: float) -> str:
    return (
        f'<rect class="{name}" x="{_number(box.left)}" y="{_number(box.top)}" width="{_number(box.width)}" '
        f'height="{_number(box.height)}" rx="{_number(corner)}"/>'
    )


def _pair(point: Point) -> str:
    return f"{_number(point[0])},{_number(point[1])}"


def _number(value: float) -> str:
    """Format a number with at most one decimal: more are invisible and make files larger."""
    return f"{value:.1f}".removesuffix(".0")
