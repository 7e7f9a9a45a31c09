"""Reads the scripts of the dialect's conformance suite.

A script is a file of statements, each ending in a semicolon at the end of a line. A comment above a statement may give
its arguments (`-- args: [1, Decimal("1.5")]`), say that a lane must refuse it (`-- refused`), or that it fails on both
engines (`-- fails`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from tests.docs.blocks import read_blocks

_NAMES = {
    "Decimal": Decimal,
    "UUID": UUID,
    "UTC": UTC,
    "date": date,
    "datetime": datetime,
    "time": time,
    "timedelta": timedelta,
}
_ARGUMENTS = re.compile(r"-- args: (.*)")


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a script."""

    sql: str
    line: int
    args: tuple[object, ...] = ()
    refused: bool = False
    fails: bool = False


def read_script(path: Path) -> list[Step]:
    """The steps of a script file."""
    return list(read_steps(path.read_text(encoding="utf-8")))


def read_steps(text: str, first_line: int = 1) -> Iterator[Step]:
    """The steps of a script's text."""
    args: tuple[object, ...] = ()
    refused = fails = False
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=first_line):
        if not lines and (matched := _ARGUMENTS.fullmatch(line)):
            args = tuple(eval(matched[1], _NAMES))  # The scripts are part of the suite.
        elif not lines and line == "-- refused":
            refused = True
        elif not lines and line == "-- fails":
            fails = True
        elif lines or (line.strip() and not line.startswith("--")):
            lines.append(line)
        if lines and line.endswith(";"):
            yield Step("\n".join(lines).removesuffix(";"), number, args, refused, fails)
            args, refused, fails, lines = (), False, False, []
    assert not lines, f"the last statement has no semicolon: {lines}"


def read_page(path: Path) -> list[Step]:
    """The examples of a page of the documentation: its blocks of SQL are one script, from top to bottom."""
    return [
        step
        for block in read_blocks(path.read_text(encoding="utf-8"))
        if block.language == "sql"
        for step in read_steps(block.text, block.line)
    ]
