"""`interlock prune`: what ended some time ago is removed, counted first, stopped at any time (B4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interlock import App, Engine
from interlock.engine.operators import retention
from interlock.engine.operators.retention import Pruner
from interlock.store.protocol import Store
from tests.conformance.engine.places import SetClock
from tests.unit.cli.running import Interlock
from tests.unit.cli.serving import serving
from tests.unit.cli.shop import Close, Order, Ticket, order, ticket

LONG_AGO_S = 1_600_000_000.0
"""When the workflows of these tests have ended, by the clock of the engine that moved them."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three tickets that ended long ago, one that is open, and an order."""
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)

    async def fill() -> None:
        async with Engine.open(url, machines=[order, ticket], clock=SetClock(LONG_AGO_S), worker=False) as engine:
            for name in ("t-1", "t-2", "t-3", "open"):
                await engine.start(ticket, name, Ticket(name))
                if name != "open":
                    await engine.send(name, Close())
            await engine.start(order, "o-1", Order())

    asyncio.run(fill())
    return url


def test_it_removes_what_ended_long_ago_and_needs_no_code(interlock: Interlock, home: str) -> None:
    assert interlock("prune", "--older-than", "30d").out == "3 workflows and 6 rows of history removed.\n"
    assert interlock("show", "t-1").code == 4
    assert interlock("find", "ticket", "-o", "ids").out == "open\n"
    assert interlock("prune", "--older-than", "30d").out == "0 workflows and 0 rows of history removed.\n"


def test_what_is_young_stays(interlock: Interlock, home: str) -> None:
    assert interlock("prune", "--older-than", "36500d").out == "0 workflows and 0 rows of history removed.\n"


def test_a_dry_run_counts_and_removes_nothing(interlock: Interlock, home: str) -> None:
    done = interlock("prune", "--older-than", "30d", "--dry-run")
    assert done.out == "3 workflows and 6 rows of history would be removed.\n"
    done = interlock("prune", "--older-than", "30d", "--dry-run", "-o", "json")
    assert json.loads(done.out) == {"workflows": 3, "events": 6, "dry_run": True}
    assert interlock("show", "t-1").code == 0


def test_history_alone_can_be_removed(interlock: Interlock, home: str) -> None:
    """B4."""
    done = interlock("prune", "--older-than", "30d", "--history-only")
    assert done.out == "6 rows of history of 3 workflows removed.\n"
    assert interlock("show", "t-1").code == 0
    assert json.loads(interlock("history", "t-1", "-o", "json").out) == []


def test_a_server_prunes_the_store_that_it_owns(
    interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4: a lane has one owner, and pruning it asks for no stop."""
    monkeypatch.delenv("INTERLOCK_HOME")
    with serving(App(machines=[order, ticket]), home) as url:
        owned = interlock("prune", "--older-than", "30d", "--home", home)
        dry = interlock("prune", "--older-than", "30d", "--dry-run", "--server", url, "-o", "json")
        gone = interlock("prune", "--older-than", "30d", "--server", url)
        again = interlock("prune", "--older-than", "30d", "--pause-ms", "1", "--server", url, "-o", "json")
        named = interlock("prune", "--older-than", "30d", "--server", url, "--machine", "ticket")
    assert owned.code == 5
    assert json.loads(dry.out) == {"workflows": 3, "events": 6, "dry_run": True}
    assert (gone.code, gone.out) == (0, "3 workflows and 6 rows of history removed.\n")
    assert json.loads(again.out) == {"workflows": 0, "events": 0, "dry_run": False}
    assert named.code == 2
    assert "A server prunes all of the machines that it serves." in named.err


def test_one_machine_can_be_named_by_its_name_or_its_code(interlock: Interlock, home: str) -> None:
    for name, count in (("order", 0), ("ticket", 3), ("tests.unit.cli.shop:ticket", 3)):
        done = interlock("prune", "--older-than", "30d", "--dry-run", "--machine", name, "-o", "json")
        assert json.loads(done.out)["workflows"] == count
    done = interlock("prune", "--older-than", "30d", "--machine", "tickets")
    assert done.code == 4
    assert "Did you mean" in done.err


def test_progress_is_told_while_it_goes_on(interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.cli.operator_commands.PROGRESS_BATCHES", 2)
    done = interlock("prune", "--older-than", "30d", "--batch", "1", "--pause-ms", "0")
    assert done.out == "3 workflows and 6 rows of history removed.\n"
    assert "1 workflow and 2 rows of history removed so far" in done.err


def test_ctrl_c_stops_between_two_batches_and_says_how_far_it_got(
    interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has gone is gone, the rest is there, and the next run goes on."""

    class Pausing:
        """The first pause is the moment of Ctrl-C."""

        @staticmethod
        async def sleep(_pause_s: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(retention, "asyncio", Pausing)
    done = interlock("prune", "--older-than", "30d", "--batch", "2")
    assert done.code == 130
    assert "2 workflows and 4 rows of history removed before it was stopped." in done.err
    monkeypatch.undo()
    assert (
        interlock("prune", "--older-than", "30d", "--home", home).out == "1 workflow and 2 rows of history removed.\n"
    )


@pytest.mark.parametrize("words", [("--older-than", "soon"), ("--older-than", "1d", "--batch", "0"), ()])
def test_what_cannot_be_meant_exits_with_2(interlock: Interlock, home: str, words: tuple[str, ...]) -> None:
    assert interlock("prune", *words).code == 2


def test_every_option_reaches_the_run(interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    begin = Pruner.__init__

    def note(self: Pruner, store: Store, **options: Any) -> None:  # noqa: ANN401 -- whatever is given.
        given.append(options)
        begin(self, store, **options)

    monkeypatch.setattr(Pruner, "__init__", note)
    interlock("prune", "--older-than", "2h", "--with-owed", "--batch", "7", "--pause-ms", "20", "--dry-run")
    [options] = given
    assert (options["older_than_s"], options["owing"], options["batch"], options["pause_s"], options["dry_run"]) == (
        7_200, True, 7, 0.02, True,
    )  # fmt: skip
