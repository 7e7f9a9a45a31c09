"""`interlock advise`: recommend the engine of workloads from measurements, and apply a verdict with `--apply`.

Evidence is gathered for a while from databases in use, or read from a file. The needs of a tool come from code
(`--tool`), then from `interlock.toml`. With `--state` the windows of earlier runs count too: a verdict is shown once
most of the latest windows propose it. Without `--apply` and `--undo` nothing is changed; with them the user confirms
every change, and it is written into a journal before it is made. What was applied last is compared with what was
measured before it: after a move immediately, otherwise in the next run. If a declared need is missed by more, the undo
is offered.

Sections: report, apply and undo, moves, experiments, command.
"""

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Annotated, NamedTuple, cast
from urllib.parse import unquote

import msgspec
import typer
from rich.text import Text

from interlock.bench.contention import (
    EVENT_LOG,
    GROUPED,
    ONE_ROW,
    ONE_ROW_ALONE,
    ROW,
    SHARDED,
    STREAM_ROWS,
    ContentionPoint,
    ContentionResult,
)
from interlock.catalog.catalog import Catalog
from interlock.cli.console import (
    Exit,
    ListingFormat,
    escaped,
    json_text,
    parts,
    remark,
    say,
    show_ids,
    show_json,
    show_table,
    stderr,
    write_file,
)
from interlock.cli.load_machines import load_value
from interlock.cli.parse_arguments import Output, absolute_url
from interlock.cli.route import move_database, plan_of, run_move
from interlock.clock import Clock, SystemClock
from interlock.errors import BadUsage, InterlockError, TargetNotFound, UnusableFile
from interlock.hotrow.applied_advice import AppliedAdvice, Journal
from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.placement_advice import (
    VOTES,
    WINDOWS,
    Advisor,
    Choice,
    Evidence,
    GatheredEvidence,
    Knob,
    Measured,
    Target,
    Verdict,
    fresh,
    gather,
    read_evidence,
    step,
    timed,
    typical_figures,
    worsened,
)
from interlock.hotrow.placement_advice import advise as advise_window
from interlock.hotrow.tool_declarations import Tool, declared_tool, undeclared
from interlock.relocate.mover import abandon_database, is_same
from interlock.relocate.route_by_name import Route, find_route
from interlock.relocate.stages import Moved, Plan
from interlock.settings import SettingsTable, change_settings, settings_file, settings_in, toml_text
from interlock.urls import (
    extend_path,
    has_schema,
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    last_name,
    redact_secrets,
    redact_url,
    with_schema,
    with_secrets,
    without_secrets,
)

# --- Report ----------------------------------------------------------------------------------------------------------

_UNDECLARED = (
    "Nothing is declared of {names}, so nothing can be over its budget. Add write_latency_budget and "
    "aggregate_write_rate below [tools.NAME] of interlock.toml."
)
_NOTHING = (
    "No advice: nothing was measured. A process that writes to a database reports every few seconds while it is open."
)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was applied or undone."""

    number: int
    """In the journal."""
    what: str
    undo: str
    """The command that takes it back."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The advice on one workload."""

    name: str
    declared: bool
    verdict: Verdict
    proposed: Choice
    """The verdict of the latest window, which may differ."""
    votes: int
    windows: int
    """`votes` of the `windows` latest windows propose the verdict."""
    worse: str = ""
    """What got worse since the last change was applied; empty if nothing did, or nothing was applied."""
    applied: Done | None = None
    """The applied change, with `--apply`."""


class Judged(NamedTuple):
    """The advice on one workload, and what it rests on."""

    advice: Advice
    tool: Tool
    windows: Sequence[Evidence]


def show_advice(found: Sequence[Advice]) -> None:
    """Print all advice."""
    if not found:
        say(_NOTHING)
        return
    rows = [
        (
            each.name,
            each.verdict.engine,
            each.verdict.action,
            each.verdict.target,
            "" if each.proposed == each.verdict.choice else _proposal(each),
        )
        for each in found
    ]
    show_table(("name", "lives", "verdict", "target", "proposed"), rows)
    for each in found:
        verdict = each.verdict
        lines = [labelled("why", verdict.why), labelled("measured", "\n".join(verdict.evidence))]
        if verdict.command:
            lines += [labelled("run", verdict.command), labelled("undo", verdict.undo)]
        if each.worse:
            lines.append(labelled("worse", each.worse))
        text = Text.assemble((f"\n{escaped(each.name)}: {verdict.action}", "bold"), "\n")
        text.append(parts(escaped("\n".join(lines))))
        say(text)
    silent = [each.name for each in found if not each.declared]
    if silent:
        remark(escaped(_UNDECLARED.format(names=", ".join(silent))))


def labelled(label: str, text: str) -> str:
    """Return a labelled part of a verdict with aligned lines; an empty line has no blanks, so that it can be copied."""
    return "  " + f"{label}:".ljust(10) + indent(text, " " * 12).lstrip()


def _proposal(advice: Advice) -> str:
    what = " ".join(part for part in (advice.proposed.action, advice.proposed.target) if part)
    return f"{what} ({advice.votes} of {advice.windows} windows, {VOTES} of {WINDOWS} needed)"


# --- Apply and undo --------------------------------------------------------------------------------------------------
# Four verdicts are settings of a tool, written into `interlock.toml`; two are moves. Changes that need code are
# printed with the line; code is never edited.

SCHEMA_CHARACTERS_MAX = 63
KINDS_NOTE = "Counters that code opens with another kind stay what they are."
STREAMS_NOTE = (
    "Rows that are there stay in the database itself: copy them into their streams, which are empty at first; and back "
    "again before it is undone."
)


UNSAID = {
    "couple": "The verdict is to couple it to PostgreSQL, and there may be several.",
    "uncouple": "The verdict is to bring it back to a lane, and nothing here has moved it from one.",
}
TARGET_NOTES = {"sharded": [KINDS_NOTE], "event_log": [KINDS_NOTE], "streams": [STREAMS_NOTE]}


class Routing(NamedTuple):
    """A move to be made."""

    name: str
    source: str
    """Where it lives now; an empty one is found in the catalog of the home."""
    target: str
    home: str | None


class AdvicePlaces(NamedTuple):
    """The places on the command line."""

    home: str | None
    to: str | None
    postgres: str | None
    addresses: dict[str, str]
    """Of databases, as far as they are known, by name."""


class VerdictApplier:
    """Applies verdicts after confirmation, and reverts applied ones."""

    def __init__(
        self, where: AdvicePlaces, *, yes: bool, clock: Clock, router: "DatabaseRouter", seconds: float = 0.0
    ) -> None:
        self._where = where
        self._yes = yes
        self._clock = clock
        self._router = router
        self._seconds = seconds
        self._file = settings_file()
        self.declined = False
        """Whether the user declined a change."""
        self.journal = Journal(_folder(where.home) or self._file.parent)

    def apply(self, judged: Judged) -> Advice:
        """Apply one verdict, unless no command can do it or the user declines. What got worse is to be undone first."""
        advice = judged.advice
        if advice.worse:
            self.offer_undo(advice.name, advice.worse)
            return advice
        done = self._apply(advice, judged)
        if done is None:
            return advice
        worse = self._compare_again(judged)
        if worse:
            self.offer_undo(advice.name, worse)
        return msgspec.structs.replace(advice, applied=done, worse=worse)

    def worse_since(self, tool: Tool, windows: Sequence[Evidence]) -> str:
        """Return what got worse since the last change of the workload was applied."""
        entry = self.journal.last(windows[-1].database)
        if entry is None or entry.state != "done" or entry.was is None:
            return ""
        return worsened(tool, entry.was, typical_figures(windows))

    def offer_undo(self, name: str, worse: str) -> None:
        """Offer to take back what made it worse. With `--yes` the command is printed: nothing is undone unasked."""
        remark(escaped(f"{name} got worse: {worse}"))
        if self._yes:
            remark(escaped(f"To take it back: {self._undo_command(name)}"))
        else:
            self.undo(name)

    def _compare_again(self, judged: Judged) -> str:
        """Measure a workload again after a change, and return what got worse."""
        name, action = judged.advice.name, judged.advice.verdict.action
        if action not in {"couple", "uncouple"}:
            remark(escaped(f"{name}: restart its program, and the next `interlock advise` compares."))
            return ""
        entry = self.journal.last(name)
        assert entry is not None, "it was applied just now"
        url = self._routing(name, "", entry.goal, entry.home).target
        windows: list[Evidence] = []
        with suppress(InterlockError):  # It was moved, whether it can be measured there or not.
            windows += asyncio.run(gather(url, self._seconds, clock=SystemClock())).windows if self._seconds else []
        if not windows:
            remark(escaped(f"{name}: nothing was measured after the move; the next `interlock advise` compares."))
            return ""
        return self.worse_since(judged.tool, [msgspec.structs.replace(each, database=name) for each in windows])

    def _apply(self, advice: Advice, judged: Judged) -> Done | None:
        verdict = advice.verdict
        if verdict.action == "stay":
            return None
        if verdict.action in {"couple", "uncouple"}:
            entry, plan = self._moving(advice.name, verdict)
            goal = redact_secrets(entry.goal)
            lines = [f"Move {advice.name} to {goal}, while it serves.", *_plan_lines(plan)]
            lines.append(f"The same as: interlock route {shlex.quote(advice.name)} --to {shlex.quote(goal)}")
        else:
            entry = self._setting(advice.name, verdict)
            if not entry.set:
                known = (
                    f"it is set already, in {self._file}."
                    if verdict.knobs
                    else f"only code can do this: {verdict.code}"
                )
                remark(escaped(f"{verdict.database}: {known}"))
                return None
            values = ", ".join(f"{knob} = {toml_text(value)}" for knob, value in entry.set.items())
            setting = f"Set {values} below {SettingsTable('tools', entry.name)} of {entry.file}."
            lines = [setting, "It counts from the next time that the database is opened."]
            lines += TARGET_NOTES.get(verdict.target, [])
        if verdict.code:
            lines.append(f"Only code can do the rest: {verdict.code}")
        undo = self._undo_command(entry.name)
        if not self._agreed(advice.name, lines, undo):
            return None
        entry = self.journal.begin(msgspec.structs.replace(entry, was=typical_figures(judged.windows)))
        if entry.goal:
            self._router.move(self._routing(entry.name, entry.source, entry.goal, entry.home))
        else:
            change_settings(Path(entry.file), SettingsTable("tools", entry.name), dict(entry.set))
        self.journal.mark(entry, "done")
        return _print_done(Done(number=entry.number, what=lines[0], undo=undo), entry.name, "applied")

    def undo(self, name: str | None) -> Done | None:
        """Revert the last change of one workload or of all; return None when the user declines."""
        entry = self.journal.last(name)
        if entry is None:
            raise TargetNotFound(
                f"nothing is to be undone{'' if name is None else f' of {name!r}'}.",
                why=f"The journal {self.journal.path} has nothing that was applied and not undone.",
                fix="Name the home or the folder in which it was applied, and the workload.",
            )
        if entry.goal:
            lines = [f"Move {entry.name} back to {redact_secrets(entry.source)}, while it serves."]
        else:
            self._refuse_changed(entry)
            lines = [_back_line(entry)]
            lines += [STREAMS_NOTE] * (entry.action == "separate")
        if not self._agreed(entry.name, lines, f"interlock advise {shlex.quote(entry.name)} --apply"):
            return None
        if entry.goal:
            self._router.move_back(self._routing(entry.name, entry.goal, entry.source, entry.home))
        else:
            change_settings(Path(entry.file), SettingsTable("tools", entry.name), entry.before)
        self.journal.mark(entry, "undone")
        return _print_done(Done(number=entry.number, what=lines[0], undo=""), entry.name, "undone")

    def _routing(self, name: str, source: str, target: str, home: str) -> Routing:
        """Return the move with the passwords of the command line: stored URLs have none."""
        where = self._where
        known = [each for each in (where.to, where.postgres, where.home, *where.addresses.values()) if each]
        return Routing(name, with_secrets(source, *known), with_secrets(target, *known), where.home or home or None)

    def _setting(self, name: str, verdict: Verdict) -> AppliedAdvice:
        now = settings_in(self._file, SettingsTable("tools", name))
        changes = {knob: value for knob, value in verdict.knobs.items() if now.get(knob) != value}
        before: dict[str, Knob | None] = {knob: now.get(knob) for knob in changes}
        return self._entry(name, verdict, file=str(self._file), set=changes, before=before)

    def _moving(self, name: str, verdict: Verdict) -> tuple[AppliedAdvice, Plan | None]:
        where = self._where
        goal = self.target(name, verdict.action)
        if not goal:
            raise BadUsage(
                f"where {name!r} should be moved to is not said.",
                why=UNSAID[verdict.action],
                fix="Give --to lanes:///folder/name, or s3://bucket/name."
                if verdict.action == "uncouple"
                else "Give --to 'postgresql://host/database?schema=NAME', or --postgres URL for every database, which "
                "may also stand in interlock.toml (postgres = …) or in INTERLOCK_POSTGRES.",
            )
        routing = self._routing(name, where.addresses.get(name, ""), goal, where.home or "")
        source = self._router.find(routing)
        entry = self._entry(
            name,
            verdict,
            home=without_secrets(where.home or ""),
            source=without_secrets(source),
            goal=without_secrets(goal),
        )
        return entry, self._router.plan(routing._replace(source=source))

    def _entry(self, name: str, verdict: Verdict, **fields: object) -> AppliedAdvice:
        time = datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="seconds")
        return AppliedAdvice(
            number=0,
            time=time,
            name=name,
            action=verdict.action,
            target=verdict.target,
            **fields,  # type: ignore[arg-type]  # The fields of one kind of entry or the other.
        )

    def target(self, name: str, action: str) -> str:
        """Return where a move would take a workload; empty if that is unknown."""
        where = self._where
        if where.to:
            return where.to
        if action == "couple":
            return with_named_schema(where.postgres, name) if where.postgres else ""
        came = [each for each in self.journal.entries() if each.name == name and each.action == "couple"]
        if came and came[-1].source:
            return came[-1].source
        if where.home is None or is_postgres_url(where.home) or where.home == "memory:":
            return ""
        return extend_path(where.home, f"/{name}")

    def _refuse_changed(self, entry: AppliedAdvice) -> None:
        now = settings_in(Path(entry.file), SettingsTable("tools", entry.name))
        for knob, value in entry.set.items():
            # What was begun may not have been done: then it is as it was.
            if now.get(knob) not in {value, entry.before[knob]}:
                raise UnusableFile(
                    f"{knob} of {SettingsTable('tools', entry.name)} is {now.get(knob)!r} now; {value!r} was applied.",
                    why="It was changed after it was applied, and --undo reverts only its own change.",
                    fix=f"Change it by hand in {entry.file}; it was {entry.before[knob]!r} before.",
                )

    def _agreed(self, name: str, lines: Sequence[str], undo: str) -> bool:
        console = stderr()
        console.print(escaped(f"\n{name}: to be done"), style="bold", soft_wrap=True)
        console.print(escaped("\n".join([labelled("do", "\n".join(lines)), labelled("undo", undo)])), soft_wrap=True)
        if self._yes:
            return True
        console.print("Do it? [y/N] ", end="")
        try:
            answer = input()
        except EOFError:
            raise BadUsage(
                "the confirmation is missing: the input has ended.",
                why="Each change has to be confirmed.",
                fix="Answer y, or add --yes.",
            ) from None
        if answer.strip().lower() in {"y", "yes"}:
            return True
        console.print("Nothing was changed.")
        self.declined = True
        return False

    def _undo_command(self, name: str) -> str:
        words = ["interlock", "advise", "--undo", name]
        if self._where.home is not None:
            words += ["--home", redact_secrets(self._where.home)]
        return shlex.join(words)


def with_named_schema(url: str, name: str) -> str:
    """Return the URL of a PostgreSQL with a schema of that name, unless it has one."""
    if has_schema(url):
        return url
    schema = re.sub(r"[^a-z0-9_]+", "_", name.lower())[:SCHEMA_CHARACTERS_MAX]
    schema = schema if re.match("[a-z_]", schema) and not schema.startswith("pg_") else f"_{schema}"
    return with_schema(url, schema[:SCHEMA_CHARACTERS_MAX])


def _plan_lines(plan: Plan | None) -> list[str]:
    if plan is None:
        return ["It has left already, and only has to arrive."]
    copied = f"{plan.rows:,} rows: about {plan.copy_s:.1f} s to copy and compare"
    return [f"{copied}, then about {plan.seal_ms:,.0f} ms in which writers wait.", *plan.notes]


def _print_done(done: Done, name: str, how: str) -> Done:
    remark(escaped(f"{name}: {how}, number {done.number} of the journal."))
    return done


def _back_line(entry: AppliedAdvice) -> str:
    parts = [
        f"take {knob} out" if value is None else f"set {knob} = {toml_text(value)}"
        for knob, value in entry.before.items()
    ]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}, in {SettingsTable('tools', entry.name)} of {entry.file}."


def _folder(home: str | None) -> Path | None:
    """Return the folder of a home of lanes."""
    return Path(unquote(home.removeprefix("lanes://"))) if home is not None and is_lane_url(home) else None


# --- Moves -----------------------------------------------------------------------------------------------------------
# A database is found by its name at a home, or by its URL. Tombstones are followed either way, to the current place.


class DatabaseRouter:
    """Moves databases."""

    def find(self, routing: Routing) -> str:
        """Return the current URL of the database. Raises TargetNotFound."""
        return _route(routing).source

    def plan(self, routing: Routing) -> Plan | None:
        """Return the estimate of the move; None when the source is already sealed or the move is complete."""
        return plan_of(move_database(_route(routing)))

    def move(self, routing: Routing) -> Moved:
        """Move it, and show the progress. A move that was begun before continues."""
        return run_move(move_database(_route(routing, finish=True)))

    def move_back(self, routing: Routing) -> None:
        """Move it back. A begun move whose source is not sealed is abandoned."""
        found = _route(routing, finish=True)
        if is_same(found.source, found.target):
            _ = asyncio.run(abandon_database(found.source, routing.source, clock=SystemClock()))
        else:
            _ = run_move(move_database(found))


def _route(routing: Routing, *, finish: bool = False) -> Route:
    name = routing.name if routing.home else routing.source
    if not name:
        raise BadUsage(
            f"the place of {routing.name!r} is unknown.",
            why="The evidence says nothing of its address, and there is no home whose catalog knows the name.",
            fix="Give --home URL.",
        )
    found = find_route(name, routing.target, home=routing.home, clock=SystemClock(), finish=finish)
    return asyncio.run(found)


# --- Experiments -----------------------------------------------------------------------------------------------------
# What `interlock bench contention --json` has measured of the engine where a workload lives gives its plateau and what
# its other forms do; of another engine, what a move would do. A simulated hand-off is left out.

_ENGINES: dict[str, Engine] = {"lane": "lane", "bucket": "object", "postgres": "postgres"}
_SERIES: dict[str, Target] = {SHARDED: "sharded", EVENT_LOG: "event_log", STREAM_ROWS: "streams"}


def read_experiment(path: Path) -> ContentionResult:
    """Return the result of `interlock bench contention --json`. Raises TargetNotFound or UnusableFile."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ContentionResult)
    except FileNotFoundError as error:
        raise TargetNotFound(
            f"there is no file {path}.",
            why="It was named as the result of an experiment.",
            fix=f"Make it: interlock bench contention --json {shlex.quote(str(path))}",
        ) from error
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableFile(
            f"{path} is not a result of `interlock bench contention`: {str(error) or 'it is nested too deeply'}.",
            why="That experiment alone compares one row with its other forms.",
            fix=f"Make one: interlock bench contention --json {shlex.quote(str(path))}",
        ) from error
    if found.name != "contention":
        raise UnusableFile(
            f"{path} is a result of `interlock bench {found.name}`.",
            why="Only `interlock bench contention` compares one row with its other forms.",
            fix="Name a file that it has written with --json.",
        )
    return found


def with_experiments(window: Evidence, tool: Tool, experiments: Sequence[ContentionResult]) -> Evidence:
    """Return the window with what was measured of its row in every form and place, where it has no figure itself."""
    found = dict(window.measured)
    batch = 1 if tool.group_commit_max_batch == 1 else GROUPED
    for experiment in experiments:
        engine = _ENGINES.get(experiment.engine)
        points = [each for each in experiment.points if not each.hand_off_ms and each.batch in {batch, None}]
        rows = [each for each in points if each.series in {ROW, ONE_ROW, ONE_ROW_ALONE}]
        if engine is None or not rows:
            continue
        if engine != window.engine:
            if "postgres" in {engine, window.engine}:
                found.setdefault("postgres" if engine == "postgres" else "lane", _measured_of(rows, tool))
            continue
        for series, target in _SERIES.items():
            if line := [each for each in points if each.series == series]:
                found.setdefault(target, _measured_of(line, tool))
        alone = min(rows, key=lambda each: each.clients)
        window = msgspec.structs.replace(
            window,
            plateau_per_s=window.plateau_per_s or _measured_of(rows, tool).per_s,
            floor_s=alone.p50_ms / 1e3 if window.floor_s is None and alone.clients == 1 else window.floor_s,
        )
    return msgspec.structs.replace(window, measured=found)


def _measured_of(line: Sequence[ContentionPoint], tool: Tool) -> Measured:
    best = max(line, key=lambda each: each.commits_per_s)
    enough = [each for each in line if each.commits_per_s >= tool.aggregate_write_rate] or [best]
    first = min(enough, key=lambda each: each.clients)
    return Measured(per_s=best.commits_per_s, p99_s=first.p99_ms / 1e3)


# --- Command ---------------------------------------------------------------------------------------------------------

SECONDS = 30.0
SECONDS_MAX = 3_600.0
FORMAT = 1


class _SavedState(msgspec.Struct, frozen=True):
    format: int
    advisors: dict[str, Advisor]


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME|URL]...", help="Databases; without any all of the home, or all of the evidence."),
]
Home = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="URL",
        envvar="INTERLOCK_HOME",
        callback=absolute_url,
        help="The home whose catalog knows the names.",
    ),
]
Seconds = Annotated[
    float, typer.Option(metavar="S", min=0, max=SECONDS_MAX, help="How long to watch; 0: only the last reports.")
]
Windows = Annotated[
    Path | None, typer.Option("--evidence", metavar="FILE", help="Read the windows from this file instead (JSON).")
]
Experiments = Annotated[
    list[Path] | None,
    typer.Option(
        "--bench",
        metavar="FILE",
        help="A result of `interlock bench contention --json`, of where it lives or could be moved. May be repeated.",
    ),
]
Plateau = Annotated[
    float | None,
    typer.Option("--plateau", metavar="N", min=0.001, help="Commits per second that one row can do where it is."),
]
CoupledPlateau = Annotated[
    float | None,
    typer.Option("--coupled-plateau", metavar="N", min=0.001, help="The same, in the PostgreSQL to move it to."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="MODULE:ATTR", help="A Tool, or a list of them. May be given several times."),
]
KeptIn = Annotated[
    Path | None, typer.Option("--state", metavar="FILE", help="Keep what was seen here, for the next run (JSON).")
]
Apply = Annotated[bool, typer.Option("--apply", help="Do what the verdicts say, after showing it and asking.")]
Undo = Annotated[bool, typer.Option("--undo", help="Take back what was applied last, at all or to NAME.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="URL", callback=absolute_url, help="Where to move it, if the verdict is a move."),
]
Postgres = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        metavar="URL",
        envvar="INTERLOCK_POSTGRES",
        help="The PostgreSQL for what is coupled; each database gets a schema of its name.",
    ),
]


def advise(
    names: Names = None,
    *,
    home: Home = None,
    seconds: Seconds = SECONDS,
    evidence: Windows = None,
    bench: Experiments = None,
    plateau: Plateau = None,
    coupled_plateau: CoupledPlateau = None,
    tool: Tools = None,
    state: KeptIn = None,
    apply: Apply = False,
    undo: Undo = False,
    yes: Yes = False,
    to: To = None,
    postgres: Postgres = None,
    output: Output = ListingFormat.TABLE,
) -> None:
    """Recommend a place for each workload, with evidence and command. Changes nothing without --apply.

    Exits with 0 for any verdict, with 1 when --apply or --undo was declined, with 2 when it is not said where to move a
    database, with 4 when there is no such database, no evidence of it or nothing to undo, and with 5 when it cannot be
    reached.
    """
    _refuse_mixed(apply=apply, undo=undo, yes=yes, output=output)
    where = AdvicePlaces(home, to, postgres, {})
    if undo:
        _undo(names or [], VerdictApplier(where, yes=yes, clock=SystemClock(), router=DatabaseRouter()), output)
        return
    declared = {each.name: each for target in tool or [] for each in _load_tools(target)}
    experiments = [read_experiment(file) for file in bench or []]
    advisors = _load_state(state)
    if evidence is None:
        windows = _measure(names or [], home, seconds, where.addresses)
    else:
        windows = _select_windows(names or [], read_evidence(evidence), evidence)
    where.addresses.update(
        {name: measured[-1].url for name, measured in windows.items() if name not in where.addresses}
    )
    applying = VerdictApplier(where, yes=yes, clock=SystemClock(), router=DatabaseRouter(), seconds=seconds)
    known = asyncio.run(_known_at(home, windows)) if home is not None else {}
    judged: list[Judged] = []
    for name, measured in windows.items():
        needs = declared.get(name) or declared_tool(name)
        placed = [
            with_experiments(
                _with_places(_with_plateaus(each, plateau, coupled_plateau), applying, known, where),
                needs or undeclared(name),
                experiments,
            )
            for each in measured
        ]
        judged.append(_advise(name, placed, needs, advisors, applying))
    if state is not None:
        write_file(state, json_text(_SavedState(FORMAT, advisors)) + "\n")
    found = [each.advice for each in judged]
    if output is ListingFormat.TABLE:
        show_advice(found)
    if apply:
        found = [applying.apply(each) for each in judged]
    _show_results(found, output, [each.name for each in found], applying)


async def _known_at(home: str, names: Iterable[str]) -> dict[str, str]:
    """Return the addresses of those names that the catalog of a home knows. Creates nothing."""
    found: dict[str, str] = {}
    for name in names:
        with suppress(TargetNotFound):
            found[name] = await _locate(name, home)
    return found


def _with_places(window: Evidence, applying: VerdictApplier, known: Mapping[str, str], where: AdvicePlaces) -> Evidence:
    """Return the window with its address, its home, and where a move would take it, as far as they are known."""
    name = window.database
    url = without_secrets(known.get(name) or where.addresses.get(name, ""))
    to = applying.target(name, "uncouple" if window.engine == "postgres" else "couple")
    return msgspec.structs.replace(
        window,
        # A program that measures itself calls its lane a lane, also where its log is in a bucket.
        engine="object" if window.engine == "lane" and is_bucket_url(url) else window.engine,
        url=url,
        home=without_secrets(where.home or "") if name in known else "",
        to=without_secrets(to),
    )


def _refuse_mixed(*, apply: bool, undo: bool, yes: bool, output: ListingFormat) -> None:
    if apply and undo:
        raise BadUsage("--apply and --undo were both said.", why="One does what the other takes back.")
    if (apply or undo) and output is not ListingFormat.TABLE and not yes:
        raise BadUsage(
            f"-o {output.value} needs --yes.",
            why="Each change has to be confirmed, and here a program reads the output.",
            fix="Add --yes.",
        )


def _undo(names: Sequence[str], applying: VerdictApplier, output: ListingFormat) -> None:
    wanted: Sequence[str | None] = names or [None]
    found = [done for name in wanted if (done := applying.undo(name)) is not None]
    _show_results(found, output, [str(each.number) for each in found], applying)


def _show_results(found: object, output: ListingFormat, ids: Sequence[str], applier: VerdictApplier) -> None:
    """Print JSON or ids; a table was printed before, so that the user could confirm each change."""
    if output is ListingFormat.JSON:
        show_json(found)
    elif output is ListingFormat.IDS:
        show_ids(ids)
    if applier.declined:
        raise typer.Exit(Exit.ERROR)


def _measure(
    names: Sequence[str], home: str | None, seconds: float, addresses: dict[str, str]
) -> dict[str, list[Evidence]]:
    """Measure the databases, print the notes, and return the windows by name. Adds their URLs to `addresses`."""
    wanted = [_find_place(name, home) for name in names]
    if not wanted and home is not None:
        wanted = [(None, home)]
    if not wanted:
        raise BadUsage(
            "nothing to advise on: no database is named, and there is no evidence.",
            why="Advice is given on what was measured.",
            fix="Name databases by their URLs, or a home with --home, or give --evidence FILE.",
        )

    async def watch() -> list[GatheredEvidence]:
        clock = SystemClock()
        return await asyncio.gather(*(gather(url, seconds, clock=clock) for _, url in wanted))

    found: dict[str, list[Evidence]] = {}
    notes: list[str] = []
    for (name, url), gathered in zip(wanted, asyncio.run(watch()), strict=True):
        notes += gathered.notes
        if url != home:
            addresses.update({name or window.database: url for window in gathered.windows})
        for window in gathered.windows:
            found.setdefault(name or window.database, []).append(
                msgspec.structs.replace(window, database=name or window.database)
            )
    for note in dict.fromkeys(notes):
        remark(escaped(note))
    return found


def _find_place(name: str, home: str | None) -> tuple[str | None, str]:
    if "://" in name or name == "memory:":
        return None, name
    if home is None:
        raise BadUsage(
            f"{name!r} is a name, and there is no home that knows where it lives.",
            why="A name is looked up in the catalog of a home.",
            fix="Give --home URL, or write the address of the database itself.",
        )
    return name, asyncio.run(_locate(name, home))


async def _locate(name: str, home: str) -> str:
    catalog = Catalog(home)
    names = await catalog.names()
    # To locate a name writes it down; looking for advice creates nothing. Buckets had no catalog for a long time.
    if not is_bucket_url(home) and name not in names:
        raise TargetNotFound(
            f"{redact_url(home)} knows no database {name!r}.",
            why="Its catalog has the databases that were opened by their names there.",
            fix=f"Check the name, or write the address of a database that is opened by it: "
            f"{redact_url(extend_path(home, '/' + name))}. Known are: {', '.join(names) or 'none'}.",
        )
    return catalog.address(name, await catalog.entry(name))


def _select_windows(names: Sequence[str], windows: Sequence[Evidence], file: Path) -> dict[str, list[Evidence]]:
    found: dict[str, list[Evidence]] = {}
    for window in windows:
        found.setdefault(window.database, []).append(window)
    if not names:
        return found
    wanted = [last_name(name) if "://" in name else name for name in names]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise TargetNotFound(
            f"{file} has no evidence of {', '.join(map(repr, missing))}.",
            why=f"It has windows of {', '.join(map(repr, found)) or 'nothing'}.",
            fix="Check the names.",
        )
    return {name: found[name] for name in wanted}


def _with_plateaus(window: Evidence, plateau: float | None, coupled_plateau: float | None) -> Evidence:
    """Return the window with the plateaus of `interlock bench contention`, where it has none itself."""
    return msgspec.structs.replace(
        window,
        plateau_per_s=window.plateau_per_s or plateau,
        coupled_plateau_per_s=window.coupled_plateau_per_s or coupled_plateau,
    )


def _load_tools(target: str) -> list[Tool]:
    value = load_value(target)
    members = cast("list[object] | tuple[object, ...]", value) if isinstance(value, list | tuple) else [value]
    if not members or not all(isinstance(each, Tool) for each in members):
        raise BadUsage(
            f"{target} is not a Tool or a list of tools.",
            why="What a workload needs is declared as a Tool.",
            fix='Name one: stock = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500).',
        )
    return [cast("Tool", each) for each in members]


def _advise(
    name: str, windows: list[Evidence], declared: Tool | None, advisors: dict[str, Advisor], applier: VerdictApplier
) -> Judged:
    tool = declared or undeclared(name)
    advisor = advisors.get(name, Advisor())
    for now_s, window in timed(windows, SystemClock().wall_s()):
        advisor = fresh(advisor, tool, window.engine)
        advisor = step(advisor, advise_window(tool, window, advisor.choice), now_s)
    advisors[name] = advisor
    assert advisor.verdict is not None, "there is no name without a window"
    assert advisor.proposed is not None
    advice = Advice(
        name=name,
        declared=declared is not None,
        verdict=advisor.verdict,
        proposed=advisor.proposed,
        votes=advisor.votes,
        windows=len(advisor.recent),
        worse=applier.worse_since(tool, windows),
    )
    return Judged(advice, tool, windows)


def _load_state(path: Path | None) -> dict[str, Advisor]:
    if path is None:
        return {}
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_SavedState)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableFile(
            f"{path} is not a state file of the advisor: {str(error) or 'it is nested too deeply'}.",
            why="It is written by `interlock advise --state`, and replaced by it.",
            fix="Name another file, or remove this one: what was seen before is then forgotten.",
        ) from error
    if kept.format != FORMAT:
        raise UnusableFile(
            f"{path} has format {kept.format}; this version knows {FORMAT}.",
            why="Another version of Interlock wrote it.",
            fix="Name another file, or remove this one: what was seen before is then forgotten.",
        )
    return dict(kept.advisors)
