"""Progress and result files of the commands of `interlock bench`.

Progress is a live bar on a terminal and a line for each step elsewhere, so that a log can be read, too.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.output import stderr, write_file
from interlock.errors import UnusableFile

DoneT = TypeVar("DoneT")


@contextmanager
def watching(
    console: Console, total: int, line_of: Callable[[DoneT], str]
) -> Generator[Callable[[DoneT], None], None, None]:
    """Show completed steps: a live bar on a terminal, a line for each elsewhere."""
    if not console.is_terminal:
        yield lambda done: console.print(f"  {line_of(done)}", soft_wrap=True)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("beginning", total=total)
        yield lambda done: progress.update(task, advance=1, description=line_of(done))


def check_files(*paths: Path | None) -> None:
    """Raise UnusableFile for files that cannot be written, before minutes of measuring."""
    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
        if path.is_dir():
            raise UnusableFile(f"{path} cannot be written: it is a folder.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UnusableFile(f"{path} cannot be written: permission denied.")


def write_files(result: msgspec.Struct, json: Path | None, plot: Path | None, draw: Callable[[], str]) -> None:
    """Write the result as JSON and as a plot, where paths are set."""
    as_json = msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n" if json else ""
    for path, content in ((json, as_json), (plot, draw() if plot else "")):
        if path is not None:
            write_file(path, content)
            stderr().print(f"Wrote {path}", soft_wrap=True)
