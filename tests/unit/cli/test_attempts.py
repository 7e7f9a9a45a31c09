"""`interlock attempts`, `why`, `fork` and `rewind`, on a store."""

import io
import json
from pathlib import Path

import pytest

from tests.conformance.engine.places import Place, run, settled
from tests.conformance.engine.shop import Charged, Order, Outside, State, Submit, World, shop
from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import NAME


def test_attempts_of_a_store_are_listed_page_by_page(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        order, _, _ = shop(World(charge=Outside(OSError("away"), Charged())))
        async with Place(tmp_path, home).engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)

    run(scenario)
    done = interlock("attempts", "o-1", "--home", home, "-o", "json", "--limit", "2")
    assert done.code == 0, done.err
    listed = json.loads(done.out)
    assert [(each["name"], each["number"], each["outcome"]) for each in listed["items"]] == [
        ("charge", 1, "failed"),
        ("charge", 2, "completed"),
    ]
    done = interlock("attempts", "o-1", "--home", home, "--cursor", listed["cursor"])
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["step", "reserve", "1"], ["effect", "mail", "1"],
    ]  # fmt: skip
    done = interlock("attempts", "o-1", "--home", home, "--after", "3", "-o", "ids")
    assert [key.partition("-")[0] for key in done.out.split()] == ["reserve", "mail"]
    assert "There are more: --cursor" in interlock("attempts", "o-1", "--home", home, "--limit", "1").err
    done = interlock("attempts", "x", "--home", home)
    assert (done.code, "there is no workflow 'x'" in done.err) == (4, True)


def test_why_says_it_in_words(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"
    assert interlock("start", NAME, "o-1", "{}", "--home", home, "--by", "ada").code == 0
    done = interlock("why", NAME, "o-1", "--home", home)
    assert done.code == 0, done.err
    assert done.out.startswith("order 'o-1' was started in state ")
    assert ", by ada. It waits for" in done.out
    answer = json.loads(interlock("why", NAME, "o-1", "--home", home, "-o", "json").out)
    assert answer["workflow"] == "o-1"
    assert answer["text"] == done.out.strip()
    done = interlock("why", "o-1", "--home", home)
    assert (done.code, "the machine of the workflow is not given" in done.err) == (2, True)
    done = interlock("why", NAME, "x", "--home", home)
    assert (done.code, "there is no workflow 'x'" in done.err) == (4, True)


def test_why_of_the_ids_on_stdin(interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = f"lanes://{tmp_path}/home"
    for each in ("o-1", "o-2"):
        assert interlock("start", NAME, each, "{}", "--home", home).code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("o-2\nx\no-1\n"))
    done = interlock("why", NAME, "-", "--home", home)
    assert [line.partition(" was started")[0] for line in done.out.splitlines()] == ["order 'o-2'", "order 'o-1'"]
    assert (done.code, "there is no workflow 'x'" in done.err) == (4, True)
    monkeypatch.setattr("sys.stdin", io.StringIO("o-1\n"))
    [answer] = json.loads(interlock("why", NAME, "-", "--home", home, "-o", "json").out)
    assert answer["workflow"] == "o-1"


def test_a_fork_is_started_from_a_version(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"
    assert interlock("start", NAME, "o-1", '{"note": "x"}', "--home", home).code == 0
    done = interlock("fork", NAME, "o-1", "o-2", "--at", "1", "--home", home, "--by", "ada", "-o", "json")
    assert done.code == 0, done.err
    assert (json.loads(done.out)["id"], json.loads(done.out)["context"]["note"]) == ("o-2", "x")
    [row] = json.loads(interlock("history", "o-2", "--home", home, "-o", "json").out)
    assert (row["event"], row["by"], row["payload"]) == ("FORKED", "ada", {"workflow": "o-1", "version": 1})
    assert interlock("fork", NAME, "o-1", "o-2", "--at", "1", "--home", home, "-o", "ids").out == "o-2\n"
    assert interlock("fork", NAME, "o-1", "o-3", "--at", "7", "--home", home).code == 4
    assert interlock("fork", "o-1", "o-3", "--at", "1", "--home", home).code == 2
    assert interlock("fork", "o-1", "--at", "1", "--home", home).code == 2


def test_a_workflow_is_set_back_to_a_version(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        order, _, _ = shop()
        async with Place(tmp_path, home).engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)

    run(scenario)
    here = ("tests.unit.cli.test_attempts:ORDER", "o-1")
    done = interlock("rewind", *here, "--to", "1", "--dry-run", "--home", home)
    assert done.code == 0, done.err
    assert [line.split()[:3] for line in done.out.splitlines()[1:3]] == [
        ["reserve", "RESERVED", "known"], ["charge", "CHARGED", "known"],
    ]  # fmt: skip
    assert done.out.endswith("'o-1' would be set back to version 1, in state 'draft', after 2 undos.\n")
    found = interlock("rewind", *here, "--to", "1", "--home", home, "--by", "ada", "--note", "x", "-o", "json")
    assert (found.code, len(json.loads(found.out)["undo"]), json.loads(found.out)["version"]) == (0, 2, 5)
    row = json.loads(interlock("history", "o-1", "--home", home, "-o", "json").out)[-1]
    assert (row["event"], row["by"], row["payload"]) == ("REWINDING", "ada", {"to_version": 1, "note": "x"})
    done = interlock("rewind", *here, "--to", "1", "--home", home)
    assert done.out.endswith("'o-1' is set back to version 1, in state 'draft' since version 5; 2 undos still owed.\n")
    assert interlock("rewind", *here, "--to", "2", "--home", home).code == 2
    assert interlock("rewind", "o-1", "--to", "2", "--home", home).code == 2
    assert interlock("rewind", here[0], "x", "--to", "1", "--home", home).code == 4


ORDER = shop().machine
