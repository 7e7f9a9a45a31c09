"""`interlock advise`: recommends the engine of workloads from measurements, and applies it with `--apply`.

Evidence is gathered for a while from databases in use, or read from a file. The needs of a tool come from code
(`--tool`), then from `interlock.toml`. With `--state` the windows of earlier runs count too: a verdict is shown once
most of the latest windows propose it. Without `--apply` nothing is changed.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import unquote

import msgspec
import typer

from interlock.catalog.catalog import Catalog
from interlock.cli.advise_applying import Applying, Where
from interlock.cli.advise_routing import ByAdvice
from interlock.cli.advise_shown import Advice, show_advice
from interlock.cli.check import Listing
from interlock.cli.exits import Exit
from interlock.cli.looking import Output
from interlock.cli.output import escaped, stderr, write_file
from interlock.cli.shown import show_ids, show_json
from interlock.cli.targets import load_value
from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow.advice.evidence import Evidence, read_evidence, timed
from interlock.hotrow.advice.gathered import Gathered, gather
from interlock.hotrow.advice.hysteresis import Advisor, fresh, step
from interlock.hotrow.advice.rule import advise as advise_window
from interlock.hotrow.tools import Tool, declared_tool, undeclared
from interlock.lanes.objects.addresses import is_bucket, redacted
from interlock.seams import SystemClock

SECONDS = 30.0
SECONDS_MAX = 3_600.0
FORMAT = 1


class _Kept(msgspec.Struct, frozen=True):
    format: int
    advisors: dict[str, Advisor]


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME|URL]...", help="Databases; without any all of the home, or all of the evidence."),
]
Home = Annotated[
    str | None,
    typer.Option("--home", metavar="URL", envvar="INTERLOCK_HOME", help="The home whose catalog knows the names."),
]
Seconds = Annotated[
    float, typer.Option(metavar="S", min=0, max=SECONDS_MAX, help="How long to watch; 0: only the last reports.")
]
Windows = Annotated[
    Path | None, typer.Option("--evidence", metavar="FILE", help="Read the windows from this file instead (JSON).")
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
To = Annotated[str | None, typer.Option("--to", metavar="URL", help="Where to move it, if the verdict is a move.")]
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
    plateau: Plateau = None,
    coupled_plateau: CoupledPlateau = None,
    tool: Tools = None,
    state: KeptIn = None,
    apply: Apply = False,
    undo: Undo = False,
    yes: Yes = False,
    to: To = None,
    postgres: Postgres = None,
    output: Output = Listing.TABLE,
) -> None:
    """Say where workloads should live: verdict, evidence, the command to run. Changes nothing without --apply.

    Exits with 0 for any verdict, with 1 when --apply or --undo was declined, with 2 when it is not said where to move a
    database, with 4 when there is no such database, no evidence of it or nothing to undo, and with 5 when it cannot be
    reached.
    """
    _refuse_mixed(apply=apply, undo=undo, yes=yes, output=output)
    where = Where(home, to, postgres, {})
    if undo:
        _undo(names or [], Applying(where, yes=yes, clock=SystemClock(), router=ByAdvice()), output)
        return
    declared = {each.name: each for target in tool or [] for each in _tools_at(target)}
    advisors = _kept(state)
    if evidence is None:
        windows = _measured(names or [], home, seconds, where.addresses)
    else:
        windows = _selected(names or [], read_evidence(evidence), evidence)
    windows = {
        name: [_known(each, plateau, coupled_plateau) for each in measured] for name, measured in windows.items()
    }
    where.addresses.update(
        {name: measured[-1].url for name, measured in windows.items() if name not in where.addresses}
    )
    found = [_advised(name, measured, declared, advisors) for name, measured in windows.items()]
    if state is not None:
        write_file(state, msgspec.json.format(msgspec.json.encode(_Kept(FORMAT, advisors)), indent=2).decode() + "\n")
    if output is Listing.TABLE:
        show_advice(found)
    applying = Applying(where, yes=yes, clock=SystemClock(), router=ByAdvice())
    if apply:
        found = [msgspec.structs.replace(each, applied=applying.apply(each)) for each in found]
    match output:
        case Listing.TABLE:
            pass  # Printed above, before the user confirms.
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.name for each in found])
    if applying.declined:
        raise typer.Exit(Exit.ERROR)


def _refuse_mixed(*, apply: bool, undo: bool, yes: bool, output: Listing) -> None:
    if apply and undo:
        raise BadUsage("--apply and --undo were both said.", why="One does what the other takes back.")
    if (apply or undo) and output is not Listing.TABLE and not yes:
        raise BadUsage(
            f"-o {output.value} needs --yes.",
            why="Each change has to be confirmed, and here a program reads the output.",
            fix="Add --yes.",
        )


def _undo(names: Sequence[str], applying: Applying, output: Listing) -> None:
    wanted: Sequence[str | None] = names or [None]
    found = [done for name in wanted if (done := applying.undo(name)) is not None]
    match output:
        case Listing.TABLE:
            pass  # Printed when each was undone.
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([str(each.number) for each in found])
    if applying.declined:
        raise typer.Exit(Exit.ERROR)


def _measured(
    names: Sequence[str], home: str | None, seconds: float, addresses: dict[str, str]
) -> dict[str, list[Evidence]]:
    """Measure the databases, print the notes, and return the windows by name. Adds their URLs to `addresses`."""
    wanted = [_place(name, home) for name in names]
    if not wanted and home is not None:
        wanted = [(None, home)]
    if not wanted:
        raise BadUsage(
            "nothing to advise on: no database is named, and there is no evidence.",
            why="Advice is given on what was measured.",
            fix="Name databases by their URLs, or a home with --home, or give --evidence FILE.",
        )

    async def watch() -> list[Gathered]:
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
        stderr().print(escaped(note), soft_wrap=True)
    return found


def _place(name: str, home: str | None) -> tuple[str | None, str]:
    if "://" in name or name == "memory:":
        return None, name
    if home is None:
        raise BadUsage(
            f"{name!r} is a name, and there is no home that knows where it lives.",
            why="A name is looked up in the catalog of a home.",
            fix="Give --home URL, or write the address of the database itself.",
        )
    return name, asyncio.run(_located(name, home))


async def _located(name: str, home: str) -> str:
    catalog = Catalog(home)
    names = await catalog.names()
    # To locate a name writes it down; looking for advice creates nothing. Buckets had no catalog for a long time.
    if not is_bucket(home) and name not in names:
        raise TargetNotFound(
            f"{redacted(home)} knows no database {name!r}.",
            why="No database of that name was ever opened at this home.",
            fix=f"Check the name. Known are: {', '.join(names) or 'none'}.",
        )
    return catalog.address(name, await catalog.entry(name))


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


def _known(window: Evidence, plateau: float | None, coupled_plateau: float | None) -> Evidence:
    """Return the window with the plateaus of `interlock bench contention`, where it has none itself."""
    return msgspec.structs.replace(
        window,
        plateau_per_s=window.plateau_per_s or plateau,
        coupled_plateau_per_s=window.coupled_plateau_per_s or coupled_plateau,
    )


def _name_of(url: str) -> str:
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])


def _tools_at(target: str) -> list[Tool]:
    value = load_value(target)
    members = cast("list[object] | tuple[object, ...]", value) if isinstance(value, list | tuple) else [value]
    if not members or not all(isinstance(each, Tool) for each in members):
        raise BadUsage(
            f"{target} is not a Tool or a list of tools.",
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
