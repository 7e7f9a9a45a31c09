"""`interlock tasks` and `interlock task`, on a store and at a server (F2)."""

import io
import json
from pathlib import Path

import pytest

from interlock import App
from tests.unit.cli.running import Interlock
from tests.unit.cli.serving import serving
from tests.unit.server import shop
from tests.unit.server.shop import NAME

ORDER = NAME.replace(":app", ":order")


@pytest.fixture(params=["store", "server"])
def place(request: pytest.FixtureRequest, interlock: Interlock, tmp_path: Path) -> list[str]:
    """The options that name the place of three orders, and the machine where it is needed."""
    home = f"lanes://{tmp_path}/home"
    for number in (1, 2, 3):
        context = json.dumps({"cents": number})
        assert interlock("start", ORDER, f"o-{number}", context, "--home", home).code == 0
    if request.param == "store":
        return [ORDER, "--home", home]
    address = request.getfixturevalue("served")
    return ["order", "--server", str(address)]


@pytest.fixture
def served(tmp_path: Path, interlock: Interlock) -> object:
    with serving(App(machines=[shop.order, shop.ticket]), f"lanes://{tmp_path}/home") as address:
        yield address


def test_tasks_are_listed_claimed_and_released(
    interlock: Interlock, place: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = interlock("tasks", *place, "--role", "clerk")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["id", "o-1@1", "o-2@1", "o-3@1"]
    assert "Submit 2:" in done.out
    assert interlock("tasks", *place, "--role", "nobody", "-o", "ids").out == ""
    page = json.loads(interlock("tasks", *place, "--limit", "2", "-o", "json").out)
    assert [each["workflow"] for each in page["items"]] == ["o-1", "o-2"]
    done = interlock("tasks", *place, "--limit", "2", "--cursor", page["cursor"], "-o", "ids")
    assert (done.code, done.out) == (0, "o-3@1\n")
    assert "There are more: --cursor" in interlock("tasks", *place, "--limit", "1").err
    assert interlock("tasks", *place, "--cursor", "x").code == 2

    machine, *where = place
    done = interlock("task", "claim", machine, "o-2@1", *where, "--by", "ada", "-o", "json")
    assert done.code == 0, done.err
    [claimed] = json.loads(done.out)
    assert (claimed["id"], claimed["claimed_by"]) == ("o-2@1", "ada")
    refused = interlock("task", "claim", machine, "o-2@1", *where, "--by", "bob")
    assert (refused.code, refused.out) == (3, "")
    assert "ada has claimed it at" in refused.err
    assert interlock("tasks", *place, "--by", "ada", "-o", "ids").out == "o-2@1\n"
    assert interlock("task", "release", machine, "o-2@1", *where, "--by", "bob").code == 3
    released = interlock("task", "release", machine, "o-2@1", *where, "--by", "bob", "--force")
    assert released.code == 0, released.err
    assert "ada" not in released.out
    assert interlock("task", "show", machine, "o-2@1", *where, "-o", "ids").out == "o-2@1\n"

    monkeypatch.setattr("sys.stdin", io.StringIO("o-1@1\no-9@1\no-3@1\n"))
    some = interlock("task", "claim", machine, "-", *where, "--by", "ada", "-o", "ids")
    assert (some.code, some.out) == (4, "o-1@1\no-3@1\n")
    assert interlock("task", "show", machine, "o-1", *where).code == 4


def test_the_second_decision_is_told_who_was_faster(interlock: Interlock, place: list[str]) -> None:
    machine, *where = place
    assert interlock("send", machine, "o-1", "CANCEL", *where, "--by", "ada").code == 0
    for words in (
        ("send", machine, "o-1", "SUBMIT", '{"cents": 5}'),
        ("task", "claim", machine, "o-1@1"),
        ("task", "show", machine, "o-1@1"),
    ):
        late = interlock(*words, *where)
        assert late.code == 3, late.err
        assert "Before that, ada" in late.err
        assert "decided it with CANCEL" in late.err


def test_a_store_needs_the_machine(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"
    assert interlock("start", ORDER, "o-1", "--home", home).code == 0
    for words in (("tasks",), ("task", "claim", "o-1@1")):
        done = interlock(*words, "--home", home)
        assert (done.code, "MACHINE is missing" in done.err) == (2, True)
