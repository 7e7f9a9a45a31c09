"""Order machine of `interlock bench orders`: five states and four steps that do nothing.

Only the price of durability is measured, so the steps must cost nothing. The second machine is the same order without
steps, for clients that send its four events themselves.
"""

from dataclasses import dataclass
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext

TRANSITIONS = 4


class State(Enum):
    """States of an order."""

    RECEIVED = "received"
    CHARGED = "charged"
    RESERVED = "reserved"
    PACKED = "packed"
    SHIPPED = "shipped"


@dataclass(frozen=True)
class Order:
    """Context of an order."""

    cents: int = 0


class OrderEvent(Event):
    """Base of the events of an order."""


@dataclass(frozen=True)
class Charge(OrderEvent):
    """The first step is done."""


@dataclass(frozen=True)
class Reserve(OrderEvent):
    """The second step is done."""


@dataclass(frozen=True)
class Pack(OrderEvent):
    """The third step is done."""


@dataclass(frozen=True)
class Ship(OrderEvent):
    """The last step is done."""


def _declare(name: str) -> Machine[State, Order, OrderEvent]:
    machine = Machine(
        name, states=State, context=Order, events=OrderEvent, initial=State.RECEIVED, final={State.SHIPPED}, version=1
    )
    machine.on(Charge, State.RECEIVED, to=State.CHARGED)
    machine.on(Reserve, State.CHARGED, to=State.RESERVED)
    machine.on(Pack, State.RESERVED, to=State.PACKED)
    machine.on(Ship, State.PACKED, to=State.SHIPPED)
    return machine


stepped = _declare("order")
sent = _declare("sent_order")
EVENTS: tuple[OrderEvent, ...] = (Charge(), Reserve(), Pack(), Ship())


@stepped.step(State.RECEIVED, timeout_s=10)
async def charge(order: Order, ctx: StepContext) -> Charge:
    """Do nothing, as the first step."""
    del order, ctx
    return Charge()


@stepped.step(State.CHARGED, timeout_s=10)
async def reserve(order: Order, ctx: StepContext) -> Reserve:
    """Do nothing, as the second step."""
    del order, ctx
    return Reserve()


@stepped.step(State.RESERVED, timeout_s=10)
async def pack(order: Order, ctx: StepContext) -> Pack:
    """Do nothing, as the third step."""
    del order, ctx
    return Pack()


@stepped.step(State.PACKED, timeout_s=10)
async def ship(order: Order, ctx: StepContext) -> Ship:
    """Do nothing, as the last step."""
    del order, ctx
    return Ship()
