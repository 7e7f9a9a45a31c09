"""`interlock check`: findings for people, scripts and editors."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import Interlock


def test_a_sound_machine_is_told_in_one_line(interlock: Interlock) -> None:
    done = interlock("check", "tickets:ticket")
    assert (done.code, done.out, done.err) == (0, "ticket (version 1): nothing found\n", "")


def test_a_finding_has_severity_code_place_and_three_parts(interlock: Interlock, folder: Path) -> None:
    done = interlock("check", "tickets:broken")
    source = (folder / "tickets.py").read_text().splitlines()
    made = 1 + next(index for index, line in enumerate(source) if "return Machine(" in line)
    assert done.code == 1
    first = done.out.split("\n\n")[0].splitlines()
    assert first[0] == f"error [unreachable-state] tickets.py:{made}"
    assert first[1] == "  broken (version 1): state 'done' cannot be reached from 'open'."
    assert first[2].startswith("  why: ")
    assert first[3].startswith("  fix: ")
    assert done.out.splitlines()[-1] == "broken (version 1): 3 errors, 1 warning, 2 info"


def test_json_has_every_field_of_every_finding(interlock: Interlock) -> None:
    done = interlock("check", "tickets:undated", "-o", "json")
    [finding] = json.loads(done.out)
    assert done.code == 0
    assert sorted(finding) == ["code", "fix", "location", "machine", "severity", "what", "why"]
    assert (finding["machine"], finding["code"], finding["severity"]) == ("undated", "no-dwell-limit", "info")


def test_nothing_found_is_an_empty_list_in_json(interlock: Interlock) -> None:
    assert json.loads(interlock("check", "tickets:ticket", "-o", "json").out) == []


def test_ids_are_the_codes(interlock: Interlock) -> None:
    assert interlock("check", "tickets:undated", "-o", "ids").out == "no-dwell-limit\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), {"error", "warning", "info"}),
        (("--severity", "info"), {"error", "warning", "info"}),
        (("--severity", "warning"), {"error", "warning"}),
        (("--severity", "error"), {"error"}),
        (("--errors-only",), {"error"}),
        (("--errors-only", "--severity", "info"), {"error"}),
    ],
)
def test_severity_chooses_what_is_shown_and_not_how_it_ends(
    interlock: Interlock, options: tuple[str, ...], shown: set[str]
) -> None:
    done = interlock("check", "tickets:broken", "-o", "json", *options)
    assert {finding["severity"] for finding in json.loads(done.out)} == shown
    assert done.code == 1


def test_warnings_alone_are_no_failure(interlock: Interlock) -> None:
    assert interlock("check", "tickets:undated").code == 0


def test_a_tuple_of_machines_is_checked_in_its_order(interlock: Interlock) -> None:
    assert interlock("check", "tickets:pair").out.endswith(
        "ticket (version 1), undated (version 1): 0 errors, 0 warnings, 1 info\n"
    )


def test_a_module_means_all_its_machines_once(interlock: Interlock) -> None:
    done = interlock("check", "tickets", "tickets:ticket", "desks.front", "--errors-only")
    assert done.out.splitlines()[-1].startswith("ticket (version 1), undated (version 1), broken (version 1): ")


def test_two_machines_of_one_name_are_both_checked(interlock: Interlock, folder: Path) -> None:
    text = "from tickets import *\none, two = [make('twin', final={State.DONE}) for _ in range(2)]\n"
    (folder / "twins_of_one_name.py").write_text(text + "for m in (one, two): m.on(Close, State.OPEN, to=State.DONE)\n")
    done = interlock("check", "twins_of_one_name:one", "twins_of_one_name:two", "-o", "ids")
    assert done.out.split() == ["no-dwell-limit", "no-dwell-limit"]


def test_a_machine_that_is_declared_wrongly_is_a_finding(interlock: Interlock) -> None:
    done = interlock("check", "wrong:late")
    assert done.code == 1
    assert "Traceback" not in done.out + done.err
    first, what, why, fix = done.out.split("\n\n")[0].splitlines()
    assert first == "error [unknown-state] wrong.py:5"
    assert what.startswith("  wrong:late: 'done' is not a state of machine 'late'")
    assert why.startswith("  why: ")
    assert fix.startswith("  fix: ")


def test_a_machine_that_is_declared_wrongly_does_not_hide_the_others(interlock: Interlock) -> None:
    done = interlock("check", "wrong:late", "wrong", "tickets:undated", "-o", "json")
    assert [(finding["machine"], finding["code"]) for finding in json.loads(done.out)] == [
        (None, "unknown-state"),
        ("undated", "no-dwell-limit"),
    ]
    assert done.code == 1


def test_text_of_the_user_is_never_markup(interlock: Interlock, folder: Path) -> None:
    (folder / "wrong.py").write_text("from tickets import *\nlate = make('late', renamed={'x': '[red]:tea:[/red]'})\n")
    done = interlock("check", "wrong:late")
    assert done.code == 1
    assert "[red]:tea:[/red]" in done.out


TALKING = """
from collections.abc import Iterable
from enum import Enum

from interlock import Event, Machine, Send


class Stage(Enum):
    OPEN = "open"
    CLOSED = "closed"


class AskEvent(Event): ...


class Asked(AskEvent): ...


class ReplyEvent(Event): ...


class Reply(ReplyEvent): ...


class Unheard(ReplyEvent): ...


ask = Machine("ask", states=Stage, context=dict, events=AskEvent, initial=Stage.OPEN, final={Stage.CLOSED})
ask.on(Asked, Stage.OPEN, to=Stage.CLOSED)
reply = Machine("reply", states=Stage, context=dict, events=ReplyEvent, initial=Stage.OPEN, final={Stage.CLOSED})
reply.on(Reply, Stage.OPEN, to=Stage.CLOSED)


@ask.sends(Stage.CLOSED)
def tell(context: dict[str, object]) -> Iterable[Send]:
    return [Send("r", Unheard())]
"""


def test_machines_that_talk_are_checked_together(interlock: Interlock, folder: Path) -> None:
    (folder / "talking.py").write_text(TALKING)
    alone = json.loads(interlock("check", "talking:ask", "-o", "json").out)
    assert "message-never-accepted" not in {finding["code"] for finding in alone}
    together = json.loads(interlock("check", "talking:ask", "talking:reply", "-o", "json").out)
    [finding] = [each for each in together if each["code"] == "message-never-accepted"]
    assert (finding["machine"], finding["severity"]) == (None, "warning")
    assert "tell of 'ask' sends UNHEARD on entering 'closed'; 'reply' never takes it." in finding["what"]
    assert "ask, reply together: tell of 'ask'" in interlock("check", "talking:ask", "talking:reply").out
