"""`interlock demo`: a bad day for a shop, and nothing is lost; the same seed is the same demo."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.cli.demo import command
from interlock.cli.demo.journeys import BookEntry
from interlock.cli.demo.kill_and_resume import OrdersWalk
from interlock.cli.demo.verify import verify
from interlock.examples.order import State
from tests.unit.cli.running import Interlock


@pytest.mark.slow
def test_the_demo_tells_what_it_did(interlock: Interlock, folder: Path) -> None:
    """Every part of the bad day is seen, and so is the proof."""
    done = interlock("demo", "--orders", "200", "--seed", "3", "--plot", "pictures/orders.svg")
    assert (done.code, done.err) == (0, ""), done.out
    assert done.out.startswith("Walking 200 orders through the machine 'order', seed 3.\nDashboard: http://127.0.0.1:")
    for told in (
        "The bank is down: ",
        "The breaker of payments is open: calls have stopped, ",
        "The bank is back, after ",
        "The breaker of payments is closed: ",
        "Killed the worker (SIGKILL) in the middle: ",
        "Another worker has opened the store and taken up what was owed in ",
        "Stalled: 4 orders on the packing table, listed by engine.stalled (order-000",
        "200 of 200 orders done",
        "The history of order-",
        "17 of 17 transitions of the machine were taken",
        "per second",
        "the breaker opened after",
        "before the kill and",
        "and counted once",
        "engine.stalled listed 4 of them",
        "and harmed nothing",
        "plotted: pictures/orders.svg",
        "coloured by visits: pictures/orders-machine.svg",
        "Verified: everything acknowledged is there, before the kill and after it",
    ):
        assert told in " ".join(done.out.split())
    assert all(f" {state.value} " in done.out for state in State)
    for kind in ("guard-rejected", "invalid-transition"):
        _, _, shown = done.out.partition(f"events rejected as {kind}\n")
        labels = [line.split()[0] for line in shown.split("\n\n")[0].splitlines() if not line.startswith("   ")]
        assert labels == ["what", "why", "fix"]
    _, _, proof = done.out.partition("The proof\n")
    assert proof.count(" ok ") == 14
    assert " NO " not in proof
    machine = (folder / "pictures/orders-machine.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(machine).tag.endswith("svg")
    assert "200 visits" in machine
    drawn = (folder / "pictures/orders.svg").read_text(encoding="utf-8")
    assert all(name in drawn for name in ("bank down", "breaker open", "no worker", "parcels stuck", "nothing lost"))
    assert not (folder / "out").exists()


@pytest.mark.slow
def test_the_same_seed_is_the_same_demo_wherever_it_was_killed(interlock: Interlock, folder: Path) -> None:
    def lasting(out: str) -> list[str]:
        """What does not depend on the moment of the kill: where the orders went, and what happened to them."""
        timeless = re.sub(r"in \d+\.\d\d s, [\d,]+ per second", "in some time", out)
        kept = ("orders  ", "transitions ", "coverage ", "result ", *(f"{state.value} " for state in State))
        return [line.strip() for line in timeless.splitlines() if line.strip().startswith(kept)]

    first = interlock("demo", "--orders", "120", "--seed", "11")
    picture = (folder / "out/demo-machine.svg").read_bytes()
    second = interlock("demo", "--orders", "120", "--seed", "11")
    assert lasting(first.out) == lasting(second.out)
    assert len(lasting(first.out)) == 4 + len(State)
    assert (folder / "out/demo-machine.svg").read_bytes() == picture
    other = interlock("demo", "--orders", "60", "--seed", "12")
    assert lasting(other.out) != lasting(first.out)


@pytest.mark.slow
def test_a_demo_that_is_not_verified_exits_with_1(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def verify_other_books(walk: OrdersWalk) -> None:
        walk.bank.books[:] = [BookEntry("charged", "order-000001", "k")]
        await verify(walk)

    monkeypatch.setattr(command, "verify", verify_other_books)
    done = interlock("demo", "--orders", "2")
    assert done.code == 1
    assert "NOT VERIFIED: " in done.out
    assert "order-000001: its goods were put aside 0 times and put back 0 times" in done.out
    assert " NO   charges at the bank, one for each paid order " in done.out


@pytest.mark.slow
def test_without_uvicorn_the_demo_runs_without_a_dashboard_and_says_how_to_get_it(
    interlock: Interlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    done = interlock("demo", "--orders", "3", "--stay")
    assert (done.code, done.err) == (0, "")
    assert 'No dashboard: uvicorn is not installed. pip install "interlock[server]"' in done.out
    assert "http://" not in done.out


@pytest.mark.slow
def test_a_plot_that_cannot_be_written_does_not_hide_the_proof(interlock: Interlock, folder: Path) -> None:
    (folder / "taken").write_text("a file, and no folder")
    done = interlock("demo", "--orders", "3", "--output", "taken/demo.svg")
    assert done.code == 1
    assert "The proof" in done.out
    assert "taken/demo.svg cannot be written" in done.err
