"""A machine with everything that can be owed: a step, an undo, an effect and timers of all three policies."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from interlock import Event, Machine, Retry, StepContext

NAME = "tests.unit.cli.shop:order"


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    PACKING = "packing"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    note: str = ""
    size: Size = Size.SMALL
    due: datetime | None = None


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


@dataclass(frozen=True)
class Remark(OrderEvent):
    note: str


@dataclass(frozen=True)
class Charged(OrderEvent):
    pass


@dataclass(frozen=True)
class Packed(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


order = Machine(
    "order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.DRAFT,
    final={State.DONE, State.CANCELLED},
    unwind={State.UNDOING: State.CANCELLED},
    search=("cents", "note"),
)


def affordable(order: Order, event: Submit) -> bool:
    """The amount is between 1 cent and 100 euros."""
    return 0 < event.cents <= 10_000


@order.on(Submit, State.DRAFT, to=State.CHARGING, when=affordable)
def submit(order: Order, event: Submit) -> Order:
    return replace(order, cents=event.cents)


@order.on(Remark, State.DRAFT)
def remark(order: Order, event: Remark) -> Order:
    return replace(order, note=event.note)


order.on(Charged, State.CHARGING, to=State.PACKING)
order.on(Packed, State.PACKING, to=State.DONE)
order.on(Cancel, State.DRAFT, State.CHARGING, State.PACKING, to=State.UNDOING)


@order.step(State.CHARGING, timeout_s=30, retry=Retry(attempts=3))
async def charge(order: Order, ctx: StepContext) -> Charged:
    return Charged()


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    pass


@order.effect(State.DONE, dependency="gateway")
async def mail(order: Order, ctx: StepContext) -> None:
    pass


order.after(State.DRAFT, after_s=3_600, send=Cancel())
order.after(State.CHARGING, after_s=3_600, send=Cancel(), policy="remaining")
order.after(State.PACKING, after_s=3_600, send=Cancel(), policy="restart")
order.dwell(State.CHARGING, max_s=120)


class TicketState(Enum):
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True)
class Ticket:
    title: str


class TicketEvent(Event):
    pass


@dataclass(frozen=True)
class Close(TicketEvent):
    pass


ticket = Machine(
    "ticket",
    states=TicketState,
    context=Ticket,
    events=TicketEvent,
    initial=TicketState.OPEN,
    final={TicketState.CLOSED},
)
ticket.on(Close, TicketState.OPEN, to=TicketState.CLOSED)

both = (order, ticket)
