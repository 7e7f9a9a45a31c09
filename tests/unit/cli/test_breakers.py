"""`interlock breakers`: what was last stored of them, and that a note which cannot be read harms no other (C4)."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock.clock import SystemClock
from interlock.store.open_store import open_store
from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import NAME

OPEN = {"state": "open", "forced": None, "since": "2026-11-16T03:04:05Z", "reason": "5 failures in a row: ConnectError"}
FORCED = {"state": "closed", "forced": "closed", "since": "2026-11-16T03:04:05.250+00:00", "reason": "by hand"}


@pytest.fixture
def home(interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    assert interlock("start", NAME, "o-1").code == 0
    return url


def note(home: str, **notes: object) -> None:
    """What an engine notes of the breakers of its dependencies; a text is noted as it is."""

    async def run() -> None:
        store = await open_store(home, clock=SystemClock())
        for name, value in notes.items():
            await store.note(f"breaker:{name}", value if isinstance(value, str) else json.dumps(value))
        await store.close()

    asyncio.run(run())


def test_breakers_are_listed_as_they_were_last_noted(interlock: Interlock, home: str) -> None:
    note(home, warehouse=FORCED, gateway={**OPEN, "state": "half_open"})
    note(home, gateway=OPEN)
    done = interlock("breakers")
    assert done.code == 0
    assert [line.split(None, 3) for line in done.out.splitlines()] == [
        ["dependency", "state", "forced", "since                          reason"],
        ["gateway", "open", "2026-11-16T03:04:05.000+00:00", "5 failures in a row: ConnectError"],
        ["warehouse", "closed", "closed", "2026-11-16T03:04:05.250+00:00  by hand"],
    ]
    assert "the last changes that engines stored" in done.err
    assert "engine.breakers()" in done.err


def test_programs_read_them_without_the_remark(interlock: Interlock, home: str) -> None:
    note(home, warehouse=FORCED, gateway=OPEN)
    done = interlock("breakers", "-o", "json")
    assert (done.code, done.err) == (0, "")
    gateway, warehouse = json.loads(done.out)
    assert gateway == {"dependency": "gateway", **OPEN}
    assert (warehouse["forced"], warehouse["since"]) == ("closed", "2026-11-16T03:04:05.250000Z")
    names = interlock("breakers", "-o", "ids")
    assert (names.out, names.err) == ("gateway\nwarehouse\n", "")


def test_where_nothing_was_noted_nothing_is_listed(interlock: Interlock, home: str) -> None:
    assert json.loads(interlock("breakers", "-o", "json").out) == []
    assert interlock("breakers", "-o", "ids").out == ""
    assert interlock("breakers").out.split() == ["dependency", "state", "forced", "since", "reason"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "null",
        "{}",
        '{"state": "ajar", "since": "2026-11-16T03:04:05Z"}',
        '{"state": "open"}',
        '{"state": "open", "since": "yesterday"}',
        '{"state": "open", "since": "2026-11-16T03:04:05"}',
        '{"state": "open", "since": "2026-11-16T03:04:05Z", "forced": 1}',
        "[" * 10_000,
        '"\x1b[31m\u202e"',
    ],
    ids=lambda text: text[:20],
)
def test_a_note_that_cannot_be_read_is_shown_as_unknown_beside_the_others(
    interlock: Interlock, home: str, text: str
) -> None:
    note(home, broken=text, gateway=OPEN)
    done = interlock("breakers")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [["broken", "unknown"], ["gateway", "open"]]
    assert "\x1b" not in done.out
    broken, _ = json.loads(interlock("breakers", "-o", "json").out)
    assert (broken["state"], broken["since"], broken["forced"]) == ("unknown", None, None)
    assert broken["reason"].startswith("its note cannot be read: ")


def test_fields_of_a_later_release_are_passed_over(interlock: Interlock, home: str) -> None:
    note(home, gateway={**OPEN, "waves": 3})
    assert json.loads(interlock("breakers", "-o", "json").out)[0]["state"] == "open"


def test_a_name_or_a_reason_cannot_move_the_cursor(interlock: Interlock, home: str) -> None:
    note(home, **{"gate\x1b[2J": {**OPEN, "reason": "no \x1b[31mgateway\u202e\nhere"}})
    out = interlock("breakers").out
    assert "gate\\u001b[2J" in out
    assert "no \\u001b[31mgateway\\u202e\\nhere" in out


def test_a_home_without_workflows_is_told(interlock: Interlock, tmp_path: Path) -> None:
    done = interlock("breakers", "--home", f"lanes://{tmp_path}/nowhere")
    assert done.code == 4
    assert "there are no workflows" in done.err
