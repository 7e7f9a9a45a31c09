"""`interlock plan`: from code or from files, for people or as JSON, safe or not."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import Interlock

NEXT = """
from dataclasses import dataclass
from enum import Enum

from interlock import Event, Machine
from tickets import Close, Ticket, TicketEvent


class State(Enum):
    OPEN = "open"
    CLOSED = "closed"


next_ticket = Machine(
    "ticket", states=State, context=Ticket, events=TicketEvent, initial=State.OPEN, final={State.CLOSED}, version=2
)
next_ticket.on(Close, State.OPEN, to=State.CLOSED)
next_ticket.dwell(State.OPEN, max_s=60)
"""


@pytest.fixture(autouse=True)
def next_release(folder: Path) -> None:
    (folder / "empty.py").write_text(NEXT)


def test_the_same_machine_is_safe(interlock: Interlock) -> None:
    done = interlock("plan", "tickets:ticket", "tickets:ticket")
    assert (done.code, done.out, done.err) == (0, "ticket, version 1 → 1: nothing changes\n", "")


def test_a_state_that_is_gone_is_not_safe(interlock: Interlock) -> None:
    done = interlock("plan", "tickets:ticket", "empty:next_ticket")
    assert done.code == 1
    assert done.out.startswith("ticket, version 1 → 2: NOT SAFE")
    assert "(state-stranded)" in done.out


def test_a_renamed_state_is_safe(interlock: Interlock) -> None:
    done = interlock("plan", "tickets:ticket", "empty:next_ticket", "--rename", "done=closed")
    assert done.code == 0
    assert done.out.startswith("ticket, version 1 → 2: safe")


def test_a_release_is_compared_by_its_file(interlock: Interlock) -> None:
    interlock("describe", "tickets:ticket", "--file", "one.json")
    interlock("describe", "empty:next_ticket", "--file", "two.json")
    from_code = interlock("plan", "tickets:ticket", "empty:next_ticket")
    assert interlock("plan", "one.json", "empty:next_ticket") == from_code
    assert interlock("plan", "one.json", "two.json") == from_code


def test_a_file_of_any_name_will_do(interlock: Interlock, folder: Path) -> None:
    interlock("describe", "tickets:ticket", "--file", "release-1")
    assert interlock("plan", "release-1", "tickets:ticket").code == 0


def test_json_is_the_whole_plan(interlock: Interlock) -> None:
    done = interlock("plan", "tickets:ticket", "empty:next_ticket", "-o", "json")
    told = json.loads(done.out)
    assert done.code == 1
    assert told["safe"] is False
    assert [state["verdict"] for state in told["states"]] == ["changed", "stranded"]


@pytest.mark.parametrize("rename", ["done", "done=", "=closed", ""])
def test_a_rename_is_old_and_new(interlock: Interlock, rename: str) -> None:
    done = interlock("plan", "tickets:ticket", "empty:next_ticket", "--rename", rename)
    assert done.code == 2
    assert "is not of the form OLD=NEW" in done.err


def test_a_state_cannot_become_two(interlock: Interlock) -> None:
    names = ("--rename", "done=closed", "--rename", "done=open")
    done = interlock("plan", "tickets:ticket", "empty:next_ticket", *names)
    assert done.code == 2
    assert "becomes both" in done.err


def test_a_missing_file_is_not_found(interlock: Interlock) -> None:
    done = interlock("plan", "nowhere.json", "tickets:ticket")
    assert done.code == 4
    assert done.err.startswith("error: There is no file nowhere.json.\n  why: ")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"name": 3}', b"\xff\xfe", b"", b'{"name": "\xff"}'])
def test_a_file_with_something_else_in_it_is_an_error(interlock: Interlock, folder: Path, content: bytes) -> None:
    (folder / "other.json").write_bytes(content)
    done = interlock("plan", "other.json", "tickets:ticket")
    assert done.code == 1
    assert done.err.startswith("error: other.json is not the description of a machine: ")
    assert "Traceback" not in done.err


def test_a_folder_is_not_a_description(interlock: Interlock, folder: Path) -> None:
    (folder / "folder.json").mkdir()
    done = interlock("plan", "folder.json", "tickets:ticket")
    assert done.code == 1
    assert "folder.json cannot be read: " in done.err


def test_source_code_is_not_taken_for_a_description(interlock: Interlock) -> None:
    done = interlock("plan", "tickets.py", "tickets:ticket")
    assert done.code == 2
    assert "names a file; a module is needed" in done.err
