"""Experiment 2: the plateau of group commit, over `group_commit_max_batch` and `group_commit_window` (D12).

Every client increments the same row, each time durably. With one transaction per group every commit pays for a write
of its own to the disk. Larger groups share one, and the rate rises until something else is the limit: the number of
clients, or the time it takes to execute one transaction after the other. That is the plateau.

The experiment does not remove contention (D13). The increments still depend on each other and are still executed one
by one; grouping only lowers the cost of each. At the end the row must hold exactly what was acknowledged.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from interlock.bench.load import ROUNDS, SECONDS_MAX, ask_within, median_point, refuse_out_of_bounds
from interlock.database.database import Database
from interlock.errors import BadUsage, CorruptionError
from interlock.lanes.file import lock_path
from interlock.urls import lane_path

WINDOWS_S = (0.0, 0.001, 0.005)
BATCHES = (1, 4, 16, 64, 256, 1_000)
QUICK_WINDOWS_S = (0.0, 0.002)
QUICK_BATCHES = (1, 16, 256)
WINDOW_S_MAX = 1.0
BATCH_MAX = 10_000
CLIENTS_MAX = 10_000
WINDOWS_MAX = 8
"""Maximum number of lines that are distinguishable in a plot."""

POINTS_MAX = 200
PLATEAU_SHARE = 0.9
FIGURES = ("commits_per_s", "group_mean", "p50_ms", "p99_ms", "cpu_us")

TABLE = "CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)"
ROW = "INSERT INTO counter (id, n) VALUES (1, 0)"
INCREMENT = "UPDATE counter SET n = n + 1 WHERE id = $1"
COUNT = "SELECT n FROM counter WHERE id = 1"

CAVEAT = (
    "Grouping shares the price of a durable write; it does not remove the dependency. "
    "Writers of one row still wait for each other and are executed one after the other."
)


class GroupCommitPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, measured."""

    window_s: float
    batch: int
    commits_per_s: float
    group_mean: float
    """Transactions per group, on average."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU per commit, of this whole process: clients and lane."""


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """The point of one window from which larger groups do not help."""

    window_s: float
    commits_per_s: float
    """The best rate."""
    batch: int
    """The smallest group limit that reaches 90 % of it."""
    times_ungrouped: float | None
    """The best rate as a multiple of the rate with one transaction per group, where that was measured."""


class GroupCommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the whole experiment."""

    name: str = "group-commit"
    clients: int
    seconds: float
    """Seconds per point, all its rounds together."""
    points: list[GroupCommitPoint]
    plateaus: list[Plateau]
    caveat: str = msgspec.field(default=CAVEAT, name="told")


async def measure(
    *,
    url: str | None,
    windows_s: Sequence[float],
    batches: Sequence[int],
    clients: int,
    seconds: float,
    watch: Callable[[GroupCommitPoint], None],
) -> GroupCommitResult:
    """Measure every setting; `watch` is called after each of its rounds.

    Without a URL the lane is in a temporary folder. An existing lane is refused (BadUsage), and the experiment's own is
    removed at the end.
    """
    check_bounds(windows_s, batches, clients=clients, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        address = url or f"lanes://{folder}/counter"
        path = lane_path(address)
        if path is not None and (path.exists() or lock_path(path).exists()):
            raise BadUsage(
                f"there is a lane at {address} already.",
                why="The experiment makes a lane of its own and removes it afterwards; yours is not touched.",
                fix="Name a lane that does not exist yet, on the disk to be measured.",
            )
        turns: dict[tuple[float, int], list[GroupCommitPoint]] = {
            (window, batch): [] for window in windows_s for batch in batches
        }
        acknowledged = 0
        try:
            for _ in range(ROUNDS):
                for (window_s, batch), measured in turns.items():
                    point, commits = await _measure(address, window_s, batch, clients, seconds / ROUNDS, acknowledged)
                    # A database in memory is a new one each time.
                    acknowledged = acknowledged + commits if path is not None else 0
                    measured.append(point)
                    watch(point)
        finally:
            if path is not None and url is not None:
                _remove(path)
    points = [median_point(measured, FIGURES) for measured in turns.values()]
    plateaus = [
        plateau([point for point in points if point.window_s == window_s]) for window_s in dict.fromkeys(windows_s)
    ]
    return GroupCommitResult(clients=clients, seconds=seconds, points=points, plateaus=plateaus)


def check_bounds(windows_s: Sequence[float], batches: Sequence[int], *, clients: int, seconds: float) -> None:
    """Raise BadUsage for values that are out of bounds."""
    wrong: list[str] = [
        *(
            f"a window of {window:g} s; 0 to {WINDOW_S_MAX:g}"
            for window in windows_s
            if not 0 <= window <= WINDOW_S_MAX
        ),
        *(f"a batch of {batch:,}; 1 to {BATCH_MAX:,}" for batch in batches if not 1 <= batch <= BATCH_MAX),
    ]
    if not 1 <= clients <= CLIENTS_MAX:
        wrong.append(f"{clients:,} clients; 1 to {CLIENTS_MAX:,}")
    if not 0 < seconds <= SECONDS_MAX:
        wrong.append(f"{seconds:g} seconds; more than 0, at most {SECONDS_MAX:g}")
    if len(windows_s) > WINDOWS_MAX:
        wrong.append(f"{len(windows_s)} windows; at most {WINDOWS_MAX}")
    if not 1 <= len(windows_s) * len(batches) <= POINTS_MAX:
        wrong.append(f"{len(windows_s) * len(batches):,} settings; 1 to {POINTS_MAX}")
    refuse_out_of_bounds(wrong)


def plateau(points: Sequence[GroupCommitPoint]) -> Plateau:
    """Return the plateau of these points, which are all of one window."""
    best = max(point.commits_per_s for point in points)
    enough = [point for point in points if point.commits_per_s >= PLATEAU_SHARE * best]
    alone = next((point.commits_per_s for point in points if point.batch == 1), None)
    return Plateau(
        window_s=points[0].window_s,
        commits_per_s=best,
        batch=min(point.batch for point in enough),
        times_ungrouped=None if alone is None else best / alone,
    )


async def _measure(
    url: str, window_s: float, batch: int, clients: int, seconds: float, acknowledged: int
) -> tuple[GroupCommitPoint, int]:
    async with Database.open(
        url, group_commit_window=window_s, group_commit_max_batch=batch, queue_max=CLIENTS_MAX, idle_s=SECONDS_MAX
    ) as db:
        if not acknowledged:
            await db.execute(TABLE)
            await db.execute(ROW)
        await db.execute(INCREMENT, 1)
        before = db.stats()
        load = await ask_within(seconds, [lambda: db.execute(INCREMENT, 1)] * clients)
        groups = db.stats().groups - before.groups
        [(found,)] = await db.query(COUNT)
        commits = 1 + len(load.latencies_s)
        expected = acknowledged + commits
        if found != expected:
            raise CorruptionError(f"{expected:,} increments were acknowledged, but the row holds {found:,}.")
    return GroupCommitPoint(
        window_s=window_s,
        batch=batch,
        commits_per_s=load.per_s,
        group_mean=len(load.latencies_s) / max(1, groups),
        p50_ms=load.latency_ms(0.50),
        p99_ms=load.latency_ms(0.99),
        cpu_us=load.cpu_us,
    ), commits


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
