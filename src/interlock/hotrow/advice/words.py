"""Texts of verdicts: the reason, the measurements, the command to run and its undo.

No text promises the impossible (D13): grouping commits and spreading a row over shards lower what a hot row
costs, and the writes of one row go on depending on each other. A test reads every text that this module can make. Names
and keys are the user's, so they are shown as Python and TOML would write them.
"""

import json
import re
import shlex
from typing import NamedTuple

from interlock.hotrow.advice.evidence import Evidence
from interlock.hotrow.advice.seen import Seen
from interlock.hotrow.advice.verdict import CHOICES, Case, Knob, Verdict
from interlock.hotrow.signal.windows import Engine
from interlock.hotrow.tools import BUDGET_S_MAX, Tool
from interlock.lanes.settings import COUNTER_SHARDS_MAX, LaneSettings

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
    "affordable": "A row is hot, and it is within the budget and below its plateau: it can stay where it is.",
    "apart": "Writes take longer than the budget, and not because of each other: no row is hot, and there is nothing "
    "left to take apart. Look at the machine, its disk or its network.",
    "coupled": "A row is hot and over the budget, and it lives in PostgreSQL already: there is no place where its "
    "writes would not depend on each other. Write to it less often, or raise the budget.",
    "priced": "A row is hot, over the budget, and not declared to be spreadable or latency-critical. Larger "
    "groups lower what each of them costs; they go on depending on each other.",
    "unhelped": "A row is hot, over the budget, not declared to be spreadable, and latency-critical; but "
    "PostgreSQL was measured to bear no more of it. Larger groups lower what each write costs; the writes go on "
    "depending on each other.",
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
    "irreducible": "A row is hot, over the budget, not declared to be spreadable, and latency-critical: coupled "
    "PostgreSQL makes each of its writes shorter. They go on depending on each other.",
    "distant": "The log in object storage alone takes longer than the budget, and writes are latency-critical: no "
    "arrangement of rows changes that, a coupled PostgreSQL does.",
    "cold": "No row is hot any more: what made PostgreSQL worth it is gone, and it may go back to a lane.",
}
HELD_BACK = (
    "The latest windows propose something else, and it has not held for long enough to be shown: {action}, in {votes} "
    "of the last {windows}."
)
UNKNOWN_KIND = "Whether its rows can be spread is not declared. If they are only added to, set `shardable = true`."


def worded(case: Case, tool: Tool, evidence: Evidence, found: Seen) -> Verdict:
    """Return the verdict of a case, with its texts."""
    choice = CHOICES[case]
    remedy = _remedy(case, tool, evidence, found)
    return Verdict(
        database=evidence.database,
        engine=evidence.engine,
        action=choice.action,
        target=choice.target,
        why=WHY[case],
        evidence=tuple(_measured(case, tool, evidence, found)),
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


def _measured(case: Case, tool: Tool, evidence: Evidence, found: Seen) -> list[str]:
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
    if case in {"irreducible", "distant"}:
        lines.append(_coupled_line(evidence))
    if tool.shardable is None and CHOICES[case].action in {"tune", "couple"} and case != "distant":
        lines.append(UNKNOWN_KIND)
    return [line for line in lines if line]


def _rows(count: int) -> str:
    return "" if not count else " to 1 row" if count == 1 else f" to {count:,} rows"


def _row_line(found: Seen) -> str:
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


def _latency_line(tool: Tool, evidence: Evidence, found: Seen) -> str:
    if tool.write_latency_budget >= BUDGET_S_MAX:
        budget = "no budget is declared"
    else:
        budget = f"the budget is {_ms(tool.write_latency_budget)}"
    if evidence.p99_s is not None:
        return f"99 of 100 commits take at most {_ms(evidence.p99_s)}; {budget}."
    if found.latency_s is None:
        return f"How long commits take was not measured; {budget}."
    return f"How long commits take was not measured, at least {_ms(found.latency_s)}; {budget}."


def _plateau_line(tool: Tool, evidence: Evidence, found: Seen) -> str:
    if not tool.aggregate_write_rate:
        return ""
    needed = f"{_count(tool.aggregate_write_rate)} writes per second are needed"
    if found.row is not None and found.share < 1:
        needed += f", {_count(found.needed_per_s)} of them to that row"
    if evidence.plateau_per_s is None:
        return f"{needed}; the plateau was not measured (`interlock bench contention` does)."
    return f"{needed}; one row can do {_count(evidence.plateau_per_s)} here."


def _coupled_line(evidence: Evidence) -> str:
    if evidence.coupled_plateau_per_s is not None:
        return f"In that PostgreSQL one row was measured to do {_count(evidence.coupled_plateau_per_s)} per second."
    if evidence.engine == "lane":
        return (
            "Measure it there before: one row is often faster in a lane on a local disk than in PostgreSQL "
            "(`interlock bench contention`)."
        )
    return "What one row can do in that PostgreSQL was not measured (`interlock bench contention` does)."


class _Remedy(NamedTuple):
    """The command, its undo, and the settings and code that it consists of."""

    command: str = ""
    undo: str = ""
    knobs: dict[str, Knob] = {}  # noqa: RUF012 -- never changed.
    code: str = ""


def _remedy(case: Case, tool: Tool, evidence: Evidence, found: Seen) -> _Remedy:
    match CHOICES[case].action:
        case "stay":
            return _Remedy()
        case "tune":
            return _tuning(tool, evidence)
        case "helper":
            return _helping(case, evidence, found)
        case "separate":
            code = "stream = await db.stream(key)  # The key of what belongs together: a customer, an article."
            undo = "Copy the rows of the streams back into the database first; then db_per_write_stream = false."
            return _Remedy(
                f"{_section(evidence)}\ndb_per_write_stream = true\n\n{code}", undo, {"db_per_write_stream": True}, code
            )
        case "couple" | "uncouple":
            return _routing(case, evidence)


def _tuning(tool: Tool, evidence: Evidence) -> _Remedy:
    batch = max(tool.group_commit_max_batch or 0, LaneSettings().group_commit_max_batch)
    window_s = max(tool.group_commit_window or 0.0, round(tool.write_latency_budget * WINDOW_SHARE, 4))
    lines = f"{_section(evidence)}\ngroup_commit_max_batch = {batch}\ngroup_commit_window = {window_s:g}"
    knobs: dict[str, Knob] = {"group_commit_max_batch": batch, "group_commit_window": window_s}
    return _Remedy(lines, f"Take the two lines out of {_section(evidence)} again.", knobs)


def _helping(case: Case, evidence: Evidence, found: Seen) -> _Remedy:
    if case == "crowded":
        knob, more = f"{_section(evidence)}\ncounter_shard_count =", min(found.shards * 2, COUNTER_SHARDS_MAX)
        return _Remedy(f"{knob} {more}", f"{knob} {found.shards}", {"counter_shard_count": more})
    key = found.counter or (found.row.key if found.row is not None and isinstance(found.row.key, str) else "NAME")
    counter = f"db.counter({json.dumps(key, ensure_ascii=False)}, kind="
    kind, before = ("event_log", "sharded") if case == "skewed" else ("sharded", "exact")
    # A counter that chooses for itself takes a setting; a plain row has to become a counter first, in code.
    knobs: dict[str, Knob] = {} if found.counter is None else {"counter_kind": kind}
    return _Remedy(f'{counter}"{kind}")', f'{counter}"{before}")', knobs, f'{counter}"{kind}")')


def _routing(case: Case, evidence: Evidence) -> _Remedy:
    schema = re.sub(r"[^a-z0-9_]+", "_", evidence.database.lower())
    lane = f"s3://BUCKET/{evidence.database}" if evidence.engine == "object" else f"lanes:///FOLDER/{evidence.database}"
    postgres = f"postgresql://HOST/DATABASE?schema={schema}"
    there, here = (lane, postgres) if case == "cold" else (postgres, lane)
    return _Remedy(_route(evidence, there), _route(evidence, evidence.url or here))


def _route(evidence: Evidence, url: str) -> str:
    return f"interlock route {shlex.quote(evidence.database)} --to {shlex.quote(url)}"


def _section(evidence: Evidence) -> str:
    name = evidence.database
    return f"[tools.{name if re.fullmatch(r'[A-Za-z0-9_-]+', name) else json.dumps(name)}]"


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _count(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.2g}"  # noqa: PLR2004 -- two digits suffice.
