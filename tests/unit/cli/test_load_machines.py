"""MODULE:ATTR: what it may name, and what is said when it names nothing, or something else."""

import json
from pathlib import Path

import pytest

from interlock.cli.load_machines import load_machine, load_machines
from tests.unit.cli.running import Interlock, run_program


def test_attributes_may_be_dotted(folder: Path) -> None:
    assert load_machine("tickets:Desk.front").name == "ticket"


def test_the_current_directory_is_importable(folder: Path) -> None:
    assert [machine.name for machine in load_machines("desks.front")] == ["ticket"]


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        ("tickets:tiket", 4, "tickets has no attribute 'tiket'. Did you mean ticket?"),
        ("tickets:tiket", 4, "the machines of tickets: ticket, undated, broken."),
        ("tickets:zzz", 4, "tickets has no attribute 'zzz'.\n"),
        ("tickets:Desk.frond", 4, "tickets.Desk has no attribute 'frond'. Did you mean front?"),
        ("tickts:ticket", 4, "There is no module 'tickts'. Did you mean tickets:ticket?"),
        ("tickts", 4, "There is no module 'tickts'. Did you mean tickets?"),
        ("desks.frond:ticket", 4, "There is no module 'desks.frond'. Did you mean desks.front:ticket?"),
        ("dsks.front:ticket", 4, "There is no module 'dsks'. Did you mean desks.front:ticket?"),
        ("qqqqqq:ticket", 4, "There is no module 'qqqqqq'.\n"),
        ("tickets.inner:ticket", 4, "There is no module 'tickets.inner'."),
        ("empty", 4, "There is no machine in empty."),
        (
            "tickets:number",
            2,
            "tickets:number is an int, not a machine; the machines of tickets: ticket, undated, broken.",
        ),
        ("tickets:State", 2, "tickets:State is the class State, not a machine"),
        ("tickets:mixed", 2, "tickets:mixed is a list with something else than machines in it"),
        ("tickets:nothing", 2, "tickets:nothing is an empty list"),
        ("tickets:", 2, "'tickets:' is not of the form MODULE:ATTR."),
        (":ticket", 2, "':ticket' is not of the form MODULE:ATTR."),
        ("tickets:ticket()", 2, "'tickets:ticket()' is not of the form MODULE:ATTR."),
        ("tickets:a:b", 2, "'tickets:a:b' is not of the form MODULE:ATTR."),
        ("..tickets:ticket", 2, "is not of the form MODULE:ATTR."),
        ("tickets.py:ticket", 2, "names a file; a module is needed. Did you mean tickets:ticket?"),
        ("./desks/front.py:ticket", 2, "names a file; a module is needed. Did you mean desks.front:ticket?"),
        ("leaving:machine", 2, "Importing leaving ended the program: it called sys.exit(3)."),
    ],
)
def test_a_name_that_leads_nowhere_is_explained(interlock: Interlock, target: str, code: int, told: str) -> None:
    done = interlock("check", target)
    assert done.code == code
    assert told in done.err
    assert done.err.startswith("error: ")
    assert "\n  why: " in done.err
    assert "\n  fix: " in done.err
    assert done.out == ""


@pytest.mark.parametrize("command", ["diagram", "describe"])
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("tickets", "tickets names a module, not a machine; the machines of tickets: ticket, undated, broken."),
        ("tickets", "fix: Write tickets:ticket."),
        ("empty", "empty names a module, not a machine; empty has no machine."),
        ("empty", "fix: Write empty:ATTR."),
        ("tickets:pair", "tickets:pair holds 2 machines (ticket, undated), and exactly one is needed."),
    ],
)
def test_one_machine_is_asked_for_where_one_is_needed(
    interlock: Interlock, command: str, target: str, told: str
) -> None:
    done = interlock(command, target)
    assert done.code == 2
    assert told in done.err


def test_a_name_is_never_evaluated(interlock: Interlock, folder: Path) -> None:
    assert interlock("check", "tickets:__import__('os').mkdir('made')").code == 2
    assert not (folder / "made").exists()


def test_what_a_module_raises_keeps_its_traceback(interlock: Interlock) -> None:
    with pytest.raises(json.JSONDecodeError):
        interlock("check", "crashing:machine")


def test_a_module_that_misses_another_one_keeps_its_traceback(interlock: Interlock) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        interlock("check", "importing:machine")


def test_a_traceback_of_the_real_program_shows_the_users_line(folder: Path) -> None:
    done = run_program("check", "crashing:machine", folder=folder)
    assert done.code == 1
    assert "Traceback (most recent call last)" in done.err
    assert "crashing.py" in done.err


def test_an_interrupted_import_ends_cleanly(interlock: Interlock) -> None:
    done = interlock("check", "waiting:machine")
    assert (done.code, done.err) == (130, "Interrupted.\n")
