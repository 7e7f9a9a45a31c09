"""A machine without steps, for both sides of the wire."""

from dataclasses import dataclass, replace
from enum import Enum

from interlock import Event, Machine


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    DONE = "done"
    CANCELLED = "cancelled"
    PARKED = "parked"


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
class Charged(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


@dataclass(frozen=True)
class Park(OrderEvent):
    pass


@dataclass(frozen=True)
class Note(OrderEvent):
    text: str


order: Machine[State, Order, OrderEvent] = Machine(
    "order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.DRAFT,
    final={State.DONE, State.CANCELLED},
    resting={State.PARKED},
)


def affordable(order: Order, event: Submit) -> bool:
    """The amount is between 1 cent and 100 euros."""
    return 0 < event.cents <= 10_000


@order.on(Submit, State.DRAFT, to=State.CHARGING, when=affordable)
def submit(order: Order, event: Submit) -> Order:
    return replace(order, cents=event.cents)


@order.on(Note, State.DRAFT, State.CHARGING)
def note(order: Order, event: Note) -> Order:
    return replace(order, note=event.text)


order.on(Charged, State.CHARGING, to=State.DONE)
order.on(Cancel, State.DRAFT, State.CHARGING, to=State.CANCELLED)
order.on(Park, State.DRAFT, to=State.PARKED)
