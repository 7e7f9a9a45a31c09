"""`interlock schedules`: on a store and at a server (E6)."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock import App, Engine
from tests.unit.cli.running import Interlock
from tests.unit.cli.serving import serving
from tests.unit.cli.shop import NAME, Order, order

NIGHTLY = ("nightly", NAME, "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home with an order."""
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)

    async def fill() -> None:
        async with Engine.open(url, machines=[order], worker=False) as engine:
            await engine.start(order, "o-1", Order())

    asyncio.run(fill())
    return url


def listed(interlock: Interlock, *where: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(interlock("schedules", "list", "-o", "json", *where).out)
    return found


def test_a_schedule_is_put_listed_paused_resumed_and_deleted(interlock: Interlock, home: str) -> None:
    put = interlock("schedules", "put", *NIGHTLY)
    assert (put.code, put.out.startswith("nightly: next due ")) == (0, True), put.err
    [view] = listed(interlock)
    assert (view["name"], view["machine"], view["paused"]) == ("nightly", "order", False)
    table = interlock("schedules").out
    assert "0 3 * * * Europe/Berlin" in table
    assert interlock("schedules", "-o", "ids").out == "nightly\n"
    assert interlock("schedules", "pause", "nightly").out == "nightly: paused\n"
    assert "paused" in interlock("schedules", "list").out
    assert json.loads(interlock("schedules", "resume", "nightly", "-o", "json").out) == view
    assert interlock("schedules", "delete", "nightly").out == "nightly: deleted\n"
    assert listed(interlock) == []


def test_starts_by_hand_wait_for_the_service(interlock: Interlock, home: str) -> None:
    interlock("schedules", "put", "often", NAME, "--every", "5m")
    assert interlock("schedules", "trigger", "often").out.startswith("often.2")
    times = ("--since", "2026-11-01T00:00:00", "--until", "2026-11-01T02:10:00+01:00")
    assert interlock("schedules", "backfill", "often", *times).out == "14 workflows of often\n"
    assert listed(interlock)[0]["waiting"] == 15


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("pause", "nihgtly"), 4, "Did you mean 'nightly'?"),
        (("put", "other", NAME, "--cron", "61 * * * *"), 1, "bad minute"),
        (("put", "other", NAME), 1, "has neither cron= nor every="),
        (("put", "other", NAME, "--every", "5 parsecs"), 2, "5 parsecs"),
        (("put", "other", NAME, "--every", "5m", "--context", "{"), 2, "JSON"),
        (("backfill", "nightly", "--since", "yesterday", "--until", "2026-11-01"), 2, "'yesterday' is not a time"),
    ],
)
def test_a_mistake_says_what_to_correct(
    words: tuple[str, ...], code: int, problem: str, interlock: Interlock, home: str
) -> None:
    interlock("schedules", "put", *NIGHTLY)
    done = interlock("schedules", *words)
    assert (done.code, problem in done.err) == (code, True), done.err
    assert [each["name"] for each in listed(interlock)] == ["nightly"]


def test_a_server_is_asked_in_the_same_words(interlock: Interlock) -> None:
    with serving(App(machines=[order])) as url:
        assert interlock("schedules", "put", *NIGHTLY, "--server", url).code == 0
        [view] = listed(interlock, "--server", url)
        assert (view["name"], view["timezone"]) == ("nightly", "Europe/Berlin")
        assert interlock("schedules", "pause", "nightly", "--server", url).out == "nightly: paused\n"
        assert interlock("schedules", "trigger", "nightly", "--server", url).out.startswith("nightly.2")
        assert interlock("schedules", "delete", "nightly", "--server", url).code == 0
        assert interlock("schedules", "delete", "nightly", "--server", url).code == 4


def test_the_first_schedule_makes_the_home(interlock: Interlock, tmp_path: Path) -> None:
    where = ("--home", f"lanes://{tmp_path}/new")
    assert interlock("schedules", "list", *where).code == 4
    assert interlock("schedules", "put", *NIGHTLY, *where).code == 0
    assert [each["name"] for each in listed(interlock, *where)] == ["nightly"]
