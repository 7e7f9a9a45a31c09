"""Runs the command line: in this process through `main`, or as a real program."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ESCAPE = "\x1b"
SOURCE = Path(__file__).resolve().parents[3] / "src"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Interlock = Callable[..., Done]


def plain_environment(**settings: str) -> dict[str, str]:
    """The environment without anything that forces or forbids colours or widths."""
    hints = {"FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "NO_COLOR", "COLUMNS", "LINES", "TERMINAL_WIDTH", "CI"}
    kept = {name: value for name, value in os.environ.items() if name not in hints}
    return {**kept, "PYTHONPATH": str(SOURCE), **settings}


def program(*arguments: str) -> list[str]:
    """The words that start the real program."""
    return [sys.executable, "-m", "interlock", *arguments]


def run_program(*arguments: str, folder: Path, **settings: str) -> Done:
    """Run the real program in a folder, its output in pipes."""
    done = subprocess.run(
        program(*arguments),
        cwd=folder,
        env=plain_environment(**settings),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


# A program that a shell starts in the background ignores Ctrl-C, and so would everything these tests start.
HEEDS_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])
"""


def heeding(*arguments: str) -> list[str]:
    """The words that start the real program, with Ctrl-C as in a terminal."""
    return [sys.executable, "-c", HEEDS_INTERRUPTS, *program(*arguments)]
