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


@pytest.mark.parametrize(
    ("module", "code", "place", "raised"),
    [
        ("crashing", None, "crashing.py:3", "JSONDecodeError: Expecting property name"),
        ("importing", None, "importing.py:1", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("unreadable", "x = 1\ndef f(:\n", "unreadable.py:2", "SyntaxError: invalid syntax"),
        ("mute", "raise AssertionError\n", "mute.py:1", "AssertionError"),
        ("outer", "import crashing\n", "crashing.py:3", "It was reached by outer.py:1."),
        ("misused", "from interlock import Machine\nMachine()\n", "misused.py:2", "TypeError"),
    ],
)
def test_what_a_module_raises_is_shown_with_its_line(
    interlock: Interlock, folder: Path, module: str, code: str | None, place: str, raised: str
) -> None:
    """The user's file, line and message, and no frame of ours."""
    if code is not None:
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
    checked, drawn = interlock("check", f"{module}:machine", "-o", "json"), interlock("diagram", f"{module}:machine")
    [finding] = json.loads(checked.out)
    assert (checked.code, drawn.code) == (1, 1)
    assert (finding["code"], finding["location"]) == ("import", place)
    assert f"error: {place}: " in drawn.err
    for text in (drawn.err, f"{finding}"):
        assert raised in text or raised in text.replace("\\'", "'")
        assert "Traceback (" not in text
        assert "interlock/" not in text
        assert "<frozen" not in text
        assert "importlib" not in text


def test_the_real_program_shows_no_traceback_of_its_own(folder: Path) -> None:
    done = run_program("check", "crashing:machine", "tickets:ticket", folder=folder)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("error [import] crashing.py:3\n")
    assert "crashing:machine, ticket (version 1): 1 error" in done.out


def test_an_interrupted_import_ends_cleanly(interlock: Interlock) -> None:
    done = interlock("check", "waiting:machine")
    assert (done.code, done.err) == (130, "Interrupted.\n")
