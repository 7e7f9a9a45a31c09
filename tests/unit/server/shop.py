"""A shop with two machines: an order with everything that can be owed, and a ticket that shares an event's name."""

from dataclasses import dataclass, replace
from enum import Enum

from interlock import App, Event, Machine, NonRetryable, Retry, StepContext

NAME = "tests.unit.server.shop:app"


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    note: str = ""


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


@dataclass(frozen=True)
class Remark(OrderEvent):
    note: str = ""


@dataclass(frozen=True)
class Charged(OrderEvent):
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


order.on(Charged, State.CHARGING, to=State.DONE)
order.on(Cancel, State.DRAFT, State.CHARGING, to=State.UNDOING)


@order.step(State.CHARGING, timeout_s=30, retry=Retry(attempts=1), dependency="gateway")
async def charge(order: Order, ctx: StepContext) -> Charged:
    if order.cents == 13:
        raise NonRetryable("the card was declined")
    return Charged()


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    raise NonRetryable("the gateway has forgotten it")


order.dwell(State.CHARGING, max_s=120)
order.task(State.DRAFT, role="clerk", title="Submit {cents}: {note}", events=(Submit, Cancel))


class TicketState(Enum):
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True)
class Ticket:
    title: str = ""


class TicketEvent(Event):
    pass


@dataclass(frozen=True)
class Close(TicketEvent):
    pass


@dataclass(frozen=True)
class TicketRemark(TicketEvent):
    wire_name = "REMARK"
    note: str


ticket = Machine(
    "ticket",
    states=TicketState,
    context=Ticket,
    events=TicketEvent,
    initial=TicketState.OPEN,
    final={TicketState.CLOSED},
)
ticket.on(Close, TicketState.OPEN, to=TicketState.CLOSED)


@ticket.on(TicketRemark, TicketState.OPEN)
def retitled(ticket: Ticket, event: TicketRemark) -> Ticket:
    return replace(ticket, title=event.note)


app = App(machines=[order, ticket])
