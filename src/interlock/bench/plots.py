"""What the experiments look like as plots: which numbers go on which axis, and what is said beside them."""

from interlock.bench.chart import Axis, Line, Panel, draw
from interlock.bench.durability import Experiment as Durability
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


def durability_plot(result: Durability) -> str:
    """What was acknowledged and what was found, crash by crash, and how long it took to be back (SVG)."""
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


def _points(result: Experiment, window_s: float, what: str) -> list[tuple[float, float]]:
    def value(point: Point) -> float:
        return point.commits_per_s if what == "rate" else point.p50_ms

    return sorted((float(point.batch), value(point)) for point in result.points if point.window_s == window_s)


def _name(window_s: float) -> str:
    return f"window {window_s * 1e3:g} ms" if window_s else "no window"
