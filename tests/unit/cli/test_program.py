"""The program as a whole: help, version, exit codes, errors, pipes."""

import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from interlock.cli import program as program_module
from interlock.cli.console import MEANINGS, Exit, exit_for
from interlock.cli.program import main, program_for
from interlock.errors import (
    BadUsage,
    DefinitionError,
    GuardRejected,
    InterlockError,
    InternalError,
    InvalidPayload,
    InvalidTransition,
    LaneOwned,
    Overloaded,
    TargetNotFound,
    UnusableFile,
    UserCodeError,
    WorkflowNotFound,
)
from tests.unit.cli.running import ESCAPE, Interlock, plain_environment, program, run_program

COMMANDS = ("demo", "check", "diagram", "describe", "plan", "doctor")
EXAMPLES = (*COMMANDS, "bench group-commit")
REFUSED = {"machine": "order", "state": "paid", "event": "CANCEL", "allowed": ["SHIP"]}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidTransition(**REFUSED), 3),  # type: ignore[arg-type]
        (GuardRejected(**REFUSED, guards=[("may", "")]), 3),  # type: ignore[arg-type]
        (WorkflowNotFound("x"), 4),
        (TargetNotFound("x"), 4),
        (LaneOwned("x"), 5),
        (Overloaded(1), 5),
        (BadUsage("x"), 2),
        (DefinitionError("x"), 1),
        (InvalidPayload("x"), 1),
        (UnusableFile("x"), 1),
        (InternalError("x"), 1),
        (InterlockError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: InterlockError, code: int) -> None:
    assert exit_for(error) == code


def test_exit_codes_are_fixed() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0, "ERROR": 1, "USAGE": 2, "REFUSED": 3, "NOT_FOUND": 4, "UNAVAILABLE": 5, "INTERRUPTED": 130,
    }  # fmt: skip
    assert set(MEANINGS) == set(Exit)


def run_raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit code of a program whose only command raises the error."""
    other = typer.Typer(pretty_exceptions_enable=False)

    @other.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(program_module, "program_for", lambda _wanted: other)
    return main([])


def test_an_error_is_three_parts_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = WorkflowNotFound("There is no workflow [bold]x[/bold].")
    assert run_raising(monkeypatch, error) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {error}\n"


def test_an_error_in_user_code_names_its_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UserCodeError("guard raised")
    error.__cause__ = ValueError("seven")
    assert run_raising(monkeypatch, error) == 1
    assert capsys.readouterr().err.endswith("\n  cause: ValueError: seven\n")


def test_a_bug_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raising(monkeypatch, InternalError("impossible")) == 1
    captured = capsys.readouterr().err
    assert "Traceback (most recent call last)" in captured
    assert "\nerror: impossible\n  why: " in captured


def test_what_nobody_expected_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run_raising(monkeypatch, ZeroDivisionError())


@pytest.mark.parametrize(("left", "code"), [(None, 0), (0, 0), (7, 7), ("text", 1)])
def test_leaving_has_a_code(monkeypatch: pytest.MonkeyPatch, left: str | int | None, code: int) -> None:
    assert run_raising(monkeypatch, SystemExit(left)) == code


def test_ctrl_c_in_a_command_is_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raising(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_ctrl_c_around_a_command_is_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program_module, "program_for", lambda _wanted: interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_the_version(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"interlock": "9.8.7"}.__getitem__)
    assert interlock("--version").out == "interlock 9.8.7\n"


def test_the_version_of_a_source_tree(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    done = interlock("--version")
    assert (done.code, done.out) == (0, "interlock (run from its source, not installed)\n")


def test_help_lists_the_commands_and_the_exit_codes(interlock: Interlock) -> None:
    done = interlock("--help")
    assert done.code == 0
    assert all(f" {command} " in done.out for command in (*COMMANDS, "bench"))
    assert "3 refused, 4 not found, 5 unavailable" in done.out
    places = [done.out.index(f"─ {panel} ─") for panel in ("Build", "Run", "Look", "Operate", "Prove", "Move")]
    assert places == sorted(places)
    assert places[0] < done.out.index(" check ") < places[1] < done.out.index(" serve ") < places[2]


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_help_of_a_command_has_an_example(interlock: Interlock, command: str) -> None:
    for option in ("--help", "-h"):
        done = interlock(*command.split(), option)
        assert done.code == 0
        assert f"Example: interlock {command} " in done.out


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_example_of_a_command_is_understood(interlock: Interlock, command: str) -> None:
    found = get_command(program_for())
    for word in command.split():
        found = found.commands[word]  # type: ignore[attr-defined]
    epilog = found.epilog
    assert epilog
    words = epilog.removeprefix("Example: interlock ").split()
    assert interlock(*words, "--help").code == 0
    hidden = {name for option in found.params if getattr(option, "hidden", False) for name in option.opts}
    assert not hidden & set(words), "an example teaches a spelling that help does not list"


def test_an_unknown_command_is_a_usage_error_with_a_suggestion(interlock: Interlock) -> None:
    done = interlock("chek", "tickets")
    assert done.code == 2
    assert "No such command 'chek'" in done.err
    assert "Did you mean 'check'?" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "tickets", "--no-such-option"),
        ("check", "tickets", "-o", "yaml"),
        ("diagram", "tickets:ticket", "--theme", "pink"),
        ("plan", "tickets:ticket"),
        ("doctor",),
        ("doctor", "memory:"),
        ("doctor", "stock"),
        ("doctor", "lanes:///tmp/x", "-o", "ids"),
        ("bench",),
        ("bench", "group-commit", "--clients", "0"),
        ("bench", "group-commit", "--window", "2"),
        ("bench", "group-commit", "--url", "stock"),
        ("demo", "--orders", "0"),
        ("demo", "--orders", "1000001"),
        ("demo", "--seed", "x"),
        (),
    ],
)
def test_wrong_usage_exits_with_2(interlock: Interlock, arguments: tuple[str, ...]) -> None:
    assert interlock(*arguments).code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("demo", "--orders", "many"), "'many' is not valid; it should be a whole number."),
        (("demo", "--orders", "0"), "'0' is not valid; it should be greater than or equal to 1."),
        (("check", "tickets", "-o", "yaml"), "'--output' / '-o': 'yaml' is not one of 'table', 'json', 'ids'."),
        (("audit", "--server", "http://127.0.0.1:8080"), "`interlock audit` has no --server."),
        (("check", "tickets:State"), "fix: Write tickets:ticket."),
        (("check", "tickets", "--no-such-option"), "No such option: --no-such-option"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(interlock: Interlock, arguments: tuple[str, ...], told: str) -> None:
    words = interlock(*arguments).err.replace("│", " ").split()
    assert told in " ".join(words)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("check", "tickets"),
        ("check", "tickets:tiket"),
        ("chek",),
        ("plan", "tickets:ticket", "tickets:undated"),
        ("demo", "--orders", "20"),
    ],
)
def test_a_pipe_gets_no_escape_codes(folder: Path, arguments: tuple[str, ...]) -> None:
    done = run_program(*arguments, folder=folder)
    assert done.out + done.err
    assert ESCAPE not in done.out + done.err


def test_a_pipe_gets_whole_lines(folder: Path) -> None:
    out = run_program("check", "tickets:broken", folder=folder, COLUMNS="40").out
    assert "  why: No workflow can ever be in it: a transition is missing, or the state is left over.\n" in out


def test_a_terminal_gets_colours_where_they_say_something(folder: Path) -> None:
    done = run_program("check", "tickets:broken", folder=folder, FORCE_COLOR="1", TERM="xterm-256color")
    severity, what, why, *_ = done.out.splitlines()
    assert severity.startswith(f"{ESCAPE}[1;31merror {ESCAPE}[0m")
    assert ESCAPE not in what
    assert why.startswith(f"{ESCAPE}[2m  why:{ESCAPE}[0m ")


@pytest.mark.parametrize(
    ("word", "meant"), [("list", "find"), ("init", "new"), ("dashboard", "serve"), ("help", "--help")]
)
def test_a_word_of_another_tool_is_answered_with_ours(interlock: Interlock, word: str, meant: str) -> None:
    done = interlock(word)
    assert done.code == Exit.USAGE
    assert f"error: there is no command '{word}'. Did you mean {meant}?" in done.err


def test_words_of_other_tools_are_no_commands_and_lead_to_commands() -> None:
    commands = {program_module.command_name(path) for path in program_module.COMMANDS}
    words = program_module.WORDS_OF_OTHER_TOOLS
    assert not commands & set(words)
    assert set(words.values()) <= commands | {"--help"}


def test_errors_are_coloured_no_more_than_needed(folder: Path) -> None:
    done = run_program("check", "tickets:tiket", folder=folder, FORCE_COLOR="1", TERM="xterm-256color")
    assert done.err.startswith(f"{ESCAPE}[1;31merror: {ESCAPE}[0mtickets has no attribute")


def test_colours_can_be_refused(folder: Path) -> None:
    done = run_program("check", "tickets:broken", folder=folder, FORCE_COLOR="1", NO_COLOR="1")
    assert "[1;31m" not in done.out


def test_an_output_without_arrows_gets_question_marks(folder: Path) -> None:
    done = run_program("plan", "tickets:ticket", "tickets:ticket", folder=folder, PYTHONIOENCODING="ascii")
    assert (done.code, done.out) == (0, "ticket, version 1 ? 1: nothing changes\n")


def test_a_reader_that_goes_away_is_no_accident(folder: Path) -> None:
    with subprocess.Popen(
        program("demo", "--orders", "2000"),
        cwd=folder,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 1
