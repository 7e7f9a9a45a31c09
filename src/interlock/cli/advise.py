"""`interlock advise`: where workloads should live, from what was measured; it changes nothing.

Evidence is gathered for a while from databases that are in use, or read from a file. What a tool needs comes from code
(`--tool`), then from `interlock.toml`. What was seen by earlier runs counts on with `--state`: a verdict is shown once
most of the latest windows propose it. The command that a verdict prints is run by a person.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import unquote

import msgspec
import typer
from rich.text import Text

from interlock.catalog.catalog import Catalog
from interlock.cli.check import Listing
from interlock.cli.looking import Output
from interlock.cli.output import escaped, parts, stderr, stdout, write_file
from interlock.cli.shown import show_ids, show_json, show_table
from interlock.cli.targets import load_value
from interlock.errors import BadUsage, TargetNotFound, UnavailableError, UnusableFile
from interlock.hotrow.advice.evidence import Evidence, read_evidence, timed
from interlock.hotrow.advice.hysteresis import VOTES, WINDOWS, Advisor, fresh, step
from interlock.hotrow.advice.rule import advise as advise_window
from interlock.hotrow.advice.verdict import Choice, Verdict
from interlock.hotrow.tools import Tool, declared_tool, undeclared
from interlock.lanes.objects.addresses import redacted
from interlock.seams import SystemClock

SECONDS = 30.0
SECONDS_MAX = 3_600.0
FORMAT = 1

_UNDECLARED = (
    "Nothing is declared of {names}, so nothing can be over its budget. Add write_latency_budget and "
    "aggregate_write_rate below [tools.NAME] of interlock.toml."
)


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one workload."""

    name: str
    declared: bool
    verdict: Verdict
    proposed: Choice
    """What the latest window says, which may be another thing."""
    votes: int
    windows: int
    """So many of so many windows propose it."""


class _Kept(msgspec.Struct, frozen=True):
    format: int
    advisors: dict[str, Advisor]


def advise(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|URL]...", help="Databases; without any, all that there is evidence of."),
    ] = None,
    *,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="URL", envvar="INTERLOCK_HOME", help="The home whose catalog knows the names."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1.0, max=SECONDS_MAX, help="How long to measure.")
    ] = SECONDS,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", metavar="FILE", help="Read the windows from this file instead (JSON).")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="MODULE:ATTR", help="A Tool, or a list of them. May be given several times."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Keep what was seen here, for the next run (JSON).")
    ] = None,
    output: Output = Listing.TABLE,
) -> None:
    """Say where workloads should live: verdict, evidence, the command to run. Changes nothing.

    Exits with 0 whatever the verdict is, and with 4 when there is no evidence of a name.
    """
    declared = {each.name: each for target in tool or [] for each in _tools_at(target)}
    advisors = _kept(state)
    windows = _windows(names or [], home, seconds, evidence)
    found = [_advised(name, seen, declared, advisors) for name, seen in windows.items()]
    if state is not None:
        write_file(state, msgspec.json.format(msgspec.json.encode(_Kept(FORMAT, advisors)), indent=2).decode() + "\n")
    match output:
        case Listing.TABLE:
            _show(found)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.name for each in found])


def measured(url: str, seconds: float) -> list[Evidence]:
    """Windows of a database that is in use."""
    raise UnavailableError(
        f"{redacted(url)} cannot be measured from outside in {seconds:g} s.",
        why="Only the process that owns a database knows who waits for whom.",
        fix="Let that process write its windows into a file, and give it with --evidence.",
    )


def _windows(names: Sequence[str], home: str | None, seconds: float, file: Path | None) -> dict[str, list[Evidence]]:
    if file is not None:
        return _selected(names, read_evidence(file), file)
    catalog = None if home is None else Catalog(home)
    wanted = list(names) or ([] if catalog is None else list(catalog.names()))
    if not wanted:
        raise BadUsage(
            "nothing to advise on: no database is named, and there is no evidence.",
            why="Advice is given on what was measured.",
            fix="Name databases by their URLs, or by their names with --home, or give --evidence FILE.",
        )
    found: dict[str, list[Evidence]] = {}
    for name in wanted:
        if "://" in name:
            found[_name_of(name)] = measured(name, seconds)
        elif catalog is None:
            raise BadUsage(
                f"{name!r} is a name, and there is no home that knows where it lives.",
                why="A name is looked up in the catalog of a home.",
                fix="Give --home URL, or write the address of the database itself.",
            )
        elif name not in catalog.names():
            raise TargetNotFound(f"{redacted(catalog.home)} knows no database {name!r}.", fix="Check the name.")
        else:
            found[name] = measured(catalog.locate(name), seconds)
    return found


def _selected(names: Sequence[str], windows: Sequence[Evidence], file: Path) -> dict[str, list[Evidence]]:
    found: dict[str, list[Evidence]] = {}
    for window in windows:
        found.setdefault(window.database, []).append(window)
    if not names:
        return found
    wanted = [_name_of(name) if "://" in name else name for name in names]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise TargetNotFound(
            f"{file} has no evidence of {', '.join(map(repr, missing))}.",
            why=f"It has windows of {', '.join(map(repr, found)) or 'nothing'}.",
            fix="Check the names.",
        )
    return {name: found[name] for name in wanted}


def _name_of(url: str) -> str:
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])


def _tools_at(target: str) -> list[Tool]:
    value = load_value(target)
    members = cast("list[object] | tuple[object, ...]", value) if isinstance(value, list | tuple) else [value]
    if not members or not all(isinstance(each, Tool) for each in members):
        raise BadUsage(
            f"{target} is no Tool and no list of tools.",
            why="What a workload needs is declared as a Tool.",
            fix='Name one: stock = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500).',
        )
    return [cast("Tool", each) for each in members]


def _advised(name: str, windows: list[Evidence], declared: dict[str, Tool], advisors: dict[str, Advisor]) -> Advice:
    known = declared.get(name) or declared_tool(name)
    tool = known or undeclared(name)
    advisor = advisors.get(name, Advisor())
    for now_s, window in timed(windows, SystemClock().wall_s()):
        advisor = fresh(advisor, tool, window.engine)
        advisor = step(advisor, advise_window(tool, window, advisor.choice), now_s)
    advisors[name] = advisor
    assert advisor.shown is not None, "there is no name without a window"
    assert advisor.proposed is not None
    return Advice(
        name=name,
        declared=known is not None,
        verdict=advisor.shown,
        proposed=advisor.proposed,
        votes=advisor.votes,
        windows=len(advisor.recent),
    )


def _kept(path: Path | None) -> dict[str, Advisor]:
    if path is None:
        return {}
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableFile(
            f"{path} is no state of the advisor: {str(error) or 'it is nested too deeply'}.",
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


def _show(found: Sequence[Advice]) -> None:
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
    console = stdout()
    for each in found:
        verdict = each.verdict
        measured_lines = "\n            ".join(verdict.evidence)
        lines = [f"  why:      {verdict.why}", f"  measured: {measured_lines}"]
        if verdict.command:
            lines.append("  run:      " + verdict.command.replace("\n", "\n            "))
            lines.append("  undo:     " + verdict.undo.replace("\n", "\n            "))
        text = Text.assemble((f"\n{escaped(each.name)}: {verdict.action}", "bold"), "\n")
        text.append(parts(escaped("\n".join(lines))))
        console.print(text, soft_wrap=True)
    silent = [each.name for each in found if not each.declared]
    if silent:
        stderr().print(escaped(_UNDECLARED.format(names=", ".join(silent))), soft_wrap=True)


def _proposal(advice: Advice) -> str:
    what = " ".join(part for part in (advice.proposed.action, advice.proposed.target) if part)
    return f"{what} ({advice.votes} of {advice.windows} windows, {VOTES} of {WINDOWS} needed)"
