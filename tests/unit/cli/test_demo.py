"""`interlock demo`: killed in the middle, nothing is lost; the same seed is the same demo; Ctrl-C is clean."""

import asyncio
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.cli.demo import verify as verify_module
from interlock.cli.demo.bank import BOOKS, Books, Entry, World, entries, home_in
from interlock.cli.demo.scenario import GUIDED, Journey
from interlock.cli.demo.verify import order_problems, verify
from interlock.cli.demo.walk import OrderHistory, Outcome, Walk
from interlock.errors import Retryable
from interlock.examples.order import Order, State, order
from interlock.runtime.engine import Engine
from interlock.runtime.views import View
from tests.unit.cli.running import ESCAPE, Interlock, plain_environment, program

MANY = 5_000


def walked(folder: Path, orders: int, seed: int = 1) -> Walk:
    walk = Walk(orders, seed, folder)
    walk.run(lambda _: None)
    return walk


def verified(walk: Walk) -> Outcome:
    asyncio.run(verify(walk))
    return walk.outcome


def stored(folder: Path, order_id: str) -> tuple[View[State, Order], OrderHistory]:
    async def read() -> tuple[View[State, Order], OrderHistory]:
        async with Engine.open(home_in(folder), machines=[order], worker=False) as engine:
            return await engine.of(order).get(order_id), await engine.of(order).history(order_id)

    return asyncio.run(read())


def test_the_demo_tells_what_it_did(interlock: Interlock, folder: Path) -> None:
    done = interlock("demo", "--orders", "200", "--seed", "3", "--output", "pictures/orders.svg")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Walking 200 orders through the machine 'order', seed 3.\n")
    for told in (
        "Killed the worker (SIGKILL) in the middle: ",
        "Another worker has opened the store and taken up what was owed in ",
        "200 of 200 orders done",
        "The history of order-",
        "17 of 17 transitions of the machine were taken",
        "per second",
        "before the kill and",
        "none is missing",
        "no deed twice under any of them",
        "and harmed nothing",
        "coloured by visits: pictures/orders.svg",
        "Verified: everything acknowledged is there, before the kill and after it",
    ):
        assert told in " ".join(done.out.split())
    assert all(f" {state.value} " in done.out for state in State)
    for kind in ("guard-rejected", "invalid-transition"):
        _, _, shown = done.out.partition(f"events rejected as {kind}\n")
        labels = [line.split()[0] for line in shown.split("\n\n")[0].splitlines() if not line.startswith("   ")]
        assert labels == ["what", "why", "fix"]
    picture = (folder / "pictures/orders.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "200 visits" in picture
    assert not (folder / "out").exists()


def test_the_same_seed_is_the_same_demo_wherever_it_was_killed(interlock: Interlock, folder: Path) -> None:
    def lasting(out: str) -> list[str]:
        """What does not depend on the moment of the kill: where the orders went, and what happened to them."""
        timeless = re.sub(r"in \d+\.\d\d s, [\d,]+ per second", "in some time", out)
        kept = ("orders ", "transitions ", "coverage ", "result ", *(f"{state.value} " for state in State))
        return [line.strip() for line in timeless.splitlines() if line.strip().startswith(kept)]

    first = interlock("demo", "--orders", "120", "--seed", "11")
    picture = (folder / "out/demo.svg").read_bytes()
    second = interlock("demo", "--orders", "120", "--seed", "11")
    assert lasting(first.out) == lasting(second.out)
    assert (folder / "out/demo.svg").read_bytes() == picture
    other = interlock("demo", "--orders", "120", "--seed", "12")
    assert lasting(other.out) != lasting(first.out)


def test_the_guided_journeys_alone_cover_every_transition(tmp_path: Path) -> None:
    outcome = verified(walked(tmp_path, len(GUIDED)))
    assert outcome.problems == []
    assert outcome.tally.covered == len(outcome.tally.arrows) == 17
    assert set(outcome.examples) == {"guard-rejected", "invalid-transition"}
    assert outcome.kill is not None
    number = 1 + GUIDED.index(Journey(declines=3))
    _, history = stored(tmp_path, f"order-{number:06}")
    assert [row.event for row in history] == [
        "STARTED", "SUBMIT", "PAYMENT_STARTED", "PAYMENT_FAILED", "SUBMIT", "PAYMENT_FAILED", "SUBMIT",
        "PAYMENT_FAILED", "CANCEL", "CANCEL_CONFIRMED",
    ]  # fmt: skip


def test_every_order_comes_to_rest(tmp_path: Path) -> None:
    outcome = verified(walked(tmp_path, 600, seed=5))
    now = outcome.tally.now
    assert outcome.problems == []
    assert now[State.DELIVERED.value] + now[State.CANCELLED.value] + now[State.REFUNDED.value] == 600
    assert outcome.books["failed"] > 0
    assert outcome.books["lost"] > 0
    assert outcome.observer_failures > 0


def test_one_order_is_enough(tmp_path: Path) -> None:
    outcome = verified(walked(tmp_path, 1))
    assert (outcome.done, outcome.problems) == (1, [])


def test_whatever_is_missing_or_twice_is_noticed(tmp_path: Path) -> None:
    """Sabotage of everything that the demo compares: the acknowledgements, the books, the number of orders."""
    walk = walked(tmp_path, 2)
    walk.outcome.orders = 3
    walk.acknowledged["order-000001"].extend((99, 0))
    walk.acknowledged["order-000002"][1] += 1
    books = Books(tmp_path / BOOKS)
    books.write("charged", "order-000001", "take_payment-again")
    key = next(entry.key for entry in entries(tmp_path / BOOKS) if entry.deed == "refunded")
    books.write("refunded", "order-000002", key)
    books.close()
    problems = verified(walk).problems
    for told in (
        "order-000001: version 99 was acknowledged, and is gone",
        "order-000001: it ended delivered with 2 taken and 0 given back",
        "order-000002: version 1 was acknowledged as another state than pending",
        f"order-000002: something was done twice under the key {key}",
        "order-000003: it is lost",
        "orders that are done: 2, expected 3",
    ):
        assert told in problems


def test_a_demo_that_is_not_verified_exits_with_1(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = [Entry("charged", "order-000001", "k")]
    monkeypatch.setattr(verify_module, "entries", lambda _path: forgetful)
    done = interlock("demo", "--orders", "2")
    assert done.code == 1
    assert "NOT VERIFIED: " in done.out
    assert "order-000001: its goods were put aside 0 times and put back 0 times" in done.out


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda history: history.pop(0), "its history begins with SUBMIT"),
        (lambda history: history.pop(3), "its versions have gaps"),
        (lambda history: history.pop(3), "begins in"),
        (lambda history: history.pop(3), "replaying its history fails at version 5: "),
        (lambda history: history.pop(), "its last record is not where it is"),
        (lambda history: history.pop(), "replaying its history leads elsewhere"),
        (lambda history: history.clear(), "its history is lost"),
    ],
)
def test_a_damaged_history_is_noticed(
    one_order: tuple[View[State, Order], OrderHistory, list[Entry]],
    damage: Callable[[OrderHistory], object],
    told: str,
) -> None:
    view, kept, books = one_order
    history = list(kept)
    damage(history)
    assert any(told in problem for problem in order_problems(view, history, books, bytes((1, 0))))


@pytest.fixture(scope="module")
def one_order(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[View[State, Order], OrderHistory, list[Entry]]:
    folder = tmp_path_factory.mktemp("one")
    walked(folder, 1)
    view, history = stored(folder, "order-000001")
    books = entries(folder / BOOKS)
    assert order_problems(view, history, books, bytes((1, 0))) == []
    return view, history, books


def test_an_order_that_is_left_behind_is_noticed(
    one_order: tuple[View[State, Order], OrderHistory, list[Entry]],
) -> None:
    view, history, books = one_order
    left = type(view)(**{name: getattr(view, name) for name in view.__struct_fields__} | {"state": State.SHIPPED})
    problems = order_problems(left, history[:-1], books, b"")
    assert "it is left in shipped, which is neither final nor resting" in problems
    assert "nobody was ever told that it exists" in problems


def test_the_world_does_what_it_is_asked_once_per_key_and_remembers_it(tmp_path: Path) -> None:
    async def nobody_waits(_order_id: str, _asked: str) -> None:
        return

    async def insist(world: World, number: int) -> bool:
        for _ in range(2):
            try:
                return await world.confirm(f"pi-order-{number}", key=f"k-{number}")
            except Retryable:
                continue
        raise AssertionError("a retry has to get through")

    async def story() -> None:
        for _life in range(2):
            books = Books(tmp_path / BOOKS)
            world = World(books, lambda _order_id: 0, nobody_waits, 1)
            assert all([await insist(world, number) for number in range(100)])
            books.close()

    asyncio.run(story())
    written = entries(tmp_path / BOOKS)
    assert sorted(entry.key for entry in written if entry.deed == "charged") == sorted(f"k-{n}" for n in range(100))
    assert {"failed", "lost"} <= {entry.deed for entry in written}


def heed_interrupts() -> None:
    """A program that a shell starts in the background ignores Ctrl-C, and so would everything these tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("orders", "told", "stopped_by", "code", "said"),
    [
        (MANY, "orders done", signal.SIGINT, 130, "Interrupted.\n"),
        (1_000, "Killed the worker", signal.SIGINT, 130, "Interrupted.\n"),
        (MANY, "orders done", signal.SIGKILL, -9, ""),
    ],
)
def test_no_process_and_no_folder_is_left_behind(
    folder: Path, orders: int, told: str, stopped_by: signal.Signals, code: int, said: str
) -> None:
    """Ctrl-C before or after the kill is clean; and when the demo itself is killed, its worker does not outlive it."""
    (folder / "temporary").mkdir()
    with subprocess.Popen(
        program("demo", "--orders", str(orders), "--headless"),
        cwd=folder,
        env=plain_environment(TMPDIR=str(folder / "temporary")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=heed_interrupts,  # noqa: PLW1509 -- there is no thread here, and one assignment to make.
    ) as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if told in line)
        running.send_signal(stopped_by)
        _, complaints = running.communicate()  # The worker has the same stderr: this is its end too.
    assert running.returncode == code
    assert complaints == said
    assert not (folder / "out").exists()
    if stopped_by == signal.SIGINT:
        assert list((folder / "temporary").iterdir()) == []


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
