"""Evidence: the measurements of one workload during one window. Advice uses these and the declared tool only.

Writes that depend on each other show as hand-offs: one writer had to wait until another had written the same row. The
number of writes alone says nothing (D10), and is here for shares and for people.

Evidence is gathered from databases that are in use, or comes from a file: a JSON array of windows, oldest first, with
the fields of `Evidence`. A file with an unknown field is refused, because a misspelt one would be a measurement
that was not taken.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow.signal.windows import Engine
from interlock.hotrow.tools import NAME_CHARACTERS_MAX
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
