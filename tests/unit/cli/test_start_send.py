"""`interlock start` and `interlock send`: the answers of the machine, exit codes, many ids, mistakes."""

import io
import json
from pathlib import Path

import pytest

from tests.unit.cli.running import Done, Interlock
from tests.unit.cli.shop import NAME

BOTH = "tests.unit.cli.shop:both"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    return url


def fed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def refused(done: Done, code: int, *told: str) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    for text in told:
        assert text in done.err


@pytest.fixture
def started(interlock: Interlock, home: str) -> Interlock:
    assert interlock("start", NAME, "o-1").code == 0
    return interlock


# --- start ------------------------------------------------------------------------------------------------------------


def test_a_start_shows_the_workflow(interlock: Interlock, home: str) -> None:
    done = interlock("start", NAME, "o-1", '{"cents": 5, "size": "large", "due": "2026-11-15T12:00:00Z"}')
    assert done.code == 0
    assert " state    draft\n" in done.out
    assert '"size": "large"' in done.out
    assert '"due": "2026-11-15T12:00:00Z"' in done.out


def test_the_same_start_again_is_the_workflow_that_exists(started: Interlock) -> None:
    """B4."""
    again = json.loads(started("start", NAME, "o-1", "{}", "-o", "json").out)
    assert (again["id"], again["version"], again["state"]) == ("o-1", 1, "draft")
    refused(started("start", NAME, "o-1", '{"cents": 1}'), 3, "'o-1' exists already, with other input")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "the context is not JSON"),
        ("cents=5", "the context is not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ('{"cents": "5"}', "Expected `int`, got `str` - at `$.cents`"),
        ('{"cent": 5}', "unknown field 'cent'"),
        ('{"size": "huge"}', "Invalid enum value 'huge'"),
        ('{"note": "\\u0000"}', "NUL"),
        ('{"note": "\udcff"}', "the context is not JSON"),
        ("[" * 5_000, "the context is not JSON"),
    ],
)
def test_a_context_that_does_not_fit_is_refused_before_there_is_a_home(
    interlock: Interlock, home: str, given: str, told: str
) -> None:
    refused(interlock("start", NAME, "o-1", given), 2, told, "fix:")
    assert not Path(home.removeprefix("lanes://")).exists()


def test_a_context_without_defaults_must_be_given(interlock: Interlock, home: str) -> None:
    refused(interlock("start", "tests.unit.cli.shop:ticket", "t-1"), 2, "missing required field `title`")


@pytest.mark.parametrize("bad", ["", "a/b", "x" * 201, "a\x1b[31mb"])
def test_a_bad_id_is_refused(interlock: Interlock, home: str, bad: str) -> None:
    done = interlock("start", NAME, bad)
    if bad:
        refused(done, 2, "is not the id of a workflow")
    assert "\x1b" not in done.err


def test_many_ids_come_from_stdin_and_one_mistake_stops_nobody(
    started: Interlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed(monkeypatch, "o-2\n\no/3\no-4\n")
    done = started("start", NAME, "-", "-o", "ids")
    assert (done.code, done.out.split()) == (2, ["o-2", "o-4"])
    assert "'o/3'" in done.err
    assert sorted(started("find", NAME, "-o", "ids").out.split()) == ["o-1", "o-2", "o-4"]


# --- send -------------------------------------------------------------------------------------------------------------


def test_an_event_moves_the_workflow_and_no_step_runs(started: Interlock) -> None:
    done = started("send", NAME, "o-1", "SUBMIT", '{"cents": 999}')
    assert done.code == 0
    assert done.out.splitlines() == ["id   state     version", "o-1  charging  2"]
    shown = json.loads(started("show", NAME, "o-1", "-o", "json").out)
    waiting = "its step waits for a free slot, or for an engine that runs steps"
    assert (shown["state"], shown["waiting"]) == ("charging", waiting)
    assert shown["context"] == {"cents": 999, "note": "", "size": "small", "due": None}


def test_a_key_makes_a_delivery_idempotent(started: Interlock) -> None:
    """B5."""
    words = ("send", NAME, "o-1", "SUBMIT", '{"cents": 9}', "--key", "click-7", "-o", "json")
    first, again = json.loads(started(*words).out), json.loads(started(*words).out)
    assert first == {"id": "o-1", "state": "charging", "version": 2, "duplicate": False, "ignored": False}
    assert again == {**first, "duplicate": True}
    refused(started("send", NAME, "o-1", "SUBMIT", '{"cents": 8}', "--key", "click-7"), 3, "click-7")


def test_what_the_machine_refuses_exits_with_3(started: Interlock) -> None:
    refused(started("send", NAME, "o-1", "CHARGED"), 3, "CHARGED has no transition from state 'draft'", "SUBMIT")
    refused(started("send", NAME, "o-1", "SUBMIT", '{"cents": 0}'), 3, "The amount is between 1 cent and 100 euros")
    refused(started("send", NAME, "o-1", "CANCEL", "--expect-version", "7"), 3, "7")
    assert json.loads(started("show", NAME, "o-1", "-o", "json").out)["version"] == 1


def test_an_event_may_be_ignored_where_it_has_no_transition(started: Interlock) -> None:
    done = started("send", NAME, "o-1", "CHARGED", "--if-allowed")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == ["o-1", "draft", "1", "ignored"]
    assert started("send", NAME, "o-1", "CHARGED", "--if-allowed", "-o", "ids").out == ""


@pytest.mark.parametrize(
    ("event", "payload", "told"),
    [
        ("SUBMTI", "{}", "Did you mean SUBMIT?"),
        ("submit", "{}", "Did you mean SUBMIT?"),
        ("Submit", "{}", "Did you mean SUBMIT?"),
        ("STARTED", "{}", "order has no event 'STARTED'"),
        ("SUBMIT", "{}", "missing required field `cents`"),
        ("SUBMIT", '{"cents": 1.5}', "Expected `int`, got `float`"),
        ("SUBMIT", '{"cents": 1, "more": 2}', "unknown field 'more'"),
        ("SUBMIT", "{cents: 1}", "the payload of SUBMIT is not JSON"),
    ],
)
def test_a_mistake_in_the_event_is_one_of_the_command_line(
    started: Interlock, event: str, payload: str, told: str
) -> None:
    refused(started("send", NAME, "o-1", event, payload), 2, told)


def test_a_workflow_that_is_not_there_exits_with_4(started: Interlock) -> None:
    refused(started("send", NAME, "o-9", "CANCEL"), 4, "there is no workflow 'o-9'")


@pytest.mark.slow
def test_ids_of_one_command_are_sent_to_by_the_next(started: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    fed(monkeypatch, "".join(f"n-{number}\n" for number in range(2_500)))
    assert started("start", NAME, "-", "-o", "ids").code == 0
    ids = started("find", NAME, "--state", "draft", "--limit", "10000", "-o", "ids").out
    assert len(ids.split()) == 2_501
    fed(monkeypatch, ids + "o-9\n")
    done = started("send", NAME, "-", "SUBMIT", '{"cents": 3}', "-o", "json")
    assert done.code == 4
    assert [each["version"] for each in json.loads(done.out)] == [2] * 2_501
    assert "'o-9'" in done.err


def test_of_several_machines_the_one_of_the_workflow_reads_the_event(started: Interlock) -> None:
    assert started("start", "tests.unit.cli.shop:ticket", "t-1", '{"title": "x"}').code == 0
    assert started("send", BOTH, "t-1", "CLOSE").out.splitlines()[1].split() == ["t-1", "closed", "2"]
    assert started("send", BOTH, "o-1", "CANCEL").code == 0
    refused(started("send", BOTH, "o-1", "CLOSE"), 2, "order has no event 'CLOSE'")
    refused(started("send", NAME, "t-1", "CANCEL"), 5, "belongs to the machine 'ticket'")


# --- homes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("send", NAME, "o-1", "CANCEL"),
        ("show", "o-1"),
        ("history", NAME, "o-1"),
        ("find", NAME),
        ("stalled", NAME),
        ("allowed", NAME, "o-1"),
        ("compensations", NAME),
        ("dead-letters", "list"),
        ("dead-letters", "retry", NAME, "x"),
    ],
)
def test_only_a_start_makes_a_home(interlock: Interlock, home: str, words: tuple[str, ...]) -> None:
    refused(interlock(*words), 4, "there are no workflows at lanes:///", "fix:")
    assert not Path(home.removeprefix("lanes://")).exists()


def test_a_database_in_place_of_a_home_is_named(interlock: Interlock, tmp_path: Path) -> None:
    """A copy of workflows that was restored beside the home instead of in it."""
    (tmp_path / "restored.lane").write_bytes(b"")
    done = interlock("find", "order", "--home", f"lanes://{tmp_path}/restored")
    refused(done, 4, "restored.lane, and not a home of workflows", f"lanes://{tmp_path}/restored/workflows")


def test_a_home_must_be_given_and_must_be_one(interlock: Interlock) -> None:
    done = interlock("show", "o-1")
    assert done.code == 2
    assert "--home" in done.err
    assert "INTERLOCK_HOME" in done.err
    refused(interlock("start", NAME, "o-1", "--home", "memory:"), 2, "workflows in memory")
    refused(interlock("show", "o-1", "--home", "lanes://here"), 2, "three slashes")
    refused(interlock("show", "o-1", "--home", "postgresql://x/y"), 5, "PostgreSQL")


def test_an_event_may_start_its_workflow(interlock: Interlock, home: str) -> None:
    """E5."""
    done = interlock("send", NAME, "o-9", "SUBMIT", '{"cents": 5}', "--start", '{"size": "large"}', "-o", "json")
    assert (done.code, json.loads(done.out)["version"]) == (0, 2)
    assert '"size":"large"' in interlock("show", "o-9", "-o", "json").out.replace(" ", "")
    refused(interlock("send", BOTH, "o-8", "SUBMIT", "--start", "{}"), 2, "--start is given without the one machine")
    refused(interlock("send", NAME, "o-8", "SUBMIT", '{"cents": 5}', "--start", '{"x": 1}'), 2, "context")
    refused(interlock("show", "o-8"), 4, "o-8")
