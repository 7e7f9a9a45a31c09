"""What the server of these tests serves: the orders and checkouts of the examples, and two machines for what
those never do.

It is imported by the server's process alone. The world outside behaves by what is asked of it: a card that declines, an
article that is gone, a bank that refuses to give back, a carrier that fails or never answers.
"""

import asyncio
from dataclasses import dataclass, replace
from enum import Enum

from interlock import App, Breaker, Dependency, Event, Machine, NonRetryable, Retry, Retryable, StepContext
from interlock.examples.checkout import checkout
from interlock.examples.order import order
from interlock.examples.world import FakePayments, FakeWarehouse, world
from tests.browser.hostile import HOSTILE, HOSTILE_NAME

NAME = "tests.browser.served:app"


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
    machines=[order, checkout, parcel, memo],
    dependencies=[
        Dependency("payments", concurrency_max=64),
        Dependency("warehouse"),
        Dependency(HOSTILE_NAME, concurrency_max=4, breaker=Breaker(failures=4, reset_s=3_600)),
    ],
)
