"""Output of commands: consoles, files, tables, exit codes and progress; and commands that clean up after Ctrl-C.

Results go to stdout, errors and remarks to stderr. Colours are for terminals: a pipe gets plain text without escape
codes and without line breaks at some width, so that `grep` and diff tools see whole lines. Text that comes
from the user's code is never read as markup.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum, StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from interlock.errors import (
    BadUsage,
    InterlockError,
    KeyReused,
    NotAuthenticated,
    NotPermitted,
    Refusal,
    StepError,
    TargetNotFound,
    TaskClaimed,
    UnavailableError,
    UnusableFile,
    VersionConflict,
    WorkflowExists,
    WorkflowNotFound,
)

# --- Consoles and files ----------------------------------------------------------------------------------------------

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """The console for errors and remarks."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str | Text) -> None:
    """Print a line of the result; a narrow terminal does not break it."""
    stdout().print(text, soft_wrap=True)


def remark(text: str | Text) -> None:
    """Print a line that is not the result, on stderr."""
    stderr().print(text, soft_wrap=True)


def tolerate_narrow_encodings() -> None:
    """Where the output's encoding has no bars or arrows, print `?` for them instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace")


def show_error(error: InterlockError) -> None:
    """Print the three parts of an error to stderr: what, why, fix; and what user code raised, if it was that."""
    text = Text.assemble(("error: ", "bold red"), parts(escaped(str(error))))
    if isinstance(error, StepError) and error.__cause__ is not None:
        text.append(escaped(f"\n  cause: {type(error.__cause__).__name__}: {error.__cause__}"))
    remark(text)


def escaped(text: str) -> str:
    """Text of users, for a terminal: what cannot be printed, or turns the direction of writing, is shown as its code.

    A line break stays one. The codes are those of JSON, so that JSON stays the same value.
    """
    return "".join(each if each.isprintable() or each == "\n" else _code(each) for each in text)


def _code(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def parts(error_text: str) -> Text:
    """Return a three-part text with its `why:` and `fix:` dimmed."""
    text = Text(error_text)
    text.highlight_regex(r"(?m)^ +(?:why|fix):", "dim")
    return text


def show_raw(content: str) -> None:
    """Print text exactly as it is: a diagram or JSON that another program will read."""
    stdout().out(content.removesuffix("\n"), highlight=False)


def write_file(path: Path, content: str) -> None:
    """Write the file, with the folders that lead to it. Raises UnusableFile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error


def deliver(content: str, output: Path | None) -> None:
    """Print the content to stdout, or write it into the file and report that on stderr."""
    if output is None:
        show_raw(content)
        return
    write_file(output, content)
    remark(f"Wrote {output}")


def counted(count: int, noun: str) -> str:
    """`1 error`, `2,000 errors`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# --- Formats and tables ----------------------------------------------------------------------------------------------
# All text of users is escaped: an id cannot move the cursor or look like another one.

CELL_CHARACTERS_MAX = 80

ItemT = TypeVar("ItemT")


class ListingFormat(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"


class ResultFormat(StrEnum):
    """How one result is printed."""

    TABLE = "table"
    JSON = "json"


def json_text(value: object) -> str:
    """Return any value as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def show_json(value: object) -> None:
    """Print any value as JSON, indented."""
    show_raw(escaped(json_text(value)))


def show_ids(ids: Iterable[str]) -> None:
    """Print ids, one per line, for another command to read."""
    for each in ids:
        show_raw(each)


def show_listing(
    output: ListingFormat,
    items: Sequence[ItemT],
    heading: Sequence[str],
    cells_of: Callable[[ItemT], Sequence[object]],
    *,
    ids: Iterable[str],
    cell_max: int = CELL_CHARACTERS_MAX,
) -> None:
    """Print items as a table, as JSON, or only their ids; an empty table is only its heading."""
    match output:
        case ListingFormat.TABLE:
            show_table(heading, [cells_of(each) for each in items], cell_max=cell_max)
        case ListingFormat.JSON:
            show_json(items)
        case ListingFormat.IDS:
            show_ids(ids)


def show_table(
    heading: Sequence[str], rows: Sequence[Sequence[object]], *, cell_max: int = CELL_CHARACTERS_MAX
) -> None:
    """Print a table with columns as wide as they need to be. Nothing is wrapped; the last column is not filled up."""
    lines = [[_cell(value, cell_max) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heading, *lines, strict=True)]
    console = stdout()
    console.print(Text(_line(heading, widths), style="dim"), soft_wrap=True)
    for line in lines:
        console.print(Text(_line(line, widths)), soft_wrap=True)


def moment_text(time: datetime | None) -> str:
    """Return a time as commands show it; nothing for None."""
    return "" if time is None else time.isoformat(timespec="milliseconds")


def one_line(text: str) -> str:
    """Return text of users as one printable line."""
    return escaped(text).replace("\n", "\\n")


def _cell(value: object, most: int) -> str:
    text = one_line(str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    filled = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(filled).rstrip()


# --- Exit codes ------------------------------------------------------------------------------------------------------
# A script acts on the number, a person reads the text: the codes are fixed, documented in the reference, and never
# reused. An error that is not an InterlockError is not mapped; it keeps its traceback, and Python exits with 1.


class Exit(IntEnum):
    """The exit codes of commands."""

    OK = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130
    """128 + SIGINT, as shells expect it after Ctrl-C."""


MEANINGS = {
    Exit.OK: "done, and nothing to complain about",
    Exit.ERROR: "an error, or the answer is no: findings of severity error, a plan that is not safe",
    Exit.USAGE: "the command line is wrong: a word, an option, or a value that does not fit the machine",
    Exit.REFUSED: "the event, the start or the API key was refused; nothing was changed",
    Exit.NOT_FOUND: "there is no such workflow, dead letter, module, attribute, file or database",
    Exit.UNAVAILABLE: "not now or not here; try again later, or at the owner that is named",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}

_BY_CLASS: tuple[tuple[type[InterlockError], Exit], ...] = (
    (BadUsage, Exit.USAGE),
    (Refusal, Exit.REFUSED),
    (VersionConflict, Exit.REFUSED),
    (TaskClaimed, Exit.REFUSED),
    (WorkflowExists, Exit.REFUSED),
    (KeyReused, Exit.REFUSED),
    (NotAuthenticated, Exit.REFUSED),
    (NotPermitted, Exit.REFUSED),
    (WorkflowNotFound, Exit.NOT_FOUND),
    (TargetNotFound, Exit.NOT_FOUND),
    (UnavailableError, Exit.UNAVAILABLE),
)


def exit_for(error: InterlockError) -> Exit:
    """Return the exit code for an error."""
    return next((code for cls, code in _BY_CLASS if isinstance(error, cls)), Exit.ERROR)


ResultT = TypeVar("ResultT")


def run_interruptible(work: Coroutine[object, object, ResultT]) -> ResultT:
    """Run the coroutine in a new event loop, and raise KeyboardInterrupt after its cleanup when a signal ended it.

    The first signal cancels it, between two steps and never within one; later ones do nothing. An ignored Ctrl-C (a
    background job of a shell) stays ignored.
    """

    async def watched() -> ResultT:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        received: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            if not received:
                task.cancel()
            received.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(ValueError):  # Only the main thread may install handlers.
                    loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if received:
                raise KeyboardInterrupt from None
            raise

    return asyncio.run(watched())


# --- Progress --------------------------------------------------------------------------------------------------------
# A live bar on a terminal, a line per kind of work elsewhere; on stderr.

Watch = Callable[[str, int, int], None]


def progress_bar(console: Console) -> Progress:
    """Return a bar with a description, the amount and the time, which disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


@contextmanager
def watching(first: str = "reading the manifest") -> Generator[Watch]:
    """Yield a callback that shows the kind of work, the amount done, and the total."""
    console = stderr()
    if not console.is_terminal:
        printed: set[str] = set()

        def say(what: str, _done: int, of: int) -> None:
            if what not in printed:
                printed.add(what)
                console.print(f"{what} ({of:,})", soft_wrap=True)

        yield say
        return
    with progress_bar(console) as progress:
        task = progress.add_task(first, total=None)
        yield lambda what, done, of: progress.update(task, description=what, completed=done, total=of or None)


@contextmanager
def counting(what: str) -> Generator[Callable[[int], None]]:
    """Yield a callback that counts completed items; shown on a terminal only, and only with a noun."""
    console = stderr()
    if not what or not console.is_terminal:
        yield lambda _more: None
        return
    with Progress(
        TextColumn("{task.completed:,.0f} {task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda more: progress.advance(task, more)
