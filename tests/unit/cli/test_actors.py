"""F1: `--by` names who acts; on a store it is the login name without it, and history and the audit log show it."""

import asyncio
import getpass
import json
from pathlib import Path

import pytest

from interlock import App
from interlock.cli import command_place
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
