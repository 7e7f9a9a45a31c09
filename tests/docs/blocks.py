"""Reads the fenced code blocks of a Markdown page, and runs them where they stand.

Code is compiled under the name of the page and at its own line, so that tracebacks, `inspect` and warnings point into
the Markdown file itself. The blocks of a page share one module: a page reads, and runs, from top to bottom.

A tutorial also has files: `<!-- saved as: shop.py -->` above a block puts it into the reader's folder instead, and a
line `$ python shop.py` of a console block runs it there. What the page shows below that line must be what it prints.
`<!-- as soon as it is so -->` above a console block says that a server gets there by itself, behind its answer.
"""

import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from markdown_it import MarkdownIt

_SKIPPED = re.compile(r"<!--\s*not executed:\s*\S.*?-->\s*$", re.DOTALL)
_SAVED = re.compile(r"<!--\s*saved as:\s*(\S+)\s*-->\s*$")
_SOON = re.compile(r"<!--\s*as soon as it is so\s*-->\s*$")
_RUN = re.compile(r"\$ python (\w+\.py)$")
_SHELL_OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"}
_EXPORT = re.compile(r"^\$ export ([A-Z_]+)=(.*)$", re.MULTILINE)
_SETTING = re.compile(r"[A-Z_][A-Z0-9_]*=.*")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int
    executed: bool
    saved_as: str | None = None
    soon: bool = False
    """What it shows becomes true a moment later: a reader who is quick looks again."""


@dataclass(frozen=True)
class Command:
    """One `$ interlock …` line of a console block, without the program's name."""

    arguments: tuple[str, ...]
    line: int


class PageFailed(Exception):
    """A block of a page failed; the text begins with file:line."""


def read_blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order. `<!-- not executed: reason -->` just above a block excuses it."""
    blocks: list[Block] = []
    above = ""
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.map is not None:
            language = token.info.split()[0] if token.info.strip() else ""
            saved = _SAVED.search(above)
            executed = not _SKIPPED.search(above)
            line, soon = token.map[0] + 2, _SOON.search(above) is not None
            blocks.append(
                Block(language, token.content, line, executed=executed, saved_as=saved and saved[1], soon=soon)
            )
        above = token.content if token.type == "html_block" else ""
    return blocks


def run_page(path: Path, shown: str, module: ModuleType, folder: Path) -> int:
    """Run the Python of a page in the module, its files and their commands in the folder; the number of blocks run."""
    count = 0
    saved: set[str] = set()
    for block in read_blocks(path.read_text(encoding="utf-8")):
        if not block.executed:
            continue
        if block.saved_as is not None:
            (folder / block.saved_as).write_text(block.text, encoding="utf-8")
            saved.add(block.saved_as)
        elif block.language == "python":
            _run_block(block, path, shown, module)
            count += 1
        elif block.language == "console":
            _run_programs(block, shown, saved, folder)
    return count


def _run_block(block: Block, path: Path, shown: str, module: ModuleType) -> None:
    try:
        code = compile("\n" * (block.line - 1) + block.text, str(path), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        line = _line_in_page(error, path) or block.line
        detail = "".join(traceback.format_exception(error))
        raise PageFailed(f"{shown}:{line}: {type(error).__name__}: {error}\n\n{detail}") from error


def _run_programs(block: Block, shown: str, saved: set[str], folder: Path) -> None:
    """Run each `$ python FILE` of a file that the page has saved, and compare what it prints with what is shown."""
    lines = list(enumerate(block.text.splitlines(), start=block.line))
    while lines:
        number, typed = lines.pop(0)
        found = _RUN.match(typed.strip())
        if found is None or found[1] not in saved:
            continue
        expected: list[str] = []
        while lines and not lines[0][1].startswith("$ "):
            expected.append(lines.pop(0)[1])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        done = subprocess.run(
            [sys.executable, found[1]], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode or not printed(expected, done.stdout):
            raise PageFailed(f"{shown}:{number}: {typed}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def printed(expected: list[str], output: str) -> bool:
    """Whether every line that is shown was printed, in that order; `…` stands for anything."""
    printed = iter(output.splitlines())
    patterns = [
        ".*".join(map(re.escape, line.rstrip().split("…"))) for line in expected if line.strip() not in {"", "…"}
    ]
    return all(any(re.fullmatch(pattern, line.rstrip()) for line in printed) for pattern in patterns)


def read_commands(text: str) -> list[Command]:
    """The `$ interlock …` lines of the console blocks of a page, up to the first operator of the shell."""
    return [
        command
        for block in read_blocks(text)
        if block.language == "console" and block.executed
        for command in _commands_of(block)
    ]


def read_exports(text: str, folder: Path) -> dict[str, str]:
    """What the console blocks of a page export for the commands that follow; `$PWD` is the folder."""
    blocks = [block.text for block in read_blocks(text) if block.language == "console" and block.executed]
    found = [export for block in blocks for export in _EXPORT.findall(block)]
    return {name: "".join(shlex.split(value)).replace("$PWD", str(folder)) for name, value in found}


def _commands_of(block: Block) -> Iterator[Command]:
    lines = iter(enumerate(block.text.splitlines(), start=block.line))
    for number, first in lines:
        typed = first.strip()
        while typed.endswith("\\"):
            typed = typed[:-1] + next(lines, (0, ""))[1].strip()
        if not typed.startswith("$ "):
            continue
        for words in _simple_commands(typed[2:]):
            if words[0] == "interlock":
                yield Command(tuple(words[1:]), number)


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a shell line: `a | b > c` is a, b and c. Settings in front (`NAME=value a`) are dropped."""
    words: list[str] = []
    for word in [*shlex.split(line, comments=True), ";"]:
        if word not in _SHELL_OPERATORS:
            if words or not _SETTING.fullmatch(word):
                words.append(word)
        elif words:
            yield words
            words = []


def _line_in_page(error: BaseException, path: Path) -> int | None:
    """The innermost line of the page that took part in the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
