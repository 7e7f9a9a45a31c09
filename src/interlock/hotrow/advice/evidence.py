"""Evidence: the measurements of one workload during one window. Advice uses these and the declared tool only.

Writes that depend on each other show as hand-offs: one writer had to wait until another had written the same row. The
number of writes alone says nothing (D10), and is here for shares and for people.

Evidence is gathered from databases that are in use, or comes from a file: a JSON array of windows, oldest first, with
the fields of `Evidence`. A file with an unknown field is refused, because a misspelt one would be a measurement
that was not taken.
"""

from pathlib import Path
from typing import Annotated, NamedTuple, cast

import msgspec

from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow.hot_rows import Engine
from interlock.hotrow.tools import NAME_CHARACTERS_MAX, Tool
from interlock.lanes.contention import HotRow
from interlock.lanes.settings import LaneSettings

ROWS_MAX = 20
"""The worst rows of a window; more are of no use to the rule."""

WINDOWS_MAX = 100_000

AtLeast0 = Annotated[float, msgspec.Meta(ge=0)]
MoreThan0 = Annotated[float, msgspec.Meta(gt=0)]
From1 = Annotated[int, msgspec.Meta(ge=1)]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One window of one database."""

    database: str
    """Its name: that of the tool."""
    engine: Engine
    """Where it lives now."""
    seconds: MoreThan0
    """How long the window was."""
    writes_per_s: AtLeast0
    distinct_rows: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Different rows that were written."""
    rows: tuple[HotRow, ...] = ()
    """The rows that writers waited for each other on, worst first."""
    p99_s: AtLeast0 | None = None
    """99 of 100 commits took no longer, from the call to the acknowledgement. None: not measured."""
    floor_s: AtLeast0 | None = None
    """Duration of a commit without other writers: the durable append alone. None: not measured."""
    plateau_per_s: MoreThan0 | None = None
    """Commits per second that one row can do here at most; in a lane that is also the most of the lane."""
    coupled_plateau_per_s: MoreThan0 | None = None
    """The same, measured on the PostgreSQL that it could be moved to."""
    streams: From1 = 1
    """Databases over which its writes are spread."""
    shards: From1 = 1
    """Shards over which the counter of the worst row is spread already; 1: it is one row."""
    flag_threshold: AtLeast0 = LaneSettings().contention_flag_threshold
    """Hand-offs per second from which on a row counts as hot, unless the tool says otherwise."""
    routed: bool | None = None
    """In PostgreSQL: whether it came there from a lane. None: unknown."""
    url: str = ""
    """Its address, without secrets, if it is known."""
    at_s: float | None = None
    """When the window ended, in seconds since the epoch; None: right after the one before it."""


def read_evidence(path: Path) -> list[Evidence]:
    """Return the windows in a file, oldest first. Raises TargetNotFound, UnusableFile or BadUsage."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise TargetNotFound(
            f"there is no file {path}.",
            why="Without it there is no evidence, and advice is given on what was measured.",
            fix="Check the path of the evidence.",
        ) from error
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        windows = msgspec.json.decode(data, type=list[Evidence])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableFile(
            f"{path} holds no evidence: {str(error) or 'it is nested too deeply'}.",
            why="It has to be a JSON array of windows, and each of them is read strictly.",
            fix="Compare it with the page `Place a workload`, which has every field.",
        ) from error
    for name in {window.database for window in windows}:
        if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()):
            raise UnusableFile(
                f"{path} has evidence of {name!r:.200}, which is not the name of a database.",
                why="Advice is given on a database by its name, in commands and files of settings.",
                fix=f"Use a text of 1 to {NAME_CHARACTERS_MAX} printable characters.",
            )
    if len(windows) > WINDOWS_MAX:
        raise BadUsage(
            f"{path} has {len(windows):,} windows; at most {WINDOWS_MAX:,} are read.",
            why="Advice looks at the latest windows only.",
            fix="Leave the older ones out.",
        )
    return windows


def timed(windows: list[Evidence], now_s: float) -> list[tuple[float, Evidence]]:
    """Return each window with its end in seconds since the epoch; a last window without one ended now."""
    found: list[tuple[float, Evidence]] = []
    end_s = now_s
    for window in reversed(windows):
        end_s = end_s if window.at_s is None else window.at_s
        found.append((end_s, window))
        end_s -= window.seconds
    return found[::-1]


# --- Figures ---------------------------------------------------------------------------------------------------------
# Figures are multiples of a limit of the tool's declaration, so that the rule can give every comparison the same
# margin. A missing measurement counts as good: advice is given only for measured problems.

COUNTERS = "hotrow_counter"
SHARDS = "hotrow_counter_shard"
"""The tables of Interlock's own counters: by name, and by name and shard. Their rows can always be spread."""

SHARD_COUNT = 16
"""Shards of a counter, unless the tool sets another number."""

THRESHOLD_MIN = 0.01
"""A threshold of 0 means that every hand-off makes a row hot, but heat is a multiple of the threshold."""


class Figures(NamedTuple):
    """The figures of one window."""

    row: HotRow | None
    threshold: float
    heat: float
    """Hand-offs or conflicts of the worst row, as a multiple of what makes a row hot."""
    spreadable: bool
    """Whether it is declared, or known, that the worst row is only added to."""
    counter: str | None
    """The name of the counter of the worst row, if it is one of Interlock's own."""
    shards: int
    share: float
    """Share of all writes that went to the worst row."""
    latency_s: float | None
    latency_ratio: float
    floor_ratio: float
    needed_per_s: float
    """Writes per second that the worst row has to bear when the tool runs as it declares."""
    row_ratio: float
    lane_ratio: float


def figures_of(tool: Tool, evidence: Evidence) -> Figures:
    """Compare the measurements with the declaration."""
    row = max(evidence.rows, key=dependent_per_s, default=None)
    declared = tool.contention_flag_threshold
    threshold = max(THRESHOLD_MIN, evidence.flag_threshold if declared is None else declared)
    share = 1.0
    if row is not None and evidence.writes_per_s > 0:
        share = min(1.0, row.writes_per_s / evidence.writes_per_s)
    floor_s = evidence.floor_s or 0.0
    latency_s = evidence.p99_s
    if latency_s is None and (row is not None or floor_s):
        # The mean wait, or the shortest commit: where that is over the budget, the slowest commits are too.
        latency_s = max(0.0 if row is None else row.wait_s, floor_s)
    plateau = evidence.plateau_per_s
    counter = _counter(row)
    needed = tool.aggregate_write_rate * share
    in_lanes = evidence.engine != "postgres"
    return Figures(
        row=row,
        threshold=threshold,
        heat=0.0 if row is None else dependent_per_s(row) / threshold,
        spreadable=counter is not None if tool.shardable is None else tool.shardable,
        counter=counter,
        shards=_shards(tool, evidence, row),
        share=share,
        latency_s=latency_s,
        latency_ratio=(latency_s or 0.0) / tool.write_latency_budget,
        floor_ratio=min(floor_s, latency_s or 0.0) / tool.write_latency_budget,
        needed_per_s=needed,
        row_ratio=needed / plateau if plateau else 0.0,
        lane_ratio=tool.aggregate_write_rate / (plateau * evidence.streams) if plateau and in_lanes else 0.0,
    )


def dependent_per_s(row: HotRow) -> float:
    """Return the writes per second that waited for another write of the row, or were retried because of it."""
    return max(row.handoffs_per_s, row.conflicts_per_s)


def _counter(row: HotRow | None) -> str | None:
    """Return the name of the counter that a row belongs to."""
    if row is None or _table(row) not in {COUNTERS, SHARDS}:
        return None
    key: object = row.key
    if isinstance(key, tuple | list) and key:
        key = cast("tuple[object, ...] | list[object]", key)[0]
    return key if isinstance(key, str) else None


def _shards(tool: Tool, evidence: Evidence, row: HotRow | None) -> int:
    if evidence.shards > 1 or row is None or _table(row) != SHARDS:
        return evidence.shards
    return tool.counter_shard_count or SHARD_COUNT


def _table(row: HotRow) -> str:
    """Return the table of a row without its PostgreSQL schema."""
    return row.table.rpartition(".")[2]
