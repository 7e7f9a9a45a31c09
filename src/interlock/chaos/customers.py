"""Simulated customers: the orders they place, their pending operations, and the acknowledgements they received.

An order is started, submitted, and, one in five, cancelled again. Each operation has its delivery key and goes to
the least busy worker, so that the events of one order arrive at different nodes. An operation that a dead worker had
not answered goes to another worker, with the same key.
"""

from collections import Counter, deque
from typing import NamedTuple

from interlock.chaos.messages import Acknowledged, Operation, Refused

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
        self.told: list[Acknowledgement] = []
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
        self.told.append(Acknowledgement(operation, answer.version, answer.state, answer.ignored))
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
