"""`interlock show`, `history`, `find`, `stalled` and `allowed`: what is told, and in which form."""

import io
import json
from pathlib import Path

import pytest

from interlock.cli.command_place import login_name
from interlock.cli.parse_arguments import seconds_of
from interlock.errors import BadUsage
from tests.unit.cli import shop as shop_module
from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import NAME

CHECKOUT = '{"order_id": "c-1"}'
ODD = 'it\'s "[bold]o[red]" & ☃ 注文 :smile:'


@pytest.fixture
def shop(interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interlock:
    monkeypatch.setenv("INTERLOCK_HOME", f"lanes://{tmp_path}/home")
    assert interlock("start", NAME, "o-1").code == 0
    assert interlock("send", NAME, "o-1", "SUBMIT", '{"cents": 999}', "--key", "click-7").code == 0
    assert interlock("start", NAME, ODD).code == 0
    return interlock


# --- find -------------------------------------------------------------------------------------------------------------


def test_workflows_are_found_by_conditions_times_and_order(shop: Interlock) -> None:
    """F4."""
    assert shop("find", NAME, "--where", "cents>100", "-o", "ids").out == "o-1\n"
    assert shop("find", NAME, "--where", "cents=0", "--where", "note=", "-o", "ids").out == f"{ODD}\n"
    assert shop("find", NAME, "--order", "-cents", "-o", "ids").out == f"o-1\n{ODD}\n"
    assert shop("find", NAME, "--order", "-updated_at", "--state", "draft", "-o", "ids").out == f"{ODD}\n"
    assert shop("find", NAME, "--updated-after", "2020-01-01", "-o", "ids").out == f"o-1\n{ODD}\n"
    assert shop("find", NAME, "--updated-before", "2020-01-01", "-o", "ids").out == ""
    # The store says what the machine declares, for a program that does not have its code.
    assert shop("find", "order", "--where", "cents>100", "-o", "ids").out == "o-1\n"
    assert shop("find", "order", "--order", "-cents", "--state", "draft", "-o", "ids").out == f"{ODD}\n"
    first = shop("find", NAME, "--order", "cents", "--limit", "1")
    cursor = first.err.partition("--cursor ")[2].strip()
    assert shop("find", NAME, "--order", "cents", "--cursor", cursor, "-o", "ids").out == "o-1\n"


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("find", "--where", "cents=5"), "no machine is searched"),
        (("find", "order", "--order", "nope"), "is not an order"),
        (("find", "order", "--where", "cents=x"), "'x' is not an int"),
        (("find", NAME, "--where", "cents"), "is not a condition"),
        (("find", NAME, "--where", "cents=x"), "'x' is not an int"),
        (("find", NAME, "--where", "nope=5"), "not a searchable field"),
        (("find", NAME, "--order", "nope"), "is not an order"),
        (("find", NAME, "--updated-after", "soon"), "'soon' is not a time"),
    ],
)
def test_a_search_that_does_not_fit_is_a_mistake_of_the_command_line(
    shop: Interlock, words: tuple[str, ...], match: str
) -> None:
    done = shop(*words)
    assert done.code == 2
    assert match in " ".join(done.err.split())


# --- show -------------------------------------------------------------------------------------------------------------


def test_a_workflow_is_shown_with_its_machine_and_without(shop: Interlock) -> None:
    typed, raw = shop("show", NAME, "o-1"), shop("show", "o-1")
    assert (typed.code, raw.code) == (0, 0)
    assert [line.split()[0] for line in typed.out.splitlines()[:7]] == [
        "id", "machine", "state", "version", "created", "updated", "waiting"
    ]  # fmt: skip
    assert "its step waits for a free slot, or for an engine that runs steps" in typed.out
    assert "waiting" not in raw.out
    with_machine = json.loads(shop("show", NAME, "o-1", "-o", "json").out)
    assert with_machine.pop("waiting")
    assert with_machine == json.loads(shop("show", "o-1", "-o", "json").out)
    assert with_machine["context"] == {"cents": 999, "note": "", "size": "small", "due": None}


def test_many_are_shown_and_those_that_are_not_there_are_told(shop: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"o-1\no-9\n{ODD}\na/b\n"))
    done = shop("show", "-", "-o", "json")
    assert done.code == 4
    assert [each["id"] for each in json.loads(done.out)] == ["o-1", ODD]
    assert "'o-9'" in done.err
    assert "'a/b'" in done.err


def test_an_id_is_shown_as_it_is_and_read_by_the_next_command(shop: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, brackets and codes of emoji mean nothing here."""
    ids = shop("find", NAME, "--state", "draft", "-o", "ids").out
    assert ids == ODD + "\n"
    assert ODD in shop("show", NAME, ODD).out
    assert ODD in shop("find", NAME).out
    monkeypatch.setattr("sys.stdin", io.StringIO(ids))
    assert shop("send", NAME, "-", "CANCEL").code == 0


def test_text_of_users_cannot_write_to_the_terminal(shop: Interlock) -> None:
    """Escape codes, line breaks and characters that turn the direction of writing are shown as their codes."""
    nasty = "red \x1b[31m bell \x07 c1 \x9b turn \u202e [bold]markup[/bold] \u2028 \x7f\nnew line"
    assert shop("start", NAME, "o-2", json.dumps({"note": nasty})).code == 0
    assert shop("send", NAME, "o-2", "REMARK", json.dumps({"note": nasty})).code == 0
    for words in (("show", "o-2"), ("show", NAME, "o-2"), ("history", "o-2"), ("find", NAME)):
        for form in ("table", "json"):
            out = shop(*words, "-o", form).out
            assert all(each.isprintable() or each == "\n" for each in out)
            assert "\x1b" not in out
    assert json.loads(shop("show", "o-2", "-o", "json").out)["context"]["note"] == nasty
    assert json.loads(shop("history", "o-2", "-o", "json").out)[1]["payload"]["note"] == nasty
    assert "[bold]markup[/bold]" in shop("show", "o-2").out
    assert len(shop("history", "o-2").out.splitlines()) == 3


def test_a_workflow_of_another_machine_is_told_apart(shop: Interlock) -> None:
    done = shop("show", "tests.unit.cli.shop:ticket", "o-1")
    assert done.code == 5
    assert "belongs to the machine 'order'" in done.err


def test_more_than_a_machine_and_an_id_is_a_mistake(shop: Interlock) -> None:
    done = shop("show", NAME, "o-1", "o-2")
    assert done.code == 2
    assert "interlock find MACHINE -o ids | interlock show -" in done.err


def test_what_the_code_cannot_read_is_told_and_shown_raw(shop: Interlock, folder: Path) -> None:
    source = Path(shop_module.__file__).read_text(encoding="utf-8")
    (folder / "edited.py").write_text(source.replace("cents: int", "cents: str").replace("= 0", '= ""'), "utf-8")
    done = shop("show", "edited:order", "o-1")
    assert done.code == 1
    assert "'o-1' of 'order' is stored in a way that the machine cannot read" in done.err
    assert "Leave the machine out" in done.err
    assert shop("show", "o-1").code == 0


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_is_told_in_the_order_it_happened(shop: Interlock) -> None:
    """B3."""
    done = shop("history", "o-1")
    heading, *rows = [line.split() for line in done.out.splitlines()]
    assert heading == ["version", "time", "event", "from", "to", "key", "by", "payload"]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("1", "STARTED", "draft", "draft", login_name()),
        ("2", "SUBMIT", "draft", "charging", "click-7", login_name(), '{"cents":999}'),
    ]


def test_history_is_the_same_with_the_machine_and_without(shop: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.loads(shop("history", "o-1", "-o", "json").out)
    assert raw == json.loads(shop("history", NAME, "o-1", "-o", "json").out)
    assert raw[1]["context"] == {"cents": 999, "note": "", "size": "small", "due": None}
    assert raw[0]["payload"] is None
    monkeypatch.setattr("sys.stdin", io.StringIO("o-1\nnobody\n"))
    done = shop("history", "-")
    assert done.code == 4
    assert done.out.startswith("id ")
    assert shop("history", "nobody").out == ""


# --- find -------------------------------------------------------------------------------------------------------------


def test_workflows_are_found_by_state_with_the_code_and_by_name_without_it(shop: Interlock) -> None:
    found = json.loads(shop("find", NAME, "--state", "charging", "-o", "json").out)
    assert ([each["id"] for each in found["items"]], found["cursor"]) == (["o-1"], None)
    assert shop("find", NAME, "--state", "CHARGING", "-o", "ids").out == "o-1\n"
    raw = shop("find", "order", "--state", "charging")
    assert raw.out.splitlines()[0].split() == ["id", "state", "version", "updated"]
    assert shop("find", NAME).out.splitlines()[0].split()[-1] == "waiting"


def test_pages_follow_each_other_and_end(shop: Interlock) -> None:
    first = shop("find", NAME, "--limit", "1", "-o", "ids")
    assert first.out == "o-1\n"
    cursor = first.err.rpartition("--cursor ")[2].strip()
    second = shop("find", NAME, "--limit", "1", "--cursor", cursor, "-o", "json")
    page = json.loads(second.out)
    assert [each["id"] for each in page["items"]] == [ODD]
    assert page["cursor"] is None or json.loads(shop("find", NAME, "--cursor", page["cursor"], "-o", "json").out) == {
        "items": [],
        "cursor": None,
    }


def test_without_a_machine_those_of_all_are_listed(shop: Interlock) -> None:
    done = shop("find")
    assert done.out.splitlines()[0].split() == ["machine", "id", "state", "version", "updated"]
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["order", "order"]
    assert shop("find", "--state", "charging", "-o", "ids").out == "o-1\n"
    assert json.loads(shop("find", "-o", "json").out)["cursor"] is None


def test_pages_over_all_machines_follow_each_other(shop: Interlock) -> None:
    assert shop("start", "interlock.examples.checkout:checkout", "c-1", CHECKOUT).code == 0
    everything = list[str]()
    page = json.loads(shop("find", "--limit", "1", "-o", "json").out)
    while page["items"]:
        [item] = page["items"]
        everything.append(item["id"])
        if page["cursor"] is None:
            break
        page = json.loads(shop("find", "--limit", "1", "--cursor", page["cursor"], "-o", "json").out)
    assert everything == ["c-1", "o-1", ODD]


@pytest.mark.parametrize("cursor", ["nonsense", "oder/", "order/nonsense", "/"])
def test_another_text_is_no_cursor_of_all_machines(shop: Interlock, cursor: str) -> None:
    done = shop("find", "--cursor", cursor)
    assert (done.code, done.out) == (2, "")
    assert "is not a cursor" in done.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("find", NAME, "--state", "chargin"), 2, "Did you mean charging?"),
        (("find", NAME, "--cursor", "nonsense"), 2, "nonsense"),
        (("find", NAME, "--limit", "0"), 2, "--limit"),
        (("find", "oder"), 4, "Did you mean order?"),
        (("find", "tests.unit.cli.shop"), 4, "MODULE:ATTR"),
        (("stalled", NAME, "--older-than", "2 hours"), 2, "'2 hours' is not a duration"),
        (("stalled", NAME, "--state", "done?"), 2, "its states are draft"),
        (("allowed", NAME, "o-1", "CANCLE"), 2, "Did you mean CANCEL?"),
        (("allowed", NAME, "nobody"), 4, "there is no workflow 'nobody'"),
    ],
)
def test_mistakes_are_explained(shop: Interlock, words: tuple[str, ...], code: int, told: str) -> None:
    done = shop(*words)
    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert "Traceback" not in done.err


# --- stalled ----------------------------------------------------------------------------------------------------------


def test_those_that_have_stayed_too_long_are_listed(shop: Interlock) -> None:
    """B7."""
    assert shop("stalled", NAME, "-o", "ids").out == ""
    assert sorted(shop("stalled", NAME, "--older-than", "0", "-o", "ids").out.splitlines()) == sorted(["o-1", ODD])
    assert shop("stalled", NAME, "--older-than", "0s", "--state", "charging", "-o", "ids").out == "o-1\n"
    assert shop("stalled", NAME, "--older-than-s", "7200", "-o", "json").out == "[]\n"
    assert shop("stalled", NAME, "--older-than", "0", "--state", "done", "-o", "ids").out == ""


def test_stalled_needs_no_machine(shop: Interlock) -> None:
    """The store's own descriptions say which states can stall."""
    for words in ((), ("order",)):
        assert shop("stalled", *words, "-o", "ids").out == ""
        assert sorted(shop("stalled", *words, "--older-than", "0", "-o", "ids").out.splitlines()) == sorted(
            ["o-1", ODD]
        )
        assert shop("stalled", *words, "--older-than", "0", "--state", "charging", "-o", "ids").out == "o-1\n"
        assert len(shop("stalled", *words, "--older-than", "0", "--limit", "1", "-o", "ids").out.splitlines()) == 1
    assert json.loads(shop("stalled", "--older-than", "0", "-o", "json").out)[0]["machine"] == "order"
    heading, first, *_ = shop("stalled", "--older-than", "0").out.splitlines()
    assert heading.split()[:2] == ["machine", "id"]
    assert first.startswith("order ")
    assert shop("stalled", NAME, "--older-than", "0").out.startswith("id ")
    assert "Did you mean charging?" in shop("stalled", "--state", "chargin").err
    missing = shop("stalled", "ordr")
    assert (missing.code, "Did you mean" in missing.err) == (4, True)


def test_a_workflow_that_is_stored_under_an_old_name_of_its_state_stalls_too(shop: Interlock, folder: Path) -> None:
    source = Path(shop_module.__file__).read_text(encoding="utf-8")
    renamed = source.replace('CHARGING = "charging"', 'CHARGING = "paying"').replace(
        "    initial=State.DRAFT,",
        '    initial=State.DRAFT,\n    version=2,\n    renamed={"charging": State.CHARGING},',
    )
    (folder / "renamed.py").write_text(renamed, encoding="utf-8")
    done = shop("stalled", "renamed:order", "--older-than", "0", "--state", "paying", "-o", "json")
    assert [(each["id"], each["state"]) for each in json.loads(done.out)] == [("o-1", "paying")]


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7_200), ("7d", 604_800), ("1h30m", 5_400)]
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert seconds_of(text) == expected


@pytest.mark.parametrize("text", ["", "h", "-5", "2w", "1h30", "5 6", "1e3", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadUsage):
        seconds_of(text)


# --- allowed ----------------------------------------------------------------------------------------------------------


def test_what_is_allowed_is_listed_with_guards(shop: Interlock) -> None:
    """A6."""
    rows = [line.split() for line in shop("allowed", NAME, ODD).out.splitlines()[1:]]
    assert rows == [["SUBMIT", "charging", "affordable"], ["REMARK", "draft"], ["CANCEL", "undoing"]]
    told = json.loads(shop("allowed", NAME, "o-1", "-o", "json").out)
    assert [each["event"] for each in told] == ["CHARGED", "CANCEL"]


def test_with_an_event_the_guards_are_asked_and_the_exit_code_answers(shop: Interlock) -> None:
    assert shop("allowed", NAME, ODD, "SUBMIT", '{"cents": 5}').code == 0
    blocked = shop("allowed", NAME, ODD, "SUBMIT", '{"cents": 0}')
    assert blocked.code == 3
    assert "affordable: The amount is between 1 cent and 100 euros." in blocked.out
    assert shop("allowed", NAME, "o-1", "SUBMIT", '{"cents": 5}').code == 3
