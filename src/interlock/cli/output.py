"""Consoles and files of the output: results on stdout, errors and remarks on stderr.

Colours are for terminals: a pipe gets plain text without escape codes and without line breaks at some width, so that
`grep` and diff tools see whole lines. Text that comes from the user's code is never read as markup.
"""

import sys
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.text import Text

from interlock.errors import InterlockError, StepError, UnusableFile

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """The console for errors and remarks."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


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
    stderr().print(text, soft_wrap=True)


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
    stderr().print(f"Wrote {output}", soft_wrap=True)


def counted(count: int, noun: str) -> str:
    """`1 error`, `2,000 errors`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shown_location(location: str) -> str:
    """`file:line` relative to the current directory when it is below it: shorter, and editors still open it."""
    here = f"{Path.cwd()}/"
    return location.removeprefix(here)
