"""A folder with a few modules in it, and a command line that runs there."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.cli import main
from tests.unit.cli.running import Done, Interlock

SHOP = '''
"""Machines, good and bad."""

from dataclasses import dataclass
from enum import Enum

from interlock import Event, Machine


class State(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Ticket:
    number: int = 0


class TicketEvent(Event):
    pass


@dataclass(frozen=True)
class Close(TicketEvent):
    pass


def make(name, **options):
    return Machine(name, states=State, context=Ticket, events=TicketEvent, initial=State.OPEN, **options)


ticket = make("ticket", final={State.DONE})
ticket.on(Close, State.OPEN, to=State.DONE)
ticket.dwell(State.OPEN, max_s=60)

undated = make("undated", final={State.DONE})
undated.on(Close, State.OPEN, to=State.DONE)

broken = make("broken")

pair = (ticket, undated)
mixed = [ticket, 3]
nothing = []
number = 3


class Desk:
    front = ticket
'''

WRONG = """
from tickets import *

late = make("late", final={State.DONE})
late.on(Close, State.OPEN, to="done")
"""

MODULES = {
    "tickets.py": SHOP,
    "wrong.py": WRONG,
    "empty.py": "",
    "crashing.py": "import json\n\njson.loads('{')\n",
    "importing.py": "import a_module_that_nobody_has\n",
    "leaving.py": "raise SystemExit(3)\n",
    "waiting.py": "raise KeyboardInterrupt\n",
    "desks/__init__.py": "",
    "desks/front.py": "from tickets import ticket\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the sample modules. What is imported from it is forgotten afterwards."""
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {Path(module).parts[0].removesuffix(".py") for module in MODULES}:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A command that runs here sets up the log of the whole process."""
    root, own = logging.getLogger(), logging.getLogger("interlock")
    handlers, levels = [*root.handlers], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


@pytest.fixture
def interlock(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Interlock:
    """`interlock("check", "tickets")` runs the command in the folder, in this process."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run
