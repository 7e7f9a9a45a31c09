"""`interlock doctor`: is a lane whole, who owns it, and what stands in its way.

It may be run at any time, beside the owner too, and changes nothing. The exit code is the answer for a script, the
findings are the answer for a person.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from interlock.cli.exits import Exit
from interlock.cli.output import SEVERITY_STYLES, counted, parts, show_raw, stdout
from interlock.database.doctor import examine_database
from interlock.lanes.doctor import LaneReport


class Diagnosis(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    JSON = "json"


def doctor(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of a lane: lanes:///folder/name.")],
    *,
    output: Annotated[Diagnosis, typer.Option("--output", "-o", help="Text for people, or JSON.")] = Diagnosis.TABLE,
) -> None:
    """Look at a lane: is it whole, who owns it, what stands in its way. Changes nothing.

    Exits with 1 when there are errors or warnings, with 4 when there is no such lane,
    and with 5 when it is locked so that it cannot even be read.
    """
    report = examine_database(url)
    if output is Diagnosis.JSON:
        show_raw(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _show(report)
    if not report.healthy:
        raise typer.Exit(Exit.ERROR)


def _show(report: LaneReport) -> None:
    console = stdout()
    for name, value in _rows(report):
        console.print(Text.assemble((f" {name:<11}", "dim"), value), soft_wrap=True)
    for finding in report.findings:
        text = Text.assemble(
            (f"{finding.severity} ", SEVERITY_STYLES[finding.severity]),
            (f"[{finding.code}]", "bold"),
            parts(f"\n  {finding.what}\n  why: {finding.why}\n  fix: {finding.fix}"),
        )
        console.print(text, soft_wrap=True)
    problems = sum(finding.severity != "info" for finding in report.findings)
    verdict = counted(problems, "problem") if problems else "healthy"
    console.print(Text(verdict, style="bold red" if problems else "green"))


def _rows(report: LaneReport) -> list[tuple[str, str]]:
    owner = report.owner
    told = "nobody"
    if owner is not None:
        told = "unknown" if owner.pid is None else f"process {owner.pid} on {owner.host}, since {owner.since}"
    rows = [
        ("lane", report.path),
        ("owner", told),
        ("database", f"{report.database_bytes:,} bytes"),
        ("log", f"{report.log_bytes:,} bytes"),
    ]
    if report.pages is not None:
        rows += [
            ("pages", f"{report.pages:,} of {report.page_bytes:,} bytes, {report.pages_free:,} free"),
            ("schema", f"version {report.schema_version}, {counted(report.tables or 0, 'table')}"),
            ("keys", "unknown" if report.keys is None else f"{report.keys:,}"),
            ("lane time", report.lane_time or "not asked for yet"),
        ]
    return rows
