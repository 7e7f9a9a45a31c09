"""The demo checks itself, when the last worker is gone: what was acknowledged, what is stored, and the world's books.

Every check returns what is wrong as text, and nothing when all is well. History is not merely looked at: it is replayed
through the machine, event by event, and has to lead to the same order.
"""

import asyncio
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import pairwise

from interlock.cli.demo.bank import BOOKS, FAULTS, Entry, entries, home_in
from interlock.cli.demo.observers import Tally
from interlock.cli.demo.walk import STATES, Kill, OrderHistory, Outcome, Walk
from interlock.core.events import STARTED
from interlock.errors import Refusal
from interlock.examples.order import Order, OrderEvent, State, order
from interlock.runtime.engine import Engine
from interlock.runtime.views import HistoryRow, View

AT_ONCE = 500
PROBLEMS_KEPT_MAX = 20
RESTS = frozenset({State.DELIVERED, State.CANCELLED, State.REFUNDED})
EXPECTED_BOOKS = {State.DELIVERED: (1, 0), State.REFUNDED: (1, 1)}
"""What was taken and given back when an order ends in a state; (0, 0) elsewhere."""


async def verify(walk: Walk) -> None:
    """Look at every order, and complete the outcome with what was found."""
    began_s = time.perf_counter()
    outcome = walk.outcome
    outcome.tally = Tally(order.describe())
    digests: dict[str, bytes] = {}
    books: dict[str, list[Entry]] = defaultdict(list)
    written = entries(walk.folder / BOOKS)
    for entry in written:
        books[entry.order].append(entry)
    async with Engine.open(home_in(walk.folder), machines=[order], worker=False) as engine:
        missing = {f"order-{number:06}" for number in range(1, outcome.orders + 1)}
        histories = engine.of(order).history
        async for views in _pages(engine):
            for view, history in zip(views, await asyncio.gather(*(histories(each.id) for each in views)), strict=True):
                missing.discard(view.id)
                _count(outcome, view.id, history)
                digests[view.id] = _digest(history)
                told = bytes(walk.acknowledged.get(view.id, b""))
                for problem in order_problems(view, history, books[view.id], told):
                    complain(outcome, f"{view.id}: {problem}")
        for order_id in sorted(missing):
            complain(outcome, f"{order_id}: it is lost")
        letters = await engine.dead_letters()
    outcome.books = Counter(entry.deed for entry in written)
    outcome.keys = len({entry.key for entry in written})
    for problem in total_problems(outcome, letters=len(letters)):
        complain(outcome, problem)
    outcome.fingerprint = hashlib.sha256(b"".join(digests[each] for each in sorted(digests))).hexdigest()[:16]
    outcome.verifying_s = time.perf_counter() - began_s


async def _pages(engine: Engine) -> AsyncIterator[Sequence[View[State, Order]]]:
    cursor: str | None = None
    while True:
        page = await engine.find(order, limit=AT_ONCE, cursor=cursor)
        yield page.items
        cursor = page.cursor
        if cursor is None:
            return


def _count(outcome: Outcome, order_id: str, history: OrderHistory) -> None:
    for row in history:
        outcome.tally.moved(order_id, row.event, row.to_state.value)
    outcome.tally.forget(order_id)
    longest = outcome.longest
    if (len(history), longest[0]) > (len(longest[1]), order_id) or not longest[0]:
        outcome.longest = order_id, history


def _digest(history: OrderHistory) -> bytes:
    """Of what happened, without what is random: ids and times."""
    told = "\n".join(f"{row.version} {row.event} {row.to_state.value}" for row in history)
    return hashlib.sha256(told.encode()).digest()


def complain(outcome: Outcome, problem: str) -> None:
    """Keep a problem, if there are not too many already."""
    if len(outcome.problems) < PROBLEMS_KEPT_MAX:
        outcome.problems.append(problem)


def order_problems(
    view: View[State, Order], history: Sequence[HistoryRow[State, Order]], books: Sequence[Entry], told: bytes
) -> list[str]:
    """What is wrong with one order."""
    if not history:
        return ["its history is lost"]
    return [
        *_acknowledged_problems(history, told),
        *_history_problems(view, history),
        *_replay_problems(view, history),
        *_book_problems(view, history, books),
    ]


def total_problems(outcome: Outcome, *, letters: int) -> list[str]:
    """What is wrong with the whole."""
    tally = outcome.tally
    kept = outcome.books["charged"] - outcome.books["refunded"]
    checks = [
        ("orders that are done", outcome.done, outcome.orders),
        ("orders in a final or resting state", sum(tally.now[state.value] for state in RESTS), outcome.orders),
        ("payments kept", kept, tally.now[State.DELIVERED.value]),
        ("dead letters", letters, 0),
        ("kills", int(isinstance(outcome.kill, Kill)), 1),
    ]
    return [f"{what}: {actual:,}, expected {expected:,}" for what, actual, expected in checks if actual != expected]


def _acknowledged_problems(history: Sequence[HistoryRow[State, Order]], told: bytes) -> Iterable[str]:
    if not told:
        yield "nobody was ever told that it exists"
    for version, state in zip(told[::2], told[1::2], strict=True):
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
    view: View[State, Order], history: Sequence[HistoryRow[State, Order]], books: Sequence[Entry]
) -> Iterable[str]:
    done = Counter(entry.deed for entry in books)
    money = done["charged"], done["refunded"]
    if money != EXPECTED_BOOKS.get(view.state, (0, 0)):
        yield f"it ended {view.state.value} with {money[0]} taken and {money[1]} given back"
    twice = [key for key, count in _deeds(books).items() if count > 1]
    if twice:
        yield f"something was done twice under the key {twice[0]}"
    # Goods that were shipped are gone for good; goods that were only put aside are put back by the refund.
    shipped = any(row.to_state is State.SHIPPED for row in history)
    goods = done["reserved"], done["released"]
    if (shipped and goods != (1, 0)) or (not shipped and goods[0] > goods[1]):
        yield f"its goods were put aside {goods[0]} times and put back {goods[1]} times"


def _deeds(books: Sequence[Entry]) -> Mapping[str, int]:
    return Counter(entry.key for entry in books if entry.deed not in FAULTS)
