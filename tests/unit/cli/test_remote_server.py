"""Commands with `--server`: the same answers, the same exit codes and the same JSON as with `--home`."""

import io
import json
import re
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import App, Client, Dependency, HotRow
from interlock.cli import command_place, workflow_commands
from interlock.cli.command_place import CommandPlace, place_of
from interlock.cli.workflow_commands import Served
from interlock.errors import BadUsage
from interlock.wire import ShownHot, ShownWorkflow
from tests.unit.cli import shop
from tests.unit.cli.running import Done, Interlock
from tests.unit.cli.serving import serving

NAME = shop.NAME
BOTH = "tests.unit.cli.shop:both"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """A server whose workflows are in memory, and that runs no steps: what is owed stays owed."""
    with serving(App(machines=[shop.order, shop.ticket], dependencies=[Dependency("gateway")])) as address:
        yield address


@pytest.fixture
def at(url: str, interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> Interlock:
    """Commands that ask the server."""
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    monkeypatch.setenv("INTERLOCK_SERVER", url)
    return interlock


def fed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def refused(done: Done, code: int, *told: str) -> None:
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.err
    for text in told:
        assert text in done.err


SCENARIO = (
    ("start", "{machine}", "{id}", '{"cents": 5, "note": "a"}'),
    ("start", "{machine}", "{id}", '{"cents": 5, "note": "a"}', "-o", "json"),
    ("send", "{machine}", "{id}", "REMARK", '{"note": "b"}', "--key", "k-1"),
    ("send", "{machine}", "{id}", "REMARK", '{"note": "b"}', "--key", "k-1", "-o", "json"),
    ("send", "{machine}", "{id}", "PACKED", "--if-allowed"),
    ("send", "{machine}", "{id}", "PACKED"),
    ("send", "{machine}", "{id}", "SUBMIT", '{"cents": 0}'),
    ("send", "{machine}", "{id}", "SUBMIT", '{"cents": 7}', "--expect-version", "9"),
    ("send", "{machine}", "{id}", "SUBMIT", '{"cents": "x"}'),
    ("send", "{machine}", "{id}", "SUBMIT", "{"),
    ("send", "{machine}", "{id}", "SUBMITT", "{{}}"),
    ("send", "{machine}", "{id}-nobody", "CANCEL"),
    ("allowed", "{machine}", "{id}"),
    ("allowed", "{machine}", "{id}", "-o", "json"),
    ("allowed", "{machine}", "{id}", "-o", "ids"),
    ("allowed", "{machine}", "{id}", "SUBMIT", '{"cents": 0}'),
    ("allowed", "{machine}", "{id}", "SUBMIT", '{"cents": 1}', "-o", "json"),
    ("send", "{machine}", "{id}", "SUBMIT", '{"cents": 7}', "-o", "ids"),
    ("show", "{machine}", "{id}", "-o", "json"),
    ("show", "{machine}", "{id}", "-o", "ids"),
    ("show", "{id}-nobody"),
    ("history", "{machine}", "{id}"),
    ("history", "{id}", "-o", "json"),
    ("history", "{id}", "-o", "ids"),
    ("stalled", "{machine}", "--older-than", "1d", "-o", "json"),
    ("compensations", "{module}", "-o", "json"),
    ("dead-letters", "list"),
    ("dead-letters", "retry", "{module}", "no-such-letter"),
)


@pytest.mark.parametrize("machine", [NAME, "order"])
def test_a_server_answers_as_a_store_does(
    interlock: Interlock, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """B5: every command of a short life, once on a store and once through a server, by code and by name."""
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    monkeypatch.setattr(command_place, "login_name", lambda: "local")  # As a server without keys calls its clients.
    home = f"lanes://{tmp_path}/home"
    workflow = f"o-{machine.rpartition(':')[2]}-{len(machine)}"
    for words in SCENARIO:
        here = [word.format(machine=NAME, module=NAME, id=workflow) if "{m" in word or "{i" in word else word
                for word in words]  # fmt: skip
        there = [word.format(machine=machine, module=machine, id=workflow) if "{m" in word or "{i" in word else word
                 for word in words]  # fmt: skip
        expected = interlock(*here, "--home", home)
        answered = interlock(*there, "--server", url)
        told = f"{words}: {answered.err}"
        assert answered.code == expected.code, told
        assert TIME.sub("TIME", answered.out) == TIME.sub("TIME", expected.out), told
        assert bool(answered.err) == bool(expected.err), told


def test_many_ids_come_from_stdin(at: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    fed(monkeypatch, "m-1\nm-2\n\nm-3\n")
    assert at("start", "order", "-", "{}", "-o", "ids").out.split() == ["m-1", "m-2", "m-3"]
    fed(monkeypatch, "m-1\nnobody\nm-3\n")
    done = at("send", "order", "-", "REMARK", '{"note": "x"}', "-o", "json")
    assert done.code == 4
    assert [each["id"] for each in json.loads(done.out)] == ["m-1", "m-3"]
    fed(monkeypatch, "m-1\nm-2\n")
    assert [each["version"] for each in json.loads(at("show", "-", "-o", "json").out)] == [2, 1]
    fed(monkeypatch, "m-1\nm-2\n")
    asked = json.loads(at("allowed", "order", "-", "SUBMIT", '{"cents": 1}', "-o", "json").out)
    assert [(each["id"], each["to"]) for each in asked] == [("m-1", "charging"), ("m-2", "charging")]
    fed(monkeypatch, "m-1\nm-2\n")
    assert at("history", "-").out.splitlines()[0].split()[0] == "id"


def test_workflows_are_found_page_by_page(at: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    fed(monkeypatch, "\n".join(f"f-{number}" for number in range(5)))
    assert at("start", "ticket", "-", '{"title": "t"}', "-o", "ids").code == 0
    first = at("find", "ticket", "--limit", "2", "-o", "json")
    page = json.loads(first.out)
    assert len(page["items"]) == 2
    rest = at("find", "ticket", "--cursor", page["cursor"], "-o", "ids")
    assert len(rest.out.split()) == 3
    assert len(at("find", "tests.unit.cli.shop:ticket", "-o", "ids", "--state", "OPEN").out.split()) == 5
    refused(at("find", "ticket", "--state", "shut"), 2, "shut")
    refused(at("find", "tests.unit.cli.shop:ticket", "--state", "shut"), 2, "its states are open, closed")
    refused(at("find", "ticket", "--cursor", "x"), 2, "cursor")
    refused(at("find", "nothing"), 4, "nothing")


def test_the_machine_of_a_workflow_reads_the_event(at: Interlock) -> None:
    assert at("start", "ticket", "both-1", '{"title": "t"}').code == 0
    assert at("send", BOTH, "both-1", "CLOSE").out.splitlines()[-1].split() == ["both-1", "closed", "2"]
    refused(at("show", "order", "both-1"), 4, "it is one of 'ticket'")
    refused(at("start", BOTH, "both-2"), 2, "2 machines")


def test_a_server_needs_no_machine(at: Interlock, interlock: Interlock, tmp_path: Path) -> None:
    assert at("start", "order", "bare-1").code == 0
    assert "SUBMIT" in at("allowed", "bare-1").out
    refused(at("send", "bare-1", "SUBMIT", '{"cents": 0}'), 3, "The amount is between 1 cent and 100 euros")
    assert at("allowed", "bare-1", "SUBMIT", '{"cents": 0}').code == 3
    assert at("send", "bare-1", "REMARK", '{"note": "b"}', "-o", "ids").out == "bare-1\n"
    assert at("send", "bare-1", "CANCEL", "-o", "ids").out == "bare-1\n"
    home = ("--home", f"lanes://{tmp_path}/shop")
    refused(interlock("send", NAME, "bare-1", *home), 2, "a word is missing", f"{NAME} ID EVENT [JSON]")
    refused(interlock("allowed", NAME, *home), 2, "a word is missing", f"{NAME} ID [EVENT] [JSON]")
    refused(interlock("allowed", "bare-1", *home), 2, "MACHINE is missing", "MACHINE ID [EVENT] [JSON]")


def test_breakers_are_listed_and_held(at: Interlock) -> None:
    assert at("breakers", "-o", "ids").out.split() == ["gateway"]
    [held] = json.loads(at("breakers", "gateway", "--force", "open", "-o", "json").out)
    assert (held["dependency"], held["state"], held["forced"]) == ("gateway", "open", "open")
    assert "open" in at("breakers").out
    [free] = json.loads(at("breakers", "gateway", "--force", "auto", "-o", "json").out)
    assert free["forced"] is None
    refused(at("breakers", "gatewai"), 4, "Did you mean gateway?")
    refused(at("breakers", "bank", "--force", "open"), 4, "bank")
    refused(at("breakers", "--force", "open"), 2, "no dependency is named")


def test_a_breaker_is_held_only_through_a_server(interlock: Interlock, tmp_path: Path) -> None:
    done = interlock("breakers", "gateway", "--force", "open", "--home", f"lanes://{tmp_path}/home")
    refused(done, 2, "cannot be held through --home", "--server")


def test_nothing_is_hot_at_a_server_that_rests(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(App(machines=[shop.order])) as address:  # Its own: the others have just written to the shared one.
        monkeypatch.setenv("INTERLOCK_SERVER", address)
        assert "Nothing is hot" in interlock("hot").out
        assert json.loads(interlock("hot", "-o", "json").out) == []


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("show", ""),
        ("history", ""),
        ("start", NAME, ""),
        ("send", NAME, "", "CANCEL"),
        ("allowed", NAME, ""),
        ("dead-letters", "retry", NAME, ""),
    ],
)
def test_an_empty_id_is_no_success(at: Interlock, interlock: Interlock, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A variable that a script forgot to set."""
    assert interlock("start", NAME, "o-1", "--home", f"lanes://{tmp_path}/home").code == 0
    refused(at(*words), 2, "the id is empty")
    refused(interlock(*words, "--home", f"lanes://{tmp_path}/home"), 2, "the id is empty")


def test_a_hot_row_at_a_server_has_its_database(at: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """D9."""

    async def hot(_client: Client) -> list[HotRow]:
        seen = {"handoffs_per_s": 9.0, "writes_per_s": 9.0, "wait_s": 0.1, "flagged": False}
        rows = [{"database": "stock", "table": "seat", "key": 7, **seen}, {"table": "order", "key": "o-1", **seen}]
        return [*msgspec.convert(rows, list[ShownHot])]

    monkeypatch.setattr(Client, "contention", hot)
    rows = json.loads(at("hot", "-o", "json").out)
    assert [(row["database"], row["key"]) for row in rows] == [("stock", 7), ("", "o-1")]


def test_a_server_that_has_told_all_it_tells_at_once_says_so(at: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("late-1", "late-2"):
        assert at("start", NAME, name).code == 0
        assert at("send", NAME, name, "SUBMIT", '{"cents": 7}').code == 0
    told = Served.stalled

    async def two(served: Served, name: str | None, **asked: Any) -> list[ShownWorkflow]:  # noqa: ANN401 -- passed on.
        return (await told(served, name, **asked))[:2]

    monkeypatch.setattr(workflow_commands, "PAGE", 2)
    monkeypatch.setattr(Served, "stalled", two)
    done = at("stalled", "order", "--older-than", "0s", "--limit", "3", "-o", "ids")
    assert len(done.out.splitlines()) == 2
    assert done.err == "There may be more: a server lists at most 2.\n"
    assert at("stalled", "order", "--older-than", "0s", "--limit", "2", "-o", "ids").err == ""
    assert len(at("stalled", "--older-than", "0s", "-o", "ids").out.splitlines()) == 2


def test_of_several_letters_none_is_taken_for_a_machine(at: Interlock) -> None:
    done = at("dead-letters", "retry", "one-letter", "another-letter")
    assert done.code == 4
    assert "'one-letter'" in done.err
    assert "'another-letter'" in done.err


def test_both_places_are_refused(interlock: Interlock, url: str, tmp_path: Path) -> None:
    refused(interlock("find", "order", "--home", f"lanes://{tmp_path}", "--server", url), 2, "both a home and a server")


def test_no_place_is_refused(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    monkeypatch.delenv("INTERLOCK_SERVER", raising=False)
    for words in (("find", "order"), ("hot",), ("breakers",), ("send", "order", "o-1", "X"), ("dead-letters", "list")):
        refused(interlock(*words), 2, "neither a home nor a server", "--server")


def test_what_is_said_on_the_command_line_wins(at: Interlock, tmp_path: Path) -> None:
    """The environment names a server; the command names a home, which is not there."""
    refused(at("find", "order", "--home", f"lanes://{tmp_path}/none"), 4, "there are no workflows")


def test_a_server_that_is_not_there_is_unavailable(interlock: Interlock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for words in (("show", "o-1"), ("find", "order"), ("send", "order", "o-1", "CANCEL"), ("breakers",)):
            refused(interlock(*words, "--server", f"http://127.0.0.1:{port}"), 5, "was not reached")


def test_an_address_that_is_none_is_refused(interlock: Interlock) -> None:
    refused(interlock("show", "o-1", "--server", "127.0.0.1:8080"), 2, "Did you mean http://127.0.0.1:8080?")


def test_a_place_is_a_home_or_a_server() -> None:
    assert place_of("lanes:///x", None, None) == CommandPlace(home="lanes:///x")
    with pytest.raises(BadUsage):
        place_of(None, None, None)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_comes_from_the_environment_or_a_file(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never from an argument: those are shown to everybody who lists processes."""
    home = f"lanes://{tmp_path}/keyed"
    key = json.loads(interlock("keys", "create", "--scope", "read", "-o", "json", "--home", home).out)["key"]
    file = tmp_path / "key"
    file.write_text(f"{key}\n")
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    with serving(App(machines=[shop.order]), home) as url:
        refused(interlock("find", "order", "--server", url), 3, "INTERLOCK_KEY")
        assert interlock("find", "order", "--server", url, "--key-file", str(file)).code == 0
        monkeypatch.setenv("INTERLOCK_KEY", key)
        assert interlock("find", "order", "--server", url).code == 0
        refused(interlock("start", "order", "o-1", "--server", url), 3, "scope")
        monkeypatch.setenv("INTERLOCK_KEY", "ilk_wrong")
        done = interlock("find", "order", "--server", url)
        refused(done, 3)
        assert "ilk_wrong" not in done.err + done.out
    refused(interlock("find", "order", "--server", url, "--key-file", str(tmp_path / "none")), 4, "--key-file")
    refused(interlock("find", "order", "--server", url, "--key-file", str(tmp_path)), 1, "cannot be read")
