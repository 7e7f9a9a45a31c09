"""What the server of these tests serves: the orders and checkouts of the examples, and three machines for
what those never do.

It is imported by the server's process alone. The world outside behaves by what is asked of it: a card that declines, an
article that is gone, a bank that refuses to give back, a carrier that fails or never answers.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import Enum

from interlock import App, Breaker, Dependency, Event, Machine, NonRetryable, Retry, Retryable, StepContext
from interlock.examples.checkout import checkout
from interlock.examples.order import order
from interlock.examples.world import FakePayments, FakeWarehouse, world
from tests.browser.hostile import HOSTILE, HOSTILE_NAME

NAME = "tests.browser.served:app"
LIMIT_CENTS = 100_000


class State(Enum):
    PACKED = "packed"
    CARRIED = "carried"
    ARRIVED = "arrived"
    RETURNING = "returning"
    RETURNED = "returned"


@dataclass(frozen=True)
class Parcel:
    fate: str = ""
    label: str = ""


class ParcelEvent(Event):
    pass


@dataclass(frozen=True)
class Hand(ParcelEvent):
    note: str = ""


@dataclass(frozen=True)
class Arrive(ParcelEvent):
    pass


parcel = Machine(
    "parcel",
    states=State,
    context=Parcel,
    events=ParcelEvent,
    initial=State.PACKED,
    final={State.ARRIVED, State.RETURNED},
    unwind={State.RETURNING: State.RETURNED},
)


def has_a_label(parcel: Parcel, event: Hand) -> bool:
    """The parcel has a label."""
    return bool(parcel.label)


@parcel.on(Hand, State.PACKED, to=State.CARRIED, when=has_a_label)
def hand(parcel: Parcel, event: Hand) -> Parcel:
    return replace(parcel, label=f"{parcel.label} {event.note}".strip())


parcel.on(Arrive, State.CARRIED, to=State.ARRIVED)


@parcel.step(
    State.CARRIED,
    timeout_s=3_600,
    retry=Retry(attempts=2, first_s=0.01),
    dependency=HOSTILE_NAME,
    failed=State.RETURNING,
)
async def carry(parcel: Parcel, ctx: StepContext) -> Arrive:
    if parcel.fate == "slow":
        await asyncio.Event().wait()
    if parcel.fate in {"chased", "lost"}:
        raise Retryable(HOSTILE)
    if parcel.fate == "refused":
        raise NonRetryable(HOSTILE)
    return Arrive()


@carry.undo(Arrive)
async def fetch_back(parcel: Parcel, done: Arrive | None, ctx: StepContext) -> None:
    if parcel.fate == "chased":
        await asyncio.Event().wait()
    raise NonRetryable(HOSTILE)


class MemoState(Enum):
    WRITTEN = "written"
    POSTING = "posting"
    POSTED = "posted"


@dataclass(frozen=True)
class Memo:
    text: str = ""


class MemoEvent(Event):
    pass


@dataclass(frozen=True)
class Post(MemoEvent):
    pass


@dataclass(frozen=True)
class Posted(MemoEvent):
    pass


memo = Machine(
    "memo",
    states=MemoState,
    context=Memo,
    events=MemoEvent,
    initial=MemoState.WRITTEN,
    final={MemoState.POSTED},
)
memo.on(Post, MemoState.WRITTEN, to=MemoState.POSTING)
memo.on(Posted, MemoState.POSTING, to=MemoState.POSTED)

tried: set[str] = set()


@memo.step(MemoState.POSTING, timeout_s=30, retry=Retry(attempts=1))
async def post(memo: Memo, ctx: StepContext) -> Posted:
    """It calls nobody, so that no breaker holds it up: the first time it gives up, the second it goes well."""
    if ctx.key not in tried:
        tried.add(ctx.key)
        raise NonRetryable("the postman is ill")
    return Posted()


class PurchaseState(Enum):
    NEW = "new"
    CHARGING = "charging"
    REVIEW = "review"
    APPROVED = "approved"
    GIVING_BACK = "giving_back"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Purchase:
    customer: str = ""
    cents: int = 0
    urgent: bool = False
    placed_on: date | None = None
    fate: str = ""
    tags: tuple[str, ...] = ()


class PurchaseEvent(Event):
    pass


@dataclass(frozen=True)
class Place(PurchaseEvent):
    """The customer places the purchase."""


@dataclass(frozen=True)
class Charged(PurchaseEvent):
    """The money is here."""


@dataclass(frozen=True)
class Approve(PurchaseEvent):
    """Finance approves it."""

    note: str = ""


@dataclass(frozen=True)
class Reject(PurchaseEvent):
    """Finance rejects it."""

    reason: str


class Ribbon(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Amend(PurchaseEvent):
    """Something of every type, so that the form has it."""

    cents: int
    ribbon: Ribbon
    placed_on: date | None = None
    urgent: bool = False
    tags: tuple[str, ...] = ()


purchase = Machine(
    "purchase",
    states=PurchaseState,
    context=Purchase,
    events=PurchaseEvent,
    initial=PurchaseState.NEW,
    final={PurchaseState.APPROVED, PurchaseState.REJECTED},
    search=("customer", "cents", "urgent", "placed_on"),
    unwind={PurchaseState.GIVING_BACK: PurchaseState.REJECTED},
)


def within_the_limit(purchase: Purchase, event: Approve) -> bool:
    """One person approves at most 1,000.00."""
    return purchase.cents <= LIMIT_CENTS


purchase.on(Place, PurchaseState.NEW, to=PurchaseState.CHARGING)
purchase.on(Charged, PurchaseState.CHARGING, to=PurchaseState.REVIEW)
purchase.on(Approve, PurchaseState.REVIEW, to=PurchaseState.APPROVED, when=within_the_limit)
purchase.on(Reject, PurchaseState.REVIEW, to=PurchaseState.GIVING_BACK)


@purchase.on(Amend, PurchaseState.REVIEW)
def amend(purchase: Purchase, event: Amend) -> Purchase:
    return replace(purchase, cents=event.cents, urgent=event.urgent, placed_on=event.placed_on, tags=event.tags)


charged: set[str] = set()


@purchase.step(PurchaseState.CHARGING, timeout_s=30, retry=Retry(attempts=1))
async def charge(purchase: Purchase, ctx: StepContext) -> Charged:
    """A gateway that is down gives up the first time, a blocked card always; each time with other numbers."""
    if purchase.fate == "blocked":
        raise NonRetryable(f"card '{purchase.cents}' is blocked: 402")
    if purchase.fate == "down" and ctx.key not in charged:
        charged.add(ctx.key)
        raise NonRetryable(f"gateway 'gw-{len(charged)}' is down: 503 after {len(charged)} ms")
    return Charged()


@charge.undo(Charged)
async def give_back(purchase: Purchase, done: Charged | None, ctx: StepContext) -> None:
    """The money goes back: the purchase is rejected, or set back to before the charge."""


purchase.task(
    PurchaseState.REVIEW,
    role="finance",
    title="Approve {cents} for {customer}",
    events=(Approve, Reject),
    due=timedelta(days=1),
)


class Bank(FakePayments):
    """It knows by the name of an order what will become of it."""

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        return "declined" not in intent_id and await super().confirm(intent_id, key=key)

    async def cancel(self, intent_id: str, *, key: str) -> None:
        if "kept" in intent_id:
            raise NonRetryable(f"the bank says: {HOSTILE}")
        await super().cancel(intent_id, key=key)


world.payments, world.warehouse = Bank(), FakeWarehouse(sold_out={"gone"})

app = App(
    machines=[order, checkout, parcel, memo, purchase],
    dependencies=[
        Dependency("payments", concurrency_max=64),
        Dependency("warehouse"),
        Dependency(HOSTILE_NAME, concurrency_max=4, breaker=Breaker(failures=4, reset_s=3_600)),
    ],
)
