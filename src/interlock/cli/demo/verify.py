"""The verification of the demo, after the last worker: acknowledgements, stored orders and the bank's books.

Checks of one order yield problems as text. Checks of the whole walk compare a count with its expected value. Every
history is replayed through the machine, event by event, and must lead to the stored order.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from interlock.chaos.shop import view_pages
from interlock.cli.demo.journeys import FAULTS, BookEntry, home_in
from interlock.cli.demo.kill_and_resume import OrdersWalk
from interlock.cli.demo.outcome import PAID, STATES, TILL, CountCheck, OrderHistory, Outcome, Tally
from interlock.core.events import STARTED
from interlock.database.database import Database
from interlock.engine.engine import Engine
from interlock.engine.views import HistoryRow, View
from interlock.errors import Refusal
from interlock.examples.order import Order, OrderEvent, State, order

OpenedT = TypeVar("OpenedT")

PROBLEMS_KEPT_MAX = 20
RESTS = frozenset({State.DELIVERED, State.CANCELLED, State.REFUNDED})
EXPECTED_BOOKS = {State.DELIVERED: (1, 0), State.REFUNDED: (1, 1)}
"""Charges and refunds of an order by its final state; (0, 0) for other states."""


@dataclass(slots=True)
class StoredTotals:
    """Counts over all stored orders."""

    orders: int = 0
    acknowledged: int = 0
    """Acknowledged calls whose versions are stored with the acknowledged states."""
    sound: int = 0
    """Orders whose histories have no gaps and replay to the stored order."""
    paid: int = 0
    """Orders that were ever paid, according to their histories."""
    letters: int = 0
    owed: int = 0
    counter: int = 0
    """The value of the hot counter."""
    states: dict[str, State] = field(default_factory=dict[str, State])

    def add(self, view: View[State, Order], history: OrderHistory, judged: "OrderVerdict") -> None:
        """Count one order."""
        self.orders += 1
        self.acknowledged += judged.acknowledged
        self.sound += judged.sound
        self.paid += any(row.to_state is State.PAID for row in history)
        self.states[view.id] = view.state


async def verify(walk: OrdersWalk) -> None:
    """Verify every order, and complete the outcome."""
    began_s = time.perf_counter()
    outcome = walk.outcome
    outcome.tally = Tally(order.describe())
    found = StoredTotals()
    digests: dict[str, bytes] = {}
    books: dict[str, list[BookEntry]] = defaultdict(list)
    written = walk.bank.books
    for entry in written:
        books[entry.order].append(entry)
    async with _opened(Engine.open(home_in(walk.folder), machines=[order], worker=False)) as engine:
        missing = {f"order-{number:06}" for number in range(1, outcome.orders + 1)}
        histories = engine.of(order).history
        async for views in view_pages(engine, order):
            for view, history in zip(views, await asyncio.gather(*(histories(each.id) for each in views)), strict=True):
                missing.discard(view.id)
                _count(outcome, view.id, history)
                digests[view.id] = _digest(history)
                acknowledged = bytes(walk.listener.acknowledged.get(view.id, b""))
                judged = judge(view, history, books[view.id], acknowledged)
                found.add(view, history, judged)
                for problem in judged.problems:
                    complain(outcome, f"{view.id}: {problem}")
        for order_id in sorted(missing):
            complain(outcome, f"{order_id}: it is lost")
        found.letters = len(await engine.dead_letters())
        found.owed = len(await engine.compensations())
    async with _opened(Database.open(TILL, home=home_in(walk.folder))) as till:
        found.counter = await till.counter(PAID, kind="exact").value()
    outcome.books = Counter(entry.deed for entry in written)
    outcome.keys = len({entry.key for entry in written})
    outcome.checks = checks_of(outcome, found, written)
    for check in outcome.checks:
        if not check.holds:
            complain(outcome, str(check))
    outcome.fingerprint = hashlib.sha256(b"".join(digests[each] for each in sorted(digests))).hexdigest()[:16]
    outcome.verifying_s = time.perf_counter() - began_s


def checks_of(outcome: Outcome, found: StoredTotals, books: Sequence[BookEntry]) -> list[CountCheck]:
    """Return the checks that prove that nothing was lost."""
    taken = Counter(entry.order for entry in books if entry.deed == "charged")
    given_back = Counter(entry.order for entry in books if entry.deed == "refunded")
    repeated = sum(count - 1 for count in _deeds(books).values())
    unsettled = sum(taken[each] > given_back[each] and found.states.get(each) is not State.DELIVERED for each in taken)
    resting = sum(outcome.tally.now[state.value] for state in RESTS)
    checks = [
        CountCheck("orders stored, of those begun", found.orders, outcome.orders),
        CountCheck("orders at their end", resting, outcome.orders),
        CountCheck("acknowledged calls found again", found.acknowledged, outcome.acknowledged),
        CountCheck("histories without gaps that replay to the same order", found.sound, outcome.orders),
        CountCheck("charges at the bank, one for each paid order", sum(taken.values()), found.paid),
        CountCheck("orders charged twice", sum(count > 1 for count in taken.values()), 0),
        CountCheck("deeds done twice under one idempotency key", repeated, 0),
        CountCheck(
            "refunds at the bank, one for each refunded order", sum(given_back.values()), outcome.tally.now["refunded"]
        ),
        CountCheck("charges kept without a delivery (uncompensated)", unsettled, 0),
        CountCheck("paid orders in the hot counter", found.counter, found.paid),
        CountCheck("dead letters and compensations that are owed", found.letters + found.owed, 0),
        CountCheck("kills of the worker", int(outcome.kill is not None), 1),
    ]
    if outcome.outage is not None:
        open_s, closed_s = outcome.outage.opened_s, outcome.outage.closed_s
        through = open_s is not None and closed_s is not None and outcome.breaker == "closed"
        checks.append(CountCheck("outages in which the breaker opened, and closed again", int(through), 1))
    if outcome.stall is not None:
        checks.append(
            CountCheck("stuck orders that were listed as stalled", len(outcome.stall.listed), len(outcome.stall.stuck))
        )
    return checks


@contextlib.asynccontextmanager
async def _opened(opening: AbstractAsyncContextManager[OpenedT]) -> AsyncGenerator[OpenedT, None]:
    """Complete the opening also when Ctrl-C cancels it: a thread opens the store, and creates files in the folder."""
    entering = asyncio.ensure_future(opening.__aenter__())
    try:
        opened = await asyncio.shield(entering)
    except asyncio.CancelledError:
        await entering
        await opening.__aexit__(None, None, None)
        raise
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(opening)
        yield opened


def _count(outcome: Outcome, order_id: str, history: OrderHistory) -> None:
    for row in history:
        outcome.tally.moved(order_id, row.event, row.to_state.value)
    outcome.tally.forget(order_id)
    longest = outcome.longest
    if (len(history), longest[0]) > (len(longest[1]), order_id) or not longest[0]:
        outcome.longest = order_id, history


def _digest(history: OrderHistory) -> bytes:
    """Return the digest of the versions, events and states. Ids and times are random, and left out."""
    lines = "\n".join(f"{row.version} {row.event} {row.to_state.value}" for row in history)
    return hashlib.sha256(lines.encode()).digest()


def complain(outcome: Outcome, problem: str) -> None:
    """Add a problem, up to PROBLEMS_KEPT_MAX."""
    if len(outcome.problems) < PROBLEMS_KEPT_MAX:
        outcome.problems.append(problem)


class OrderVerdict(NamedTuple):
    """The verdict on one order."""

    acknowledged: int
    """Acknowledged calls that are stored."""
    sound: bool
    """Whether its history has no gaps and replays to the stored order."""
    problems: list[str]


def judge(
    view: View[State, Order],
    history: Sequence[HistoryRow[State, Order]],
    books: Sequence[BookEntry],
    acknowledged: bytes,
) -> OrderVerdict:
    """Verify one order. `acknowledged` has two bytes per acknowledgement: the version and the state's number."""
    missing = list(_missing(history, acknowledged))
    unsound = (
        [*_history_problems(view, history), *_replay_problems(view, history)] if history else ["its history is lost"]
    )
    unknown = [] if acknowledged else ["its start was never acknowledged"]
    problems = [*unknown, *missing, *unsound, *_book_problems(view, history, books)]
    return OrderVerdict(len(acknowledged) // 2 - len(missing), not unsound, problems)


def _missing(history: Sequence[HistoryRow[State, Order]], acknowledged: bytes) -> Iterable[str]:
    for version, state in zip(acknowledged[::2], acknowledged[1::2], strict=True):
        if version > len(history):
            yield f"version {version} was acknowledged, and is gone"
        elif STATES[history[version - 1].to_state.value] != state:
            yield f"version {version} was acknowledged as another state than {history[version - 1].to_state.value}"


def _history_problems(view: View[State, Order], history: Sequence[HistoryRow[State, Order]]) -> Iterable[str]:
    if [row.version for row in history] != list(range(1, len(history) + 1)):
        yield "its versions have gaps"
    for before, after in pairwise(history):
        if after.from_state is not before.to_state:
            yield f"version {after.version} begins in {after.from_state.value}, not {before.to_state.value}"
    last = history[-1]
    if (last.to_state, last.version, last.context) != (view.state, view.version, view.context):
        yield "its last record is not where it is"
    if view.state not in RESTS:
        yield f"it is left in {view.state.value}, which is neither final nor resting"


def _replay_problems(view: View[State, Order], history: Sequence[HistoryRow[State, Order]]) -> Iterable[str]:
    replayed = order.start(history[0].context).snapshot
    if history[0].event != STARTED:
        yield f"its history begins with {history[0].event}"
    for row in history[1:]:
        assert isinstance(row.payload, OrderEvent)
        try:
            replayed = order.apply(replayed, row.payload)
        except Refusal as refusal:
            yield f"replaying its history fails at version {row.version}: {refusal.what}"
            return
    if (replayed.state, replayed.version, replayed.context) != (view.state, view.version, view.context):
        yield "replaying its history leads elsewhere"


def _book_problems(
    view: View[State, Order], history: Sequence[HistoryRow[State, Order]], books: Sequence[BookEntry]
) -> Iterable[str]:
    done = Counter(entry.deed for entry in books)
    money = done["charged"], done["refunded"]
    if money != EXPECTED_BOOKS.get(view.state, (0, 0)):
        yield f"it ended {view.state.value} with {money[0]} taken and {money[1]} given back"
    twice = [key for key, count in _deeds(books).items() if count > 1]
    if twice:
        yield f"something was done twice under the key {twice[0]}"
    # Shipped goods stay reserved; the refund releases goods that were only reserved.
    shipped = any(row.to_state is State.SHIPPED for row in history)
    goods = done["reserved"], done["released"]
    if (shipped and goods != (1, 0)) or (not shipped and goods[0] > goods[1]):
        yield f"its goods were put aside {goods[0]} times and put back {goods[1]} times"


def _deeds(books: Sequence[BookEntry]) -> Mapping[str, int]:
    return Counter(entry.key for entry in books if entry.deed not in FAULTS)
