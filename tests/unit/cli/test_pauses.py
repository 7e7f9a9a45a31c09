"""`interlock pause` and `interlock resume`: on a home, listing, exit codes, mistakes (E7)."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import NAME


def test_a_machine_is_paused_listed_and_resumed(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", f"lanes://{tmp_path}/home")
    assert interlock("start", NAME, "o-1").code == 0
    done = interlock("pause", NAME, "--state", "draft", "--note", "the bank is down", "-o", "json")
    assert done.code == 0, done.err
    [pause] = json.loads(done.out)
    assert (pause["machine"], pause["state"], pause["note"]) == ("order", "draft", "the bank is down")
    assert pause["by"]
    assert interlock("pause", NAME, "--id", "o-1").code == 0
    done = interlock("pause", "-o", "ids")
    assert done.out == "o-1\n", done.err
    listed = interlock("pause")
    assert "the bank is down" in listed.out
    for words in (("show", "o-1"), ("show", NAME, "o-1")):
        assert "paused   nothing begins until it is resumed" in interlock(*words).out
    for find in (("find",), ("find", "order"), ("find", NAME)):
        found = json.loads(interlock(*find, "-o", "json").out)["items"]
        assert [each["paused"] for each in found if each["id"] == "o-1"] == [True]
    assert interlock("resume", NAME, "--id", "o-1").out == "Resumed.\n"
    assert interlock("resume", NAME, "--state", "draft").code == 0
    again = interlock("resume", NAME, "--state", "draft")
    assert (again.code, again.out) == (4, "")
    assert "nothing is paused there" in again.err
    assert interlock("pause", NAME, "--id", "o-2").code == 4
    assert interlock("pause", NAME, "--state", "drafd").code == 2
    assert interlock("pause", "--id", "o-1").code == 2


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_state_needs_its_machine_and_no_workflow(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", f"lanes://{tmp_path}/home")
    assert interlock("start", NAME, "o-1").code == 0
    both = interlock(command, NAME, "--id", "o-1", "--state", "draft")
    assert (both.code, both.out) == (2, "")
    assert "--state and --id are both given" in both.err
    alone = interlock(command, "--state", "draft")
    assert (alone.code, alone.out) == (2, "")
    assert "--state draft is given without a machine" in alone.err
    assert "interlock pause MACHINE --state draft" in alone.err
    assert interlock("pause", "-o", "json").out.strip() == "[]"
