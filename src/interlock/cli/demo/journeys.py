"""The scenario: one journey per order, determined by the seed alone; and the bank and warehouse that it meets.

A journey holds the customer's wishes, the number of declines, an event that is invalid in its state, and for a few
orders a parcel stuck on the packing table.
The first journeys are written by hand and take every transition of the machine once, so even the smallest demo covers
all of them. The others are drawn with a seeded Luck, so they do not depend on scheduling or on when the worker is
killed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from interlock.examples.order import (
    ATTEMPTS_MAX,
    Cancel,
    CancelConfirmed,
    Deliver,
    InventoryReserved,
    Item,
    Order,
    OrderEvent,
    PaymentSucceeded,
    RefundComplete,
    RefundRequest,
    Ship,
    State,
    Submit,
    order,
)
from interlock.testing.campaigns import Luck

SKUS = ("tea", "cup", "pot", "tin", "honey", "spoon")
PIECES_MAX = 4
CANCELLABLE = (State.PENDING, State.PAYMENT_PROCESSING, State.PAYMENT_FAILED)
REFUNDABLE = (State.PAID, State.FULFILLMENT_PENDING, State.SHIPPED, State.DELIVERED)

EMPTY_BASKETS = 0.02
CANCELLED = 0.08
REFUNDED = 0.12
STRAYS = 0.15
TROUBLE_FROM = 100
"""With fewer orders there is neither an outage nor a stall: they would be too short to see."""
STUCK_MAX = 40
STUCK_SHARE = 0.02
STUCK_AFTER = 0.6
"""The share of the orders that precede the first stuck one."""
DECLINES = ((0.80, 0), (0.91, 1), (0.96, 2), (1.0, ATTEMPTS_MAX))
"""Pairs of a cumulative share of the orders and the number of times the bank declines them."""

Part = Literal["stays", "ends", "shows"]
"""The purpose of a life: to be killed, to complete all orders, or to serve the dashboard after the walk."""


class WorkerPart(msgspec.Struct, frozen=True):
    """One life of the worker."""

    folder: str
    orders: int
    seed: int
    part: Part


@dataclass(frozen=True, slots=True)
class Journey:
    """The planned events and faults of one order."""

    items: tuple[Item, ...] = (Item("tea", 2),)
    declines: int = 0
    cancel_in: State | None = None
    refund_in: State | None = None
    stray_in: State | None = None
    """The state in which an event arrives that has no transition there."""
    luck: float = 0.0
    """Selects that event, as a fraction of the possible ones."""
    stuck: bool = False
    """The parcel waits on the packing table until the engine has listed it as stalled."""

    @property
    def plain(self) -> bool:
        """Whether the order reaches the packing table and has no other planned event there."""
        early = (State.PAID, State.FULFILLMENT_PENDING)
        quiet = self.cancel_in is None and self.stray_in is None and self.refund_in not in early
        return bool(self.items) and self.declines < ATTEMPTS_MAX and quiet


GUIDED = (
    Journey(),
    Journey(declines=ATTEMPTS_MAX - 1, refund_in=State.DELIVERED, stray_in=State.SHIPPED),
    Journey(declines=ATTEMPTS_MAX),
    Journey(items=()),
    Journey(cancel_in=State.PAYMENT_PROCESSING, stray_in=State.CANCELLED),
    *(Journey(refund_in=state) for state in REFUNDABLE[:-1]),
)


def journeys(count: int, seed: int) -> Iterator[tuple[str, Journey]]:
    """Yield `count` orders with their journeys, the hand-written ones first."""
    luck = Luck(seed)
    to_stick = stuck_of(count)
    for number in range(1, count + 1):
        journey = GUIDED[number - 1] if number <= len(GUIDED) else _draw(luck)
        if to_stick and number > STUCK_AFTER * count and journey.plain:
            to_stick -= 1
            journey = replace(journey, stuck=True)
        yield f"order-{number:06}", journey


def _draw(luck: Luck) -> Journey:
    roll = luck.chance.fraction()
    return Journey(
        items=() if luck.often(EMPTY_BASKETS) else _basket(luck),
        declines=next(times for share, times in DECLINES if roll < share),
        cancel_in=luck.one(CANCELLABLE) if luck.often(CANCELLED) else None,
        refund_in=luck.one(REFUNDABLE) if luck.often(REFUNDED) else None,
        stray_in=luck.one(tuple(State)) if luck.often(STRAYS) else None,
        luck=luck.chance.fraction(),
    )


def _basket(luck: Luck) -> tuple[Item, ...]:
    first = luck.count(0, len(SKUS) - 1)
    chosen = [SKUS[(first + offset) % len(SKUS)] for offset in range(luck.count(1, 3))]
    return tuple(Item(sku, luck.count(1, PIECES_MAX)) for sku in chosen)


def stuck_of(count: int) -> int:
    """Return how many of `count` orders get stuck."""
    return min(STUCK_MAX, int(STUCK_SHARE * count)) if count >= TROUBLE_FROM else 0


def wish(journey: Journey, state: State, context: Order) -> OrderEvent | None:
    """Return the next event that the customer sends; None when a step sends it."""
    # Cancel during the payment only when there is an intent, so that the bank has something to void.
    started = state is not State.PAYMENT_PROCESSING or context.payment_intent_id is not None
    event: OrderEvent | None = None
    if journey.refund_in is state:
        event = RefundRequest(reason="does not fit")
    elif journey.cancel_in is state and started:
        event = Cancel(reason="changed my mind")
    elif state is State.PENDING:
        event = Submit() if context.items else Cancel(reason="nothing in the basket")
    elif state is State.PAYMENT_FAILED:
        tired = context.failed_attempts >= ATTEMPTS_MAX
        event = Cancel(reason="the card was declined three times") if tired else Submit()
    elif state is State.FULFILLMENT_PENDING:
        event = Ship(shipment_id=f"shp-{context.order_id}")
    elif state is State.SHIPPED:
        event = Deliver()
    return event


def hopeless(state: State, context: Order) -> OrderEvent | None:
    """Return an event that a guard refuses in this state, or None."""
    empty = state is State.PENDING and not context.items
    tired = state is State.PAYMENT_FAILED and context.failed_attempts >= ATTEMPTS_MAX
    return Submit() if empty or tired else None


def stray(state: State, luck: float) -> OrderEvent:
    """Return an event that has no transition from this state."""
    events: tuple[OrderEvent, ...] = (
        Cancel(reason="too late"),
        PaymentSucceeded("pi-delivered-twice"),
        Deliver(),
        Ship(shipment_id="shp-stray"),
        RefundComplete("rf-stray"),
        InventoryReserved(),
        CancelConfirmed(),
    )
    possible = [event for event in events if not order.can(state, event)]
    return possible[int(luck * len(possible))]


# --- Bank and warehouse ----------------------------------------------------------------------------------------------
# External services with faults and books, which survive every kill: they run in the process that kills. Both honour
# idempotency keys as a payment provider does: a second call with the same key returns the same answer and does nothing
# more. Some calls fail before anything was done, some answers are lost, some are late. During an outage the bank
# refuses every call. The books have one entry per deed.

FAILED, LOST, SLOW = 0.04, 0.08, 0.12
"""The share of first calls up to which the call fails, up to which the answer is lost, and up to which it is late."""

LATE_S = 0.4
"""The longest delay of an answer."""

FAULTS = frozenset({"failed", "lost", "slow", "refused"})
"""Entries of the books that record a fault, not a deed."""

Operation = Literal["create_intent", "confirm", "cancel", "reserve", "release"]
Verdict = Literal["done", "declined", "failed", "lost", "down"]


class BookEntry(NamedTuple):
    """An entry of the books: the deed, the order and the idempotency key."""

    deed: str
    order: str
    key: str


class BankCall(NamedTuple):
    """A request to the bank or the warehouse."""

    operation: Operation
    order: str
    key: str
    declines: int = 0
    """How often this customer's card is declined, as with the test cards of a real provider."""


class Bank:
    """A payment provider and a warehouse. It does nothing twice under one key, and writes every deed to the books."""

    def __init__(self, seed: int) -> None:
        self.books: list[BookEntry] = []
        """Everything that was done or went wrong, in order."""
        self.down = False
        """True during an outage of the bank. The warehouse never has one."""
        self.refused = 0
        """Calls during an outage."""
        self._seed = seed
        self._known: dict[str, str] = {}
        """The deed of each key that had an effect."""
        self._declined: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._called_keys: set[str] = set()

    def answer(self, call: BankCall) -> tuple[Verdict, float]:
        """Execute the call, once per key. Return the answer and its delay in seconds."""
        if call.operation == "release":
            self._once("released", call.order, f"{call.key}:release")
            return "done", 0.0
        if self.down and call.operation != "reserve":
            self.refused += 1
            self.books.append(BookEntry("refused", call.order, call.key))
            return "down", 0.0
        luck = self._luck(call)
        if luck < FAILED:
            self.books.append(BookEntry("failed", call.order, call.key))
            return "failed", 0.0
        verdict = self._do(call)
        if luck < LOST:
            self.books.append(BookEntry("lost", call.order, call.key))
            return "lost", 0.0
        if luck < SLOW:
            self.books.append(BookEntry("slow", call.order, call.key))
            return verdict, LATE_S * (luck - LOST) / (SLOW - LOST)
        return verdict, 0.0

    def _do(self, call: BankCall) -> Verdict:
        order_id = call.order
        if call.operation == "confirm":
            declines = self._declined.get(order_id, 0) < call.declines
            return "done" if self._once("declined" if declines else "charged", order_id, call.key) else "declined"
        if call.operation == "cancel":
            if self._charged.get(order_id, 0) > 0:
                self._once("refunded", order_id, call.key)
        elif call.operation == "reserve":
            self._once("reserved", order_id, call.key)
        return "done"

    def _once(self, deed: str, order_id: str, key: str) -> bool:
        """Do the deed unless the key already has one. Return False when the deed of the key is a decline."""
        if key not in self._known:
            self.books.append(BookEntry(deed, order_id, key))
            self._known[key] = deed
            if deed == "declined":
                self._declined[order_id] = self._declined.get(order_id, 0) + 1
            elif deed in {"charged", "refunded"}:
                self._charged[order_id] = self._charged.get(order_id, 0) + (1 if deed == "charged" else -1)
        return self._known[key] != "declined"

    def _luck(self, call: BankCall) -> float:
        """Draw the fault of a call in [0, 1]. Only first calls have faults; a retry gets 1.0."""
        if call.key in self._called_keys:
            return 1.0
        self._called_keys.add(call.key)
        digest = hashlib.blake2b(f"{self._seed}/{call.order}/{call.operation}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") / 2**32


def home_in(folder: Path) -> str:
    """Return the URL of the engine's home in the demo's folder."""
    return f"lanes://{folder / 'home'}"
