"""The list of commands: what it says of each is what the command says of itself, and no other is loaded."""

import json
import subprocess
import sys
from typing import Any, cast

import pytest
from typer.main import get_command

from interlock.cli.program import COMMANDS, command_name, main, program_for
from tests.unit.cli.running import plain_environment

LOADED: dict[str, Any] = cast("Any", get_command(program_for())).commands
HEAVY = (
    "interlock.engine.engine",
    "interlock.database.database",
    "interlock.server.app_declaration",
    "postgast",
    "apsw",
    "httpx",
)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_line_of_a_command_is_the_first_paragraph_of_its_help(path: str) -> None:
    paragraph = LOADED[command_name(path)].help.split("\n\n")[0]
    assert COMMANDS[path][0] == " ".join(paragraph.split())


def test_a_command_that_is_not_run_has_its_name_and_its_line() -> None:
    listed: dict[str, Any] = cast("Any", get_command(program_for("check"))).commands
    assert set(listed) == set(LOADED) == set(map(command_name, COMMANDS))
    assert {name: command.epilog for name, command in listed.items()} == {
        name: command.epilog for name, command in LOADED.items()
    }
    assert [option.name for option in listed["check"].params] == [option.name for option in LOADED["check"].params]
    assert not listed["serve"].params


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("chek",), ()])
def test_what_runs_no_command_loads_neither_an_engine_nor_a_database(words: tuple[str, ...]) -> None:
    code = (
        "import json, sys\nfrom interlock.cli import main\n"
        f"main({list(words)!r})\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=plain_environment(), capture_output=True, encoding="utf-8", check=True
    )
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    assert modules.isdisjoint(HEAVY)
    assert not {name for name in modules if name.startswith("interlock.cli.demo")}


def test_the_command_is_found_behind_options_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "plan", "--help"]) == 0
    assert "--rename" in capsys.readouterr().out
