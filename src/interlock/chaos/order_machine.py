"""The machine of the experiments' orders.

An order is reserved, charged and shipped in two legs, or compensated. Every result carries the key of its run, so that
history shows whether one was applied twice. Shipping re-enters its own state: a worker that wakes up late finds the
order in the same state and another visit, where only the fence refuses its old result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, Protocol

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Breaker, Dependency, Retry
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


class ChaosState(Enum):
    """States of an order."""

    NEW = "new"
    RESERVING = "reserving"
    CHARGING = "charging"
    SHIPPING = "shipping"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ChaosOrder:
    """One order."""

    number: int = 0
    charge: str = ""
    legs: int = 0


class ChaosOrderEvent(Event):
    """Base of the events of orders."""


@dataclass(frozen=True)
class Submit(ChaosOrderEvent):
    """The customer means it."""


@dataclass(frozen=True)
class Cancel(ChaosOrderEvent):
    """The customer has changed their mind."""


@dataclass(frozen=True)
class Reserved(ChaosOrderEvent):
    """The warehouse keeps it."""

    run: str


@dataclass(frozen=True)
class Charged(ChaosOrderEvent):
    """The gateway has the money."""

    run: str


@dataclass(frozen=True)
class Collected(ChaosOrderEvent):
    """The carrier has it."""

    run: str


@dataclass(frozen=True)
class Delivered(ChaosOrderEvent):
    """The customer has it."""

    run: str


order = Machine(
    "chaos-order",
    states=ChaosState,
    context=ChaosOrder,
    events=ChaosOrderEvent,
    initial=ChaosState.NEW,
    final={ChaosState.DONE, ChaosState.CANCELLED},
    unwind={ChaosState.UNDOING: ChaosState.CANCELLED},
)

order.on(Submit, ChaosState.NEW, to=ChaosState.RESERVING)
order.on(Reserved, ChaosState.RESERVING, to=ChaosState.CHARGING)
order.on(Delivered, ChaosState.SHIPPING, to=ChaosState.DONE)
order.on(Cancel, ChaosState.NEW, ChaosState.RESERVING, ChaosState.CHARGING, to=ChaosState.UNDOING)


@order.on(Charged, ChaosState.CHARGING, to=ChaosState.SHIPPING)
def charged(order: ChaosOrder, event: Charged) -> ChaosOrder:
    """Note the charge."""
    return replace(order, charge=event.run)


@order.on(Collected, ChaosState.SHIPPING, to=ChaosState.SHIPPING)
def collected(order: ChaosOrder, event: Collected) -> ChaosOrder:
    """Count the leg. The event says which run it was."""
    del event
    return replace(order, legs=order.legs + 1)


@order.step(ChaosState.RESERVING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=WAREHOUSE, failed=ChaosState.UNDOING)
async def reserve(order: ChaosOrder, ctx: StepContext) -> Reserved:
    """Have the warehouse keep it."""
    del order
    await outside[-1].ask("reserve", ctx)
    return Reserved(ctx.key)


@reserve.undo(Reserved)
async def release(order: ChaosOrder, done: Reserved | None, ctx: StepContext) -> None:
    """Put it back."""
    del order, done
    await outside[-1].ask("release", ctx)


@order.step(ChaosState.CHARGING, timeout_s=TIMEOUT_S, retry=CHARGES, dependency=GATEWAY, failed=ChaosState.UNDOING)
async def charge(order: ChaosOrder, ctx: StepContext) -> Charged:
    """Take the money."""
    del order
    await outside[-1].ask("charge", ctx)
    return Charged(ctx.key)


@charge.undo(Charged)
async def refund(order: ChaosOrder, done: Charged | None, ctx: StepContext) -> None:
    """Give it back."""
    del order, done
    await outside[-1].ask("refund", ctx)


@order.step(ChaosState.SHIPPING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=CARRIER, failed=ChaosState.UNDOING)
async def ship(order: ChaosOrder, ctx: StepContext) -> Collected | Delivered:
    """Have it collected, then delivered."""
    if order.legs == 0:
        await outside[-1].ask("collect", ctx)
        return Collected(ctx.key)
    await outside[-1].ask("deliver", ctx)
    return Delivered(ctx.key)


class Shop(NamedTuple):
    """A machine of orders, as a worker serves it."""

    machine: Machine[Any, Any, Any]
    first: Callable[[int], object]
    """Return the context of a new order, by its number."""
    events: Mapping[str, Event]
    """The events that customers send: submit and cancel."""
    options: Mapping[str, Any]
    """Further options of `Engine.open`."""


SHOP = Shop(
    order, ChaosOrder, {"submit": Submit(), "cancel": Cancel()}, {"dependencies": OUTSIDE, "undo_timeout_s": TIMEOUT_S}
)
