"""A small machine that has everything a transaction may owe: a step, an effect, a timer, and a guard that says no."""

from dataclasses import dataclass, replace
from enum import Enum

from interlock import Event, Machine, StepContext


class State(Enum):
    DRAFT, PAYING, PAID = "draft", "paying", "paid"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    note: str = ""


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Note(OrderEvent):
    text: str


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


@dataclass(frozen=True)
class Paid(OrderEvent):
    pass


@dataclass(frozen=True)
class Expire(OrderEvent):
    pass


order = Machine("order", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, final={State.PAID})


@order.on(Note, State.DRAFT)
def note(order: Order, event: Note) -> Order:
    return replace(order, note=event.text)


def costs_something(order: Order, event: Submit) -> bool:
    """The order costs something."""
    return event.cents > 0


@order.on(Submit, State.DRAFT, to=State.PAYING, when=costs_something)
def submit(order: Order, event: Submit) -> Order:
    return replace(order, cents=event.cents)


order.on(Paid, State.PAYING, to=State.PAID)
order.on(Expire, State.DRAFT, to=State.PAID)
order.after(State.DRAFT, after_s=86_400, send=Expire())

paid: list[str] = []
mailed: list[str] = []
"""The keys of what was done, in this process."""


@order.step(State.PAYING, timeout_s=5)
async def pay(order: Order, ctx: StepContext) -> Paid:
    paid.append(ctx.workflow)
    return Paid()


@order.effect(State.PAYING)
async def mail(order: Order, ctx: StepContext) -> None:
    mailed.append(ctx.workflow)
