"""Write a machine as a standalone SVG, without another program.

READMEs, documentation pages and the dashboard show it, so it needs no font, no script and no network, and it follows
the reader's light or dark theme. `layout` computes the geometry; this module only paints.

The invariant: every text passes through `escape`, and the same description gives the same bytes. The odd choice
is that icons and arrowheads are drawn as paths: some fonts render symbols such as a gear as coloured emoji, and some
programs do not give markers the colour of their line.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Literal

from interlock.core.describe import MachineDescription
from interlock.core.diagrams.layout import (
    LEGEND_LINE_HEIGHT,
    PADDING,
    SIGN_GAP,
    SIGN_WIDTH,
    Box,
    Flow,
    Layout,
    LegendEntry,
    PlacedArrow,
    PlacedNode,
    Point,
    lay_out,
)
from interlock.core.diagrams.sketch import ICON_WIDTH, SPACE_WIDTH, TEXT_SIZE, Icon, TextLine, TextSpan, sketch

# --- Colours and style sheet -----------------------------------------------------------------------------------------
# Every colour of an SVG is set by a class, so that the same drawing can be light, dark, or whichever the reader's
# system prefers. The invariant: both palettes have the same fields, so nothing is ever drawn in a colour of the
# other one, and each text colour is legible on its fill.
#
# The odd choice is to write every rule out twice for `auto`, without CSS variables: several programs that show SVG
# files know media queries and classes but not variables.

Theme = Literal["auto", "light", "dark"]

_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'


@dataclass(frozen=True, slots=True)
class Paint:
    """Fill, outline and text of one kind of box."""

    fill: str
    stroke: str
    text: str
    soft: str
    """The text of its smaller lines."""


@dataclass(frozen=True, slots=True)
class Palette:
    """All the colours of one theme."""

    canvas: str
    border: str
    title: str
    muted: str
    label: str
    guard: str
    arrow: str
    failed: str
    unwound: str
    looks: dict[str, Paint]
    """The paint of each look of a box; `heat0` is a state that was never visited, `heat5` the one visited most."""


LIGHT = Palette(
    canvas="#ffffff",
    border="#e4e7ec",
    title="#101828",
    muted="#667085",
    label="#344054",
    guard="#667085",
    arrow="#7c8798",
    failed="#d92d4b",
    unwound="#b45309",
    looks={
        "plain": Paint("#f8f9fb", "#b6bfcc", "#101828", "#475467"),
        "step": Paint("#eef2ff", "#a3b1f5", "#1e1b4b", "#4338ca"),
        "resting": Paint("#e9f8f1", "#7cc9a5", "#053b2a", "#047857"),
        "unwinding": Paint("#fff6e5", "#eab35a", "#4a2504", "#a34a07"),
        "final": Paint("#eceff3", "#667085", "#101828", "#475467"),
        "any": Paint("#ffffff", "#98a2b3", "#475467", "#475467"),
        "heat0": Paint("#f8f9fb", "#d0d5dd", "#667085", "#667085"),
        "heat1": Paint("#e6f0fd", "#a9cbf5", "#0b2a4a", "#1f4e80"),
        "heat2": Paint("#c5ddfa", "#7fb1ee", "#0b2a4a", "#1a4473"),
        "heat3": Paint("#93c0f4", "#5797e2", "#071d36", "#0b2a4a"),
        "heat4": Paint("#2766b8", "#235fae", "#ffffff", "#eaf3ff"),
        "heat5": Paint("#174a8f", "#0f386f", "#ffffff", "#dbeafe"),
    },
)

DARK = Palette(
    canvas="#0d1117",
    border="#262c36",
    title="#f0f3f6",
    muted="#8b949e",
    label="#c9d1d9",
    guard="#8b949e",
    arrow="#76818e",
    failed="#ff7b8e",
    unwound="#e3a14a",
    looks={
        "plain": Paint("#171c24", "#47505c", "#f0f3f6", "#a8b3bf"),
        "step": Paint("#1b1f3b", "#5661b8", "#eceeff", "#a9b4ff"),
        "resting": Paint("#0f2a20", "#2f7d5c", "#dcf7ea", "#6fd3a6"),
        "unwinding": Paint("#2e210d", "#96691f", "#fdeccb", "#f0b95a"),
        "final": Paint("#21262e", "#8b949e", "#f0f3f6", "#a8b3bf"),
        "any": Paint("#0d1117", "#6e7681", "#b1bac4", "#b1bac4"),
        "heat0": Paint("#13181f", "#30363d", "#8b949e", "#8b949e"),
        "heat1": Paint("#12233a", "#234873", "#d5e6fb", "#9cc4f5"),
        "heat2": Paint("#163458", "#2d5f9c", "#e1eefc", "#aed0f9"),
        "heat3": Paint("#1c4a80", "#3a77c2", "#f0f7ff", "#c9e0fb"),
        "heat4": Paint("#2766b8", "#5f9de8", "#ffffff", "#eaf3ff"),
        "heat5": Paint("#8ec0fa", "#bfdcfd", "#071d36", "#0b2a4a"),
    },
)


def style_sheet(theme: Theme) -> str:
    """Return the rules for a theme. They apply only below an element of class `interlock-<theme>`."""
    scope = f".interlock-{theme}"
    rules = _rules(scope, _SHAPES) + _rules(scope, _colours(DARK if theme == "dark" else LIGHT))
    if theme == "auto":
        rules += f"@media (prefers-color-scheme:dark){{\n{_rules(scope, _colours(DARK))}}}\n"
    return rules


_SHAPES = {
    "text": f"font-family:{_FONT};font-size:11px;white-space:pre",
    ".title": "font-size:15px;font-weight:650",
    ".version": "font-size:11px;font-weight:400",
    ".name": "font-size:13px;font-weight:600",
    ".visits,.pill-name": "font-weight:600",
    ".guard": "font-style:italic",
    ".centred": "text-anchor:middle",
    ".line,.icon,.ring": "fill:none",
    ".line": "stroke-width:1.4;stroke-linecap:round",
    ".box": "stroke-width:1.3",
    ".ring": "stroke-width:1.3",
    ".icon": "stroke-width:1.3;stroke-linecap:round;stroke-linejoin:round",
    ".line.failed,.line.unwound": "stroke-dasharray:5 4",
    ".unwinding .box": "stroke-dasharray:5 3",
    ".any .box": "stroke-dasharray:2 3;stroke-linecap:round",
    ".cold": "opacity:.4",
}


def _colours(palette: Palette) -> dict[str, str]:
    rules = {
        ".canvas": f"fill:{palette.canvas};stroke:{palette.border}",
        ".gap": f"fill:{palette.canvas}",
        ".title": f"fill:{palette.title}",
        ".version,.remark": f"fill:{palette.muted}",
        ".dot": f"fill:{palette.label}",
        "text .event": f"fill:{palette.label}",
    }
    for kind, colour in (("event", palette.arrow), ("failed", palette.failed), ("unwound", palette.unwound)):
        rules[f".line.{kind}"] = f"stroke:{colour}"
        rules[f".tip.{kind}"] = f"fill:{colour}"
    rules["text .failed"] = f"fill:{palette.failed}"
    rules["text .unwound"] = f"fill:{palette.unwound}"
    for look, paint in palette.looks.items():
        rules[f".{look} .box"] = f"fill:{paint.fill};stroke:{paint.stroke}"
        rules[f".{look} .ring,.{look} .icon"] = f"stroke:{paint.soft}" if look != "final" else f"stroke:{paint.stroke}"
        rules[f".{look} .name,.{look} .visits,.{look} .pill-name"] = f"fill:{paint.text}"
        rules[f".{look} .detail,.{look} .inside"] = f"fill:{paint.soft}"
    rules[".guard"] = f"fill:{palette.guard}"
    return rules


def _rules(scope: str, rules: dict[str, str]) -> str:
    """Return one line per rule, with every selector limited to the scope."""
    return "".join(
        ",".join(f"{scope} {selector}" for selector in selectors.split(",")) + f"{{{declarations}}}\n"
        for selectors, declarations in rules.items()
    )


# --- Heat levels -----------------------------------------------------------------------------------------------------
# The invariant: level 0 means never visited, and only that. The odd choice is the square root: visits differ by orders
# of magnitude, so a linear scale would leave all but the busiest state cold, and a logarithm would make all hot.

HEAT_LEVELS = 6


def share(count: int, most: int) -> float:
    """Return a count on a scale from 0 to 1."""
    return math.sqrt(count / most) if 0 < count <= most else 0.0


def level(count: int, most: int) -> int:
    """Return a count as one of `HEAT_LEVELS`."""
    return math.ceil(share(count, most) * (HEAT_LEVELS - 1))


# --- Drawing ---------------------------------------------------------------------------------------------------------

_TIP_LENGTH = 8.0
_TIP_WIDTH = 3.6
_CORNER = 9.0
_CANVAS_CORNER = 14.0
_BEND = 9.0
_RING_INSET = 3.5
_BASELINE = 0.35
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
    most = max(((visits or {}).get(state.name, 0) for state in description.states), default=0)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="interlock-{theme}" role="img" '
        f'aria-label="State machine {escape(layout.title)}" '
        f'viewBox="0 0 {_number(layout.width)} {_number(layout.height)}" '
        f'width="{_number(layout.width)}" height="{_number(layout.height)}">'
    )
    title = f'{escape(layout.title)}<tspan class="version" dx="8">version {layout.version}</tspan>'
    parts = [
        head,
        f"<title>{escape(layout.title)}, version {layout.version}</title>",
        f"<style>\n{style_sheet(theme)}</style>",
        _rectangle("canvas", Box(0.5, 0.5, layout.width - 1, layout.height - 1), _CANVAS_CORNER),
        f'<text class="title" x="{_number(PADDING)}" y="{_number(PADDING + 14)}">{title}</text>',
        *(
            _paint_arrow(placed, _ends(layout, placed), layout.flow, _emphasis(layout, placed, most))
            for placed in layout.arrows
        ),
        *(_paint_loop(placed, layout.flow) for placed in layout.nodes if placed.loop_label is not None),
        *(_paint_node(placed, most) for placed in layout.nodes),
        *_paint_legend(layout),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _ends(layout: Layout, placed: PlacedArrow) -> tuple[PlacedNode, PlacedNode]:
    return layout.nodes[placed.arrow.tail], layout.nodes[placed.arrow.head]


def _emphasis(layout: Layout, placed: PlacedArrow, most: int) -> float | None:
    """Return how busy an arrow may be, from 0 to 1: no busier than either of its ends. None without `visits`."""
    counts = [end.node.visits for end in _ends(layout, placed) if end.node.visits is not None]
    return share(min(counts), most) if counts else None


def _paint_arrow(placed: PlacedArrow, ends: tuple[PlacedNode, PlacedNode], flow: Flow, emphasis: float | None) -> str:
    kind = placed.arrow.kind
    group = "cold" if emphasis == 0 else "arrow"
    width = "" if emphasis is None else f' style="stroke-width:{_number(1.2 + 1.4 * emphasis)}px"'
    # The dashboard finds the arrows of a workflow's path by their ends; a gathered arrow leaves "any" state.
    tail, head = ends[0].node, ends[1].node
    start = "" if tail.look == "any" else f' data-from="{escape(tail.name)}"'
    parts = [f'<g class="{group}"{start} data-to="{escape(head.name)}">']
    if placed.arrow.note:
        parts.append(f"<title>{escape(placed.arrow.note)}</title>")
    *points, tip = placed.points
    axis = 1 if flow == "down" else 0
    sign = math.copysign(1.0, tip[axis] - points[-1][axis])
    toward = (0.0, sign) if flow == "down" else (sign, 0.0)
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
        start, end = (
            (corner[0] + (other[0] - corner[0]) * part, corner[1] + (other[1] - corner[1]) * part)
            for other, part in ((before, radius / arriving), (after, radius / leaving))
        )
        commands.append(f"L{_pair(start)}Q{_pair(corner)} {_pair(end)}")
    return "".join([*commands, f"L{_pair(points[-1])}"])


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
        parts.append(_rectangle("ring", box.inset(_RING_INSET), _CORNER - _RING_INSET))
    parts += [_paint_lines(node.lines, box, inside=True), "</g>"]
    return "".join(parts)


def _paint_lines(lines: tuple[TextLine, ...], box: Box, *, inside: bool) -> str:
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
            place = f"{_number(x - ICON_WIDTH)} {_number(centre - 6)}"
            parts.append(f'<path class="icon" transform="translate({place})" d="{_ICONS[line.icon]}"/>')
        size = 13.0 if line.spans[0].role == "name" else TEXT_SIZE
        centred = "" if line.icon else ' class="centred"'
        words = f'<tspan dx="{SPACE_WIDTH:g}">'.join(_paint_span(span, inside=inside) for span in line.spans)
        words += "</tspan>" * (len(line.spans) - 1)
        parts.append(f'<text{centred} x="{_number(x)}" y="{_number(centre + size * _BASELINE)}">{words}</text>')
        y += line.height
    return "".join(parts)


def _paint_span(span: TextSpan, *, inside: bool) -> str:
    name = {"pill": "pill-name"}.get(span.role, span.role)
    if inside and span.role in ("event", "guard"):
        name = "inside"
    return f'<tspan class="{name}">{escape(span.text)}</tspan>'


def _paint_legend(layout: Layout) -> Iterable[str]:
    for entry in layout.legend.entries:
        yield _paint_entry(entry, layout.legend_top)
    first = layout.legend.lines - len(layout.legend.remarks)
    for index, remark in enumerate(layout.legend.remarks):
        y = layout.legend_top + (first + index + 0.5) * LEGEND_LINE_HEIGHT + TEXT_SIZE * _BASELINE
        yield f'<text class="remark" x="{_number(PADDING)}" y="{_number(y)}">{escape(remark)}</text>'


def _paint_entry(entry: LegendEntry, top: float) -> str:
    sign = entry.sign
    left, middle = PADDING + entry.left, top + (entry.line + 0.5) * LEGEND_LINE_HEIGHT
    text_at = f'x="{_number(left + SIGN_WIDTH + SIGN_GAP)}" y="{_number(middle + TEXT_SIZE * _BASELINE)}"'
    words = f'<text class="remark" {text_at}>{escape(entry.text)}</text>'
    if sign in ("failed", "unwound"):
        way = f"M{_pair((left, middle))}L{_pair((left + SIGN_WIDTH - _TIP_LENGTH, middle))}"
        tip = _paint_tip((left + SIGN_WIDTH, middle), (1.0, 0.0), sign)
        return f'<g><path class="line {sign}" d="{way}"/>{tip}{words}</g>'
    box = Box(left + 1, middle - 6, SIGN_WIDTH - 2, 12)
    node = _rectangle("box", box, 6 if sign == "resting" else 3.5)
    if sign == "final":
        node += _rectangle("ring", box.inset(2.5), 1.5)
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
