"""Order machine of the experiments: an order is reserved, charged and shipped in two legs, or compensated.

Every result carries the key of its run, so that history shows whether one was applied twice. Shipping re-enters its
own state: a worker that wakes up late finds the order in the same state and another visit, where only the fence
refuses its old result.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from interlock.core.breakers import Breaker
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Dependency, Retry
from interlock.core.values import StepContext

TIMEOUT_S = 30.0
"""Longer than any scenario makes a call hang, so that calls fail by refusal and never by timeout."""

CHARGES = Retry(attempts=6, first_s=0.05, max_s=0.3)
"""All attempts take less than a second: an outage that consumes attempts exhausts them, and the audit finds it."""

PATIENT = Retry(attempts=1_000, first_s=0.05, max_s=0.3)
PLACES = 10
RESET_S = 0.4
RATE_PER_S = 1_000.0

GATEWAY, WAREHOUSE, CARRIER = "gateway", "warehouse", "carrier"
_BREAKER = Breaker(failures=5, reset_s=RESET_S)
OUTSIDE = [
    Dependency(GATEWAY, PLACES, rate_per_s=RATE_PER_S, breaker=_BREAKER, budget=1),
    Dependency(WAREHOUSE, PLACES, breaker=_BREAKER, budget=1),
    Dependency(CARRIER, 3 * PLACES, breaker=_BREAKER, budget=1),
]


class ExternalServices(Protocol):
    """The external services, as a step sees them."""

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Do the deed once for this key. Raises when it was refused or its outcome is unknown."""
        ...


outside: list[ExternalServices] = []
"""The services that the steps of this process call: the last entry."""


class State(Enum):
    """States of an order."""

    NEW = "new"
    RESERVING = "reserving"
    CHARGING = "charging"
    SHIPPING = "shipping"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    """One order."""

    number: int = 0
    charge: str = ""
    legs: int = 0


class OrderEvent(Event):
    """Base of the events of orders."""


@dataclass(frozen=True)
class Submit(OrderEvent):
    """The customer means it."""


@dataclass(frozen=True)
class Cancel(OrderEvent):
    """The customer has changed their mind."""


@dataclass(frozen=True)
class Reserved(OrderEvent):
    """The warehouse keeps it."""

    run: str


@dataclass(frozen=True)
class Charged(OrderEvent):
    """The gateway has the money."""

    run: str


@dataclass(frozen=True)
class Collected(OrderEvent):
    """The carrier has it."""

    run: str


@dataclass(frozen=True)
class Delivered(OrderEvent):
    """The customer has it."""

    run: str


order = Machine(
    "chaos-order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.NEW,
    final={State.DONE, State.CANCELLED},
    unwind={State.UNDOING: State.CANCELLED},
)

order.on(Submit, State.NEW, to=State.RESERVING)
order.on(Reserved, State.RESERVING, to=State.CHARGING)
order.on(Delivered, State.SHIPPING, to=State.DONE)
order.on(Cancel, State.NEW, State.RESERVING, State.CHARGING, to=State.UNDOING)


@order.on(Charged, State.CHARGING, to=State.SHIPPING)
def charged(order: Order, event: Charged) -> Order:
    """Note the charge."""
    return replace(order, charge=event.run)


@order.on(Collected, State.SHIPPING, to=State.SHIPPING)
def collected(order: Order, event: Collected) -> Order:
    """Count the leg. The event says which run it was."""
    del event
    return replace(order, legs=order.legs + 1)


@order.step(State.RESERVING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=WAREHOUSE, failed=State.UNDOING)
async def reserve(order: Order, ctx: StepContext) -> Reserved:
    """Have the warehouse keep it."""
    del order
    await outside[-1].ask("reserve", ctx)
    return Reserved(ctx.key)


@reserve.undo(Reserved)
async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
    """Put it back."""
    del order, done
    await outside[-1].ask("release", ctx)


@order.step(State.CHARGING, timeout_s=TIMEOUT_S, retry=CHARGES, dependency=GATEWAY, failed=State.UNDOING)
async def charge(order: Order, ctx: StepContext) -> Charged:
    """Take the money."""
    del order
    await outside[-1].ask("charge", ctx)
    return Charged(ctx.key)


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    """Give it back."""
    del order, done
    await outside[-1].ask("refund", ctx)


@order.step(State.SHIPPING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=CARRIER, failed=State.UNDOING)
async def ship(order: Order, ctx: StepContext) -> Collected | Delivered:
    """Have it collected, then delivered."""
    if order.legs == 0:
        await outside[-1].ask("collect", ctx)
        return Collected(ctx.key)
    await outside[-1].ask("deliver", ctx)
    return Delivered(ctx.key)
