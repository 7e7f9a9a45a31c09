"""Commands on machines in code: `interlock check`, `diagram`, `describe`, `plan` and `new`.

None of them opens a store. A machine whose declaration is wrong raises as soon as its module is imported. For `check`
that error is one more finding, so that a build gets one list of all findings, and the other machines are still checked.
"""

import keyword
import re
import sys
from collections import Counter
from enum import StrEnum
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated, NamedTuple, assert_never
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import typer
from rich.text import Text

from interlock.cli.output import SEVERITY_STYLES, Exit, counted, deliver, parts, show_raw, shown_location, stdout
from interlock.cli.targets import load_description, load_machine, load_machines, sound_description
from interlock.core import diagrams
from interlock.core.describe import MachineDescription
from interlock.core.plan import Plan
from interlock.core.plan import plan as make_plan
from interlock.core.values import Finding
from interlock.errors import BadUsage, DefinitionError, UnusableFile


class Listing(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"


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
            _show_findings(visible, results)
        case Listing.JSON:
            _show_findings_json(visible)
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


def _show_findings(visible: list[Checked], results: list[Checked]) -> None:
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


def _show_findings_json(visible: list[Checked]) -> None:
    listed = [
        {"machine": result.machine, **msgspec.structs.asdict(finding)}
        for result in visible
        for finding in result.findings
    ]
    show_raw(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())


# --- `interlock diagram` and `interlock describe` --------------------------------------------------------------------
# A diagram is drawn from a description, so a machine of an old release can be drawn from its file, without its code.

OutputFile = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write into this file instead of to stdout.")
]


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
    output: OutputFile = None,
    theme: Annotated[Theme, typer.Option(help="The colours of an SVG; auto follows the reader's system.")] = (
        Theme.AUTO
    ),
) -> None:
    """Draw a machine as Mermaid, Graphviz, SVG or Markdown tables."""
    deliver(_draw(load_description(target), kind, theme), output)


def describe(
    target: Annotated[str, typer.Argument(metavar="MODULE:ATTR", help="A machine.")],
    *,
    output: OutputFile = None,
) -> None:
    """Print a machine as JSON, to keep beside a release and compare later with `interlock plan`."""
    machine = load_machine(target)
    _ = machine.compiled  # A description is kept beside a release: it is of a machine that could be used.
    deliver(machine.describe().to_json().decode() + "\n", output)


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


class Report(StrEnum):
    """How a plan is printed."""

    TEXT = "text"
    JSON = "json"


def plan(
    old: Annotated[str, typer.Argument(metavar="OLD", help="MODULE:ATTR, or a file written by `interlock describe`.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="MODULE:ATTR, or a file written by `interlock describe`.")],
    *,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="A state that has another name now. May be given several times."),
    ] = None,
    output: Annotated[Report, typer.Option("--output", "-o", help="Text for people, or JSON.")] = Report.TEXT,
) -> None:
    """Say what happens to stored workflows when the machine OLD becomes the machine NEW.

    Exits with 0 when that is proved safe, and with 1 when it is not.
    """
    renamed = _parse_renames(rename or [])
    result = make_plan(sound_description(old), sound_description(new), renamed=renamed)
    match output:
        case Report.TEXT:
            _show_plan(result)
        case Report.JSON:
            show_raw(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
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
    stdout().print(Text.assemble((verdict, style), body), soft_wrap=True)


# --- `interlock new` -------------------------------------------------------------------------------------------------
# The templates are package data, with placeholders for the names of the project and its package. Nothing is
# overwritten: an existing folder must be empty, and everything is checked before the first file is made. The project
# installs the Interlock that made it: from a clone, that clone.

NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*", re.ASCII)
NAME_CHARACTERS_MAX = 60
TAKEN = {"interlock", "tests", "data"}
"""Packages that would hide, or be hidden by, another one of the project."""

FILES = {
    "README.md.txt": "README.md",
    "Makefile.txt": "Makefile",
    "pyproject.toml.txt": "pyproject.toml",
    "interlock.toml.txt": "interlock.toml",
    "gitignore.txt": ".gitignore",
    "package.py.txt": "{package}/__init__.py",
    "orders.py.txt": "{package}/orders.py",
    "world.py.txt": "{package}/world.py",
    "app.py.txt": "{package}/app.py",
    "test_orders.py.txt": "tests/test_orders.py",
}
"""Templates of this package, and their paths in the project."""


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the project: my-shop.")],
    *,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The folder of the project, new or empty. Without it: NAME, here."),
    ] = None,
) -> None:
    """Make a project: a machine with steps and undos, its tests, an App, and two commands that work.

    `make test` checks the machine and runs the tests, `make run` serves it on this machine, with a dashboard.
    Exits with 2 when NAME cannot be a package, or when the folder is not empty.
    """
    package = package_of(name)
    folder = Path(name) if directory is None else directory
    texts = _texts(name, package)
    _refuse_used(folder)
    try:
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from error
    console = stdout()
    console.print(f"Made {name} in {folder}: {len(texts)} files.", soft_wrap=True)
    console.print(f"\n  cd {folder}\n  make test    # checks the machine, runs its tests\n  make run     # serves it",
                  soft_wrap=True)  # fmt: skip


def package_of(name: str) -> str:
    """The package of a project of that name. Raises BadUsage for a name that cannot be one."""
    package = name.lower().replace("-", "_")
    if not NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        why = f"It names a package too: a letter first, then letters, digits, - and _, at most {NAME_CHARACTERS_MAX}."
    elif keyword.iskeyword(package) or package in sys.stdlib_module_names or package in TAKEN:
        why = f"A package {package!r} could not be imported, or would hide one that Python or Interlock needs."
    else:
        return package
    raise BadUsage(f"{name!r:.100} cannot be the name of a project.", why=why, fix="Choose another name: my-shop.")


class _Origin(msgspec.Struct):
    """The record of pip about a package that did not come from an index (PEP 610)."""

    url: str


def requirement() -> str:
    """Return the requirement for this Interlock: the package, or the folder or file that it was installed from."""
    try:
        origin = metadata.distribution("interlock").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    address = urlsplit("" if origin is None else msgspec.json.decode(origin, type=_Origin).url)
    path = Path(url2pathname(address.path))
    return f"{path}[server]" if address.scheme == "file" and path.exists() else "interlock[server]"


def _texts(name: str, package: str) -> dict[str, str]:
    kept = resources.files("interlock.cli") / "scaffold"
    return {
        path.format(package=package): (kept / source)
        .read_text(encoding="utf-8")
        .replace("@NAME@", name)
        .replace("@PACKAGE@", package)
        .replace("@INTERLOCK@", requirement().replace("$", "$$").replace("#", "\\#"))
        for source, path in FILES.items()
    }


def _refuse_used(folder: Path) -> None:
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise UnusableFile(f"{folder} cannot be looked at: {error.strerror or error}.") from error
    if used:
        raise BadUsage(
            f"{folder} is there already, and is not an empty folder.",
            why="A project is made in a place of its own, and nothing is overwritten.",
            fix="Choose another name, or another place with --directory.",
        )
