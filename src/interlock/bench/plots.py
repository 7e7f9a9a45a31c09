"""Plots of the experiments.

Every plot states what its experiment does not show: the remaining dependency between writes, or a power cut.
"""

from interlock.bench.chart import Axis, Line, Panel, draw
from interlock.bench.contention import Experiment as Contention
from interlock.bench.contention_findings import LINEAR_SHARE
from interlock.bench.contention_series import CLIENTS_PER_DATABASE
from interlock.bench.durability import Experiment as Durability
from interlock.bench.group_commit import Experiment, Point
from interlock.bench.orders import SERIES
from interlock.bench.orders import Experiment as Orders

_ENGINES = {"lane": "lanes", "memory": "lanes in memory", "bucket": "lanes in a bucket", "postgres": "PostgreSQL"}


def group_commit_plot(result: Experiment) -> str:
    """Plot the rate and the median latency over the largest allowed group, a line per window (SVG)."""
    windows_s = [each.window_s for each in result.plateaus]
    batches = Axis("largest group allowed (group_commit_max_batch), transactions", logarithmic=True)
    return draw(
        f"Group commit: {result.clients:,} clients increment one row",
        "Grouping shares the price of a durable write. Writers of one row still run one after the other.",
        [
            Panel(
                "Durable commits",
                batches,
                Axis("commits per second"),
                [Line(_name(window_s), _points(result, window_s, "rate")) for window_s in windows_s],
            ),
            Panel(
                "How long a client waits (median)",
                batches,
                Axis("milliseconds", logarithmic=True),
                [Line(_name(window_s), _points(result, window_s, "latency")) for window_s in windows_s],
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
        if (lines := _lines(result, part))
    ]
    panels.append(_databases(result, away))
    return draw(
        f"Contention on {_ENGINES[result.engine]}: who waits for whom",
        "Groups, shards, logs and databases of their own lower the price of contention; the dependency stays.\n"
        "Writers of one row still run one after the other. Every row held exactly what was acknowledged.",
        panels,
    )


def _databases(result: Contention, away: str) -> Panel:
    points = sorted((point.databases, point.commits_per_s) for point in result.points if point.part == "databases")
    lines = [Line("separate databases", points)]
    title = f"Separate schemas of one server, {CLIENTS_PER_DATABASE} clients each"
    if result.engine != "postgres":
        title = f"Separate databases, {CLIENTS_PER_DATABASE} clients each{away}"
        goal = [(count, LINEAR_SHARE * count * points[0][1]) for count, _ in points]
        lines.append(Line(f"goal: {LINEAR_SHARE:g} · N · one", goal))
    return Panel(title, Axis("databases"), Axis("commits per second"), lines)


def _lines(result: Contention, part: str) -> list[Line]:
    points = [point for point in result.points if point.part == part]
    names = dict.fromkeys(point.series for point in points)
    return [
        Line(name, [(point.clients, point.commits_per_s) for point in points if point.series == name]) for name in names
    ]


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
                    Line("acknowledged", [(each.cycle, each.acknowledged) for each in result.cycles]),
                    Line("found afterwards", [(each.cycle, each.found) for each in result.cycles]),
                ],
            ),
            Panel(
                "From the kill to the first answer",
                crashes,
                Axis("milliseconds"),
                [Line("recovery", [(each.cycle, each.recovery_ms) for each in result.cycles])],
            ),
        ],
    )


def orders_plot(result: Orders) -> str:
    """Plot the rate and the median time of an order over the concurrent orders, a line per series (SVG)."""
    concurrent = Axis("concurrent orders", logarithmic=True)
    rates: list[Line] = []
    times: list[Line] = []
    for series in SERIES:
        points = [point for point in result.points if point.series == series]
        rates.append(Line(series, [(point.clients, point.orders_per_s) for point in points]))
        times.append(Line(series, [(point.clients, point.p50_ms) for point in points]))
    return draw(
        "Orders in four durable steps, on one disk",
        "By hand every transition waits for the disk alone; an engine makes those of many orders durable together.\n"
        "With one order at a time there is nothing to share. Every order that was answered had arrived.",
        [
            Panel("Orders", concurrent, Axis("orders per second", logarithmic=True), rates),
            Panel("How long an order takes (median)", concurrent, Axis("milliseconds", logarithmic=True), times),
        ],
    )


def _points(result: Experiment, window_s: float, what: str) -> list[tuple[float, float]]:
    def value(point: Point) -> float:
        return point.commits_per_s if what == "rate" else point.p50_ms

    return sorted((float(point.batch), value(point)) for point in result.points if point.window_s == window_s)


def _name(window_s: float) -> str:
    return f"window {window_s * 1e3:g} ms" if window_s else "no window"
