"""Placement advice: the rule, a pure function of a tool's declaration and its measurements (D10), and its verdicts.

The default is to stay: a workload within its budget whose rate is reached stays, whatever its rows do. Otherwise a hot
row that can be spread gets a helper; unrelated writes that wait for each other get databases of their own; a row that
cannot be spread moves to coupled PostgreSQL if it is latency-critical. Each of these is proposed only if its effect is
better, as measured by `interlock bench` or else as modelled. Only the dependency between writes decides: a row is hot
by its hand-offs, one writer having to wait until another had written the same row, never by its writes.

Every comparison has a margin. A verdict that is shown already is kept as long as some reading of the thresholds inside
their margins supports it; only then are they read strictly. A margin is so wide that a value which strays by 30 % to
either side cannot be on both ends of it.

Sections: evidence, figures, verdicts, texts, rule, hysteresis, effect of a change, evidence of databases in use.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, NamedTuple, cast

import msgspec

from interlock.clock import Clock
from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow.contention_windows import Engine, Window, look
from interlock.hotrow.counters import FULL_SHARE, ROW_TABLE, SHARD_COUNT, SHARD_TABLE
from interlock.hotrow.tool_declarations import BUDGET_S_MAX, NAME_CHARACTERS_MAX, Tool
from interlock.lanes.hot_rows import EVERY_S, HotRow
from interlock.lanes.lane_settings import COUNTER_SHARDS_MAX, LaneSettings
from interlock.urls import is_postgres_url

# --- Evidence --------------------------------------------------------------------------------------------------------
# The measurements of one workload during one window. They are gathered from databases that are in use, or come from a
# file: a JSON array of windows, oldest first, with the fields of `Evidence`. A file with an unknown field is refused,
# because a misspelt one would be a measurement that was not taken.

ROWS_MAX = 20
"""The worst rows of a window; more are of no use to the rule."""

WINDOWS_MAX = 100_000

AtLeast0 = Annotated[float, msgspec.Meta(ge=0)]
MoreThan0 = Annotated[float, msgspec.Meta(gt=0)]
From1 = Annotated[int, msgspec.Meta(ge=1)]


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a row or a workload does in another form or place, as `interlock bench contention` measures it."""

    per_s: MoreThan0
    """Writes per second at most."""
    p99_s: AtLeast0 = 0.0
    """99 of 100 writes took no longer, at the needed rate or, where that is not reached, at most. 0: not measured."""


Target = Literal["", "sharded", "more_shards", "event_log", "streams", "postgres", "lane"]
"""The new form or place of a workload; empty for one that stays."""


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
    groups_per_s: AtLeast0 | None = None
    """Commits of a lane per second, each with the writes that had gathered. None: not measured."""
    measured: dict[Target, Measured] = {}
    """What it would do in another form or place, as far as that was measured."""
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
    home: str = ""
    """The home whose catalog knows it by its name, without secrets; empty: it is named by its address."""
    to: str = ""
    """Where a move would take it, without secrets, if that is known."""
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
    fullness: float
    """Share of the room of a lane's groups that is taken; 1 in PostgreSQL, where every writer of a row waits."""

    @property
    def pressure(self) -> float:
        """The worst of its figures, as a multiple of what is declared."""
        return max(self.latency_ratio, self.row_ratio, self.lane_ratio)


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
    # What was seen is possible: a rate that is reached is not a problem, whatever an experiment says.
    plateau = evidence.plateau_per_s and max(evidence.plateau_per_s, 0.0 if row is None else row.writes_per_s)
    reached = evidence.writes_per_s >= tool.aggregate_write_rate
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
        row_ratio=needed / plateau if plateau and not reached else 0.0,
        lane_ratio=tool.aggregate_write_rate / (plateau * evidence.streams)
        if plateau and in_lanes and not reached
        else 0.0,
        fullness=_fullness(tool, evidence, row) if in_lanes else 1.0,
    )


def _fullness(tool: Tool, evidence: Evidence, row: HotRow | None) -> float:
    """Return which share of a lane's groups is taken: as measured, or by Little's law from what waits for the row."""
    room = tool.group_commit_max_batch or LaneSettings().group_commit_max_batch
    if evidence.groups_per_s:
        return evidence.writes_per_s / evidence.groups_per_s / room
    return 0.0 if row is None else row.writes_per_s * row.wait_s / room


def dependent_per_s(row: HotRow) -> float:
    """Return the writes per second that waited for another write of the row, or were retried because of it."""
    return max(row.handoffs_per_s, row.conflicts_per_s)


def _counter(row: HotRow | None) -> str | None:
    """Return the name of the counter that a row belongs to."""
    if row is None or _table(row) not in {ROW_TABLE, SHARD_TABLE}:
        return None
    key: object = row.key
    if isinstance(key, tuple | list) and key:
        key = cast("tuple[object, ...] | list[object]", key)[0]
    return key if isinstance(key, str) else None


def _shards(tool: Tool, evidence: Evidence, row: HotRow | None) -> int:
    if evidence.shards > 1 or row is None or _table(row) != SHARD_TABLE:
        return evidence.shards
    return tool.counter_shard_count or SHARD_COUNT


def _table(row: HotRow) -> str:
    """Return the table of a row without its PostgreSQL schema."""
    return row.table.rpartition(".")[2]


# --- Verdicts --------------------------------------------------------------------------------------------------------

Action = Literal["stay", "tune", "helper", "separate", "couple", "uncouple"]

Knob = bool | int | float | str
"""The value of a setting."""


class Choice(msgspec.Struct, frozen=True):
    """A verdict without its texts, for comparisons."""

    action: Action = "stay"
    target: Target = ""


Case = Literal[
    "calm",
    "affordable",
    "apart",
    "coupled",
    "priced",
    "unhelped",
    "stuck",
    "countable",
    "crowded",
    "skewed",
    "unrelated",
    "mixed",
    "irreducible",
    "distant",
    "cold",
]
"""The reason of a verdict; `WHY` has a text for each."""

CHOICES: dict[Case, Choice] = {
    "calm": Choice("stay"),
    "affordable": Choice("stay"),
    "apart": Choice("stay"),
    "coupled": Choice("stay"),
    "priced": Choice("tune"),
    "unhelped": Choice("tune"),
    "stuck": Choice("stay"),
    "countable": Choice("helper", "sharded"),
    "crowded": Choice("helper", "more_shards"),
    "skewed": Choice("helper", "event_log"),
    "unrelated": Choice("separate", "streams"),
    "mixed": Choice("separate", "streams"),
    "irreducible": Choice("couple", "postgres"),
    "distant": Choice("couple", "postgres"),
    "cold": Choice("uncouple", "lane"),
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The advice on one workload."""

    database: str
    engine: Engine
    """Where it lives now."""
    action: Action
    target: Target = ""
    why: str
    evidence: tuple[str, ...] = ()
    """The measurements, a sentence each."""
    command: str = ""
    """The command or settings; empty for a workload that stays, and for a move whose addresses are unknown."""
    undo: str = ""
    """The command or text that undoes it."""
    knobs: dict[str, Knob] = {}
    """Settings of its tool that apply it, wholly or in part."""
    code: str = ""
    """The line of code for the part that settings cannot apply."""

    @property
    def choice(self) -> Choice:
        """The verdict without its texts."""
        return Choice(self.action, self.target)


# --- Texts -----------------------------------------------------------------------------------------------------------
# No text promises the impossible (D13): grouping commits and spreading a row over shards lower what a hot row costs,
# and the writes of one row go on depending on each other. A test reads every text that this module can make. Names
# and keys are the user's, so they are shown as Python and TOML would write them.

KEY_CHARACTERS_MAX = 60
WINDOW_SHARE = 0.1
"""Share of the budget that a commit may wait for its group."""

LIVES: dict[Engine, str] = {
    "lane": "in a lane on a local disk",
    "object": "in a lane whose log is in object storage",
    "postgres": "in PostgreSQL",
}

WHY: dict[Case, str] = {
    "calm": "No row is hot: the writes do not depend on each other, whatever their number, and are within the budget.",
    "affordable": "A row is hot, and the writes are within the budget and reach the needed rate: it can stay as it is.",
    "apart": "Writes take longer than the budget, and not because of each other: no row is hot, and there is nothing "
    "left to take apart. Look at the machine, its disk or its network.",
    "coupled": "A row is hot and over the budget, and it lives in PostgreSQL already: there is no place where its "
    "writes would not depend on each other. Write to it less often, or raise the budget.",
    "priced": "A row is hot and bears less than is needed; its writes cannot be spread to any effect, and are not "
    "latency-critical. Larger groups lower what each of them costs; they go on depending on each other.",
    "unhelped": "A row is hot and bears less than is needed; its writes cannot be spread to any effect, and are "
    "latency-critical, but PostgreSQL would bear no more of them. Larger groups lower what each write costs; the "
    "writes go on depending on each other.",
    "stuck": "A row is hot and over the budget, and nothing that was measured or can be calculated would be better: "
    "whatever waits is committed in one group already. Write to it less often, or raise the budget.",
    "countable": "A row is hot, and its writes only add to it: spread over shards they wait for each other less often. "
    "Two writes of one shard still depend on each other, and a read adds the shards up.",
    "crowded": "The shards of a counter are hot, all of them alike: with more of them each is written less often. Two "
    "writes of one shard still depend on each other.",
    "skewed": "One shard of a counter gets far more than its share, so more shards would not lower what it costs. An "
    "event log appends a row for each change, and a roll-up folds them in its own time.",
    "unrelated": "No row is hot, and yet the writes are over the budget: those that have nothing to do with each other "
    "wait in one lane. Streams with databases of their own do not wait for one another.",
    "mixed": "A row is hot, and most writes are to other rows, which wait for it in one lane. In databases of their "
    "own they do not; the hot row stays as it is, and is judged by itself afterwards.",
    "irreducible": "A row is hot and over the budget; its writes cannot be spread to any effect, and are "
    "latency-critical: coupled PostgreSQL makes each of them shorter. They go on depending on each other.",
    "distant": "The log in object storage alone takes longer than the budget, and writes are latency-critical: no "
    "arrangement of rows changes that, a coupled PostgreSQL does.",
    "cold": "No row is hot any more: what made PostgreSQL worth it is gone, and it may go back to a lane.",
}
HELD_BACK = (
    "The latest windows propose something else, and it has not held for long enough to be shown: {action}, in {votes} "
    "of the last {windows}."
)
ROOM = (
    "The groups of its lane have room ({share:.0%} is taken): writes that wait are committed together, and over shards "
    "they would need several commits instead of one."
)
UNNAMED = (
    "Name where it would go, and the command is printed: --to URL, or --postgres URL for every database, which may "
    "also be in interlock.toml (postgres = …) or in INTERLOCK_POSTGRES."
)
UNKNOWN_KIND = "Whether its rows can be spread is not declared. If they are only added to, set `shardable = true`."


def _verdict(case: Case, tool: Tool, evidence: Evidence, found: Figures) -> Verdict:
    """Return the verdict of a case, with its texts."""
    choice = CHOICES[case]
    remedy = _remedy(case, tool, evidence, found)
    return Verdict(
        database=evidence.database,
        engine=evidence.engine,
        action=choice.action,
        target=choice.target,
        why=WHY[case],
        evidence=tuple(_measurements(case, tool, evidence, found)),
        command=remedy.command,
        undo=remedy.undo,
        knobs=remedy.knobs,
        code=remedy.code,
    )


def held_back(verdict: Verdict, *, votes: int, windows: int) -> Verdict:
    """Return a verdict to stay while a proposal is too new; its text names the proposal."""
    return Verdict(
        database=verdict.database,
        engine=verdict.engine,
        action="stay",
        why=HELD_BACK.format(action=verdict.action, votes=votes, windows=windows),
        evidence=verdict.evidence,
    )


def _measurements(case: Case, tool: Tool, evidence: Evidence, found: Figures) -> list[str]:
    lines = [
        f"It lives {LIVES[evidence.engine]}; {_count(evidence.writes_per_s)} writes per second"
        + _rows(evidence.distinct_rows)
        + (f", in {evidence.streams:,} databases." if evidence.streams > 1 else "."),
        _row_line(found),
        _latency_line(tool, evidence, found),
        _plateau_line(tool, evidence, found),
    ]
    if evidence.floor_s is not None and evidence.floor_s > tool.write_latency_budget:
        lines.append(f"Even alone a commit takes {_ms(evidence.floor_s)}: the budget cannot be met here.")
    if found.spreadable and found.fullness <= STRICT.full and case in {"irreducible", "unhelped", "priced", "stuck"}:
        lines.append(ROOM.format(share=found.fullness))
    if case in {"irreducible", "distant", "unhelped", "stuck"} and tool.latency_critical:
        lines.append(_coupled_line(evidence))
    if tool.shardable is None and not found.spreadable and case in {"irreducible", "unhelped", "priced"}:
        lines.append(UNKNOWN_KIND)
    if CHOICES[case].action in {"couple", "uncouple"} and not (evidence.to and evidence.url):
        lines.append(UNNAMED)
    return [line for line in lines if line]


def _rows(count: int) -> str:
    return "" if not count else " to 1 row" if count == 1 else f" to {count:,} rows"


def _row_line(found: Figures) -> str:
    if found.row is None:
        return "No row is handed from one writer to another."
    row = found.row
    key = repr(row.key)
    key = key if len(key) <= KEY_CHARACTERS_MAX else key[: KEY_CHARACTERS_MAX - 1] + "…"
    which = f"A row of {row.table}" if row.key is None else f"{row.table} {key}"
    again = f", and {_count(row.conflicts_per_s)} writes are done again" if row.conflicts_per_s else ""
    return (
        f"{which} is handed from writer to writer {_count(row.handoffs_per_s)} times per second (hot above "
        f"{_count(found.threshold)}), each after {_ms(row.wait_s)}{again}; it has {found.share:.0%} of all writes."
    )


def _latency_line(tool: Tool, evidence: Evidence, found: Figures) -> str:
    if tool.write_latency_budget >= BUDGET_S_MAX:
        budget = "no budget is declared"
    else:
        budget = f"the budget is {_ms(tool.write_latency_budget)}"
    if evidence.p99_s is not None:
        return f"99 of 100 commits take at most {_ms(evidence.p99_s)}; {budget}."
    if found.latency_s is None:
        return f"How long commits take was not measured; {budget}."
    return f"How long commits take was not measured, at least {_ms(found.latency_s)}; {budget}."


def _plateau_line(tool: Tool, evidence: Evidence, found: Figures) -> str:
    if not tool.aggregate_write_rate:
        return ""
    needed = f"{_count(tool.aggregate_write_rate)} writes per second are needed"
    if found.row is not None and found.share < 1:
        needed += f", {_count(found.needed_per_s)} of them to that row"
    if evidence.plateau_per_s is None:
        return f"{needed}; the plateau was not measured (`interlock bench contention` does)."
    return f"{needed}; one row can do {_count(evidence.plateau_per_s)} here."


def _coupled_line(evidence: Evidence) -> str:
    there = _coupled(evidence)
    if there is not None:
        return f"In that PostgreSQL one row was measured to do {_count(there.per_s)} per second."
    unknown = "What one row can do in PostgreSQL was not measured (`interlock bench contention` does, read by --bench)"
    if evidence.engine == "lane":
        return f"{unknown}: it is often slower there than in a lane on a local disk."
    return f"{unknown}; it is taken for {COUPLED_PER_S:,.0f} per second."


class _Remedy(NamedTuple):
    """The command, its undo, and the settings and code that it consists of."""

    command: str = ""
    undo: str = ""
    knobs: dict[str, Knob] = {}  # noqa: RUF012 -- never changed.
    code: str = ""


def _remedy(case: Case, tool: Tool, evidence: Evidence, found: Figures) -> _Remedy:
    match CHOICES[case].action:
        case "stay":
            return _Remedy()
        case "tune":
            return _tune(tool, evidence, found)
        case "helper":
            return _help(case, evidence, found)
        case "separate":
            code = "stream = await db.stream(key)  # The key of what belongs together: a customer, an article."
            undo = "Copy the rows of the streams back into the database first; then db_per_write_stream = false."
            return _Remedy(
                f"{_section(evidence)}\ndb_per_write_stream = true\n\n{code}", undo, {"db_per_write_stream": True}, code
            )
        case "couple" | "uncouple":
            return _couple(evidence)


def _tune(tool: Tool, evidence: Evidence, found: Figures) -> _Remedy:
    batch = tool.group_commit_max_batch or LaneSettings().group_commit_max_batch
    batch = max(batch * 2 if found.fullness > STRICT.full else batch, LaneSettings().group_commit_max_batch)
    window_s = max(tool.group_commit_window or 0.0, round(tool.write_latency_budget * WINDOW_SHARE, 4))
    lines = f"{_section(evidence)}\ngroup_commit_max_batch = {batch}\ngroup_commit_window = {window_s:g}"
    knobs: dict[str, Knob] = {"group_commit_max_batch": batch, "group_commit_window": window_s}
    return _Remedy(lines, f"Take the two lines out of {_section(evidence)} again.", knobs)


def _help(case: Case, evidence: Evidence, found: Figures) -> _Remedy:
    if case == "crowded":
        knob, more = f"{_section(evidence)}\ncounter_shard_count =", min(found.shards * 2, COUNTER_SHARDS_MAX)
        return _Remedy(f"{knob} {more}", f"{knob} {found.shards}", {"counter_shard_count": more})
    key = found.counter or (found.row.key if found.row is not None and isinstance(found.row.key, str) else "NAME")
    counter = f"db.counter({json.dumps(key, ensure_ascii=False)}, kind="
    kind, before = ("event_log", "sharded") if case == "skewed" else ("sharded", "exact")
    # A counter that chooses for itself takes a setting; a plain row has to become a counter first, in code.
    knobs: dict[str, Knob] = {} if found.counter is None else {"counter_kind": kind}
    return _Remedy(f'{counter}"{kind}")', f'{counter}"{before}")', knobs, f'{counter}"{kind}")')


def _couple(evidence: Evidence) -> _Remedy:
    if not (evidence.to and evidence.url):
        return _Remedy()
    named = (evidence.database, "--home", evidence.home) if evidence.home else ()
    # Quoted: an address of PostgreSQL has an ampersand in it, and is pasted into a shell.
    return _Remedy(
        shlex.join(("interlock", "route", *(named or (evidence.url,)), "--to", evidence.to)),
        shlex.join(("interlock", "route", *(named or (evidence.to,)), "--to", evidence.url)),
    )


def _section(evidence: Evidence) -> str:
    name = evidence.database
    return f"[tools.{name if re.fullmatch(r'[A-Za-z0-9_-]+', name) else json.dumps(name)}]"


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _count(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.2g}"  # noqa: PLR2004 -- two digits suffice.


# --- Rule ------------------------------------------------------------------------------------------------------------


class AdviceThresholds(NamedTuple):
    """One reading of the thresholds."""

    heat: float = 1.0
    """Hand-offs of the worst row, as a multiple of what makes a row hot."""
    pressure: float = 1.0
    """Time or rate, as a multiple of what the tool declares."""
    floor: float = 1.0
    """Time that the durable append alone takes, as a multiple of the budget."""
    cold: float = 0.25
    """A heat below which a database in PostgreSQL may go back."""
    mixed: float = 0.5
    """A share of the writes below which the hot row is not what most writers want."""
    skew: float = 2.0
    """How many times its fair share one shard may have."""
    full: float = FULL_SHARE
    """Share of a group's room below which it holds all writers that wait, so that spreading them does not help."""
    gain: float = 0.9
    """What would be of the pressure that is now: a smaller effect is not worth a change."""


STRICT = AdviceThresholds()
COUPLED_PER_S = 1_500.0
"""Writes of one row per second that an ordinary PostgreSQL bears, where none was measured."""
MARGINS = AdviceThresholds(heat=0.5, pressure=0.5, floor=0.5, cold=0.5, mixed=0.25, skew=1.0, full=0.25, gain=1.7)
"""The other end of each margin."""
MIXED_MOST = 0.95
SKEW_MOST = 4.0
"""These two are crossed in both directions, so their margins lie on both sides."""


def advise(tool: Tool, evidence: Evidence, current: Choice | None = None) -> Verdict:
    """Return the verdict on one window. `current`, the shown choice, is kept near a threshold."""
    found = figures_of(tool, evidence)
    return _verdict(_decide(tool, evidence, found, current), tool, evidence, found)


def _decide(tool: Tool, evidence: Evidence, found: Figures, current: Choice | None) -> Case:
    strict = _case(tool, evidence, found, STRICT)
    if current is None or CHOICES[strict] == current:
        return strict
    for limits in _readings(found):
        case = _case(tool, evidence, found, limits)
        if CHOICES[case] == current:
            return case
    return strict


def _readings(found: Figures) -> Iterator[AdviceThresholds]:
    """Yield the readings inside the margins; where a figure is on one side of all ends, one of them is enough."""
    compared = (found.heat, None, found.floor_ratio, found.heat, found.share, found.share * found.shards)
    third = {"mixed": MIXED_MOST, "skew": SKEW_MOST}
    choices: list[list[float]] = []
    for name, figure, strict, margin in zip(
        AdviceThresholds._fields, (*compared, found.fullness, None), STRICT, MARGINS, strict=True
    ):
        ends = [strict, margin, *([third[name]] if name in third else [])]
        sides = {(figure > end) - (figure < end) for end in ends} if figure is not None else ()
        choices.append(ends[:1] if len(sides) == 1 else ends)
    for each in product(*choices):
        yield AdviceThresholds(*each)


def _case(tool: Tool, evidence: Evidence, found: Figures, limits: AdviceThresholds) -> Case:
    hot = found.heat > limits.heat
    cold = evidence.engine == "postgres" and found.heat < limits.cold and evidence.routed is not False
    if cold and _is_better("cold", tool, evidence, found, limits):
        return "cold"
    if max(found.latency_ratio, found.row_ratio if hot else 0.0, found.lane_ratio) <= limits.pressure:
        return "affordable" if hot else "calm"
    if hot and found.spreadable and _is_better(helper := _helper(found, limits), tool, evidence, found, limits):
        return helper
    if evidence.engine == "postgres":
        return "coupled" if hot else "apart"
    return _in_lane(tool, evidence, found, limits, hot=hot)


def _helper(found: Figures, limits: AdviceThresholds) -> Case:
    if found.shards == 1:
        return "countable"
    return "skewed" if found.share * found.shards > limits.skew else "crowded"


def _in_lane(tool: Tool, evidence: Evidence, found: Figures, limits: AdviceThresholds, *, hot: bool) -> Case:
    """Return the case of a lane over its budget whose hot row, if there is one, is not to be spread."""
    coupled = tool.latency_critical and _is_better("irreducible", tool, evidence, found, limits)
    if coupled and found.floor_ratio > limits.floor and evidence.engine == "object":
        return "distant"  # The log alone takes longer than the budget: no arrangement of rows helps.
    alone = evidence.streams == 1 and evidence.distinct_rows != 1
    if (not hot or found.share < limits.mixed) and alone and _is_better("mixed", tool, evidence, found, limits):
        return "mixed" if hot else "unrelated"
    if not hot:
        return "apart"
    if coupled:
        return "irreducible"
    if max(found.row_ratio, found.lane_ratio) > limits.pressure or found.fullness > limits.full:
        return "unhelped" if tool.latency_critical else "priced"
    return "stuck"


def _is_better(case: Case, tool: Tool, evidence: Evidence, found: Figures, limits: AdviceThresholds) -> bool:
    """Return whether the remedy of a case has a better effect: as measured, or else as modelled."""
    target = CHOICES[case].target
    there = _coupled(evidence) if target == "postgres" else evidence.measured.get(target)
    if there is not None:
        needed = tool.aggregate_write_rate if target == "streams" else found.needed_per_s
        would_be = max(there.p99_s / tool.write_latency_budget, needed / there.per_s)
        return would_be < max(found.pressure * limits.gain, float(target == "lane"))
    if target == "postgres":  # A commit beside the program is shorter than an append to a bucket, not than a local one.
        return evidence.engine == "object" and found.needed_per_s <= COUPLED_PER_S
    if target == "streams":  # Each waits for its own append only.
        return found.floor_ratio < found.pressure * limits.gain
    # In a lane an event log is one more queue, and shards need a commit each where one group has room for all.
    return evidence.engine == "postgres" or (target != "event_log" and found.fullness > limits.full)


def _coupled(evidence: Evidence) -> Measured | None:
    """Return what was measured on the PostgreSQL that it could be moved to."""
    plateau = evidence.coupled_plateau_per_s
    return evidence.measured.get("postgres") or (Measured(per_s=plateau) if plateau else None)


# --- Hysteresis ------------------------------------------------------------------------------------------------------
# `step` is pure: the state before, the verdict of one more window and its time give the state after. The margins of
# the rule keep a shown verdict near its thresholds; the votes here keep a burst of one window from being shown at
# all. Going back to a lane takes a day on top: a workload that was moved by its worst hours is not judged by a quiet
# night.
#
# The state is a plain JSON value, so that a command can continue where its last run ended. It belongs to one
# declared tool at one place: when either changes, `fresh` resets it.

WINDOWS = 6
"""The number of latest windows that vote."""
VOTES = 5
"""Windows that must propose the same."""
HELD_S: dict[Action, float] = {"uncouple": 86_400.0}
"""Seconds during which every window must have made this proposal, beside the votes; 0 for other actions."""


class Advisor(msgspec.Struct, frozen=True, kw_only=True):
    """The advisor's state for one tool at one place."""

    declared: str = ""
    """The tool, as it was declared when the windows were judged."""
    engine: Engine | None = None
    verdict: Verdict | None = msgspec.field(default=None, name="shown")
    """The verdict that is shown; None before the first window."""
    since_s: float = 0.0
    """When it was first shown, in seconds since the epoch."""
    recent: tuple[Choice, ...] = ()
    """Proposals of the latest windows, oldest first."""
    steady_s: float = 0.0
    """Since when every window has proposed the same as the latest."""

    @property
    def choice(self) -> Choice | None:
        """The shown verdict without its texts, for the rule's margins."""
        return None if self.verdict is None else self.verdict.choice

    @property
    def proposed(self) -> Choice | None:
        """The proposal of the latest window."""
        return self.recent[-1] if self.recent else None

    @property
    def votes(self) -> int:
        """The number of latest windows that proposed the same as the last one."""
        return 0 if not self.recent else self.recent.count(self.recent[-1])


def fresh(state: Advisor, tool: Tool, engine: Engine) -> Advisor:
    """Return the same state, or an empty one if the tool's declaration or place has changed."""
    declared = msgspec.json.encode(tool).decode()
    if (state.declared, state.engine) == (declared, engine):
        return state
    return Advisor(declared=declared, engine=engine)


def step(state: Advisor, verdict: Verdict, now_s: float) -> Advisor:
    """Return the state after one more window."""
    choice = verdict.choice
    recent = (*state.recent, choice)[-WINDOWS:]
    state = msgspec.structs.replace(
        state, recent=recent, steady_s=state.steady_s if state.proposed == choice else now_s
    )
    if choice == state.choice:
        return msgspec.structs.replace(state, verdict=verdict)  # The same, with the figures of today.
    held_s = HELD_S.get(choice.action, 0.0)
    if state.votes >= VOTES and now_s - state.steady_s >= held_s:
        return msgspec.structs.replace(state, verdict=verdict, since_s=now_s)
    if state.verdict is None or state.verdict.action == "stay":
        # Staying is the default and needs no votes. The text names the proposal.
        first = verdict if choice.action == "stay" else held_back(verdict, votes=state.votes, windows=len(recent))
        since_s = now_s if state.verdict is None else state.since_s
        return msgspec.structs.replace(state, verdict=first, since_s=since_s)
    return state


# --- Effect of a change ----------------------------------------------------------------------------------------------

NOISE = 1.3
"""A figure that strays by less than this is taken for the same."""


class TypicalFigures(msgspec.Struct, frozen=True):
    """What was measured of a workload: medians of its latest windows."""

    writes_per_s: float
    p99_s: float | None = None


def typical_figures(windows: Sequence[Evidence]) -> TypicalFigures:
    """Return the medians of the latest windows."""
    latest = windows[-WINDOWS:]
    times_s = [each.p99_s for each in latest if each.p99_s is not None]
    return TypicalFigures(median(each.writes_per_s for each in latest), median(times_s) if times_s else None)


def worsened(tool: Tool, before: TypicalFigures, after: TypicalFigures) -> str:
    """Return which declared needs are missed by more than before, as a sentence; otherwise empty."""
    found: list[str] = []
    slow_s = max(tool.write_latency_budget, (before.p99_s or BUDGET_S_MAX) * NOISE)
    if before.p99_s is not None and after.p99_s is not None and after.p99_s > slow_s:
        found.append(f"99 of 100 commits take {_ms(after.p99_s)}, and took {_ms(before.p99_s)} before")
    if after.writes_per_s < min(tool.aggregate_write_rate, before.writes_per_s / NOISE):
        found.append(
            f"{_count(after.writes_per_s)} of {_count(tool.aggregate_write_rate)} writes per second are reached, and "
            f"{_count(before.writes_per_s)} were before"
        )
    return "; ".join(found) + "." if found else ""


# --- Evidence of databases in use ------------------------------------------------------------------------------------
# A database and its streams and shards are one workload in several lanes: their windows of the same few seconds
# become one. Nothing is opened and nothing is locked. Notes beside the evidence list what could not be read, because
# no evidence and nothing hot look alike.

_BELOW = re.compile(r"\.(?:streams|shards)/")
"""Separates the address of a database from the name of a stream or shard."""


class GatheredEvidence(msgspec.Struct, frozen=True):
    """The evidence of an address, with notes."""

    windows: list[Evidence]
    """Oldest first, of one database or of all of a home."""
    notes: list[str]
    """Sources that could not be read, and the accuracy of the numbers."""


async def gather(url: str, seconds: float, *, clock: Clock) -> GatheredEvidence:
    """Watch an address for `seconds`. Raises TargetNotFound and UnavailableError."""
    if not is_postgres_url(url):
        # An owner publishes a report every few seconds; each is a window.
        reading = await look(url, seconds, clock=clock, patient=True)
        return GatheredEvidence(as_evidence(reading.windows), reading.notes)
    windows: list[Window] = []
    notes: list[str] = []
    for _ in range(WINDOWS):
        reading = await look(url, seconds / WINDOWS, clock=clock)
        windows += reading.windows
        notes = reading.notes
    # A session of PostgreSQL reports its commits once a second at most: a short window sees none, or those of others.
    commits_per_s = sum(each.transactions_per_s * each.seconds for each in windows) / sum(w.seconds for w in windows)
    windows = [msgspec.structs.replace(each, transactions_per_s=commits_per_s) for each in windows]
    return GatheredEvidence(as_evidence(windows), notes)


def as_evidence(windows: Sequence[Window]) -> list[Evidence]:
    """Join the windows of a database and its streams, one for each few seconds; oldest first."""
    workloads: dict[tuple[str, str], list[Window]] = {}
    for window in sorted(windows, key=lambda each: each.at_s):
        workloads.setdefault((_database_of(window.database), window.engine), []).append(window)
    found: list[Evidence] = []
    for (database, _), group in workloads.items():
        lanes = {window.url for window in group}
        found += [_join_windows(database, each, streams=len(lanes)) for each in _slots(group, several=len(lanes) > 1)]
    return sorted(found, key=lambda each: each.at_s or 0.0)


def _slots(windows: Sequence[Window], *, several: bool) -> list[list[Window]]:
    if not several:
        return [[window] for window in windows]
    slots = [list(slot) for _, slot in groupby(windows, key=lambda each: each.at_s // EVERY_S)]
    # A lane that published twice within a slot counts once, with its last report.
    return [list({window.url: window for window in slot}.values()) for slot in slots]


def _join_windows(database: str, windows: Sequence[Window], *, streams: int) -> Evidence:
    last = max(windows, key=lambda each: each.at_s)
    latencies_s = [each.latency_p99_s for each in windows if each.latency_p99_s is not None]
    rows = sorted((row for each in windows for row in each.rows), key=dependent_per_s, reverse=True)
    return Evidence(
        database=database,
        engine=last.engine,
        seconds=max(each.seconds for each in windows),
        writes_per_s=sum(each.transactions_per_s for each in windows),
        distinct_rows=sum(each.rows_seen for each in windows),
        rows=tuple(rows[:ROWS_MAX]),
        p99_s=max(latencies_s, default=None),
        groups_per_s=sum(each.groups_per_s or 0.0 for each in windows) or None,
        streams=streams,
        flag_threshold=last.flag_threshold,
        url=_BELOW.split(min((each.url for each in windows), key=len))[0],
        at_s=last.at_s,
    )


def _database_of(database: str) -> str:
    """Return the database of a stream or shard, which precedes the slash: no name of a database has one."""
    return database.partition("/")[0]
