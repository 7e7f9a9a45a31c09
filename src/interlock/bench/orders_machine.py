"""The order that `interlock bench orders` moves: five states and four steps that do nothing.

What is measured is the price of durability, so nothing else may cost anything. The second machine is the same order
without steps, for clients that send its four events themselves.
"""

from dataclasses import dataclass
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext

TRANSITIONS = 4


class State(Enum):
    """Where the order is."""

    RECEIVED = "received"
    CHARGED = "charged"
    RESERVED = "reserved"
    PACKED = "packed"
    SHIPPED = "shipped"


@dataclass(frozen=True)
class Order:
    """The context."""

    cents: int = 0


class OrderEvent(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Charge(OrderEvent):
    """The first step is done; the others follow."""


@dataclass(frozen=True)
class Reserve(OrderEvent):
    """The second."""


@dataclass(frozen=True)
class Pack(OrderEvent):
    """The third."""


@dataclass(frozen=True)
class Ship(OrderEvent):
    """The last."""


def _declared(name: str) -> Machine[State, Order, OrderEvent]:
    machine = Machine(
        name, states=State, context=Order, events=OrderEvent, initial=State.RECEIVED, final={State.SHIPPED}, version=1
    )
    machine.on(Charge, State.RECEIVED, to=State.CHARGED)
    machine.on(Reserve, State.CHARGED, to=State.RESERVED)
    machine.on(Pack, State.RESERVED, to=State.PACKED)
    machine.on(Ship, State.PACKED, to=State.SHIPPED)
    return machine


stepped = _declared("order")
sent = _declared("sent_order")
EVENTS: tuple[OrderEvent, ...] = (Charge(), Reserve(), Pack(), Ship())


@stepped.step(State.RECEIVED, timeout_s=10)
async def charge(order: Order, ctx: StepContext) -> Charge:
    """The first step; like the others it does nothing."""
    del order, ctx
    return Charge()


@stepped.step(State.CHARGED, timeout_s=10)
async def reserve(order: Order, ctx: StepContext) -> Reserve:
    """The second."""
    del order, ctx
    return Reserve()


@stepped.step(State.RESERVED, timeout_s=10)
async def pack(order: Order, ctx: StepContext) -> Pack:
    """The third."""
    del order, ctx
    return Pack()


@stepped.step(State.PACKED, timeout_s=10)
async def ship(order: Order, ctx: StepContext) -> Ship:
    """The last."""
    del order, ctx
    return Ship()
