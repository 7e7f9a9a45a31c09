"""The reference page: every command, option and exit code is on it, and what it shows is what happens."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from interlock.cli.console import MEANINGS
from interlock.cli.program import program_for
from tests.docs.blocks import read_blocks
from tests.unit.cli.running import Interlock

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/command-line.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROGRAM = get_command(program_for())


def commands(group: object, prefix: str = "") -> dict[str, Any]:
    """Every command by its full name; a group is only its commands."""
    found: dict[str, Any] = {}
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = command
    return found


COMMANDS = commands(PROGRAM)


def section(command: str) -> str:
    """What the page says about one command."""
    found = re.search(rf"^## `interlock {command}`\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section for {command}"
    return found[1]


def entries(text: str) -> dict[str, str]:
    """The definition list of a section: each option with what stands beside it."""
    return {
        option: f"{head}\n{body}"
        for head, body in re.findall(r"^(`-.*)\n: (.*(?:\n  .*)*)", text, re.MULTILINE)
        for option in re.findall(r"`(--?[a-z-]+)", head)
    }


def options_of(command: str) -> set[str]:
    shown = [parameter for parameter in COMMANDS[command].params if not getattr(parameter, "hidden", False)]
    return {option for parameter in shown for option in parameter.opts if option.startswith("-")}


def test_the_page_has_exactly_the_commands() -> None:
    assert set(re.findall(r"^## `interlock ([\w -]+)`", TEXT, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_page_has_exactly_the_options_of_a_command(command: str) -> None:
    assert set(entries(section(command))) == options_of(command)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_defaults_and_choices_are_told(command: str) -> None:
    told = entries(section(command))
    for parameter in COMMANDS[command].params:
        option = parameter.opts[0]
        default = getattr(parameter.default, "value", parameter.default)
        if option.startswith("-") and default not in (None, False):
            assert re.search(rf"Default: `?{re.escape(str(default))}`?\.", told[option]), option


def test_the_page_has_the_options_of_the_program() -> None:
    found = re.search(r"^## Options of the program\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    mentioned = set(entries(found[1]))
    offered = {option for parameter in PROGRAM.params for option in parameter.opts}
    assert mentioned == offered | {"--help", "-h"}


def test_the_page_has_exactly_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", TEXT, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == {int(code): told for code, told in MEANINGS.items()}


def shown_commands() -> list[tuple[str, list[str]]]:
    """Every `$ interlock …` of the page with the lines that follow it."""
    shown: list[tuple[str, list[str]]] = []
    for block in read_blocks(TEXT):
        if block.language == "console" and block.executed:
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    shown.append((line[2:], []))
                else:
                    shown[-1][1].append(line)
    return shown


@pytest.mark.slow
def test_what_the_page_shows_is_what_happens(interlock: Interlock) -> None:
    for typed, expected in shown_commands():
        name, *words = typed.split()
        assert name == "interlock"
        done = interlock(*words)
        assert done.code == 0, done.err
        actual = "\n".join(line.rstrip() for line in done.out.splitlines())
        # A line of three dots stands for any number of lines, and a free port is another one every time.
        pattern = "\n".join(r"(?s:.*)" if line == "…" else re.escape(line) for line in expected)
        pattern = re.sub(r"(?<=127\\\.0\\\.0\\\.1:)\d+", r"\\d+", pattern)
        assert re.fullmatch(pattern, actual), f"$ {typed}\n{actual}"
