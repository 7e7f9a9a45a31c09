"""The demo checks itself: each order when it is done, and the books when all are.

Every check returns what is wrong as text, and nothing when all is well. History is not merely looked at: it is
replayed through the machine, event by event, and has to lead to the same order.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from interlock.cli.demo.bank import Account, Bank
from interlock.cli.demo.observers import Faulty, Tally
from interlock.core.events import STARTED
from interlock.core.values import Record, Snapshot
from interlock.errors import Refusal
from interlock.examples.order import Order, OrderEvent, State, order
from interlock.signals import Subscribers

OrderRecord = Record[State, Order]
OrderSnapshot = Snapshot[State, Order]

RESTS = frozenset({State.DELIVERED, State.CANCELLED, State.REFUNDED})
EXPECTED_BOOKS = {State.DELIVERED: (1, 0), State.REFUNDED: (1, 1)}
"""What was taken and given back when an order ends in a state; (0, 0) elsewhere."""


def order_problems(
    records: Sequence[OrderRecord], snapshot: OrderSnapshot, account: Account, reserved: dict[str, int] | None
) -> list[str]:
    """What is wrong with one order that is done."""
    return [
        *_history_problems(records, snapshot),
        *_replay_problems(records, snapshot),
        *_book_problems(records, snapshot, account, reserved),
    ]


def total_problems(
    *, orders: int, done: int, records: int, refusals: int, bank: Bank, tally: Tally, hub: Subscribers, faulty: Faulty
) -> list[str]:
    """What is wrong with the whole: orders lost, books that do not balance, signals that got lost."""
    delivered = tally.now[State.DELIVERED.value]
    checks = [
        ("orders that are done", done, orders),
        ("orders in a final or resting state", sum(tally.now[state.value] for state in RESTS), orders),
        ("payments kept", bank.taken - bank.given_back, delivered),
        ("transitions signalled", tally.started + tally.transitions, records),
        ("rejections signalled", sum(tally.rejected.values()), refusals),
        ("signals seen by the failing observer", faulty.seen, records + refusals),
        ("failures of observers", hub.failures, faulty.failures),
    ]
    return [f"{what}: {actual:,}, expected {expected:,}" for what, actual, expected in checks if actual != expected]


def _history_problems(records: Sequence[OrderRecord], snapshot: OrderSnapshot) -> Iterable[str]:
    if [record.version for record in records] != list(range(1, len(records) + 1)):
        yield "its versions have gaps"
    for before, after in pairwise(records):
        if after.from_state is not before.to_state:
            yield f"version {after.version} begins in {after.from_state.value}, not {before.to_state.value}"
    last = records[-1]
    if (last.to_state, last.version, last.context) != (snapshot.state, snapshot.version, snapshot.context):
        yield "its last record is not where it is"
    if snapshot.state not in RESTS:
        yield f"it is left in {snapshot.state.value}, which is neither final nor resting"


def _replay_problems(records: Sequence[OrderRecord], snapshot: OrderSnapshot) -> Iterable[str]:
    replayed = order.start(records[0].context).snapshot
    if records[0].event != STARTED:
        yield f"its history begins with {records[0].event}"
    for record in records[1:]:
        assert isinstance(record.payload, OrderEvent)
        try:
            replayed = order.apply(replayed, record.payload)
        except Refusal as refusal:
            yield f"replaying its history fails at version {record.version}: {refusal.what}"
            return
    if (replayed.state, replayed.version, replayed.context) != (snapshot.state, snapshot.version, snapshot.context):
        yield "replaying its history leads elsewhere"


def _book_problems(
    records: Sequence[OrderRecord], snapshot: OrderSnapshot, account: Account, reserved: dict[str, int] | None
) -> Iterable[str]:
    books = account.taken, account.given_back
    if books != EXPECTED_BOOKS.get(snapshot.state, (0, 0)):
        yield f"it ended {snapshot.state.value} with {books[0]} taken and {books[1]} given back"
    # Goods that were shipped are gone for good; goods that were only put aside are put back by the refund.
    shipped = any(record.to_state is State.SHIPPED for record in records)
    skus = {item.sku for item in snapshot.context.items}
    wanted = (
        {sku: sum(item.qty for item in snapshot.context.items if item.sku == sku) for sku in skus} if shipped else None
    )
    if reserved != wanted:
        yield f"the warehouse holds {reserved}, expected {wanted}"
