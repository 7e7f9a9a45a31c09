"""`interlock demo`: every order comes to rest, the same seed is the same demo, and Ctrl-C is clean."""

import asyncio
import os
import pty
import re
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.cli.demo import walk as walk_module
from interlock.cli.demo.bank import Bank
from interlock.cli.demo.scenario import GUIDED, Journey, Scenario
from interlock.cli.demo.walk import Outcome, Walk
from interlock.examples.order import RefundComplete, State
from interlock.examples.world import FakeWarehouse, world
from tests.unit.cli.running import ESCAPE, Interlock, plain_environment, program

MANY = 200_000


def walked(orders: int, seed: int) -> Outcome:
    return asyncio.run(Walk(orders, seed).run(lambda _: None))


def test_the_demo_tells_what_it_did(interlock: Interlock, folder: Path) -> None:
    done = interlock("demo", "--orders", "200", "--seed", "3")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Walking 200 orders through the machine 'order', seed 3.\n")
    for told in (
        "200 of 200 orders done",
        "events rejected as guard-rejected\n",
        "events rejected as invalid-transition\n",
        "The history of order-",
        "17 of 17 transitions of the machine were taken",
        "per second",
        "and harmed nothing",
        "coloured by visits: out/demo.svg",
        "Verified: ",
    ):
        assert told in done.out
    assert all(f" {state.value} " in done.out for state in State)


def test_the_diagram_is_coloured_by_visits(interlock: Interlock, folder: Path) -> None:
    interlock("demo", "--orders", "50", "--output", "pictures/orders.svg")
    picture = (folder / "pictures/orders.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "50 visits" in picture
    assert not (folder / "out").exists()


def test_both_kinds_of_rejection_are_shown_in_full(interlock: Interlock) -> None:
    out = interlock("demo", "--orders", "50").out
    for kind in ("guard-rejected", "invalid-transition"):
        _, _, shown = out.partition(f"events rejected as {kind}\n")
        labels = [line.split()[0] for line in shown.split("\n\n")[0].splitlines() if not line.startswith("   ")]
        assert labels == ["what", "why", "fix"]


def test_the_same_seed_is_the_same_demo(interlock: Interlock, folder: Path) -> None:
    def lasting(out: str) -> str:
        # A longer time makes the column of its table wider: the space behind the others is no part of the demo.
        timeless = re.sub(r"in \d+\.\d\d s(, [\d,]+ per second)?", "in some time", out)
        return re.sub(r" +$", "", timeless, flags=re.MULTILINE)

    first = interlock("demo", "--orders", "300", "--seed", "11")
    picture = (folder / "out/demo.svg").read_bytes()
    second = interlock("demo", "--orders", "300", "--seed", "11")
    assert lasting(first.out) == lasting(second.out)
    assert (folder / "out/demo.svg").read_bytes() == picture
    other = interlock("demo", "--orders", "300", "--seed", "12")
    assert lasting(other.out) != lasting(first.out).replace("seed 11", "seed 12")


@pytest.mark.parametrize("seed", range(5))
def test_every_order_comes_to_rest(seed: int) -> None:
    outcome = walked(1_000, seed)
    tally = outcome.tally
    assert outcome.problems == []
    assert (
        tally.now[State.DELIVERED.value] + tally.now[State.CANCELLED.value] + tally.now[State.REFUNDED.value] == 1_000
    )
    assert tally.covered == len(tally.arrows) == 17
    assert set(tally.rejected) == {"guard-rejected", "invalid-transition"}
    assert outcome.observer_failures == (outcome.records + outcome.refusals) // 100


def test_the_guided_journeys_alone_cover_every_transition() -> None:
    outcome = walked(len(GUIDED), 1)
    assert outcome.tally.covered == len(outcome.tally.arrows)
    assert set(outcome.examples) == {"guard-rejected", "invalid-transition"}
    assert outcome.problems == []


def test_one_order_is_enough() -> None:
    outcome = walked(1, 1)
    assert outcome.done == 1
    assert outcome.problems == []


def test_an_order_is_tried_three_times_and_then_cancelled() -> None:
    walk = Walk(len(GUIDED), 1)
    histories: dict[str, list[str]] = {}
    finish = walk._finish

    def remember(flying: walk_module.InFlight) -> None:
        histories[flying.workflow] = [record.event for record in flying.records]
        finish(flying)

    walk._finish = remember  # type: ignore[method-assign]
    asyncio.run(walk.run(lambda _: None))
    number = 1 + GUIDED.index(Journey(declines=3))
    assert histories[f"order-{number:06}"] == [
        "STARTED", "SUBMIT", "PAYMENT_STARTED", "PAYMENT_FAILED", "SUBMIT", "PAYMENT_FAILED", "SUBMIT",
        "PAYMENT_FAILED", "CANCEL", "CANCEL_CONFIRMED",
    ]  # fmt: skip


def test_the_world_of_the_examples_is_given_back() -> None:
    before = world.payments, world.warehouse
    walked(10, 1)
    assert (world.payments, world.warehouse) == before


class GreedyBank(Bank):
    """Sabotage: it charges twice."""

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        answer = await super().confirm(intent_id, key=key)
        if answer:
            self.accounts[intent_id].taken += 1
            self.taken += 1
        return answer


class ForgetfulWarehouse(FakeWarehouse):
    """Sabotage: it puts nothing aside."""

    async def reserve(self, order_id: str, items: dict[str, int], *, key: str) -> None:
        return


@pytest.mark.parametrize(
    ("sabotaged", "by", "told"),
    [("Bank", GreedyBank, "with 2 taken and"), ("FakeWarehouse", ForgetfulWarehouse, "the warehouse holds None")],
)
def test_books_that_do_not_balance_are_noticed(
    interlock: Interlock, monkeypatch: pytest.MonkeyPatch, sabotaged: str, by: type[object], told: str
) -> None:
    monkeypatch.setattr(walk_module, sabotaged, by)
    done = interlock("demo", "--orders", "30")
    assert done.code == 1
    assert "NOT VERIFIED: " in done.out
    assert told in done.out


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda records: records.pop(0), "its history begins with SUBMIT"),
        (lambda records: records.pop(3), "its versions have gaps"),
        (lambda records: records.pop(3), "begins in"),
        (lambda records: records.pop(3), "replaying its history fails at version 5: "),
        (lambda records: records.pop(), "its last record is not where it is"),
        (lambda records: records.pop(), "replaying its history leads elsewhere"),
    ],
)
def test_a_damaged_history_is_noticed(damage: object, told: str) -> None:
    walk = Walk(1, 1)
    finish = walk._finish

    def damaged(flying: walk_module.InFlight) -> None:
        assert callable(damage)
        damage(flying.records)
        finish(flying)

    walk._finish = damaged  # type: ignore[method-assign]
    outcome = asyncio.run(walk.run(lambda _: None))
    assert any(told in problem for problem in outcome.problems)


def test_an_event_that_should_have_been_refused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    journey = Journey(refund_in=State.PAID, stray_in=State.REFUND_PENDING)
    monkeypatch.setattr(Scenario, "stray", lambda *_: RefundComplete("rf-1"))
    monkeypatch.setattr(Scenario, "journeys", lambda *_: iter([journey]))
    walk = Walk(1, 1)
    outcome = asyncio.run(walk.run(lambda _: None))
    assert outcome.problems == ["order-000001: REFUND_COMPLETE was accepted in refund_pending"]


def test_an_order_that_is_left_behind_is_noticed() -> None:
    walk = Walk(1, 1)

    async def lazy(flying: walk_module.InFlight) -> bool:
        return False

    walk._advance = lazy  # type: ignore[method-assign]
    outcome = asyncio.run(walk.run(lambda _: None))
    assert "order-000001: it is left in pending, which is neither final nor resting" in outcome.problems
    assert "orders in a final or resting state: 0, expected 1" in outcome.problems


def heed_interrupts() -> None:
    """A program that a shell starts in the background ignores Ctrl-C, and so would everything these tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_is_clean(folder: Path) -> None:
    with subprocess.Popen(
        program("demo", "--orders", str(MANY), "--headless"),
        cwd=folder,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=heed_interrupts,  # noqa: PLW1509 -- there is no thread here, and one assignment to make.
    ) as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if "orders done" in line)
        running.send_signal(signal.SIGINT)
        _, complaints = running.communicate()
    assert running.returncode == 130
    assert complaints == "Interrupted.\n"
    assert not (folder / "out").exists()


def test_ctrl_c_gives_the_terminal_back(folder: Path) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        program("demo", "--orders", str(MANY)),
        cwd=folder,
        env=plain_environment(TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 -- there is no thread here, and one assignment to make.
    )
    os.close(theirs)
    shown = b""
    interrupted = False
    try:
        while piece := _read(ours):
            shown += piece
            if not interrupted and b"orders now" in shown:
                interrupted = True
                running.send_signal(signal.SIGINT)
    finally:
        os.close(ours)
    assert running.wait() == 130
    text = shown.decode()
    hidden, visible = f"{ESCAPE}[?25l", f"{ESCAPE}[?25h"
    assert text.rindex(visible) > text.rindex(hidden)
    assert text.endswith("Interrupted.\r\n")
    assert "Traceback" not in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the other side is closed.
        return b""
