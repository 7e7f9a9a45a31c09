"""`interlock diagram` and `interlock describe`: a machine as a picture, as tables, or as data.

A diagram is drawn from a description, so a machine of an old release can be drawn from its file, without its code.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import typer

from interlock.cli.descriptions import load_description
from interlock.cli.output import deliver
from interlock.cli.targets import load_machine
from interlock.core import diagrams
from interlock.core.description import MachineDescription

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
