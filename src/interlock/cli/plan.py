"""`interlock plan`: the effect of a new version of a machine on stored workflows.

Made for a release pipeline: the old side is usually a file from the last release, and the exit code is the answer.
A change that is not proved safe counts as unsafe.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from interlock.cli.descriptions import sound_description
from interlock.cli.exits import Exit
from interlock.cli.output import SEVERITY_STYLES, parts, show_raw, stdout
from interlock.core.plan import Plan
from interlock.core.plan import plan as make_plan


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
    renamed = _renamed(rename or [])
    result = make_plan(sound_description(old), sound_description(new), renamed=renamed)
    match output:
        case Report.TEXT:
            _show(result)
        case Report.JSON:
            show_raw(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    if not result.safe:
        raise typer.Exit(Exit.ERROR)


def _renamed(pairs: list[str]) -> dict[str, str]:
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


def _show(result: Plan) -> None:
    verdict, newline, rest = result.text().rstrip("\n").partition("\n")
    body = parts(newline + rest)
    for severity, style in SEVERITY_STYLES.items():
        body.highlight_regex(rf"(?m)^  {severity}:", style)
    style = "bold green" if result.safe else "bold red"
    stdout().print(Text.assemble((verdict, style), body), soft_wrap=True)
