"""Commands on machines in code: `interlock check`, `diagram`, `describe` and `plan`.

None of them opens a store. A machine whose declaration is wrong raises as soon as its module is imported. For `check`
that error is one more finding, so that a build gets one list of all findings, and the other machines are still checked.
"""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple, assert_never

import typer
from msgspec.structs import asdict
from rich.text import Text

from interlock.cli.console import (
    SEVERITY_STYLES,
    Exit,
    ListingFormat,
    ResultFormat,
    counted,
    deliver,
    json_text,
    parts,
    say,
    show_ids,
    show_raw,
)
from interlock.cli.load_machines import load_description, load_machine, load_machines
from interlock.cli.parse_arguments import OutputOfOne
from interlock.core import diagrams
from interlock.core.check_communication import communication
from interlock.core.declarations import Declarations
from interlock.core.describe import MachineDescription
from interlock.core.plan import Plan
from interlock.core.plan import plan as make_plan
from interlock.core.values import Finding
from interlock.errors import DefinitionError

# --- `interlock check` -----------------------------------------------------------------------------------------------


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
        list[str], typer.Argument(metavar="MODULE[:ATTR]", help="Machines, lists of machines, or whole modules.")
    ],
    *,
    output: Annotated[
        ListingFormat, typer.Option("--output", "-o", help="Full text, JSON, or only the codes of the findings.")
    ] = ListingFormat.TABLE,
    severity: Annotated[Severity, typer.Option(help="Show findings from this severity upwards.")] = Severity.INFO,
    errors_only: Annotated[bool, typer.Option("--errors-only", help="The same as --severity error.")] = False,
) -> None:
    """Check machines: errors that prevent their use, warnings and remarks.

    Machines that start or send to each other are also checked together: their messages, children, joins and undos.
    Exits with 1 when there are errors, whatever is shown.
    """
    levels = list(Severity)
    visible = levels[: levels.index(Severity.ERROR if errors_only else severity) + 1]
    results = _check_all(targets)
    findings = [(result, finding) for result in results for finding in result.findings if finding.severity in visible]
    match output:
        case ListingFormat.TABLE:
            _show_findings(findings, results)
        case ListingFormat.JSON:
            show_raw(json_text([{"machine": result.machine, **asdict(finding)} for result, finding in findings]))
        case ListingFormat.IDS:
            show_ids(finding.code for _, finding in findings)
    if any(finding.severity == "error" for result in results for finding in result.findings):
        raise typer.Exit(Exit.ERROR)


def _check_all(targets: list[str]) -> list[Checked]:
    # The same machine may be named twice, and two targets may fail on the same line of one module: tell it once.
    results: dict[object, Checked] = {}
    declared: dict[int, Declarations] = {}
    for target in targets:
        try:
            for machine in load_machines(target):
                title = f"{machine.name} (version {machine.version})"
                results[id(machine)] = Checked(title, machine.name, machine.check())
                declared[id(machine)] = machine.declarations
        except DefinitionError as error:
            results.setdefault(str(error), Checked(target, None, [_as_finding(error)]))
    if findings := communication(declared.values()):
        names = ", ".join(each.name for each in declared.values())
        results["together"] = Checked(f"{names} together", None, findings)
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


def _show_findings(findings: list[tuple[Checked, Finding]], results: list[Checked]) -> None:
    for result, finding in findings:
        text = Text.assemble((f"{finding.severity} ", SEVERITY_STYLES[finding.severity]), (f"[{finding.code}]", "bold"))
        if finding.location:
            # Relative to the current directory when it is below it: shorter, and editors still open it.
            text.append(f" {finding.location.removeprefix(f'{Path.cwd()}/')}", style="dim")
        text.append(parts(f"\n  {result.title}: {finding.what}\n  why: {finding.why}\n  fix: {finding.fix}\n"))
        say(text)
    counts: Counter[str] = Counter(finding.severity for result in results for finding in result.findings)
    totals = [
        counted(counts[level], level) if level != "info" else f"{counts[level]} info" for level in SEVERITY_STYLES
    ]
    worst = next((level for level in SEVERITY_STYLES if counts[level]), None)
    style = SEVERITY_STYLES[worst] if worst else "green"
    names = ", ".join(result.title for result in results)
    say(Text(f"{names}: {', '.join(totals) if worst else 'nothing found'}", style=style))


# --- `interlock diagram` and `interlock describe` --------------------------------------------------------------------
# A diagram is drawn from a description, so a machine of an old release can be drawn from its file, without its code.

OutputFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Write into this file instead of to stdout.")
]
OldOutput = Annotated[Path | None, typer.Option("--output", metavar="FILE", hidden=True)]
"""The name that `--file` had; everywhere else `--output` is a format."""


class Format(StrEnum):
    """The formats of a diagram."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    TABLE = "table"


class Theme(StrEnum):
    """The colours of an SVG; `auto` follows the reader's system."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


def diagram(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:ATTR", help="A machine, or a file written by `interlock describe`.")
    ],
    *,
    kind: Annotated[Format, typer.Option("--format", help="Mermaid, Graphviz, a picture, or Markdown tables.")] = (
        Format.MERMAID
    ),
    file: OutputFile = None,
    output: OldOutput = None,
    theme: Annotated[Theme, typer.Option(help="The colours of an SVG; auto follows the reader's system.")] = (
        Theme.AUTO
    ),
) -> None:
    """Draw a machine as Mermaid, Graphviz, SVG or Markdown tables."""
    deliver(_draw(load_description(target), kind, theme), file or output)


def describe(
    target: Annotated[str, typer.Argument(metavar="MODULE:ATTR", help="A machine.")],
    *,
    file: OutputFile = None,
    output: OldOutput = None,
) -> None:
    """Print a machine as JSON, which `interlock plan` compares with a later version."""
    machine = load_machine(target)
    _ = machine.compiled  # A description is kept beside a release: it is of a machine that could be used.
    deliver(machine.describe().to_json().decode() + "\n", file or output)


def _draw(description: MachineDescription, kind: Format, theme: Theme) -> str:
    match kind:
        case Format.MERMAID:
            return diagrams.mermaid(description)
        case Format.DOT:
            return diagrams.dot(description)
        case Format.SVG:
            return diagrams.svg(description, theme=theme.value)
        case Format.TABLE:
            return diagrams.table(description)
        case _:
            assert_never(kind)


# --- `interlock plan` ------------------------------------------------------------------------------------------------
# Made for a release pipeline: the old side is usually a file from the last release, and the exit code is the answer.
# A change that is not proved safe counts as unsafe.


def plan(
    old: Annotated[str, typer.Argument(metavar="OLD", help="MODULE:ATTR, or a file written by `interlock describe`.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="MODULE:ATTR, or a file written by `interlock describe`.")],
    *,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="A state that has another name now. May be given several times."),
    ] = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Show what a new version of a machine does to the workflows that are stored.

    Exits with 0 when that is proved safe, and with 1 when it is not.
    """
    renamed = _parse_renames(rename or [])
    result = make_plan(load_description(old, sound=True), load_description(new, sound=True), renamed=renamed)
    match output:
        case ResultFormat.TABLE:
            _show_plan(result)
        case ResultFormat.JSON:
            show_raw(json_text(result))
    if not result.safe:
        raise typer.Exit(Exit.ERROR)


def _parse_renames(pairs: list[str]) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for each in pairs:
        before, equals, after = each.partition("=")
        if not (before and equals and after):
            raise typer.BadParameter(f"{each!r} is not of the form OLD=NEW.", param_hint="--rename")
        if renamed.get(before, after) != after:
            raise typer.BadParameter(
                f"{before!r} becomes both {renamed[before]!r} and {after!r}.", param_hint="--rename"
            )
        renamed[before] = after
    return renamed


def _show_plan(result: Plan) -> None:
    verdict, newline, rest = result.text().rstrip("\n").partition("\n")
    body = parts(newline + rest)
    for severity, style in SEVERITY_STYLES.items():
        body.highlight_regex(rf"(?m)^  {severity}:", style)
    style = "bold green" if result.safe else "bold red"
    say(Text.assemble((verdict, style), body))
