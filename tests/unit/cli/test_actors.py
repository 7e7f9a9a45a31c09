"""F1: `--by` names who acts; on a store it is the login name without it, and history and the audit log show it."""

import asyncio
import getpass
import json
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from interlock import App
from interlock.cli import command_place
from interlock.cli.program import program_for
from tests.unit.cli.running import Interlock
from tests.unit.cli.serving import serving
from tests.unit.cli.shop import NAME, order
from tests.unit.cli.test_dead_letters import give_up


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    monkeypatch.setattr(command_place, "login_name", lambda: "root")
    return url


def actors(interlock: Interlock, *words: str) -> list[str | None]:
    """The actors of a workflow's history."""
    return [each["by"] for each in json.loads(interlock("history", *words, "-o", "json").out)]


def test_a_store_records_the_login_name_or_the_name_that_is_given(interlock: Interlock, home: str) -> None:
    assert interlock("start", NAME, "o-1").code == 0
    assert interlock("send", NAME, "o-1", "REMARK", '{"note": "x"}', "--by", "ada").code == 0
    assert interlock("start", NAME, "o-2", "--by", "grace").code == 0
    assert actors(interlock, "o-1") == actors(interlock, NAME, "o-1") == ["root", "ada"]
    assert actors(interlock, "o-2") == ["grace"]
    assert " ada " in interlock("history", "o-1").out
    [pause] = json.loads(interlock("pause", NAME, "--by", "ada", "-o", "json").out)
    assert pause["by"] == "ada"
    refused = interlock("send", NAME, "o-1", "REMARK", '{"note": "x"}', "--by", "a\nb")
    assert (refused.code, "is not the name of an actor" in refused.err) == (2, True)


def test_a_server_records_its_client_and_the_name_that_is_given(
    interlock: Interlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(App(machines=[order])) as url:
        monkeypatch.setenv("INTERLOCK_SERVER", url)
        assert interlock("start", NAME, "o-1", "--by", "ada").code == 0
        assert interlock("send", "o-1", "REMARK", '{"note": "x"}').code == 0
        assert actors(interlock, "o-1") == ["ada with local", "local"]
        put = interlock("schedules", "put", "nightly", NAME, "--cron", "0 3 * * *", "--by", "ada")
        assert put.code == 0, put.err
        for words in (("pause",), ("resume",), ("delete",)):
            assert interlock("schedules", *words, "nightly", "--by", "ada").code == 0
        assert interlock("prune", "--older-than", "1d", "--by", "ada").code == 0


@pytest.mark.parametrize(("words", "action"), [(("retry",), "retry"), (("resolve", "--note", "by hand"), "resolve")])
def test_rulings_on_a_store_are_in_its_audit_log(
    interlock: Interlock, home: str, words: tuple[str, ...], action: str
) -> None:
    asyncio.run(give_up(home, "step"))
    [letter] = json.loads(interlock("dead-letters", "list", "-o", "json").out)
    ruling = interlock("dead-letters", words[0], NAME, letter["id"], *words[1:], "--by", "ada")
    assert ruling.code == 0, ruling.err
    [entry] = json.loads(interlock("audit", "-o", "json").out)
    assert (entry["action"], entry["target"]) == (f"dead_letter.{action}", letter["id"])
    assert entry["who"].startswith("ada with ")
    assert entry["who"].endswith("(command line)")


def test_pruning_a_store_is_in_its_audit_log_and_counting_is_not(interlock: Interlock, home: str) -> None:
    assert interlock("start", NAME, "o-1").code == 0
    assert interlock("prune", "--older-than", "1d", "--dry-run").code == 0
    assert json.loads(interlock("audit", "-o", "json").out) == []
    assert interlock("prune", "--older-than", "1d", "--machine", "order").code == 0
    [entry] = json.loads(interlock("audit", "-o", "json").out)
    assert (entry["action"], entry["target"]) == ("workflows.prune", "order")


def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert command_place.login_name() == "unknown user"


WITHOUT_ACTOR = {
    **dict.fromkeys(
        ("check", "diagram", "describe", "plan", "show", "history", "children", "why", "attempts", "find", "stalled",
         "allowed", "compensations", "databases", "hot", "audit", "dead-letters list", "schedules list", "keys list",
         "doctor",
         "bulk list", "bulk show", "task show"),
        "reads",
    ),
    **dict.fromkeys(("new", "demo", "chaos", "simulate lanes", "simulate engine"), "has a home of its own"),
    **dict.fromkeys(
        ("bench group-commit", "bench contention", "bench durability", "bench orders"), "has a database of its own"
    ),
    **dict.fromkeys(("serve", "worker"), "runs what others ask for"),
    **dict.fromkeys(("backup", "restore", "migrate", "route", "advise"), "is about files and places, not workflows"),
}  # fmt: skip
"""Commands that name no actor, and why."""


def commands(group: object, words: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """The parameters of every command, by its words."""
    below = getattr(group, "commands", None)
    if below is None:
        return {" ".join(words): {each.name for each in cast("Any", group).params}}
    return {name: found for word in below for name, found in commands(below[word], (*words, word)).items()}


def test_every_command_that_changes_workflows_takes_the_name_of_an_actor() -> None:
    """A new command takes `--by`, or stands above with its reason."""
    found = commands(typer.main.get_command(program_for()))
    assert {name for name, parameters in found.items() if "by" not in parameters} == set(WITHOUT_ACTOR)


def test_making_and_revoking_a_key_names_the_person(interlock: Interlock, home: str) -> None:
    assert interlock("start", NAME, "o-1").code == 0
    made = json.loads(interlock("keys", "create", "--scope", "read", "--by", "ada", "-o", "json").out)
    assert interlock("keys", "revoke", made["id"], "--by", "grace").code == 0
    entries = json.loads(interlock("audit", "-o", "json").out)
    assert [(each["action"], each["who"].partition(" with ")[0]) for each in entries] == [
        ("keys.revoke", "grace"),
        ("keys.create", "ada"),
    ]
