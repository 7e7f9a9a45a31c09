"""What the experiments look like as plots: which numbers go on which axis, and what is said beside them."""

from interlock.bench.chart import Axis, Line, Panel, draw
from interlock.bench.group_commit import Experiment, Point


def group_commit_plot(result: Experiment) -> str:
    """The rate and the median latency over the largest allowed group, a line per window (SVG)."""
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


def _points(result: Experiment, window_s: float, what: str) -> list[tuple[float, float]]:
    def value(point: Point) -> float:
        return point.commits_per_s if what == "rate" else point.p50_ms

    return sorted((float(point.batch), value(point)) for point in result.points if point.window_s == window_s)


def _name(window_s: float) -> str:
    return f"window {window_s * 1e3:g} ms" if window_s else "no window"
