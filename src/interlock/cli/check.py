"""`interlock check`: the findings of machines, for people, scripts and editors.

A machine that is wrong already while it is declared raises as soon as its module is imported. That error is one more
finding here, so that a build sees one list whichever way a machine is wrong, and the other machines are still checked.
"""

from collections import Counter
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.text import Text

from interlock.cli.exits import Exit
from interlock.cli.output import SEVERITY_STYLES, counted, parts, show_raw, shown_location, stdout
from interlock.cli.targets import load_machines
from interlock.core.values import Finding
from interlock.errors import DefinitionError


class Listing(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"


class Severity(StrEnum):
    """The severities of findings, worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Checked(NamedTuple):
    """The findings of one machine, or of one target whose module could not be imported."""

    title: str
    machine: str | None
    findings: list[Finding]


def check(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="MODULE[:ATTR]", help="Machines, lists of machines, or whole modules."),
    ],
    *,
    output: Annotated[
        Listing, typer.Option("--output", "-o", help="Full text, JSON, or only the codes of the findings.")
    ] = Listing.TABLE,
    severity: Annotated[Severity, typer.Option(help="Show findings from this severity upwards.")] = Severity.INFO,
    errors_only: Annotated[bool, typer.Option("--errors-only", help="The same as --severity error.")] = False,
) -> None:
    """Check machines: what keeps them from being used, and what is worth a look.

    Exits with 1 when there are errors, whatever is shown.
    """
    least = Severity.ERROR if errors_only else severity
    levels = list(Severity)
    visible_levels = set(levels[: levels.index(least) + 1])
    results = _check_all(targets)
    visible = [
        result._replace(findings=[finding for finding in result.findings if finding.severity in visible_levels])
        for result in results
    ]
    match output:
        case Listing.TABLE:
            _show_text(visible, results)
        case Listing.JSON:
            _show_json(visible)
        case Listing.IDS:
            for result in visible:
                for finding in result.findings:
                    show_raw(finding.code)
    if any(finding.severity == "error" for result in results for finding in result.findings):
        raise typer.Exit(Exit.ERROR)


def _check_all(targets: list[str]) -> list[Checked]:
    # The same machine may be named twice, and two targets may fail on the same line of one module: tell it once.
    results: dict[object, Checked] = {}
    for target in targets:
        try:
            for machine in load_machines(target):
                title = f"{machine.name} (version {machine.version})"
                results[id(machine)] = Checked(title, machine.name, machine.check())
        except DefinitionError as error:
            results.setdefault(str(error), Checked(target, None, [_as_finding(error)]))
    return list(results.values())


def _as_finding(error: DefinitionError) -> Finding:
    return Finding(
        code=error.rule or error.code,
        severity="error",
        what=error.what,
        why=error.why,
        fix=error.fix,
        location=error.location,
    )


def _show_text(visible: list[Checked], results: list[Checked]) -> None:
    console = stdout()
    for result in visible:
        for finding in result.findings:
            text = Text.assemble(
                (f"{finding.severity} ", SEVERITY_STYLES[finding.severity]), (f"[{finding.code}]", "bold")
            )
            if finding.location:
                text.append(f" {shown_location(finding.location)}", style="dim")
            text.append(parts(f"\n  {result.title}: {finding.what}\n  why: {finding.why}\n  fix: {finding.fix}\n"))
            console.print(text, soft_wrap=True)
    counts: Counter[str] = Counter(finding.severity for result in results for finding in result.findings)
    totals = [
        counted(counts[level], level) if level != "info" else f"{counts[level]} info" for level in SEVERITY_STYLES
    ]
    worst = next((level for level in SEVERITY_STYLES if counts[level]), None)
    style = SEVERITY_STYLES[worst] if worst else "green"
    names = ", ".join(result.title for result in results)
    console.print(Text(f"{names}: {', '.join(totals) if worst else 'nothing found'}", style=style), soft_wrap=True)


def _show_json(visible: list[Checked]) -> None:
    listed = [
        {"machine": result.machine, **msgspec.structs.asdict(finding)}
        for result in visible
        for finding in result.findings
    ]
    show_raw(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
