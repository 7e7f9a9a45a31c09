"""Fulfilment: four machines that work together.

An order starts a parcel for each item and is delivered when all of them are. A refund of more than `FREELY` cents waits
for an approval. It unwinds the order: each parcel is called back first, then the money is returned. A delivered order
tells its customer's account. A schedule starts a settlement each night. `main` walks one order through all of it, in
memory, and prints what happens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol, runtime_checkable

from interlock import Child, Engine, Event, Family, Machine, Schedule, Send, StepContext

FREELY = 10_000
"""Cents that are refunded without an approval."""


# --- Parcel ----------------------------------------------------------------------------------------------------------


class ParcelState(Enum):
    """The states of a parcel."""

    PACKING = "packing"
    UNDERWAY = "underway"
    ARRIVED = "arrived"
    LOST = "lost"
    RETURNED = "returned"


class ParcelEvent(Event):
    """The alphabet of parcels."""


class Packed(ParcelEvent):
    """It was handed to the carrier."""


class Arrived(ParcelEvent):
    """The customer has it."""


class Vanished(ParcelEvent):
    """The carrier has lost it."""


class CallBack(ParcelEvent):
    """It is not wanted any more."""


@dataclass(frozen=True)
class Parcel:
    """What is in a parcel."""

    sku: str
    cents: int


parcel = Machine(
    "parcel",
    states=ParcelState,
    context=Parcel,
    events=ParcelEvent,
    initial=ParcelState.PACKING,
    final={ParcelState.LOST, ParcelState.RETURNED},
    resting={ParcelState.ARRIVED},
)
parcel.on(Packed, ParcelState.PACKING, to=ParcelState.UNDERWAY)
parcel.on(Arrived, ParcelState.UNDERWAY, to=ParcelState.ARRIVED)
parcel.on(Vanished, ParcelState.UNDERWAY, to=ParcelState.LOST)
parcel.on(CallBack, ParcelState.PACKING, ParcelState.UNDERWAY, ParcelState.ARRIVED, to=ParcelState.RETURNED)
parcel.dwell(ParcelState.PACKING, max_s=timedelta(days=2))
parcel.dwell(ParcelState.UNDERWAY, max_s=timedelta(days=7))


# --- Account ---------------------------------------------------------------------------------------------------------


class AccountState(Enum):
    """The states of a customer's account."""

    OPEN = "open"


class AccountEvent(Event):
    """The alphabet of accounts."""


class Bought(AccountEvent):
    """An order of the customer was delivered."""

    order: str
    cents: int


@dataclass(frozen=True)
class Account:
    """What a customer has bought."""

    orders: int = 0
    cents: int = 0


account = Machine(
    "account",
    states=AccountState,
    context=Account,
    events=AccountEvent,
    initial=AccountState.OPEN,
    resting={AccountState.OPEN},
)


@account.on(Bought, AccountState.OPEN)
def bought(account: Account, event: Bought) -> Account:
    """Add the order."""
    return Account(account.orders + 1, account.cents + event.cents)


# --- Order -----------------------------------------------------------------------------------------------------------


@runtime_checkable
class Payments(Protocol):
    """A provider of payments. Both calls are idempotent by their key."""

    async def charge(self, order: str, cents: int, key: str) -> None:
        """Take the money."""
        ...

    async def refund(self, order: str, cents: int, key: str) -> None:
        """Return the money."""
        ...


class FulfilmentState(Enum):
    """The states of an order."""

    CHARGING = "charging"
    FULFILLING = "fulfilling"
    DELIVERED = "delivered"
    APPROVING = "approving"
    UNDOING = "undoing"
    REFUNDED = "refunded"


class FulfilmentEvent(Event):
    """The alphabet of orders."""


class Charged(FulfilmentEvent):
    """The money is there."""


class RefundWanted(FulfilmentEvent):
    """The customer wants the money back."""

    reason: str


class Approved(FulfilmentEvent):
    """A person allows a large refund."""

    by: str


class Declined(FulfilmentEvent):
    """A person refuses it."""

    by: str


@dataclass(frozen=True)
class Line:
    """One article of an order."""

    sku: str
    cents: int


@dataclass(frozen=True)
class Sale:
    """An order."""

    order: str
    customer: str
    lines: tuple[Line, ...]
    arrived: int = 0
    lost: int = 0
    reason: str = ""
    approved_by: str = ""

    @property
    def cents(self) -> int:
        """Its price."""
        return sum(line.cents for line in self.lines)


def is_small(sale: Sale, event: RefundWanted) -> bool:
    """Only refunds up to the limit need no approval."""
    del event
    return sale.cents <= FREELY


fulfilment = Machine(
    "fulfilment",
    states=FulfilmentState,
    context=Sale,
    events=FulfilmentEvent,
    initial=FulfilmentState.CHARGING,
    final={FulfilmentState.REFUNDED},
    resting={FulfilmentState.DELIVERED},
    unwind={FulfilmentState.UNDOING: FulfilmentState.REFUNDED},
)
_SHIPPED = (FulfilmentState.FULFILLING, FulfilmentState.DELIVERED)
fulfilment.dwell(FulfilmentState.FULFILLING, max_s=timedelta(days=14))
fulfilment.on(Charged, FulfilmentState.CHARGING, to=FulfilmentState.FULFILLING)


@fulfilment.on(RefundWanted, *_SHIPPED, to=FulfilmentState.UNDOING, when=is_small)
def refund_small(sale: Sale, event: RefundWanted) -> Sale:
    """Note the reason."""
    return replace(sale, reason=event.reason)


@fulfilment.on(RefundWanted, FulfilmentState.DELIVERED, to=FulfilmentState.APPROVING)
def ask(sale: Sale, event: RefundWanted) -> Sale:
    """Note the reason."""
    return replace(sale, reason=event.reason)


@fulfilment.on(Approved, FulfilmentState.APPROVING, to=FulfilmentState.UNDOING)
def approved(sale: Sale, event: Approved) -> Sale:
    """Note the person."""
    return replace(sale, approved_by=event.by)


fulfilment.on(Declined, FulfilmentState.APPROVING, to=FulfilmentState.DELIVERED)
fulfilment.task(
    FulfilmentState.APPROVING,
    role="support",
    title="Refund order {order} of {customer}: {reason}",
    events=(Approved, Declined),
    due=timedelta(days=2),
)


@fulfilment.step(FulfilmentState.CHARGING, timeout_s=10, dependency="payments")
async def charge(sale: Sale, ctx: StepContext, payments: Payments) -> Charged:
    """Take the money."""
    await payments.charge(sale.order, sale.cents, ctx.key)
    return Charged()


@charge.undo(Charged)
async def give_back(sale: Sale, done: Charged | None, ctx: StepContext, payments: Payments) -> None:
    """Return the money."""
    del done
    await payments.refund(sale.order, sale.cents, ctx.key)


@fulfilment.children(FulfilmentState.FULFILLING, of=parcel, cancel=CallBack())
def parcels(sale: Sale) -> Iterable[Child[Parcel]]:
    """A parcel for each line."""
    return [Child(f"{number}-{line.sku}", Parcel(line.sku, line.cents)) for number, line in enumerate(sale.lines)]


@fulfilment.join(
    FulfilmentState.FULFILLING,
    to=FulfilmentState.UNDOING,
    when=lambda family: family.total > 0 and family.count(ParcelState.LOST) == family.total,
)
def everything_lost(sale: Sale, family: Family) -> Sale:
    """Note that nothing has arrived."""
    return replace(sale, lost=family.count(ParcelState.LOST), reason="everything was lost")


@fulfilment.join(FulfilmentState.FULFILLING, to=FulfilmentState.DELIVERED)
def delivered(sale: Sale, family: Family) -> Sale:
    """Note what has arrived, and what has not."""
    return replace(sale, arrived=family.count(ParcelState.ARRIVED), lost=family.count(ParcelState.LOST))


@fulfilment.sends(FulfilmentState.DELIVERED)
def tell_the_account(sale: Sale) -> Iterable[Send]:
    """The customer's account hears of it once. A declined refund brings the order here again, with an approver."""
    return [] if sale.reason else [Send(sale.customer, Bought(sale.order, sale.cents))]


# --- Settlement ------------------------------------------------------------------------------------------------------


class SettlementState(Enum):
    """The states of a settlement."""

    SETTLING = "settling"
    SETTLED = "settled"


class SettlementEvent(Event):
    """The alphabet of settlements."""


class Settled(SettlementEvent):
    """The books are closed for the day."""


@dataclass(frozen=True)
class Settlement:
    """One day of the books."""

    day: str


@runtime_checkable
class Books(Protocol):
    """The accounting department."""

    async def close(self, day: str, key: str) -> None:
        """Close a day."""
        ...


settlement = Machine(
    "settlement",
    states=SettlementState,
    context=Settlement,
    events=SettlementEvent,
    initial=SettlementState.SETTLING,
    final={SettlementState.SETTLED},
)
settlement.on(Settled, SettlementState.SETTLING, to=SettlementState.SETTLED)
settlement.dwell(SettlementState.SETTLING, max_s=timedelta(hours=3))


@settlement.step(SettlementState.SETTLING, timeout_s=60, irreversible=True)
async def settle(day: Settlement, ctx: StepContext, books: Books) -> Settled:
    """Close the day."""
    await books.close(day.day, ctx.key)
    return Settled()


def day_before(at: datetime) -> Settlement:
    """Settle the day before the due time."""
    return Settlement((at.date() - timedelta(days=1)).isoformat())


nightly = Schedule(
    "settlement",
    settlement,
    cron="0 2 * * *",
    timezone="Europe/Berlin",
    context=day_before,
)
"""Each night the day before is settled."""


# --- Story -----------------------------------------------------------------------------------------------------------


class Till:
    """A provider of payments and books that only prints."""

    async def charge(self, order: str, cents: int, key: str) -> None:
        """Take the money."""
        print(f"charged {cents} cents for {order}, once for the key {key[:6]}…")

    async def refund(self, order: str, cents: int, key: str) -> None:
        """Return the money."""
        print(f"refunded {cents} cents for {order}, once for the key {key[:6]}…")

    async def close(self, day: str, key: str) -> None:
        """Close a day."""
        print(f"settled {day}, once for the key {key[:6]}…")


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that another workflow does."""
    while not await check():  # noqa: ASYNC110 -- a program would wait for a state of its own workflow.
        await asyncio.sleep(0.01)


async def counted(engine: Engine, count: int) -> bool:
    """Whether the parcels have started."""
    return len((await engine.children("o-1")).items) == count


async def knows(engine: Engine) -> bool:
    """Whether the account has heard of the order."""
    return (await engine.get("ada")).context != Account()


async def settled(engine: Engine) -> bool:
    """Whether the day is settled."""
    return bool((await engine.find(settlement, state=SettlementState.SETTLED)).items)


async def main() -> None:
    """Walk the story."""
    async with Engine.open(
        "memory:",
        machines=[fulfilment, parcel, account, settlement],
        provide=[Till()],
        schedules=[nightly],
    ) as engine:
        await engine.start(account, "ada", Account())
        lines = (Line("sofa", 89_900), Line("lamp", 4_900))
        await engine.start(fulfilment, "o-1", Sale("o-1", "ada", lines))
        await engine.wait("o-1", FulfilmentState.FULFILLING)
        await until(lambda: counted(engine, len(lines)))
        for child in (await engine.children("o-1")).items:
            await engine.send(child.id, Packed())
            await engine.send(child.id, Arrived())
        print("delivered:", (await engine.wait("o-1", FulfilmentState.DELIVERED)).context)
        await until(lambda: knows(engine))
        print("the account knows:", (await engine.get("ada")).context)

        await engine.send("o-1", RefundWanted("wrong colour"))
        print("a large refund waits:", (await engine.get("o-1")).state.value)
        await engine.send("o-1", Approved(by="grace"))
        print("refunded:", (await engine.wait("o-1", FulfilmentState.REFUNDED)).state.value)
        for child in (await engine.children("o-1")).items:
            print(child.id, "is", child.state.value)
        await engine.schedules.trigger("settlement")
        await until(lambda: settled(engine))


if __name__ == "__main__":
    asyncio.run(main())
