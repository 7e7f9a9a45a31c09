"""Plots of the experiments: line charts as SVG, without library or script, legible on light and on dark paper.

A figure is a column of panels with one legend, or with one each where they show different lines. Every plot states what
its experiment does not show: the remaining dependency between writes, or a power cut.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from interlock.bench.contention import CLIENTS_PER_DATABASE, LINEAR_SHARE
from interlock.bench.contention import ContentionResult as Contention
from interlock.bench.durability import DurabilityResult as Durability
from interlock.bench.group_commit import GroupCommitResult as GroupCommit
from interlock.bench.orders import OrdersResult as Orders

# --- Line charts -----------------------------------------------------------------------------------------------------
# Lines differ by colour, by the form of their marks and by their names, so that a reader who sees no colours loses
# nothing. As in the diagrams of machines, every colour is set by a class and written out for both themes, because
# several viewers know media queries but not variables.

WIDTH = 760
PLOT_HEIGHT = 250
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 36, 52
HEAD = 64
LEGEND_ROW = 20
REMARK_ROW = 17
TICKS_MAX = 16
"""Maximum number of values that are used as ticks of an axis. With more values, ticks are round numbers."""

FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
LIGHT = {"paper": "#ffffff", "ink": "#101828", "soft": "#475467", "grid": "#e4e7ec"}
DARK = {"paper": "#0f1419", "ink": "#f2f4f7", "soft": "#a3adba", "grid": "#2b3440"}
LINES_LIGHT = ("#175cd3", "#c4320a", "#067647", "#6941c6", "#b54708", "#0e7090", "#c11574", "#475467")
LINES_DARK = ("#84adff", "#fd853a", "#47cd89", "#bdb4fe", "#fec84b", "#67e3f9", "#faa7e0", "#cdd5df")
LINES_MAX = len(LINES_LIGHT)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a panel: its name in the legend, and its points."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title with the unit, and whether it is logarithmic."""

    title: str
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a figure."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[ChartLine]


@dataclass(frozen=True, slots=True)
class Scale:
    """The positions of values along an axis, and its ticks."""

    place: Callable[[float], float]
    ticks: Sequence[float]


def draw(title: str, remark: str, panels: Sequence[Panel]) -> str:
    """Return the figure as a standalone SVG document. Lines of the same name share their look in all panels.

    The remark may have several lines; a line has room for about 115 characters.
    """
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    assert len(names) <= LINES_MAX, "more lines than looks"
    looks = {name: place for place, name in enumerate(names)}
    shared = all([line.name for line in panel.lines] == names for panel in panels)
    legend, legend_rows = _legend(looks, names, 24.0, 50) if shared else ([], 0)
    y = HEAD + LEGEND_ROW * (legend_rows - 1)
    drawn: list[str] = []
    for panel in panels:
        own, own_rows = ([], 0) if shared else _legend(looks, [line.name for line in panel.lines], 0.0, y + TOP)
        own_height = LEGEND_ROW * own_rows
        drawn += [f'<g transform="translate({LEFT} 0)">', *own, "</g>"] if own else []
        drawn.append(f'<g transform="translate({LEFT} {y + TOP + own_height})">')
        drawn += [*_panel(panel, looks, title_y=-14 - own_height), "</g>"]
        y += TOP + own_height + PLOT_HEIGHT + BOTTOM
    remarks = remark.split("\n")
    height = y + 24 + REMARK_ROW * (len(remarks) - 1)
    parts = [*legend, *drawn]
    for row, text in enumerate(remarks):
        below = height - 14 - REMARK_ROW * (len(remarks) - 1 - row)
        parts.append(f'<text class="soft" x="24" y="{below}">{escape(text)}</text>')
    looks_by_class = {str(at): colours for at, colours in enumerate(zip(LINES_LIGHT, LINES_DARK, strict=True))}
    return svg_document(title, (WIDTH, height), looks_by_class, parts)


def svg_document(
    title: str, size: tuple[int, int], looks: Mapping[str, tuple[str, str]], parts: Sequence[str], *, rules: str = ""
) -> str:
    """Return a standalone SVG document with a title at its top.

    A look is a name with its colours on light and on dark paper: the classes `l-NAME` of strokes and `f-NAME` of areas.
    """
    width, height = size
    extent = f'width="{width}" height="{height}"'
    fixed = (
        f"text{{font-family:{FONT}}}.title{{font-size:17px;font-weight:600}}.head{{font-size:13px;font-weight:600}}"
        ".soft,.tick{font-size:12px}.line{fill:none;stroke-width:2;stroke-linejoin:round}.axis,.grid{stroke-width:1}"
        f".mark{{stroke-width:1.5}}{rules}"
    )
    light = _colours(LIGHT, {name: pair[0] for name, pair in looks.items()})
    dark = _colours(DARK, {name: pair[1] for name, pair in looks.items()})
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {extent}>',
        f"<title>{escape(title)}</title>",
        f"<style>{fixed}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
        f'<rect class="paper" {extent}/>',
        f'<text class="title" x="24" y="28">{escape(title)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _colours(paper: Mapping[str, str], looks: Mapping[str, str]) -> str:
    rules = [
        f".paper{{fill:{paper['paper']}}}.title,.head{{fill:{paper['ink']}}}.soft,.tick{{fill:{paper['soft']}}}",
        f".axis{{stroke:{paper['soft']}}}.grid{{stroke:{paper['grid']}}}.mark,.halo{{stroke:{paper['paper']}}}",
    ]
    rules += [f".l-{name}{{stroke:{colour}}}.f-{name}{{fill:{colour}}}" for name, colour in looks.items()]
    return "".join(rules)


def _panel(panel: Panel, looks: Mapping[str, int], *, title_y: int) -> list[str]:
    width = WIDTH - LEFT - RIGHT
    across = scale([x for line in panel.lines for x, _ in line.points], panel.x, 0, width, at_values=True)
    up = scale([y for line in panel.lines for _, y in line.points], panel.y, PLOT_HEIGHT, 0, at_values=False)
    parts = [f'<text class="head" x="0" y="{title_y}">{escape(panel.title)}</text>']
    parts += [*grid_lines(up, width), *floor_axis(across, width, PLOT_HEIGHT, panel.x.title)]
    parts.append(
        f'<text class="soft" text-anchor="middle" transform="translate(-66 {PLOT_HEIGHT / 2}) rotate(-90)">'
        f"{escape(panel.y.title)}</text>"
    )
    for line in panel.lines:
        place = looks[line.name]
        points = [(across.place(x), up.place(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line l-{place}" points="{path}"/>')
        parts += [_mark(place, x, y) for x, y in points]
    return parts


def grid_lines(up: Scale, width: int) -> list[str]:
    """Draw a line across the panel, and its number on the left, for each tick of the vertical axis."""
    parts: list[str] = []
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="0" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="-10" y="{y + 4:.1f}">{_number(tick)}</text>')
    return parts


def floor_axis(across: Scale, width: int, floor: int, title: str) -> list[str]:
    """Draw the horizontal axis at the height `floor`, with its ticks, numbers and title."""
    parts = [f'<line class="axis" x1="0" x2="{width}" y1="{floor}" y2="{floor}"/>']
    for tick in across.ticks:
        x = across.place(tick)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{floor + 20}">{_number(tick)}</text>')
    parts.append(f'<text class="soft" text-anchor="middle" x="{width / 2}" y="{floor + 40}">{escape(title)}</text>')
    return parts


def _legend(looks: Mapping[str, int], names: Sequence[str], left: float, top: int) -> tuple[list[str], int]:
    """Return the legend and its number of rows; it begins at `left` and `top`."""
    parts: list[str] = []
    room = WIDTH if left else WIDTH - LEFT
    x, y, rows = left, top, 1
    for count, name in enumerate(names):
        place = looks[name]
        width = 33 + 7.0 * len(name)
        if count and x + width > room:
            x, y, rows = left, y + LEGEND_ROW, rows + 1
        parts.append(f'<line class="line l-{place}" x1="{x:.0f}" x2="{x + 26:.0f}" y1="{y}" y2="{y}"/>')
        parts.append(_mark(place, x + 13, y))
        parts.append(f'<text class="soft" x="{x + 33:.0f}" y="{y + 4}">{escape(name)}</text>')
        x += width + 22
    return parts, rows


def _mark(place: int, x: float, y: float) -> str:
    look = f'class="mark f-{place}"'
    match place % 4:
        case 0:
            return f'<circle {look} cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return f'<rect {look} x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2"/>'
        case 2:
            return f'<path {look} d="M{x:.1f} {y - 5:.1f}l4.8 8.4h-9.6z"/>'
        case _:
            return f'<path {look} d="M{x:.1f} {y - 5.2:.1f}l5.2 5.2l-5.2 5.2l-5.2 -5.2z"/>'


def scale(values: Sequence[float], axis: Axis, first: float, last: float, *, at_values: bool) -> Scale:
    """Return the scale for values from `first` to `last`; its ticks are round numbers, or the values themselves."""
    at_values = at_values and (axis.logarithmic or len(set(values)) <= TICKS_MAX)
    if axis.logarithmic:
        bottom, top = math.log10(min(values)), math.log10(max(values))
        if not at_values:
            bottom, top = math.floor(bottom), math.ceil(top)
        top = top if top > bottom else bottom + 1
        powers = [10.0**power for power in range(math.floor(bottom), math.ceil(top) + 1)]
        ticks = sorted(set(values)) if at_values else powers
        return Scale(lambda value: first + (last - first) * (math.log10(value) - bottom) / (top - bottom), ticks)
    step = round_step(max(values), 5)
    count = max(1, math.ceil(max(values) / step))
    ticks = sorted(set(values)) if at_values else [place * step for place in range(count + 1)]
    return Scale(lambda value: first + (last - first) * value / (count * step), ticks)


def round_step(largest: float, count: int) -> float:
    """Return a round number, of which about `count` make the largest value."""
    rough = max(largest, 1e-9) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


# --- Plots of the experiments ----------------------------------------------------------------------------------------

_ENGINES = {"lane": "lanes", "memory": "lanes in memory", "bucket": "lanes in a bucket", "postgres": "PostgreSQL"}


def group_commit_plot(result: GroupCommit) -> str:
    """Plot the rate and the median latency over the largest allowed group, a line per window (SVG)."""
    points = sorted(result.points, key=lambda point: point.batch)
    batches = Axis("largest group allowed (group_commit_max_batch), transactions", logarithmic=True)
    return draw(
        f"Group commit: {result.clients:,} clients increment one row",
        "Grouping shares the price of a durable write. Writers of one row still run one after the other.",
        [
            Panel(
                "Durable commits",
                batches,
                Axis("commits per second"),
                _lines((_window_name(point.window_s), point.batch, point.commits_per_s) for point in points),
            ),
            Panel(
                "How long a client waits (median)",
                batches,
                Axis("milliseconds", logarithmic=True),
                _lines((_window_name(point.window_s), point.batch, point.p50_ms) for point in points),
            ),
        ],
    )


def contention_plot(result: Contention) -> str:
    """Plot the rates over the number of clients and of databases, a panel for each setting (SVG)."""
    away = f" with a hand-off of {result.hand_off_ms:g} ms" if result.hand_off_ms else ""
    titles = {
        "disk": "On this server" if result.engine == "postgres" else "On this disk, without a hand-off",
        "alone": f"One commit per group{away}",
        "grouped": f"Groups{away}",
    }
    # On lanes the rates of the wall and of the ways around it differ by a factor of hundreds.
    rate = Axis("commits per second", logarithmic=result.engine != "postgres")
    panels = [
        Panel(title, Axis("clients", logarithmic=True), rate, lines)
        for part, title in titles.items()
        if (
            lines := _lines(
                (point.series, point.clients, point.commits_per_s) for point in result.points if point.part == part
            )
        )
    ]
    panels.append(_databases_panel(result, away))
    return draw(
        f"Contention on {_ENGINES[result.engine]}: who waits for whom",
        "Groups, shards, logs and databases of their own lower the price of contention; the dependency stays.\n"
        "Writers of one row still run one after the other. Every row held exactly what was acknowledged.",
        panels,
    )


def _databases_panel(result: Contention, away: str) -> Panel:
    points = sorted((point.databases, point.commits_per_s) for point in result.points if point.part == "databases")
    lines = [ChartLine("separate databases", points)]
    title = f"Separate schemas of one server, {CLIENTS_PER_DATABASE} clients each"
    if result.engine != "postgres":
        title = f"Separate databases, {CLIENTS_PER_DATABASE} clients each{away}"
        goal = [(count, LINEAR_SHARE * count * points[0][1]) for count, _ in points]
        lines.append(ChartLine(f"goal: {LINEAR_SHARE:g} · N · one", goal))
    return Panel(title, Axis("databases"), Axis("commits per second"), lines)


def durability_plot(result: Durability) -> str:
    """Plot the acknowledged and the found commits, and the recovery time, per crash (SVG)."""
    crashes = Axis("crash")
    return draw(
        f"Durability: {len(result.cycles):,} crashes, {result.lost:,} commits lost, {result.torn:,} torn",
        f"{result.acknowledged:,} commits were acknowledged; all but {result.lost:,} of them were found. "
        f"{result.in_doubt:,} more were under way, and are whole.\n"
        "A kill is not a power cut: what the system had taken over for writing is written all the same.",
        [
            Panel(
                "Commits of the life that was killed",
                crashes,
                Axis("commits"),
                [
                    ChartLine("acknowledged", [(each.cycle, each.acknowledged) for each in result.cycles]),
                    ChartLine("found afterwards", [(each.cycle, each.found) for each in result.cycles]),
                ],
            ),
            Panel(
                "From the kill to the first answer",
                crashes,
                Axis("milliseconds"),
                [ChartLine("recovery", [(each.cycle, each.recovery_ms) for each in result.cycles])],
            ),
        ],
    )


def orders_plot(result: Orders) -> str:
    """Plot the rate and the median time of an order over the concurrent orders, a line per series (SVG)."""
    concurrent = Axis("concurrent orders", logarithmic=True)
    return draw(
        "Orders in four durable steps, on one disk",
        "By hand every transition waits for the disk alone; an engine makes those of many orders durable together.\n"
        "With one order at a time there is nothing to share. Every order that was answered had arrived.",
        [
            Panel(
                "Orders",
                concurrent,
                Axis("orders per second", logarithmic=True),
                _lines((point.series, point.clients, point.orders_per_s) for point in result.points),
            ),
            Panel(
                "How long an order takes (median)",
                concurrent,
                Axis("milliseconds", logarithmic=True),
                _lines((point.series, point.clients, point.p50_ms) for point in result.points),
            ),
        ],
    )


def _lines(points: Iterable[tuple[str, float, float]]) -> list[ChartLine]:
    """Return a line for each name, in the order in which the names appear."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, x, y in points:
        lines.setdefault(name, []).append((x, y))
    return [ChartLine(name, line) for name, line in lines.items()]


def _window_name(window_s: float) -> str:
    return f"window {window_s * 1e3:g} ms" if window_s else "no window"
