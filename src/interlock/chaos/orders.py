"""The orders of the experiments: their machine, and the customers who place them.

An order is reserved, charged and shipped in two legs, or compensated. Every result carries the key of its run, so that
history shows whether one was applied twice. Shipping re-enters its own state: a worker that wakes up late finds the
order in the same state and another visit, where only the fence refuses its old result.
"""

from collections import Counter, deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

from interlock.chaos.messages import Acknowledged, Operation, Refused
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Breaker, Dependency, Retry
from interlock.core.values import StepContext

# --- Machine ---------------------------------------------------------------------------------------------------------

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


# --- Customers -------------------------------------------------------------------------------------------------------
# An order is started, submitted, and, one in five, cancelled again. Each operation has its delivery key and goes to
# the least busy worker, so that the events of one order arrive at different nodes. An operation that a dead worker
# had not answered goes to another worker, with the same key.

CANCELLED_EVERY, CANCELLED = 5, 1
STARTED, SUBMITTED, CANCEL = "start", "submit", "cancel"


class Acknowledgement(NamedTuple):
    """The acknowledgement of one operation."""

    operation: Operation
    version: int
    state: str
    ignored: bool


class Customers:
    """All customers of one scenario."""

    def __init__(self) -> None:
        self.acknowledgements: list[Acknowledgement] = []
        """Every acknowledgement, in the order they came."""
        self.refused: list[tuple[Operation, str]] = []
        self.repeated: Counter[str] = Counter()
        """Why operations were repeated, by the code of the error."""
        self.orders: dict[str, int] = {}
        """The numbers of the orders that were placed, by their ids."""
        self.ended: dict[str, str] = {}
        """The final states that workers have reported."""
        self.received: Counter[int] = Counter()
        """How many operations each worker has received."""
        self._ready: deque[Operation] = deque()
        self._assigned: dict[int, tuple[Operation, int]] = {}
        self._operations = 0

    def place(self) -> str:
        """Place another order; return its id."""
        number = len(self.orders) + 1
        workflow = f"order-{number}"
        self.orders[workflow] = number
        self._queue_operation(STARTED, workflow)
        return workflow

    def next(self, worker: int) -> Operation | None:
        """Return the next operation for a worker; None if no operation is pending."""
        if not self._ready:
            return None
        operation = self._ready.popleft()
        self._assigned[operation.number] = (operation, worker)
        self.received[worker] += 1
        return operation

    def asked_of(self, worker: int) -> int:
        """Return how many operations a worker has not answered yet."""
        return sum(assignee == worker for _, assignee in self._assigned.values())

    def answered(self, answer: Acknowledged | Refused) -> None:
        """Record a worker's answer, and queue the operation that follows."""
        operation, _ = self._assigned.pop(answer.number)
        if isinstance(answer, Refused):
            self.refused.append((operation, answer.code))
            return
        self.acknowledgements.append(Acknowledgement(operation, answer.version, answer.state, answer.ignored))
        if operation.what == STARTED:
            self._queue_operation(SUBMITTED, operation.workflow)
        elif operation.what == SUBMITTED and operation.order % CANCELLED_EVERY == CANCELLED:
            self._queue_operation(CANCEL, operation.workflow)

    def put_back(self, worker: int) -> None:
        """Queue the unanswered operations of a dead worker again; their outcome is unknown."""
        for number, (operation, assignee) in list(self._assigned.items()):
            if assignee == worker:
                del self._assigned[number]
                self._ready.appendleft(operation)

    @property
    def answered_all(self) -> bool:
        """Return whether every operation was answered."""
        return not self._ready and not self._assigned

    @property
    def quiet(self) -> bool:
        """Return whether every operation was answered and every order has ended."""
        return self.answered_all and len(self.ended) == len(self.orders)

    @property
    def open(self) -> list[str]:
        """Return the orders whose end was not reported."""
        return [workflow for workflow in self.orders if workflow not in self.ended]

    def _queue_operation(self, what: str, workflow: str) -> None:
        self._operations += 1
        number = self._operations
        self._ready.append(Operation(number, what, workflow, self.orders[workflow], f"{what}-{workflow}"))
