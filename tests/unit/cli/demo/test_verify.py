"""The demo's proof can fail: every check is sabotaged once, and notices."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.cli.demo.journeys import BookEntry, home_in
from interlock.cli.demo.outcome import PAID, TILL, Kill, OrderHistory, Outage, Outcome, Stall, Tally
from interlock.cli.demo.verify import StoredTotals, checks_of, judge
from interlock.database.database import Database
from interlock.engine.views import View
from interlock.examples.order import Order, State, order
from tests.unit.cli.demo.walking import stored, verified, walked


@pytest.mark.slow
def test_whatever_is_missing_or_twice_is_noticed(tmp_path: Path) -> None:
    """Sabotage of what the demo compares: the acknowledgements, the books, the counter, the number of orders."""
    walk = walked(tmp_path, 2)
    walk.outcome.orders = 3
    walk.listener.acknowledged["order-000001"].extend((99, 0))
    walk.outcome.acknowledged += 1
    walk.listener.acknowledged["order-000002"][1] += 1
    key = next(entry.key for entry in walk.bank.books if entry.deed == "refunded")
    walk.bank.books += [
        BookEntry("charged", "order-000001", "take_payment-again"),
        BookEntry("refunded", "order-000002", key),
    ]

    async def count_once_more() -> None:
        async with Database.open(TILL, home=home_in(tmp_path)) as till:
            await till.counter(PAID, kind="exact").add(1)

    asyncio.run(count_once_more())
    outcome = verified(walk)
    acknowledged = outcome.acknowledged
    for told in (
        "order-000001: version 99 was acknowledged, and is gone",
        "order-000001: it ended delivered with 2 taken and 0 given back",
        "order-000002: version 1 was acknowledged as another state than pending",
        f"order-000002: something was done twice under the key {key}",
        "order-000003: it is lost",
        "orders stored, of those begun: 2, expected 3",
        "orders at their end: 2, expected 3",
        f"acknowledged calls found again: {acknowledged - 2}, expected {acknowledged}",
        "charges at the bank, one for each paid order: 3, expected 2",
        "orders charged twice: 1, expected 0",
        "deeds done twice under one idempotency key: 1, expected 0",
        "refunds at the bank, one for each refunded order: 2, expected 1",
        "paid orders in the hot counter: 3, expected 2",
    ):
        assert told in outcome.problems


class Case:
    """A demo of three orders in which all is well: one delivered, one refunded, one cancelled."""

    def __init__(self) -> None:
        self.outcome = Outcome(3, 1, Tally(order.describe()), acknowledged=9)
        self.outcome.tally.now |= {"delivered": 1, "refunded": 1, "cancelled": 1}
        self.outcome.kill = Kill(3.0)
        self.outage = self.outcome.outage = Outage(1.0, opened_s=1.1, ended_s=2.0, closed_s=2.1)
        self.stall = self.outcome.stall = Stall(4.0, stuck={"a", "b"}, listed={"a", "b"})
        states = {"a": State.DELIVERED, "b": State.REFUNDED, "c": State.CANCELLED}
        self.found = StoredTotals(orders=3, acknowledged=9, sound=3, paid=2, counter=2, states=states)
        self.books = [
            BookEntry("charged", "a", "k1"),
            BookEntry("charged", "b", "k2"),
            BookEntry("refunded", "b", "k3"),
        ]

    def failing(self) -> list[str]:
        return [check.what for check in checks_of(self.outcome, self.found, self.books) if not check.holds]


def _lose_the_outage(case: Case) -> None:
    case.outage.closed_s = None


def _never_open(case: Case) -> None:
    case.outage.opened_s = None


def _stay_open(case: Case) -> None:
    case.outcome.breaker = "open"


def _lose(name: str) -> Callable[[Case], None]:
    def sabotage(case: Case) -> None:
        setattr(case.found, name, getattr(case.found, name) - 1)

    return sabotage


def _owe(name: str) -> Callable[[Case], None]:
    def sabotage(case: Case) -> None:
        setattr(case.found, name, 1)

    return sabotage


def _rest_elsewhere(case: Case) -> None:
    case.outcome.tally.now |= {"cancelled": 0, "pending": 1}


def _spare_the_worker(case: Case) -> None:
    case.outcome.kill = None


SABOTAGE: list[tuple[str, Callable[[Case], object]]] = [
    ("orders stored, of those begun", _lose("orders")),
    ("orders at their end", _rest_elsewhere),
    ("acknowledged calls found again", _lose("acknowledged")),
    ("histories without gaps that replay to the same order", _lose("sound")),
    ("charges at the bank, one for each paid order", lambda case: case.books.append(BookEntry("charged", "c", "k4"))),
    ("charges at the bank, one for each paid order", lambda case: case.books.pop(0)),
    ("orders charged twice", lambda case: case.books.append(BookEntry("charged", "a", "k4"))),
    ("deeds done twice under one idempotency key", lambda case: case.books.append(BookEntry("refunded", "b", "k3"))),
    ("refunds at the bank, one for each refunded order", lambda case: case.books.pop()),
    ("charges kept without a delivery (uncompensated)", lambda case: case.books.pop()),
    ("paid orders in the hot counter", _lose("counter")),
    ("dead letters and compensations that are owed", _owe("letters")),
    ("dead letters and compensations that are owed", _owe("owed")),
    ("kills of the worker", _spare_the_worker),
    ("outages in which the breaker opened, and closed again", _lose_the_outage),
    ("outages in which the breaker opened, and closed again", _never_open),
    ("outages in which the breaker opened, and closed again", _stay_open),
    ("stuck orders that were listed as stalled", lambda case: case.stall.listed.discard("a")),
]


@pytest.mark.parametrize(("what", "sabotage"), SABOTAGE)
def test_every_check_of_the_whole_notices_its_sabotage(what: str, sabotage: Callable[[Case], object]) -> None:
    case = Case()
    assert case.failing() == []
    sabotage(case)
    assert what in case.failing()


def test_there_is_a_sabotage_of_every_check() -> None:
    case = Case()
    assert {check.what for check in checks_of(case.outcome, case.found, case.books)} == {what for what, _ in SABOTAGE}


OneOrder = tuple[View[State, Order], OrderHistory, list[BookEntry]]


@pytest.fixture(scope="module")
def one_order(tmp_path_factory: pytest.TempPathFactory) -> OneOrder:
    folder = tmp_path_factory.mktemp("one")
    books = walked(folder, 1).bank.books
    view, history = stored(folder, "order-000001")
    assert judge(view, history, books, bytes((1, 0))) == (1, True, [])
    return view, history, books


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
def test_a_damaged_history_is_noticed(one_order: OneOrder, damage: Callable[[OrderHistory], object], told: str) -> None:
    view, kept, books = one_order
    history = list(kept)
    damage(history)
    judged = judge(view, history, books, bytes((1, 0)))
    assert not judged.sound
    assert any(told in problem for problem in judged.problems)


def test_an_order_that_is_left_behind_is_noticed(one_order: OneOrder) -> None:
    view, history, books = one_order
    left = msgspec.structs.replace(view, state=State.SHIPPED)
    problems = judge(left, history[:-1], books, b"").problems
    assert "it is left in shipped, which is neither final nor resting" in problems
    assert "its start was never acknowledged" in problems
